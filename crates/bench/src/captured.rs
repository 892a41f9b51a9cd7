//! Captures as traffic, as asked for.

use diagnostics::Diagnostic;
use std::path::PathBuf;
use traffic::rewrite::MAX_MAPS;
use traffic::{Rewrite, Tagging};

/// Captures that may be sent at once: one for each direction.
const MOST: usize = 2;
/// Times as fast as captured.
const SPEEDS: std::ops::RangeInclusive<f64> = 1e-6..=1e6;

/// Captures that are to be sent.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Captured {
    /// One file, or one for each direction: the second is sent into the second port.
    pub files: Vec<PathBuf>,
    /// What of their frames is changed.
    pub rewrite: Rewrite,
    /// Whether they keep their own gaps, made longer or shorter until the mean rate is the load; where no load is asked for it is
    /// their own rate times this.
    pub speed: Option<f64>,
}

impl Captured {
    /// One file, as it is, at the load's pace.
    pub fn of(file: PathBuf) -> Captured {
        Captured { files: vec![file], ..Captured::default() }
    }

    /// Itself, if it can be asked for.
    ///
    /// # Errors
    /// The name of what is wrong, as in a scenario, and what is wrong with it.
    pub fn checked(self) -> Result<Captured, (&'static str, Diagnostic)> {
        let wrong = |name, value: String, problem: String, remedy: &str| {
            Err((name, Diagnostic::new(problem).value(value).remedy(remedy)))
        };
        let (files, maps) = (self.files.len(), self.rewrite.prefixes.len());
        match self.speed {
            _ if !(1..=MOST).contains(&files) => {
                let remedy = "give one file, or two: the second is sent into the second port";
                wrong(
                    "capture",
                    files.to_string(),
                    "is no number of captures that can be sent at once".to_owned(),
                    remedy,
                )
            }
            _ if maps > MAX_MAPS => {
                let problem = format!("is more than the {MAX_MAPS} prefixes that can be mapped");
                wrong("rewrite", maps.to_string(), problem, "map fewer, or shorter, prefixes")
            }
            Some(speed) if !SPEEDS.contains(&speed) => {
                let problem = format!("is not {} to {} times as fast as captured", SPEEDS.start(), SPEEDS.end());
                wrong("speed", speed.to_string(), problem, "write 1 for the capture's own speed, 2 for twice that")
            }
            _ => Ok(self),
        }
    }

    /// What is asked for beside the files, as it is written; nothing where they are sent as they are.
    pub(crate) fn asked(&self) -> impl Iterator<Item = (&'static str, String)> {
        let Rewrite { prefixes, tagging } = &self.rewrite;
        let rewrite = (!prefixes.is_empty()).then(|| ("rewrite", self.rewrite.to_string()));
        let vlan = (*tagging != Tagging::Keep).then(|| ("vlan", tagging.to_string()));
        let gaps = self.speed.map(|_| ("gaps", "own".to_owned()));
        [rewrite, vlan, gaps].into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_asked_for_is_named() {
        let one = Captured::of("a.pcap".into());
        assert_eq!(one.clone().checked(), Ok(one.clone()));
        assert_eq!(one.asked().count(), 0);
        let map: traffic::PrefixMap = "10.0.0.0/8=11.0.0.0/8".parse().unwrap();
        let many = Rewrite { prefixes: vec![map; MAX_MAPS + 1], ..Rewrite::default() };
        for (wrong, name) in [
            (Captured { files: vec![], ..one.clone() }, "capture"),
            (Captured { files: vec!["a".into(); 3], ..one.clone() }, "capture"),
            (Captured { rewrite: many, ..one.clone() }, "rewrite"),
            (Captured { speed: Some(0.0), ..one.clone() }, "speed"),
            (Captured { speed: Some(f64::NAN), ..one.clone() }, "speed"),
        ] {
            let (at, d) = wrong.checked().unwrap_err();
            assert_eq!((at, d.value.is_some(), d.remedy.is_some()), (name, true, true), "{d}");
        }
        let all =
            Captured { rewrite: Rewrite { prefixes: vec![map], tagging: Tagging::Strip }, speed: Some(2.0), ..one };
        let asked: Vec<_> = all.checked().unwrap().asked().collect();
        let said = [("rewrite", "10.0.0.0/8=11.0.0.0/8"), ("vlan", "strip"), ("gaps", "own")];
        assert_eq!(asked, said.map(|(name, value)| (name, value.to_owned())));
    }
}
