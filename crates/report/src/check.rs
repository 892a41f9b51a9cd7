//! Consistency checks of documents.

use crate::content_hash::{is_hash, sha256};
use crate::result::{Frames, Latency, LatencyAnatomy, Result, Stream, Trial};
use crate::{Error, hdr, limit};
use serde_json::Value;

/// Tolerance: percentiles of a histogram are rounded up to its resolution, a maximum stored separately is not.
const ROUNDING: f64 = 1.01;

impl Result {
    /// Checks that all values are valid and consistent with each other; does not check the id.
    ///
    /// # Errors
    /// The first invalid value, with its path.
    pub fn check(&self) -> std::result::Result<(), Error> {
        let value = serde_json::to_value(self).map_err(|e| Error::value("document", e, "cannot be serialised"))?;
        check_values(&value)?;
        self.check_consistency()
    }

    /// Checks relations between values.
    pub(crate) fn check_consistency(&self) -> std::result::Result<(), Error> {
        if self.environment.unix_seconds().is_none() {
            let date = &self.environment.date;
            return Err(Error::value("environment.date", date, "not a date: use the format 2026-02-28T12:00:00Z"));
        }
        self.check_dut()?;
        self.check_traffic()?;
        for (path, ratio) in [
            ("goal.loss_ratio", Some(self.goal.loss_ratio)),
            ("goal.exceed_ratio", Some(self.goal.exceed_ratio)),
            ("goal.width", Some(self.goal.width)),
            ("environment.steal_share", self.environment.steal_share),
        ] {
            if let Some(ratio) = ratio.filter(|&r| r > 1.0) {
                return Err(Error::value(path, ratio, "a ratio must not exceed 1"));
            }
        }
        for (n, trial) in self.trials.iter().enumerate() {
            check_trial(&format!("trials[{n}]"), trial)?;
        }
        for (n, stream) in self.streams.iter().enumerate() {
            check_stream(&format!("streams[{n}]"), stream)?;
        }
        if let Some(upper) = self.summary.upper_pps.filter(|&upper| upper < self.summary.lower_pps) {
            return Err(Error::value("summary.upper_pps", upper, "below lower_pps"));
        }
        for (n, latency) in self.latency.iter().enumerate() {
            check_latency(&format!("latency[{n}]"), latency)?;
        }
        for (n, anatomy) in self.anatomy.iter().enumerate() {
            check_anatomy(&format!("anatomy[{n}]"), anatomy)?;
        }
        Ok(())
    }

    fn check_dut(&self) -> std::result::Result<(), Error> {
        let ids = [
            ("dut.chain_sha256", &self.dut.chain_sha256),
            ("traffic.trace_sha256", &self.traffic.trace_sha256),
            ("traffic.reverse_trace_sha256", &self.traffic.reverse_trace_sha256),
            ("calibration.id", &self.calibration.as_ref().and_then(|c| c.id.clone())),
        ];
        for (path, id) in ids {
            if let Some(id) = id.as_ref().filter(|id| !is_hash(id)) {
                return Err(Error::value(path, id, "must be 64 hexadecimal digits in lower case"));
            }
        }
        match (&self.dut.chain, &self.dut.chain_sha256) {
            (Some(chain), Some(hash)) if sha256(chain.as_bytes()) != *hash => {
                Err(Error::value("dut.chain_sha256", hash, "is not the SHA-256 of `dut.chain`"))
            }
            _ => Ok(()),
        }
    }

    fn check_traffic(&self) -> std::result::Result<(), Error> {
        let traffic = &self.traffic;
        if !(1..=2).contains(&traffic.directions) {
            return Err(Error::value("traffic.directions", traffic.directions, "must be 1 or 2"));
        }
        if let Some(profile) = &traffic.profile {
            if !is_hash(&profile.sha256) {
                let problem = "must be 64 hexadecimal digits in lower case";
                return Err(Error::value("traffic.profile.sha256", &profile.sha256, problem));
            }
            if profile.script.as_ref().is_some_and(|script| sha256(script.as_bytes()) != profile.sha256) {
                let problem = "is not the SHA-256 of `traffic.profile.script`";
                return Err(Error::value("traffic.profile.sha256", &profile.sha256, problem));
            }
            if profile.duration_s == 0 {
                return Err(Error::value("traffic.profile.duration_s", 0, "must be at least 1 s"));
            }
        }
        if let Frames::Mix(mix) = &traffic.frames {
            if mix.parts.is_empty() {
                return Err(Error::value("traffic.frames.mix.parts", "empty", "a mix needs at least one size"));
            }
            if mix.parts.iter().any(|p| p.weight == 0) {
                return Err(Error::value("traffic.frames.mix.parts", 0, "a weight must be at least 1"));
            }
        }
        if let Frames::Trace(trace) = &traffic.frames
            && trace.frames == 0
        {
            return Err(Error::value("traffic.frames.trace.frames", 0, "a trace needs at least one frame"));
        }
        Ok(())
    }
}

fn check_trial(path: &str, t: &Trial) -> std::result::Result<(), Error> {
    if t.sent + t.unsent != t.intended {
        let value = format!("{} + {}", t.sent, t.unsent);
        return Err(Error::value(path, value, format!("sent + unsent must equal intended, {}", t.intended)));
    }
    if t.received + t.lost != t.sent {
        let value = format!("{} + {}", t.received, t.lost);
        return Err(Error::value(path, value, format!("received + lost must equal sent, {}", t.sent)));
    }
    if let Some(c) = t.connections.as_ref().filter(|c| c.completed.saturating_add(c.failed.sum()) != c.opened) {
        let (path, value) = (format!("{path}.connections"), format!("{} + {}", c.completed, c.failed.sum()));
        return Err(Error::value(&path, value, format!("completed + failed must equal opened, {}", c.opened)));
    }
    check_histogram(path, "latency_hdr", t.latency_hdr.as_deref())?;
    check_histogram(path, "lateness_hdr", t.lateness_hdr.as_deref())
}

fn check_stream(path: &str, s: &Stream) -> std::result::Result<(), Error> {
    let counts = Trial {
        intended: s.intended,
        sent: s.sent,
        unsent: s.unsent,
        received: s.received,
        lost: s.lost,
        ..Trial::default()
    };
    check_trial(path, &counts)?;
    let mut sums = [0; 3];
    for (n, second) in s.per_second.iter().enumerate() {
        let [intended, sent, received] = *second;
        if received > sent || sent > intended {
            let problem = "must be [intended, sent, received] in descending order";
            return Err(Error::value(format!("{path}.per_second[{n}]"), format!("{second:?}"), problem));
        }
        sums.iter_mut().zip(second).for_each(|(sum, n): (&mut u64, _)| *sum = sum.saturating_add(*n));
    }
    if !s.per_second.is_empty() && sums != [s.intended, s.sent, s.received] {
        let problem = "the sums differ from intended, sent and received";
        return Err(Error::value(format!("{path}.per_second"), format!("{sums:?}"), problem));
    }
    Ok(())
}

fn check_latency(path: &str, l: &Latency) -> std::result::Result<(), Error> {
    let rising = [l.p50_ns, l.p99_ns, l.p999_ns, l.max_ns];
    if rising.windows(2).any(|w| w[0] > w[1] * ROUNDING) {
        return Err(Error::value(
            path,
            format!("{rising:?}"),
            "p50_ns, p99_ns, p999_ns and max_ns must be in ascending order",
        ));
    }
    for (n, vnf) in l.vnfs.iter().enumerate() {
        let rising: Vec<f64> = [vnf.p50_ns, vnf.p99_ns, vnf.p999_ns].into_iter().flatten().collect();
        if rising.windows(2).any(|w| w[0] > w[1]) {
            let problem = "p50_ns, p99_ns and p999_ns must be in ascending order";
            return Err(Error::value(format!("{path}.vnfs[{n}]"), format!("{rising:?}"), problem));
        }
    }
    check_histogram(path, "latency_hdr", l.latency_hdr.as_deref())
}

fn check_anatomy(path: &str, a: &LatencyAnatomy) -> std::result::Result<(), Error> {
    let sum: f64 = a.parts.iter().map(|part| part.mean_ns).sum();
    if (sum - a.mean_ns).abs() > a.residual_max_ns + a.mean_ns * 1e-9 {
        return Err(Error::value(format!("{path}.parts"), sum, format!("the means must add up to {}", a.mean_ns)));
    }
    Ok(())
}

fn check_histogram(path: &str, member: &str, text: Option<&str>) -> std::result::Result<(), Error> {
    match text.map(hdr::decode) {
        Some(Err(problem)) => Err(Error::value(format!("{path}.{member}"), "a histogram", problem.to_string())),
        _ => Ok(()),
    }
}

/// Checks that no number is negative, infinite or too large to be exact, and no string too long.
pub(crate) fn check_values(document: &Value) -> std::result::Result<(), Error> {
    walk(document, "", &mut String::new())
}

fn walk(value: &Value, member: &str, path: &mut String) -> std::result::Result<(), Error> {
    let length = path.len();
    match value {
        // serde_json writes infinite numbers as null; nothing else is written as null
        Value::Null => return Err(Error::value(&*path, "null", "not a finite number; leave out unknown members")),
        Value::Bool(_) => {}
        Value::Number(n) => {
            let number = n.as_f64().unwrap_or(f64::INFINITY);
            if number.is_nan() || number < 0.0 {
                return Err(Error::value(&*path, n, "negative"));
            }
            if number > limit::COUNT as f64 {
                return Err(Error::value(
                    &*path,
                    n,
                    "exceeds 2^53 - 1, the largest number that every JSON reader represents exactly",
                ));
            }
        }
        Value::String(s) => check_length(s, limit::text(member), path)?,
        Value::Array(elements) => {
            for (n, element) in elements.iter().enumerate() {
                path.push_str(&format!("[{n}]"));
                walk(element, member, path)?;
                path.truncate(length);
            }
        }
        Value::Object(members) => {
            for (name, value) in members {
                check_length(name, limit::NAME, path)?;
                if !path.is_empty() {
                    path.push('.');
                }
                path.extend(name.escape_debug());
                // the entries of a map have free names and the length limit of the map
                let map = matches!(member, "cell" | "dropped" | "extra" | "more");
                walk(value, if map { member } else { name }, path)?;
                path.truncate(length);
            }
        }
    }
    Ok(())
}

fn check_length(text: &str, limit: usize, path: &str) -> std::result::Result<(), Error> {
    let length = text.chars().count();
    if length > limit {
        return Err(Error::value(path, text, format!("{length} characters, the limit is {limit}")));
    }
    Ok(())
}
