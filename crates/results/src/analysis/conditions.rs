//! The conditions of a measurement: results are comparable if these are equal.

use report::{Frames, Result};
use std::collections::BTreeMap;

/// The conditions of a measurement, by name: `method`, `goal.trial_duration_s` and the other members of the goal,
/// `frames`, `flows`, `directions`, `burst`, `protocol`, `profile` and `vary` if there are any, and `cell.NAME` for each
/// parameter of the cell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Conditions(pub BTreeMap<String, String>);

/// Names accepted by [`Conditions::without`], for messages.
pub const KEYS: &str =
    "method, goal, goal.NAME, frames, flows, directions, burst, protocol, profile, vary, cell, cell.NAME, dut";

impl Conditions {
    /// Returns the conditions of a result.
    pub fn of(r: &Result) -> Conditions {
        let (goal, traffic) = (&r.goal, &r.traffic);
        let frames = match &traffic.frames {
            Frames::FrameBytes(bytes) => bytes.to_string(),
            Frames::Mix(mix) => {
                let parts: Vec<_> = mix.parts.iter().map(|p| format!("{}:{}", p.frame_bytes, p.weight)).collect();
                format!("{} ({})", mix.name, parts.join(" "))
            }
            Frames::Trace(trace) => {
                let short = |hash: &String| hash.get(..12).unwrap_or(hash).to_owned();
                let hashes = [&traffic.trace_sha256, &traffic.reverse_trace_sha256].into_iter().flatten().map(short);
                let hash = hashes.collect::<Vec<_>>().join(" ");
                format!("{} ({} frames, {hash})", trace.name, trace.frames)
            }
        };
        let quick = if r.method.quick { " (quick)" } else { "" };
        let mut all = BTreeMap::from([
            ("method".to_owned(), format!("{}{quick}", r.method.name)),
            ("goal.trial_duration_s".to_owned(), goal.trial_duration_s.to_string()),
            ("goal.duration_sum_s".to_owned(), goal.duration_sum_s.to_string()),
            ("goal.loss_ratio".to_owned(), goal.loss_ratio.to_string()),
            ("goal.exceed_ratio".to_owned(), goal.exceed_ratio.to_string()),
            ("goal.width".to_owned(), goal.width.to_string()),
            ("goal.search".to_owned(), goal.search.clone()),
            ("frames".to_owned(), frames),
            ("flows".to_owned(), traffic.flows.to_string()),
            ("directions".to_owned(), traffic.directions.to_string()),
            ("burst".to_owned(), traffic.burst.to_string()),
            ("protocol".to_owned(), traffic.protocol.clone()),
        ]);
        // profiles are equal if script, duration and line rate are equal
        if let Some(profile) = &traffic.profile {
            let line = profile.line_rate_bps.map_or(String::new(), |bps| format!(", line {} Gbit/s", bps / 1e9));
            let hash = profile.sha256.get(..12).unwrap_or(&profile.sha256);
            all.insert("profile".to_owned(), format!("{} ({hash}, {} s{line})", profile.name, profile.duration_s));
        }
        if !traffic.vary.is_empty() {
            all.insert("vary".to_owned(), traffic.vary.join(" "));
        }
        all.extend(r.cell.iter().map(|(name, value)| (format!("cell.{name}"), value.clone())));
        Conditions(all)
    }

    /// Returns a sort key for tables: frame sizes in ascending order, before mixes and traces.
    pub fn sort_key(&self) -> (u64, Conditions) {
        let bytes = self.0.get("frames").and_then(|frames| frames.parse().ok());
        (bytes.unwrap_or(u64::MAX), self.clone())
    }

    /// Removes conditions by name, such as `flows`; by group, such as `goal`; or by parameter, such as `isolation` for
    /// `cell.isolation`.
    pub fn without(mut self, names: &[String]) -> Conditions {
        self.0.retain(|key, _| !names.iter().any(|name| matches(name, key)));
        self
    }

    /// Returns true if a name, group or parameter matches one of the conditions.
    pub fn has(&self, name: &str) -> bool {
        self.0.keys().any(|key| matches(name, key))
    }

    /// Returns the conditions that differ, each with both values; `None` for a missing one.
    pub fn differences<'a>(&'a self, other: &'a Conditions) -> Vec<(&'a str, Option<&'a str>, Option<&'a str>)> {
        let names: std::collections::BTreeSet<&String> = self.0.keys().chain(other.0.keys()).collect();
        let value = |conditions: &'a Conditions, name: &String| conditions.0.get(name).map(String::as_str);
        let all = names.into_iter().map(|name| (name.as_str(), value(self, name), value(other, name)));
        all.filter(|(_, a, b)| a != b).collect()
    }
}

fn matches(name: &str, key: &str) -> bool {
    key == name || key.strip_prefix("cell.") == Some(name) || key.split('.').next() == Some(name)
}
