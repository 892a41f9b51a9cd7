//! What of a result has to be alike before its numbers may be compared.

use report::{Frames, Result};
use std::collections::BTreeMap;

/// The conditions of a measurement, by name: `method`, `goal.trial_s` and the rest of the goal, `frames`, `flows`,
/// `directions`, `burst`, `protocol`, `profile` where there is one, and `cell.NAME` for each parameter of the study.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Cell(pub BTreeMap<String, String>);

/// Names that [`Cell::without`] takes, for people.
pub const KEYS: &str =
    "method, goal, goal.NAME, frames, flows, directions, burst, protocol, profile, cell, cell.NAME, dut";

impl Cell {
    /// Of a result.
    pub fn of(r: &Result) -> Cell {
        let (goal, traffic) = (&r.goal, &r.traffic);
        let frames = match &traffic.frames {
            Frames::FrameBytes(bytes) => bytes.to_string(),
            Frames::Mix(mix) => {
                let parts: Vec<_> = mix.parts.iter().map(|p| format!("{}:{}", p.frame_bytes, p.weight)).collect();
                format!("{} ({})", mix.name, parts.join(" "))
            }
            Frames::Trace(trace) => {
                let short = |hash: &String| hash.get(..12).unwrap_or(hash).to_owned();
                let hashes = [&traffic.trace_sha256, &traffic.back_sha256].into_iter().flatten().map(short);
                let hash = hashes.collect::<Vec<_>>().join(" ");
                format!("{} ({} frames, {hash})", trace.name, trace.frames)
            }
        };
        let quick = if r.method.quick { " (quick)" } else { "" };
        let mut all = BTreeMap::from([
            ("method".to_owned(), format!("{}{quick}", r.method.name)),
            ("goal.trial_s".to_owned(), goal.trial_s.to_string()),
            ("goal.sum_s".to_owned(), goal.sum_s.to_string()),
            ("goal.loss_ratio".to_owned(), goal.loss_ratio.to_string()),
            ("goal.exceed_ratio".to_owned(), goal.exceed_ratio.to_string()),
            ("goal.width".to_owned(), goal.width.to_string()),
            ("goal.method".to_owned(), goal.method.clone()),
            ("frames".to_owned(), frames),
            ("flows".to_owned(), traffic.flows.to_string()),
            ("directions".to_owned(), traffic.directions.to_string()),
            ("burst".to_owned(), traffic.burst.to_string()),
            ("protocol".to_owned(), traffic.protocol.clone()),
        ]);
        // two profiles are the same where the script, its length and what it takes for the line are
        if let Some(profile) = &traffic.profile {
            let line = profile.line_bps.map_or(String::new(), |bps| format!(", line {} Gbit/s", bps / 1e9));
            let hash = profile.sha256.get(..12).unwrap_or(&profile.sha256);
            all.insert("profile".to_owned(), format!("{} ({hash}, {} s{line})", profile.name, profile.seconds));
        }
        all.extend(r.cell.iter().map(|(name, value)| (format!("cell.{name}"), value.clone())));
        Cell(all)
    }

    /// For tables: sizes by their number, before mixes and traces.
    pub fn order(&self) -> (u64, Cell) {
        let bytes = self.0.get("frames").and_then(|frames| frames.parse().ok());
        (bytes.unwrap_or(u64::MAX), self.clone())
    }

    /// Without the conditions named: a name, as `flows`; the beginning of several, as `goal`; or a parameter, as
    /// `isolation` for `cell.isolation`.
    pub fn without(mut self, names: &[String]) -> Cell {
        self.0.retain(|key, _| !names.iter().any(|name| covers(name, key)));
        self
    }

    /// Whether a name stands for one of the conditions.
    pub fn has(&self, name: &str) -> bool {
        self.0.keys().any(|key| covers(name, key))
    }

    /// Conditions that are not those of another, each with both values; `None` where one has none.
    pub fn differences<'a>(&'a self, other: &'a Cell) -> Vec<(&'a str, Option<&'a str>, Option<&'a str>)> {
        let names: std::collections::BTreeSet<&String> = self.0.keys().chain(other.0.keys()).collect();
        let of = |cell: &'a Cell, name: &String| cell.0.get(name).map(String::as_str);
        let all = names.into_iter().map(|name| (name.as_str(), of(self, name), of(other, name)));
        all.filter(|(_, a, b)| a != b).collect()
    }
}

fn covers(name: &str, key: &str) -> bool {
    key == name || key.strip_prefix("cell.") == Some(name) || key.split('.').next() == Some(name)
}
