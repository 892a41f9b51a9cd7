//! Search goals.
//!
//! A goal is a tuple (RFC 9971, Search Goal): the final trial duration, the duration sum, the loss ratio, the exceed
//! ratio, the initial trial duration, and the width of the bounds. "NDR" has no meaning without the tuple, so every
//! result contains it.
//!
//! | goal | final trials | duration sum | loss ratio | exceed ratio | initial trials | width |
//! |---|---|---|---|---|---|---|
//! | `quick` | 50 ms | 1 s | 0 | 50 % | 50 ms | 2 % |
//! | `ndr` | 1 s | 21 s | 0 | 50 % | 1 s | 0.5 % |
//! | `pdr` | 1 s | 21 s | 0.5 % | 50 % | 1 s | 0.5 % |
//! | `rfc2544` | 60 s | 60 s | 0 | 0 | 1 s | 0.5 % |
//! | `tst009` | 60 s | 120 s | 0 | 50 % | 60 s | 0.5 % |
//! | `zero10` | 10 s | 100 s | 0 | 50 % | 1 s | 0.5 % |
//! | `loss001` | 60 s | 60 s | 0.01 % | 0 | 1 s | 0.5 % |
//!
//! `ndr` and `pdr` are those of FD.io CSIT. `rfc2544` is unconditionally compliant with RFC 2544 §24 (RFC 9971,
//! Compliance); `tst009` is equivalent to loss verification with two attempts and no bound (same section).
//!
//! `zero10` corresponds to "no loss, median of ten runs" (NetBricks, OSDI'16). Ten runs have ten highest rates without
//! loss; a load meets this goal while at most five of ten trials have loss, that is up to the sixth smallest of the ten
//! rates. That is the upper of the two middle ones; the median of ten is the mean of both. The duration of the runs is
//! not published. `loss001` is the goal of the study of concurrent VNFs (Pitaev et al.): 0.01 % in 60 s.
//!
//! ```
//! use bench::Goal;
//!
//! let goal: Goal = "pdr,loss=0.1%,final=100ms,sum=2s".parse()?;
//! assert_eq!((goal.loss_ratio(), goal.final_s(), goal.sum_s()), (0.001, 0.1, 2.0));
//! # Ok::<(), bench::GoalError>(())
//! ```

use std::fmt;
use std::str::FromStr;

/// Reason why a goal is invalid.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GoalError {
    /// The text is not a goal.
    #[error(
        "invalid goal `{0}`; use `quick`, `ndr`, `pdr`, `rfc2544`, `tst009`, `zero10` or `loss001`, with changes \
         after it, e.g. `ndr,loss=0.1%,exceed=0,final=100ms,sum=2s,first=50ms,width=1%`"
    )]
    Text(String),
    /// A number is out of range.
    #[error("invalid {what}: {value}: {problem}")]
    Range {
        /// Parameter.
        what: &'static str,
        /// Value: a ratio or seconds.
        value: f64,
        /// Problem.
        problem: &'static str,
    },
}

/// A search goal.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Goal {
    pub(crate) final_ns: u64,
    pub(crate) sum_ns: u64,
    pub(crate) initial_ns: u64,
    pub(crate) loss_ratio: f64,
    pub(crate) exceed_ratio: f64,
    pub(crate) width: f64,
}

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
/// Longest duration of a goal, seconds: a week.
const MAX_S: f64 = 604_800.0;

/// Goals with a name.
const NAMED: [(&str, Goal); 7] = [
    ("quick", Goal::quick()),
    ("ndr", Goal::ndr()),
    ("pdr", Goal::pdr()),
    ("rfc2544", Goal::rfc2544()),
    ("tst009", Goal::tst009()),
    ("zero10", Goal::zero10()),
    ("loss001", Goal::loss001()),
];

impl Goal {
    /// Returns the name of a goal without changes.
    pub fn name(&self) -> Option<&'static str> {
        NAMED.into_iter().find(|(_, goal)| goal == self).map(|(name, _)| name)
    }

    /// Returns the goal of quick measurements: trials of 50 ms, duration sum 1 s.
    pub const fn quick() -> Self {
        Self { final_ns: 50 * MS, sum_ns: S, initial_ns: 50 * MS, loss_ratio: 0.0, exceed_ratio: 0.5, width: 0.02 }
    }

    /// Returns the goal of the no-drop rate of FD.io CSIT.
    pub const fn ndr() -> Self {
        Self { final_ns: S, sum_ns: 21 * S, initial_ns: S, loss_ratio: 0.0, exceed_ratio: 0.5, width: 0.005 }
    }

    /// Returns the goal of the partial drop rate of FD.io CSIT: loss ratio 0.5 %.
    pub const fn pdr() -> Self {
        Self { loss_ratio: 0.005, ..Self::ndr() }
    }

    /// Returns the goal of RFC 2544: no loss in 60 s.
    pub const fn rfc2544() -> Self {
        Self { final_ns: 60 * S, sum_ns: 60 * S, initial_ns: S, loss_ratio: 0.0, exceed_ratio: 0.0, width: 0.005 }
    }

    /// Returns the goal of loss verification with two attempts (TST 009).
    pub const fn tst009() -> Self {
        Self { sum_ns: 120 * S, initial_ns: 60 * S, exceed_ratio: 0.5, ..Self::rfc2544() }
    }

    /// Returns the goal of the NetBricks study: no loss in the median of ten trials.
    pub const fn zero10() -> Self {
        Self { final_ns: 10 * S, sum_ns: 100 * S, ..Self::ndr() }
    }

    /// Returns the goal of the study of concurrent VNFs: loss ratio 0.01 % in 60 s.
    pub const fn loss001() -> Self {
        Self { loss_ratio: 1e-4, ..Self::rfc2544() }
    }

    /// Sets the final trial duration. The initial duration and the duration sum are adjusted if necessary.
    ///
    /// # Errors
    /// [`GoalError::Range`] unless above 0 and at most a week.
    pub fn with_final_s(self, seconds: f64) -> Result<Self, GoalError> {
        let final_ns = duration("final trial duration", seconds)?;
        Ok(Self { final_ns, initial_ns: self.initial_ns.min(final_ns), sum_ns: self.sum_ns.max(final_ns), ..self })
    }

    /// Sets the duration sum. It is raised to the final trial duration, because a shorter one weakens repeatability
    /// (RFC 9971, Goal Duration Sum).
    ///
    /// # Errors
    /// [`GoalError::Range`] unless above 0 and at most a week.
    pub fn with_sum_s(self, seconds: f64) -> Result<Self, GoalError> {
        Ok(Self { sum_ns: duration("duration sum", seconds)?.max(self.final_ns), ..self })
    }

    /// Sets the initial trial duration, at most the final one.
    ///
    /// # Errors
    /// [`GoalError::Range`] unless above 0 and at most a week.
    pub fn with_initial_s(self, seconds: f64) -> Result<Self, GoalError> {
        Ok(Self { initial_ns: duration("first trial duration", seconds)?.min(self.final_ns), ..self })
    }

    /// Sets the loss ratio.
    ///
    /// # Errors
    /// [`GoalError::Range`] outside 0.0..1.0.
    pub fn with_loss_ratio(self, ratio: f64) -> Result<Self, GoalError> {
        share("loss ratio", ratio).map(|loss_ratio| Self { loss_ratio, ..self })
    }

    /// Sets the exceed ratio.
    ///
    /// # Errors
    /// [`GoalError::Range`] outside 0.0..1.0.
    pub fn with_exceed_ratio(self, ratio: f64) -> Result<Self, GoalError> {
        share("exceed ratio", ratio).map(|exceed_ratio| Self { exceed_ratio, ..self })
    }

    /// Sets the width of the bounds relative to the upper one. With a width below the loss ratio, a goal with more loss
    /// may have a lower result than one with less (RFC 9971, Performance Variability).
    ///
    /// # Errors
    /// [`GoalError::Range`] unless above 0 and below 1.
    pub fn with_width(self, width: f64) -> Result<Self, GoalError> {
        match share("width", width)? {
            0.0 => Err(GoalError::Range { what: "width", value: width, problem: "must be above 0" }),
            width => Ok(Self { width, ..self }),
        }
    }

    /// Returns the final trial duration in seconds. Shorter trials only count against a load.
    pub fn final_s(&self) -> f64 {
        self.final_ns as f64 / 1e9
    }

    /// Returns the duration sum in seconds.
    pub fn sum_s(&self) -> f64 {
        self.sum_ns as f64 / 1e9
    }

    /// Returns the initial trial duration in seconds.
    pub fn initial_s(&self) -> f64 {
        self.initial_ns as f64 / 1e9
    }

    /// Returns the loss ratio.
    pub fn loss_ratio(&self) -> f64 {
        self.loss_ratio
    }

    /// Returns the exceed ratio.
    pub fn exceed_ratio(&self) -> f64 {
        self.exceed_ratio
    }

    /// Returns the width of the bounds relative to the upper one.
    pub fn width(&self) -> f64 {
        self.width
    }

    /// Returns true if bounds at these loads are within the width, or are neighbours in whole packets per second.
    pub(crate) fn is_narrow(&self, lower: u64, upper: u64) -> bool {
        upper - lower <= 1 || (upper - lower) as f64 <= self.width * upper as f64
    }
}

fn duration(what: &'static str, seconds: f64) -> Result<u64, GoalError> {
    let ns = (seconds * 1e9).round();
    if ns >= 1.0 && seconds <= MAX_S {
        Ok(ns as u64)
    } else {
        Err(GoalError::Range { what, value: seconds, problem: "must be above 0 s and at most a week" })
    }
}

fn share(what: &'static str, value: f64) -> Result<f64, GoalError> {
    if (0.0..1.0).contains(&value) {
        // turns a negative zero into zero
        Ok(value.abs())
    } else {
        Err(GoalError::Range { what, value, problem: "must be at least 0 and below 1 (100 %)" })
    }
}

/// Percentage without rounding errors of binary fractions.
struct Percent(f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", (self.0 * 1e8).round() / 1e6)
    }
}

struct Seconds(u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ns if ns >= S => write!(f, "{} s", ns as f64 / 1e9),
            ns if ns >= MS => write!(f, "{} ms", ns as f64 / 1e6),
            ns => write!(f, "{} µs", ns as f64 / 1e3),
        }
    }
}

impl fmt::Display for Goal {
    /// Formats the tuple.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (loss, exceed, width) = (Percent(self.loss_ratio), Percent(self.exceed_ratio), Percent(self.width));
        let (last, sum, first) = (Seconds(self.final_ns), Seconds(self.sum_ns), Seconds(self.initial_ns));
        write!(f, "trials of {last}, duration sum {sum}, loss ratio {loss}, exceed ratio {exceed}, ")?;
        write!(f, "initial trials of {first}, width {width}")
    }
}

impl FromStr for Goal {
    type Err = GoalError;

    fn from_str(text: &str) -> Result<Self, GoalError> {
        let unknown = || GoalError::Text(text.chars().take(120).collect());
        let mut parts = text.split(',').map(str::trim);
        let first = parts.next();
        let (_, mut goal) = NAMED.into_iter().find(|(name, _)| Some(*name) == first).ok_or_else(unknown)?;
        // the final duration limits the others, so it is set first
        let mut parts: Vec<(&str, &str)> =
            parts.map(|part| part.split_once('=').ok_or_else(unknown)).collect::<Result<_, _>>()?;
        parts.sort_by_key(|(key, _)| *key != "final");
        for (key, value) in parts {
            let seconds = || seconds(value).ok_or_else(unknown);
            let ratio = || ratio(value).ok_or_else(unknown);
            goal = match key {
                "final" => goal.with_final_s(seconds()?)?,
                "sum" => goal.with_sum_s(seconds()?)?,
                "first" => goal.with_initial_s(seconds()?)?,
                "loss" => goal.with_loss_ratio(ratio()?)?,
                "exceed" => goal.with_exceed_ratio(ratio()?)?,
                "width" => goal.with_width(ratio()?)?,
                _ => return Err(unknown()),
            };
        }
        Ok(goal)
    }
}

/// Parses `0.005` or `0.5%`.
fn ratio(text: &str) -> Option<f64> {
    match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok().map(|percent| percent / 100.0),
        None => text.parse().ok(),
    }
}

/// Parses `2`, `2s`, `50ms` or `500us`.
fn seconds(text: &str) -> Option<f64> {
    let units = [("ms", 1e3), ("us", 1e6), ("s", 1.0), ("", 1.0)];
    let (number, per_second) =
        units.iter().find_map(|(unit, per_second)| Some((text.strip_suffix(unit)?, per_second)))?;
    number.trim().parse::<f64>().ok().map(|number| number / per_second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn formats_the_tuple() {
        assert_eq!(
            Goal::pdr().to_string(),
            "trials of 1 s, duration sum 21 s, loss ratio 0.5 %, exceed ratio 50 %, initial trials of 1 s, width 0.5 %"
        );
        assert!(NAMED.iter().all(|(name, goal)| goal.name() == Some(name)));
        assert_eq!("ndr,width=1%".parse::<Goal>().unwrap().name(), None);
        let goal = Goal::quick().with_loss_ratio(0.001).and_then(|goal| goal.with_exceed_ratio(0.07)).unwrap();
        assert!(goal.to_string().contains("trials of 50 ms, duration sum 1 s"), "{goal}");
        assert!(goal.to_string().contains("loss ratio 0.1 %, exceed ratio 7 %"), "{goal}");
    }

    #[test]
    fn parses_texts() {
        let parse = |text: &str| text.parse::<Goal>();
        assert_eq!(parse("quick"), Ok(Goal::quick()));
        assert_eq!(parse("ndr,loss=0.005"), Ok(Goal::pdr()));
        assert_eq!(parse("rfc2544, exceed=50%, sum=120s, first=60"), Ok(Goal::tst009()));
        let goal = parse("ndr,first=500us,sum=10s,final=2s").unwrap();
        assert_eq!((goal.initial_s(), goal.final_s(), goal.sum_s()), (0.0005, 2.0, 10.0));
        assert_eq!(parse("ndr,final=10s,sum=100s,first=1"), parse("zero10"));
        assert_eq!(parse("rfc2544,loss=0.01%"), Ok(Goal::loss001()));
        // the other durations are adjusted to the final one
        let goal = parse("rfc2544,final=120s").unwrap();
        assert_eq!((goal.sum_s(), goal.initial_s()), (120.0, 1.0));
        assert_eq!(parse("ndr,final=100ms").unwrap().initial_s(), 0.1);
        for bad in ["", "best", "ndr,", "ndr,loss", "ndr,loss=", "ndr,speed=3", "ndr,final=5min", "ndr loss=1%"] {
            assert!(matches!(parse(bad), Err(GoalError::Text(_))), "{bad}");
        }
        for bad in ["ndr,loss=100%", "ndr,loss=-0.1", "ndr,width=0", "ndr,final=0", "ndr,sum=1e9", "ndr,loss=nan"] {
            assert!(matches!(parse(bad), Err(GoalError::Range { .. })), "{bad}");
        }
    }

    #[test]
    fn judges_the_width() {
        let goal = Goal::quick();
        assert!(goal.is_narrow(98, 100) && !goal.is_narrow(97, 100));
        assert!(goal.is_narrow(1, 2), "there is no whole number in between");
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_rejected(text in "(quick|ndr|x)(,(loss|sum|final|width|exceed|first)=[-0-9.e%ms]{0,6}){0,4}") {
            if let Ok(goal) = text.parse::<Goal>() {
                prop_assert!(goal.initial_ns <= goal.final_ns && goal.final_ns <= goal.sum_ns && goal.width > 0.0);
            }
        }
    }
}
