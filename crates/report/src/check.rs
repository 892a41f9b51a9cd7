//! What every document keeps to.

use crate::{Error, Frames, Latency, Result, Stream, Trial, hdr, limit, seal};
use serde_json::Value;

/// Percentiles of a histogram are rounded up to its resolution, a largest value kept apart is not.
const ROUNDING: f64 = 1.01;

impl Result {
    /// Whether all values are possible and agree with each other; the id is not looked at.
    ///
    /// # Errors
    /// The first that is not, with its place.
    pub fn check(&self) -> std::result::Result<(), Error> {
        let value = serde_json::to_value(self).map_err(|e| Error::value("document", e, "cannot be written"))?;
        values(&value)?;
        self.agrees()
    }

    /// What numbers alone do not show.
    pub(crate) fn agrees(&self) -> std::result::Result<(), Error> {
        if self.environment.unix_seconds().is_none() {
            let date = &self.environment.date;
            return Err(Error::value("environment.date", date, "not a date; write it as 2026-02-28T12:00:00Z"));
        }
        self.dut_agrees()?;
        self.traffic_agrees()?;
        for (place, ratio) in [
            ("goal.loss_ratio", Some(self.goal.loss_ratio)),
            ("goal.exceed_ratio", Some(self.goal.exceed_ratio)),
            ("goal.width", Some(self.goal.width)),
            ("environment.steal_share", self.environment.steal_share),
        ] {
            if let Some(ratio) = ratio.filter(|&r| r > 1.0) {
                return Err(Error::value(place, ratio, "a ratio is at most 1"));
            }
        }
        for (n, trial) in self.trials.iter().enumerate() {
            trial_agrees(&format!("trials[{n}]"), trial)?;
        }
        for (n, stream) in self.streams.iter().enumerate() {
            stream_agrees(&format!("streams[{n}]"), stream)?;
        }
        if let Some(upper) = self.summary.upper_pps.filter(|&upper| upper < self.summary.lower_pps) {
            return Err(Error::value("summary.upper_pps", upper, "below lower_pps"));
        }
        for (n, latency) in self.latency.iter().enumerate() {
            latency_agrees(&format!("latency[{n}]"), latency)?;
        }
        Ok(())
    }

    fn dut_agrees(&self) -> std::result::Result<(), Error> {
        let ids = [
            ("dut.chain_sha256", &self.dut.chain_sha256),
            ("traffic.trace_sha256", &self.traffic.trace_sha256),
            ("traffic.back_sha256", &self.traffic.back_sha256),
            ("calibration.id", &self.calibration.as_ref().and_then(|c| c.id.clone())),
        ];
        for (place, id) in ids {
            if let Some(id) = id.as_ref().filter(|id| !seal::is_hash(id)) {
                return Err(Error::value(place, id, "not 64 hexadecimal digits in lower case"));
            }
        }
        match (&self.dut.chain, &self.dut.chain_sha256) {
            (Some(chain), Some(hash)) if seal::sha256(chain.as_bytes()) != *hash => {
                Err(Error::value("dut.chain_sha256", hash, "not the hash of `dut.chain`"))
            }
            _ => Ok(()),
        }
    }

    fn traffic_agrees(&self) -> std::result::Result<(), Error> {
        let traffic = &self.traffic;
        if !(1..=2).contains(&traffic.directions) {
            return Err(Error::value("traffic.directions", traffic.directions, "neither 1 nor 2"));
        }
        if let Some(profile) = &traffic.profile {
            if !seal::is_hash(&profile.sha256) {
                let problem = "not 64 hexadecimal digits in lower case";
                return Err(Error::value("traffic.profile.sha256", &profile.sha256, problem));
            }
            if profile.script.as_ref().is_some_and(|script| seal::sha256(script.as_bytes()) != profile.sha256) {
                let problem = "not the hash of `traffic.profile.script`";
                return Err(Error::value("traffic.profile.sha256", &profile.sha256, problem));
            }
            if profile.seconds == 0 {
                return Err(Error::value("traffic.profile.seconds", 0, "a profile has at least one second"));
            }
        }
        if let Frames::Mix(mix) = &traffic.frames {
            if mix.parts.is_empty() {
                return Err(Error::value("traffic.frames.mix.parts", "empty", "a mix has at least one size"));
            }
            if mix.parts.iter().any(|p| p.weight == 0) {
                return Err(Error::value("traffic.frames.mix.parts", 0, "a weight is at least 1"));
            }
        }
        if let Frames::Trace(trace) = &traffic.frames
            && trace.frames == 0
        {
            return Err(Error::value("traffic.frames.trace.frames", 0, "a trace has at least one frame"));
        }
        Ok(())
    }
}

fn trial_agrees(place: &str, t: &Trial) -> std::result::Result<(), Error> {
    if t.sent + t.unsent != t.intended {
        let value = format!("{} + {}", t.sent, t.unsent);
        return Err(Error::value(place, value, format!("sent + unsent is not intended, {}", t.intended)));
    }
    if t.received + t.lost != t.sent {
        let value = format!("{} + {}", t.received, t.lost);
        return Err(Error::value(place, value, format!("received + lost is not sent, {}", t.sent)));
    }
    histogram_agrees(place, "latency_hdr", t.latency_hdr.as_deref())?;
    histogram_agrees(place, "late_hdr", t.late_hdr.as_deref())
}

fn stream_agrees(place: &str, s: &Stream) -> std::result::Result<(), Error> {
    let counts = Trial {
        intended: s.intended,
        sent: s.sent,
        unsent: s.unsent,
        received: s.received,
        lost: s.lost,
        ..Trial::default()
    };
    trial_agrees(place, &counts)?;
    let mut sums = [0; 3];
    for (n, second) in s.seconds.iter().enumerate() {
        let [intended, sent, received] = *second;
        if received > sent || sent > intended {
            let problem = "not intended, sent and received, none more than the one before";
            return Err(Error::value(format!("{place}.seconds[{n}]"), format!("{second:?}"), problem));
        }
        sums.iter_mut().zip(second).for_each(|(sum, n): (&mut u64, _)| *sum = sum.saturating_add(*n));
    }
    if !s.seconds.is_empty() && sums != [s.intended, s.sent, s.received] {
        let problem = "the seconds do not add up to intended, sent and received";
        return Err(Error::value(format!("{place}.seconds"), format!("{sums:?}"), problem));
    }
    Ok(())
}

fn latency_agrees(place: &str, l: &Latency) -> std::result::Result<(), Error> {
    let rising = [l.p50_ns, l.p99_ns, l.p999_ns, l.max_ns];
    if rising.windows(2).any(|w| w[0] > w[1] * ROUNDING) {
        return Err(Error::value(place, format!("{rising:?}"), "p50_ns, p99_ns, p999_ns, max_ns do not rise"));
    }
    histogram_agrees(place, "latency_hdr", l.latency_hdr.as_deref())
}

fn histogram_agrees(place: &str, member: &str, text: Option<&str>) -> std::result::Result<(), Error> {
    match text.map(hdr::decode) {
        Some(Err(problem)) => Err(Error::value(format!("{place}.{member}"), "a histogram", problem.to_string())),
        _ => Ok(()),
    }
}

/// Whether no number is negative, infinite or too large to be exact, and no text too long.
pub(crate) fn values(document: &Value) -> std::result::Result<(), Error> {
    walk(document, "", &mut String::new())
}

fn walk(value: &Value, member: &str, place: &mut String) -> std::result::Result<(), Error> {
    let length = place.len();
    match value {
        // numbers that are not finite are written as null, and nothing else is
        Value::Null => return Err(Error::value(&*place, "null", "not a finite number; leave out what is not known")),
        Value::Bool(_) => {}
        Value::Number(n) => {
            let number = n.as_f64().unwrap_or(f64::INFINITY);
            if number.is_nan() || number < 0.0 {
                return Err(Error::value(&*place, n, "negative"));
            }
            if number > limit::COUNT as f64 {
                return Err(Error::value(
                    &*place,
                    n,
                    "more than 2^53 - 1, the largest number that is exact everywhere",
                ));
            }
        }
        Value::String(s) => within(s, limit::text(member), place)?,
        Value::Array(elements) => {
            for (n, element) in elements.iter().enumerate() {
                place.push_str(&format!("[{n}]"));
                walk(element, member, place)?;
                place.truncate(length);
            }
        }
        Value::Object(members) => {
            for (name, value) in members {
                within(name, limit::NAME, place)?;
                if !place.is_empty() {
                    place.push('.');
                }
                place.extend(name.escape_debug());
                // the entries of a map have names of their own, and the bound of the map
                let map = matches!(member, "cell" | "dropped" | "more");
                walk(value, if map { member } else { name }, place)?;
                place.truncate(length);
            }
        }
    }
    Ok(())
}

fn within(text: &str, most: usize, place: &str) -> std::result::Result<(), Error> {
    let length = text.chars().count();
    if length > most {
        return Err(Error::value(place, text, format!("{length} characters, at most {most} are kept")));
    }
    Ok(())
}
