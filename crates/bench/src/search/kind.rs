//! Search procedures by name.

use std::fmt;
use std::str::FromStr;

use super::goal::Goal;
use super::mlr::Mlr;
use super::{Bisect, Limits, Search, SearchError, Verified};

/// Search procedure and its parameters, written as `mlr`, `binary`, `binary,step=10000`, `verified` or
/// `verified,r=2,z=5000`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum SearchKind {
    /// Multiple loss ratio search (RFC 9971).
    #[default]
    Mlr,
    /// Binary search (RFC 2544 §26.1; with a step TST 009 §12.3.2).
    Binary {
        /// Step between loads, packets per second; without it any load is possible.
        step_pps: Option<u32>,
    },
    /// Binary search with loss verification (TST 009 §12.3.3).
    Verified {
        /// Maximum number of trials per load, 1 to 100.
        attempts: u32,
        /// A trial that loses more packets fails its load at once.
        max_lost: Option<u64>,
        /// Step between loads, packets per second.
        step_pps: Option<u32>,
    },
}

/// Maximum number of trials per load.
const MAX_ATTEMPTS: u32 = 100;

impl SearchKind {
    /// Starts the search.
    ///
    /// # Errors
    /// [`SearchError::Loads`] if the step yields too many loads.
    pub fn start(self, goal: Goal, limits: Limits) -> Result<Box<dyn Search>, SearchError> {
        Ok(match self {
            Self::Mlr => Box::new(Mlr::new(vec![goal], limits)?),
            Self::Binary { step_pps: None } => Box::new(Bisect::new(goal, limits)),
            Self::Binary { step_pps: Some(step) } => Box::new(Bisect::over(goal, limits, steps(limits, step)?)?),
            Self::Verified { attempts, max_lost, step_pps } => {
                let loads = step_pps.map(|step| steps(limits, step)).transpose()?;
                Box::new(Verified::new(goal, limits, attempts, max_lost, loads)?)
            }
        })
    }

    /// Returns the name in result documents ([`report::Goal::search`]).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mlr => "mlrsearch",
            Self::Binary { .. } => "bisection",
            Self::Verified { .. } => "verified bisection",
        }
    }

    /// Returns the standard that defines it.
    pub const fn standard(self) -> &'static str {
        match self {
            Self::Mlr => "RFC 9971",
            Self::Binary { step_pps: None } => "RFC 2544 §26.1",
            Self::Binary { .. } => "ETSI GS NFV-TST 009 §12.3.2",
            Self::Verified { .. } => "ETSI GS NFV-TST 009 §12.3.3",
        }
    }
}

/// Returns the multiples of a step within limits.
fn steps(limits: Limits, step: u32) -> Result<Vec<u64>, SearchError> {
    let step = u64::from(step.max(1));
    let (first, last) = (limits.min_pps.div_ceil(step), limits.max_pps / step);
    let count = (last + 1).saturating_sub(first);
    if count == 0 || count > super::halving::MAX_LOADS as u64 {
        return Err(SearchError::Loads(count));
    }
    Ok((first..=last).map(|n| n * step).collect())
}

impl fmt::Display for SearchKind {
    /// Formats the search as it is parsed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match self {
            Self::Mlr => return f.write_str("mlr"),
            Self::Binary { step_pps } => {
                f.write_str("binary")?;
                step_pps
            }
            Self::Verified { attempts, max_lost, step_pps } => {
                write!(f, "verified,r={attempts}")?;
                if let Some(lost) = max_lost {
                    write!(f, ",z={lost}")?;
                }
                step_pps
            }
        };
        step.map_or(Ok(()), |step| write!(f, ",step={step}"))
    }
}

impl FromStr for SearchKind {
    type Err = SearchError;

    fn from_str(text: &str) -> Result<Self, SearchError> {
        let unknown = || SearchError::UnknownSearch(text.chars().take(120).collect());
        let mut parts = text.split(',').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let (mut r, mut z, mut step) = (2, None, None);
        for part in parts {
            let (key, value) = part.split_once('=').ok_or_else(unknown)?;
            match (name, key) {
                ("verified", "r") => {
                    r = value.parse().ok().filter(|r| (1..=MAX_ATTEMPTS).contains(r)).ok_or_else(unknown)?;
                }
                ("verified", "z") => z = Some(value.parse().map_err(|_| unknown())?),
                ("verified" | "binary", "step") => {
                    step = Some(value.parse().ok().filter(|s: &u32| *s != 0).ok_or_else(unknown)?);
                }
                _ => return Err(unknown()),
            }
        }
        match name {
            "mlr" => Ok(Self::Mlr),
            "binary" => Ok(Self::Binary { step_pps: step }),
            "verified" => Ok(Self::Verified { attempts: r, max_lost: z, step_pps: step }),
            _ => Err(unknown()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_what_it_formats() {
        for text in ["mlr", "binary", "binary,step=10000", "verified,r=2", "verified,r=3,z=5000,step=10000"] {
            assert_eq!(text.parse::<SearchKind>().map(|kind| kind.to_string()).as_deref(), Ok(text));
        }
        let plain = SearchKind::Verified { attempts: 2, max_lost: None, step_pps: None };
        assert_eq!("verified".parse(), Ok(plain));
        for bad in ["", "bisect", "mlr,r=2", "binary,z=1", "verified,r=0", "verified,r=101", "binary,step=0", "binary,"]
        {
            assert!(matches!(bad.parse::<SearchKind>(), Err(SearchError::UnknownSearch(_))), "{bad}");
        }
    }

    #[test]
    fn limits_the_number_of_loads() {
        let limits = Limits::new(1000.0, 14.88e6).unwrap();
        assert_eq!(steps(limits, 10_000).map(|loads| (loads[0], loads.len())), Ok((10_000, 1488)));
        assert_eq!(steps(limits, 1), Err(SearchError::Loads(14_879_001)));
        assert_eq!(steps(limits, 20_000_000), Err(SearchError::Loads(0)));
        for kind in ["mlr", "binary", "binary,step=5000", "verified,r=3,z=9,step=5000"] {
            assert!(kind.parse::<SearchKind>().unwrap().start(Goal::quick(), limits).is_ok());
        }
    }
}
