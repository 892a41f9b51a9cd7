//! Spec of traffic from captures.

use diagnostics::Diagnostic;
use std::path::PathBuf;
use traffic::rewrite::MAX_MAPS;
use traffic::{Rewrite, Tagging};

/// Maximum number of captures, one per direction.
const MAX_FILES: usize = 2;
/// Range of speeds, as multiples of the captured one.
const SPEEDS: std::ops::RangeInclusive<f64> = 1e-6..=1e6;

/// Captures to send.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct CaptureSpec {
    /// One file, or one per direction; the second is sent into the second port.
    pub files: Vec<PathBuf>,
    /// Changes of frames.
    pub rewrite: Rewrite,
    /// Set if captures are sent with their gaps, scaled so that the mean rate equals the load. Without a load, the rate
    /// is the captured one multiplied by this.
    pub speed: Option<f64>,
}

impl CaptureSpec {
    /// Returns a spec for one file, unchanged, at the pace of the load.
    pub fn file(file: PathBuf) -> CaptureSpec {
        CaptureSpec { files: vec![file], ..CaptureSpec::default() }
    }

    /// Checks the spec.
    ///
    /// # Errors
    /// Name of an invalid parameter, and a diagnostic.
    pub fn checked(self) -> Result<CaptureSpec, (&'static str, Diagnostic)> {
        let error = |name, value: String, problem: String, remedy: &str| {
            Err((name, Diagnostic::new(problem).value(value).remedy(remedy)))
        };
        let (files, maps) = (self.files.len(), self.rewrite.prefixes.len());
        match self.speed {
            _ if !(1..=MAX_FILES).contains(&files) => {
                let remedy = "use one file, or two: the second is sent into the second port";
                error("capture", files.to_string(), "is not a valid number of captures".to_owned(), remedy)
            }
            _ if maps > MAX_MAPS => {
                let problem = format!("more than {MAX_MAPS} prefixes");
                error("rewrite", maps.to_string(), problem, "map fewer prefixes")
            }
            Some(speed) if !SPEEDS.contains(&speed) => {
                let problem =
                    format!("is not in the range {} to {} times the captured speed", SPEEDS.start(), SPEEDS.end());
                error("speed", speed.to_string(), problem, "use 1 for the captured speed, 2 for twice that")
            }
            _ => Ok(self),
        }
    }

    /// Returns the parameters that are set, with their names, besides the files.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = (&'static str, String)> {
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
    fn errors_name_the_parameter() {
        let one = CaptureSpec::file("a.pcap".into());
        assert_eq!(one.clone().checked(), Ok(one.clone()));
        assert_eq!(one.parameters().count(), 0);
        let map: traffic::PrefixMap = "10.0.0.0/8=11.0.0.0/8".parse().unwrap();
        let many = Rewrite { prefixes: vec![map; MAX_MAPS + 1], ..Rewrite::default() };
        for (spec, name) in [
            (CaptureSpec { files: vec![], ..one.clone() }, "capture"),
            (CaptureSpec { files: vec!["a".into(); 3], ..one.clone() }, "capture"),
            (CaptureSpec { rewrite: many, ..one.clone() }, "rewrite"),
            (CaptureSpec { speed: Some(0.0), ..one.clone() }, "speed"),
            (CaptureSpec { speed: Some(f64::NAN), ..one.clone() }, "speed"),
        ] {
            let (at, d) = spec.checked().unwrap_err();
            assert_eq!((at, d.value.is_some(), d.remedy.is_some()), (name, true, true), "{d}");
        }
        let all =
            CaptureSpec { rewrite: Rewrite { prefixes: vec![map], tagging: Tagging::Strip }, speed: Some(2.0), ..one };
        let parameters: Vec<_> = all.checked().unwrap().parameters().collect();
        let expected = [("rewrite", "10.0.0.0/8=11.0.0.0/8"), ("vlan", "strip"), ("gaps", "own")];
        assert_eq!(parameters, expected.map(|(name, value)| (name, value.to_owned())));
    }
}
