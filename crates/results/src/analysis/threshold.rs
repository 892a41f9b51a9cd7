//! Thresholds of metrics.

use crate::metric::{Metric, metric, metrics};
use report::Result;
use std::fmt;

/// A lower or upper bound of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    /// Name of the metric, as for [`metric`].
    pub metric: String,
    /// Lower or upper bound.
    pub bound: Bound,
    value: f64,
    unit: Unit,
    /// The value as written.
    text: String,
}

/// Type of a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The metric must not be below.
    AtLeast,
    /// The metric must not be above.
    AtMost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// The unit of the metric.
    Plain,
    /// Seconds.
    Time,
    /// Ratio.
    Ratio,
    /// Packets per second.
    Packets,
    /// Bits per second.
    Bits,
}

/// Verdict on a result.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The value satisfies the threshold.
    Met(f64),
    /// The value does not satisfy the threshold.
    Missed(f64),
    /// The result does not have the metric.
    Absent,
}

const UNITS: [(&str, f64, Unit); 25] = [
    ("", 1.0, Unit::Plain),
    ("k", 1e3, Unit::Plain),
    ("M", 1e6, Unit::Plain),
    ("G", 1e9, Unit::Plain),
    ("pps", 1.0, Unit::Packets),
    ("kpps", 1e3, Unit::Packets),
    ("Mpps", 1e6, Unit::Packets),
    ("Gpps", 1e9, Unit::Packets),
    ("bps", 1.0, Unit::Bits),
    ("kbps", 1e3, Unit::Bits),
    ("Mbps", 1e6, Unit::Bits),
    ("Gbps", 1e9, Unit::Bits),
    ("bit/s", 1.0, Unit::Bits),
    ("kbit/s", 1e3, Unit::Bits),
    ("Mbit/s", 1e6, Unit::Bits),
    ("Gbit/s", 1e9, Unit::Bits),
    ("ns", 1e-9, Unit::Time),
    ("us", 1e-6, Unit::Time),
    ("µs", 1e-6, Unit::Time),
    ("μs", 1e-6, Unit::Time),
    ("ms", 1e-3, Unit::Time),
    ("s", 1.0, Unit::Time),
    ("min", 60.0, Unit::Time),
    ("%", 0.01, Unit::Ratio),
    ("ppm", 1e-6, Unit::Ratio),
];

impl Threshold {
    /// Parses `METRIC=VALUE`, the value with a unit: `throughput=5Mpps`, `p99=100us`, `loss=0.1%`.
    ///
    /// # Errors
    /// A message with the problem and the expected format.
    pub fn parse(text: &str, bound: Bound) -> std::result::Result<Threshold, String> {
        let (name, value) = text.rsplit_once('=').ok_or("not METRIC=VALUE, such as throughput=5Mpps or p99=100us")?;
        let (name, value) = (name.trim(), value.trim());
        // the longest prefix that is a number, so that an exponent is not parsed as unit
        let ends = value.char_indices().map(|(at, c)| at + c.len_utf8()).rev();
        let split = ends.map(|end| value.split_at(end)).find_map(|(n, u)| n.parse::<f64>().ok().map(|n| (n, u)));
        let (number, unit) =
            split.ok_or_else(|| format!("`{value}` is not a number with a unit, such as 5Mpps, 100us or 0.1%"))?;
        let unit = unit.trim();
        let Some((_, scale, unit)) = UNITS.iter().find(|(name, ..)| *name == unit) else {
            let names: Vec<&str> = UNITS.iter().map(|u| u.0).filter(|name| !name.is_empty()).collect();
            return Err(format!("unknown unit `{unit}`; valid units: {}", names.join(", ")));
        };
        if name.is_empty() || !number.is_finite() || number < 0.0 {
            return Err("the metric needs a name, and the value must be a number of at least 0".to_owned());
        }
        Ok(Threshold { metric: name.to_owned(), bound, value: number * scale, unit: *unit, text: value.to_owned() })
    }

    /// Returns the value in the unit of a metric.
    fn bound_for(&self, m: &Metric) -> std::result::Result<f64, String> {
        match (self.unit, m.unit.as_str()) {
            (Unit::Time, "ns") => Ok(self.value * 1e9),
            (Unit::Plain, "ns" | "s") => {
                let (name, n) = (&m.name, &self.text);
                Err(format!("{name} is a time: use {n}ns, {n}us, {n}ms or {n}s"))
            }
            (Unit::Time, "s")
            | (Unit::Ratio, "ratio")
            | (Unit::Packets, "pps")
            | (Unit::Bits, "bps")
            | (Unit::Plain, _) => Ok(self.value),
            (_, unit) => Err(format!("{} has the unit {unit}, which {} does not match", m.name, self.text)),
        }
    }

    /// Compares a result with the threshold.
    ///
    /// # Errors
    /// If the unit does not match that of the metric.
    pub fn evaluate(&self, r: &Result) -> std::result::Result<Verdict, String> {
        let Some(m) = metric(r, &self.metric) else { return Ok(Verdict::Absent) };
        let bound = self.bound_for(&m)?;
        let met = match self.bound {
            Bound::AtLeast => m.value >= bound,
            Bound::AtMost => m.value <= bound,
        };
        Ok(if met { Verdict::Met(m.value) } else { Verdict::Missed(m.value) })
    }

    /// Returns the names of the metrics of results, for messages.
    pub fn names(results: &[Result]) -> Vec<String> {
        let mut out: Vec<String> = results.iter().flat_map(metrics).map(|m| m.name).collect();
        out.sort();
        out.dedup();
        out
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.bound == Bound::AtLeast { ">=" } else { "<=" };
        write!(f, "{} {sign} {}", self.metric, self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Uncertainty;
    use proptest::prelude::*;

    fn m(unit: &str) -> Metric {
        Metric {
            name: "x".to_owned(),
            load: None,
            unit: unit.to_owned(),
            value: 0.0,
            uncertainty: Uncertainty::Unknown,
            limited_by: None,
        }
    }

    #[test]
    fn parses_values_with_units() {
        for (text, unit, bound) in [
            ("throughput=5e6", "pps", 5e6),
            ("throughput=5Mpps", "pps", 5e6),
            ("throughput=5 M", "pps", 5e6),
            ("p99=100us", "ns", 100e3),
            ("p99=100µs", "ns", 100e3),
            ("p99 at 50 %=1.5ms", "ns", 1.5e6),
            ("recovery=2s", "s", 2.0),
            ("loss=0.1%", "ratio", 0.001),
            ("loss=0.001", "ratio", 0.001),
            ("frames=12", "frames", 12.0),
        ] {
            let t = Threshold::parse(text, Bound::AtMost).unwrap();
            let found = t.bound_for(&m(unit)).unwrap();
            assert!((found - bound).abs() <= bound * 1e-12, "{text}: {found}");
        }
        for text in ["p99", "=5", "p99=", "p99=fast", "p99=5parsec", "p99=-5us", "p99=inf", "p99=nan"] {
            assert!(Threshold::parse(text, Bound::AtMost).is_err(), "{text}");
        }
        let bare = Threshold::parse("p99=100", Bound::AtMost).unwrap();
        assert!(bare.bound_for(&m("ns")).unwrap_err().contains("use 100ns, 100us"));
        let mismatch = Threshold::parse("loss=5us", Bound::AtMost).unwrap();
        assert!(mismatch.bound_for(&m("ratio")).is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,30}") {
            let _ = Threshold::parse(&text, Bound::AtLeast);
        }
    }
}
