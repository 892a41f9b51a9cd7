//! Profiles: streams whose rates a script sets for every second.
//!
//! ```text
//! fn streams() {
//!     [#{ name: "web", frames: "imix", flows: 1000 }, #{ name: "dns", frames: "128", flows: 100 }]
//! }
//!
//! fn at(second) {
//!     #{ web: #{ rate: 100000 * (second + 1) }, dns: #{ share: 0.01 } }
//! }
//!
//! fn seconds() { 30 }
//! ```
//!
//! The language is Rhai. `streams` returns up to 64 streams with their frames, flows and port (by default 64 bytes, 1
//! flow, port 0); `at` returns what each sends in a second, counted from 0: `rate` in packets per second or `share` of
//! the line rate, and `frames` or `flows` if they change. A stream that is left out sends nothing. The optional
//! `seconds` returns the duration. The script has no access to files or clocks, is evaluated separately for each
//! second, and is limited to a million operations per call and twenty million in all.
//!
//! A [`Profile`] is a parsed script, a [`Timetable`] its evaluation for every second of a trial.

mod timetable;

pub use timetable::{StreamSecond, StreamTimetable, StreamTraffic, Timetable};

use super::script::{MAX_OPERATIONS, MAX_TOTAL_OPERATIONS, new_engine};
use super::vary::VariedField;
use diagnostics::Diagnostic;
use rhai::{AST, Array, Dynamic, Engine, EvalAltResult, Map, Position, Scope};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use traffic::flows::MAX_FLOWS;
use traffic::pace::MAX_PPS;
use traffic::{Mix, Stack};

/// Maximum size of a script, bytes.
const MAX_SCRIPT_BYTES: u64 = report::limit::SCRIPT as u64;
/// Maximum number of streams.
pub const MAX_STREAMS: usize = 64;
/// Maximum duration of a profile, seconds.
pub const MAX_SECONDS: u32 = 10_000;
/// Default duration, seconds.
const DEFAULT_SECONDS: u32 = 60;

/// A script that sets what is sent in each second.
pub struct Profile {
    path: PathBuf,
    text: String,
    engine: Engine,
    /// Operations of all calls so far.
    operations: Arc<AtomicU64>,
    script: AST,
    streams: Vec<ProfileStream>,
    seconds: u32,
}

/// A stream of a profile.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileStream {
    /// Name.
    pub name: String,
    /// Frames as written.
    pub frames: String,
    /// Frames.
    pub mix: Mix,
    /// Number of flows.
    pub flows: u32,
    /// Port that it is sent into: 0, the first, or 1.
    pub port: u8,
    /// Headers; by default UDP over the IP version of the addresses.
    pub stack: Option<Stack>,
    /// Header fields that change from packet to packet.
    pub vary: Vec<VariedField>,
}

/// Rate of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// Packets per second, 0 to [`MAX_PPS`].
    Pps(f64),
    /// Share of the line rate, 0.0 to 1.0.
    Share(f64),
}

/// A stream that sends in a second.
#[derive(Clone, Debug, PartialEq)]
pub struct ActiveStream {
    /// Index in [`Profile::streams`].
    pub stream: usize,
    /// Rate.
    pub rate: Rate,
    /// Frames as written.
    pub frames: String,
    /// Frames.
    pub mix: Mix,
    /// Number of flows.
    pub flows: u32,
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rate::Pps(rate) => write!(f, "{rate} pps"),
            Rate::Share(share) => write!(f, "{share} of the line"),
        }
    }
}

impl Profile {
    /// Reads a script, and evaluates its streams and second 0.
    ///
    /// # Errors
    /// A script that cannot be read or parsed, or returns invalid values, with the position if known.
    pub fn open(path: &Path) -> Result<Profile, Diagnostic> {
        let read_error = |cause: String| {
            let d = Diagnostic::new(format!("profile: cannot be read: {cause}")).value(path.display());
            d.remedy("use a script of at most 64 KiB")
        };
        let file = File::open(path).map_err(|e| read_error(e.to_string()))?;
        let mut text = String::new();
        file.take(MAX_SCRIPT_BYTES + 1).read_to_string(&mut text).map_err(|e| read_error(e.to_string()))?;
        if text.len() as u64 > MAX_SCRIPT_BYTES {
            return Err(read_error(format!("has more than {MAX_SCRIPT_BYTES} bytes")));
        }
        Profile::parse(&text, path)
    }

    /// Parses the text of a script, as [`Profile::open`].
    ///
    /// # Errors
    /// As [`Profile::open`].
    pub fn parse(text: &str, path: &Path) -> Result<Profile, Diagnostic> {
        let (engine, operations) = new_engine();
        let script = engine.compile(text).map_err(|e| {
            let line = e.position().line().and_then(|line| text.lines().nth(line.saturating_sub(1)));
            let shown: String = line.unwrap_or(text).trim().chars().take(80).collect();
            let d = Diagnostic::new(format!("profile: {}", without_control_characters(&e.err_type().to_string())))
                .value(shown);
            with_position(d.remedy("define `fn streams()` and `fn at(second)` in Rhai"), path, e.position())
        })?;
        let (path, text) = (path.to_owned(), text.to_owned());
        let mut profile = Profile { path, text, engine, operations, script, streams: vec![], seconds: DEFAULT_SECONDS };
        profile.streams = profile.read_streams()?;
        profile.seconds = profile.read_seconds()?;
        profile.at(0)?;
        Ok(profile)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the file name without its folder.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        name.chars().take(report::limit::NAME).collect()
    }

    /// Returns the text of the script.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the duration in seconds: that of the script, or 60.
    pub fn seconds(&self) -> u32 {
        self.seconds
    }

    /// Returns the streams.
    pub fn streams(&self) -> &[ProfileStream] {
        &self.streams
    }

    /// Resets the count of operations.
    fn reset_operations(&self) {
        self.operations.store(0, Ordering::Relaxed);
    }

    /// Evaluates a second, counted from 0. Returns the streams that send in it, in their order.
    ///
    /// # Errors
    /// A script that fails, exceeds the operations, or returns invalid values; the diagnostic names the second.
    pub fn at(&self, second: u32) -> Result<Vec<ActiveStream>, Diagnostic> {
        self.rates(second).map_err(|d| Diagnostic { problem: format!("{} (second {second})", d.problem), ..d })
    }

    fn rates(&self, second: u32) -> Result<Vec<ActiveStream>, Diagnostic> {
        let rates: Map = self.call("at", vec![Dynamic::from(i64::from(second))])?;
        let unknown = rates.keys().find(|name| self.streams.iter().all(|stream| stream.name != name.as_str()));
        if let Some(name) = unknown {
            let names: Vec<_> = self.streams.iter().map(|stream| stream.name.as_str()).collect();
            return Err(self.error(
                "at",
                name.as_str(),
                "unknown stream",
                &format!("use one of: {}", names.join(", ")),
            ));
        }
        let mut all = vec![];
        for (n, stream) in self.streams.iter().enumerate() {
            let Some(value) = rates.get(stream.name.as_str()) else { continue };
            let fields = self.fields("at", value, &["rate", "share", "frames", "flows"])?;
            let rate = match (fields.get("rate"), fields.get("share")) {
                (Some(rate), None) => Rate::Pps(self.number("rate", rate, MAX_PPS)?),
                (None, Some(share)) => Rate::Share(self.number("share", share, 1.0)?),
                _ => {
                    let problem = "needs one of rate and share";
                    return Err(self.error("at", &stream.name, problem, "use one: #{ rate: 1e6 }"));
                }
            };
            let (frames, mix) = self.frames("at", &fields, &stream.frames)?;
            let flows = self.flows("at", &fields, stream.flows)?;
            all.push(ActiveStream { stream: n, rate, frames, mix, flows });
        }
        Ok(all)
    }

    fn read_streams(&self) -> Result<Vec<ProfileStream>, Diagnostic> {
        let list: Array = self.call("streams", vec![])?;
        if !(1..=MAX_STREAMS).contains(&list.len()) {
            let problem = format!("invalid number of streams: not 1 to {MAX_STREAMS}");
            return Err(self.error("streams", &list.len().to_string(), &problem, "return 1 to 64 streams"));
        }
        let mut all: Vec<ProfileStream> = vec![];
        for value in &list {
            let fields = self.fields("streams", value, &["name", "frames", "flows", "port", "stack", "vary"])?;
            let name = fields.get("name").map(Dynamic::to_string).unwrap_or_default();
            let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
            let known = all.iter().any(|stream| stream.name == name);
            if name.is_empty() || name.len() > 32 || !name.bytes().all(plain) || known {
                let remedy = "use a different name for each stream, of up to 32 letters, digits, - and _";
                return Err(self.error("streams", &name, "invalid or duplicate name of a stream", remedy));
            }
            let (frames, mix) = self.frames("streams", &fields, "64")?;
            let flows = self.flows("streams", &fields, 1)?;
            let port = match fields.get("port").map(Dynamic::as_int) {
                None | Some(Ok(0)) => 0,
                Some(Ok(1)) => 1,
                _ => {
                    let shown = fields.get("port").map(Dynamic::to_string).unwrap_or_default();
                    return Err(self.error("streams", &shown, "invalid port", "use port: 0, the first, or port: 1"));
                }
            };
            let stack = fields.get("stack").map(Dynamic::to_string).map(|text| {
                let remedy = "use a stack such as stack: \"eth/vlan:7/ipv6/udp\"";
                text.parse().map_err(|e: traffic::stack::NotStack| self.error("streams", &text, &e.to_string(), remedy))
            });
            let (stack, vary) = (stack.transpose()?, self.vary(&fields)?);
            all.push(ProfileStream { name, frames, mix, flows, port, stack, vary });
        }
        if all.iter().all(|stream| stream.port != 0) {
            let remedy = "send at least one stream into port 0, the first";
            return Err(self.error("streams", "port: 1", "is the port of all streams", remedy));
        }
        Ok(all)
    }

    /// Evaluates the duration.
    fn read_seconds(&self) -> Result<u32, Diagnostic> {
        if !self.script.iter_functions().any(|f| f.name == "seconds" && f.params.is_empty()) {
            return Ok(DEFAULT_SECONDS);
        }
        let value: Dynamic = self.call("seconds", vec![])?;
        let seconds = value.as_int().ok().and_then(|n| u32::try_from(n).ok());
        seconds.filter(|n| (1..=MAX_SECONDS).contains(n)).ok_or_else(|| {
            let problem = "invalid number of seconds";
            self.error("seconds", &value.to_string(), problem, &format!("return a whole number, 1 to {MAX_SECONDS}"))
        })
    }

    fn call<T: Clone + 'static + Send + Sync>(&self, name: &str, arguments: Vec<Dynamic>) -> Result<T, Diagnostic> {
        let value: Dynamic = self
            .engine
            .call_fn(&mut Scope::new(), &self.script, name, arguments)
            .map_err(|e| self.call_error(name, &e))?;
        let type_name = value.type_name();
        value.try_cast().ok_or_else(|| {
            let remedy =
                "return a list [#{ name: \"web\" }] from streams(), and a map #{ web: #{ rate: 1e6 } } from at(second)";
            self.error(name, type_name, "has another type than required", remedy)
        })
    }

    fn call_error(&self, name: &str, cause: &EvalAltResult) -> Diagnostic {
        let (problem, remedy) = match cause {
            EvalAltResult::ErrorFunctionNotFound(..) if cause.position().is_none() => {
                (format!("has no function {name}"), "define `fn streams()` and `fn at(second)`")
            }
            EvalAltResult::ErrorTooManyOperations(_) => {
                (format!("{name} takes more than {MAX_OPERATIONS} operations"), "compute less in one call")
            }
            EvalAltResult::ErrorTerminated(..) => {
                let all = format!("all calls together take more than {MAX_TOTAL_OPERATIONS} operations");
                (all, "compute less per second, or use fewer seconds")
            }
            other => (format!("{name}: {other}"), "correct the script"),
        };
        let d =
            Diagnostic::new(format!("profile: {}", without_control_characters(&problem))).value(name).remedy(remedy);
        match innermost_position(cause) {
            position if position.is_none() => self.at_function(name, d),
            position => with_position(d, &self.path, position),
        }
    }

    fn error(&self, place: &str, value: &str, problem: &str, remedy: &str) -> Diagnostic {
        let shown: String = value.chars().take(80).collect();
        let d = Diagnostic::new(format!("profile, {place}: {}", without_control_characters(problem)))
            .value(shown)
            .remedy(remedy);
        self.at_function(place, d)
    }

    /// Adds the position of a function to a diagnostic that has none.
    fn at_function(&self, name: &str, d: Diagnostic) -> Diagnostic {
        let begins = |line: &str| {
            let rest = line.trim_start().strip_prefix("fn ").and_then(|rest| rest.trim_start().strip_prefix(name));
            rest.is_some_and(|rest| rest.trim_start().starts_with('('))
        };
        let line = self.text.lines().position(begins).map(|line| line + 1);
        Diagnostic { file: Some(self.path.clone()), line, column: line.map(|_| 1), ..d }
    }

    /// Returns the fields of a map, which has no others than `known`.
    fn fields(&self, place: &str, value: &Dynamic, known: &[&str]) -> Result<Map, Diagnostic> {
        let Some(map) = value.read_lock::<Map>() else {
            return Err(self.error(place, &value.to_string(), "is not a map", "use a map such as #{ rate: 1e6 }"));
        };
        if let Some(other) = map.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(self.error(place, other, "unknown field", &format!("use: {}", known.join(", "))));
        }
        Ok(map.clone())
    }

    fn number(&self, name: &str, value: &Dynamic, max: f64) -> Result<f64, Diagnostic> {
        let number = value.as_float().or_else(|_| value.as_int().map(|n| n as f64));
        number.ok().filter(|number| (0.0..=max).contains(number)).ok_or_else(|| {
            let (shown, problem) = (value.to_string(), format!("invalid {name}: not 0 to {max}"));
            self.error("at", &shown, &problem, "use a number in that range")
        })
    }

    fn frames(&self, place: &str, fields: &Map, or: &str) -> Result<(String, Mix), Diagnostic> {
        let text = fields.get("frames").map_or_else(|| or.to_owned(), Dynamic::to_string);
        let mix = text.parse().map_err(|e: traffic::SizeError| {
            self.error(place, &text, &e.to_string(), "use a size or a mix, such as frames: \"imix\"")
        })?;
        Ok((text, mix))
    }

    fn vary(&self, fields: &Map) -> Result<Vec<VariedField>, Diagnostic> {
        let remedy = "use a list such as vary: [\"ipv4.dscp=0-63\"]";
        let Some(value) = fields.get("vary") else { return Ok(vec![]) };
        let list = value.read_lock::<Array>();
        let list = list.ok_or_else(|| self.error("streams", &value.to_string(), "vary is not a list", remedy))?;
        let field = |value: &Dynamic| {
            let text = value.to_string();
            text.parse().map_err(|e: String| self.error("streams", &text, &e, remedy))
        };
        list.iter().map(field).collect()
    }

    fn flows(&self, place: &str, fields: &Map, or: u32) -> Result<u32, Diagnostic> {
        let Some(value) = fields.get("flows") else { return Ok(or) };
        let flows = value.as_int().ok().and_then(|n| u32::try_from(n).ok()).filter(|n| (1..=MAX_FLOWS).contains(n));
        flows.ok_or_else(|| {
            let remedy = format!("use flows: 1 to {MAX_FLOWS}");
            self.error(place, &value.to_string(), "invalid number of flows", &remedy)
        })
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profile").field("path", &self.path).field("streams", &self.streams).finish_non_exhaustive()
    }
}

/// Returns the innermost position of an error.
fn innermost_position(cause: &EvalAltResult) -> Position {
    match cause {
        EvalAltResult::ErrorInFunctionCall(_, _, inner, _) if !inner.position().is_none() => innermost_position(inner),
        other => other.position(),
    }
}

impl PartialEq for Profile {
    /// Compares path and text.
    fn eq(&self, other: &Profile) -> bool {
        (&self.path, &self.text) == (&other.path, &other.text)
    }
}

/// Returns the first 400 characters of a text from a script, without control characters.
fn without_control_characters(text: &str) -> String {
    text.chars().take(400).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn with_position(d: Diagnostic, path: &Path, position: Position) -> Diagnostic {
    Diagnostic { file: Some(path.to_owned()), line: position.line(), column: position.position(), ..d }
}

#[cfg(test)]
mod tests;
