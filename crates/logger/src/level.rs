//! Levels of messages, by target.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};

/// Longest text of directives, in bytes.
const MAX_LEN: usize = 1024;
/// Longest name of a target, in bytes.
const MAX_TARGET_LEN: usize = 64;
/// Most targets with a level of their own.
const MAX_TARGETS: usize = 32;

/// The targets of Bondstone's own messages, with what they are about.
pub const TARGETS: &[(&str, &str)] = &[
    ("control", "clients and requests of the control socket"),
    ("fpm", "connections and routes of routing daemons"),
    ("kernel", "routes that are read from the kernel"),
    ("log", "levels, lost messages"),
    ("metrics", "requests for metrics"),
    ("nf", "messages of NFs"),
    ("output", "lines that processes in sandboxes and on other hosts print"),
    ("rates", "packets per second of each port, once a second, at level debug"),
    ("reload", "changes of the chain file"),
    ("run", "start, faults and end of the run"),
    ("sandbox", "starts, restarts and faults of sandboxes"),
    ("tenant", "control planes of tenants, and messages of their daemons"),
    ("upgrade", "replacement of the process"),
];

/// The least important level that is logged, for each target: `info,nf=debug`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directives {
    default: LevelFilter,
    targets: BTreeMap<String, LevelFilter>,
}

impl Default for Directives {
    fn default() -> Self {
        Directives { default: LevelFilter::INFO, targets: BTreeMap::new() }
    }
}

/// Parses a level.
fn level(text: &str) -> Result<LevelFilter, String> {
    match text {
        "off" => Ok(LevelFilter::OFF),
        "error" => Ok(LevelFilter::ERROR),
        "warn" => Ok(LevelFilter::WARN),
        "info" => Ok(LevelFilter::INFO),
        "debug" => Ok(LevelFilter::DEBUG),
        "trace" => Ok(LevelFilter::TRACE),
        _ => Err(format!(
            "{:?} is not a level; levels are off, error, warn, info, debug and trace",
            text.chars().take(64).collect::<String>()
        )),
    }
}

/// Returns the name of a level, as in directives.
pub(crate) fn name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

impl FromStr for Directives {
    type Err = String;

    /// Parses a list of levels and of `TARGET=LEVEL`, separated by commas. Targets that are not listed have the level
    /// that is listed without a target, or `info`.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.len() > MAX_LEN {
            return Err(format!("longer than {MAX_LEN} bytes"));
        }
        let mut directives = Directives::default();
        for part in text.split(',').map(str::trim) {
            match part.split_once('=') {
                None => directives.default = level(part)?,
                Some((target, text)) => directives.set(target, text)?,
            }
        }
        Ok(directives)
    }
}

impl fmt::Display for Directives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.default)?;
        self.targets.iter().try_for_each(|(target, level)| write!(f, ",{target}={level}"))
    }
}

impl Directives {
    /// Checks the name of a target.
    ///
    /// # Errors
    /// It is invalid.
    pub fn check_target(target: &str) -> Result<(), String> {
        let is_name = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "_-:".contains(c));
        if (1..=MAX_TARGET_LEN).contains(&target.len()) && is_name(target) {
            return Ok(());
        }
        let known: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
        let start: String = target.chars().take(MAX_TARGET_LEN).collect();
        Err(format!("{start:?} is not a target; those of Bondstone are {}", known.join(", ")))
    }

    /// Sets the level of one target.
    ///
    /// # Errors
    /// The target or the level is invalid, or there are too many targets.
    pub fn set(&mut self, target: &str, text: &str) -> Result<(), String> {
        Directives::check_target(target)?;
        self.targets.insert(target.to_owned(), level(text)?);
        if self.targets.len() > MAX_TARGETS {
            return Err(format!("more than {MAX_TARGETS} targets"));
        }
        Ok(())
    }

    /// Returns the level of a target.
    pub fn level(&self, target: &str) -> String {
        // as `Targets`, which selects by the longest prefix
        let prefixes = self.targets.iter().filter(|(prefix, _)| target.starts_with(prefix.as_str()));
        let longest = prefixes.max_by_key(|(prefix, _)| prefix.len());
        longest.map_or(self.default, |(_, level)| *level).to_string()
    }

    pub(crate) fn to_filter(&self) -> Targets {
        Targets::new().with_default(self.default).with_targets(self.targets.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_are_parsed_and_printed() {
        let parsed = |text: &str| text.parse::<Directives>().map(|d| d.to_string());
        assert_eq!(parsed("info").as_deref(), Ok("info"));
        assert_eq!(parsed(" warn, nf=debug,control=off ").as_deref(), Ok("warn,control=off,nf=debug"));
        // others keep the default
        assert_eq!(parsed("my_nf::tcp=trace").as_deref(), Ok("info,my_nf::tcp=trace"));
        for (invalid, cause) in [
            ("", "\"\" is not a level"),
            ("nf", "\"nf\" is not a level"),
            ("nf=verbose", "\"verbose\" is not a level"),
            ("=debug", "is not a target; those of Bondstone are control, "),
            ("a b=debug", "\"a b\" is not a target"),
            ("[span]=debug", "is not a target"),
        ] {
            assert!(parsed(invalid).is_err_and(|e| e.contains(cause)), "{invalid}: {:?}", parsed(invalid));
        }
        assert!(parsed(&"nf=info,".repeat(1000)).is_err());
        let many: Vec<String> = (0..33).map(|n| format!("t{n}=info")).collect();
        assert_eq!(parsed(&many.join(",")), Err("more than 32 targets".to_owned()));
    }

    #[test]
    fn levels_are_those_of_the_filter() {
        let directives: Directives = "warn,nf=debug,nf::deep=error".parse().unwrap();
        let filter = directives.to_filter();
        for (target, expected) in [("run", Level::WARN), ("nf", Level::DEBUG), ("nf::deep::x", Level::ERROR)] {
            assert_eq!(directives.level(target), name(expected));
            for level in [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE] {
                assert_eq!(filter.would_enable(target, &level), level <= expected, "{target} {level}");
            }
        }
    }
}
