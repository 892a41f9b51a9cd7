//! Profiles: what is sent changes from second to second, as a script says.
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
//! The language is Rhai. `streams` names up to 64 streams with their frames, flows and port (64 bytes, 1 flow and port 0 where
//! it does not say); `at` gives what each sends in a second, counted from 0: `rate` in packets a second or `share` of the line,
//! and `frames` or `flows` where they change. A stream that it leaves out sends nothing. `seconds`, which may be left out, says
//! how long it lasts. The script reads and writes no file, knows no time but the second, is asked by itself for each second,
//! and is ended after a million operations of one call and twenty million of all.
//!
//! A [`Profile`] is a script that was read, a [`Timetable`] what it says for each second of a trial.

mod timetable;

pub use timetable::{Entry, Part, StreamPlan, Timetable};

use diagnostics::Diagnostic;
use rhai::{AST, Array, Dynamic, Engine, EvalAltResult, Map, Position, Scope};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use traffic::Mix;
use traffic::flows::MAX_FLOWS;
use traffic::pace::MAX_PPS;

/// Longest script, bytes.
const LONGEST: u64 = report::limit::SCRIPT as u64;
/// Operations of one call, and of all calls.
const OPERATIONS: u64 = 1_000_000;
const ALL_OPERATIONS: u64 = 20_000_000;
/// Most streams.
pub const MAX_STREAMS: usize = 64;
/// Longest profile, seconds.
pub const MAX_SECONDS: u32 = 10_000;
/// How long it lasts where nothing says so, seconds.
const SECONDS: u32 = 60;

/// A script that says what is sent in each second.
pub struct Profile {
    path: PathBuf,
    text: String,
    engine: Engine,
    /// Operations of all calls.
    spent: Arc<AtomicU64>,
    script: AST,
    streams: Vec<ProfileStream>,
    seconds: u32,
}

/// A stream of a profile.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileStream {
    /// Its name.
    pub name: String,
    /// What was written of its frames.
    pub frames: String,
    /// Its frames.
    pub mix: Mix,
    /// Its flows.
    pub flows: u32,
    /// Into which port it is sent: 0, the first, or 1.
    pub port: u8,
}

/// How much of something.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// Packets a second, 0 to [`MAX_PPS`].
    Pps(f64),
    /// Share of the line, 0.0 to 1.0.
    Share(f64),
}

/// What a stream sends in a second.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamRate {
    /// The stream's place in [`Profile::streams`].
    pub stream: usize,
    /// How much.
    pub rate: Rate,
    /// What was written of its frames.
    pub frames: String,
    /// Its frames.
    pub mix: Mix,
    /// Its flows.
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
    /// Reads a script, and asks it for its streams and for second 0.
    ///
    /// # Errors
    /// When it cannot be read, does not parse, or says what cannot be, with the place where that is known.
    pub fn open(path: &Path) -> Result<Profile, Diagnostic> {
        let unread = |why: String| {
            let d = Diagnostic::new(format!("profile: cannot be read: {why}")).value(path.display());
            d.remedy("name a script of up to 64 KiB")
        };
        let file = File::open(path).map_err(|e| unread(e.to_string()))?;
        let mut text = String::new();
        file.take(LONGEST + 1).read_to_string(&mut text).map_err(|e| unread(e.to_string()))?;
        if text.len() as u64 > LONGEST {
            return Err(unread(format!("has more than {LONGEST} bytes")));
        }
        Profile::parse(&text, path)
    }

    /// As [`Profile::open`], of the text of a file.
    ///
    /// # Errors
    /// As [`Profile::open`].
    pub fn parse(text: &str, path: &Path) -> Result<Profile, Diagnostic> {
        let (engine, spent) = engine();
        let script = engine.compile(text).map_err(|e| {
            let line = e.position().line().and_then(|line| text.lines().nth(line.saturating_sub(1)));
            let shown: String = line.unwrap_or(text).trim().chars().take(80).collect();
            let d = Diagnostic::new(format!("profile: {}", plain(&e.err_type().to_string()))).value(shown);
            placed(d.remedy("write `fn streams()` and `fn at(second)` in Rhai"), path, e.position())
        })?;
        let (path, text) = (path.to_owned(), text.to_owned());
        let mut profile = Profile { path, text, engine, spent, script, streams: vec![], seconds: SECONDS };
        profile.streams = profile.read_streams()?;
        profile.seconds = profile.read_seconds()?;
        profile.at(0)?;
        Ok(profile)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file's name, without its folder.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        name.chars().take(report::limit::NAME).collect()
    }

    /// The script.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// How long it lasts, seconds: what the script says, else 60.
    pub fn seconds(&self) -> u32 {
        self.seconds
    }

    /// Its streams.
    pub fn streams(&self) -> &[ProfileStream] {
        &self.streams
    }

    /// Counts operations anew.
    fn begin(&self) {
        self.spent.store(0, Ordering::Relaxed);
    }

    /// What the streams send in a second, counted from 0: each that sends something, in their order.
    ///
    /// # Errors
    /// When the script fails, takes too long, or gives what cannot be; the second is named.
    pub fn at(&self, second: u32) -> Result<Vec<StreamRate>, Diagnostic> {
        self.rates(second).map_err(|d| Diagnostic { problem: format!("{} (second {second})", d.problem), ..d })
    }

    fn rates(&self, second: u32) -> Result<Vec<StreamRate>, Diagnostic> {
        let given: Map = self.call("at", vec![Dynamic::from(i64::from(second))])?;
        let unknown = given.keys().find(|name| self.streams.iter().all(|stream| stream.name != name.as_str()));
        if let Some(name) = unknown {
            let names: Vec<_> = self.streams.iter().map(|stream| stream.name.as_str()).collect();
            return Err(self.wrong("at", name.as_str(), "is no stream", &format!("use one of: {}", names.join(", "))));
        }
        let mut all = vec![];
        for (n, stream) in self.streams.iter().enumerate() {
            let Some(value) = given.get(stream.name.as_str()) else { continue };
            let fields = self.fields("at", value, &["rate", "share", "frames", "flows"])?;
            let rate = match (fields.get("rate"), fields.get("share")) {
                (Some(rate), None) => Rate::Pps(self.number("rate", rate, MAX_PPS)?),
                (None, Some(share)) => Rate::Share(self.number("share", share, 1.0)?),
                _ => {
                    let problem = "has to have one of rate and share";
                    return Err(self.wrong("at", &stream.name, problem, "write one: #{ rate: 1e6 }"));
                }
            };
            let (frames, mix) = self.frames("at", &fields, &stream.frames)?;
            let flows = self.flows("at", &fields, stream.flows)?;
            all.push(StreamRate { stream: n, rate, frames, mix, flows });
        }
        Ok(all)
    }

    fn read_streams(&self) -> Result<Vec<ProfileStream>, Diagnostic> {
        let given: Array = self.call("streams", vec![])?;
        if !(1..=MAX_STREAMS).contains(&given.len()) {
            let problem = format!("are not 1 to {MAX_STREAMS} streams");
            return Err(self.wrong("streams", &given.len().to_string(), &problem, "name some, or fewer"));
        }
        let mut all: Vec<ProfileStream> = vec![];
        for value in &given {
            let fields = self.fields("streams", value, &["name", "frames", "flows", "port"])?;
            let name = fields.get("name").map(Dynamic::to_string).unwrap_or_default();
            let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
            let known = all.iter().any(|stream| stream.name == name);
            if name.is_empty() || name.len() > 32 || !name.bytes().all(plain) || known {
                let remedy = "name each stream differently, in up to 32 letters, digits, - and _";
                return Err(self.wrong("streams", &name, "is no name of a stream, or that of another too", remedy));
            }
            let (frames, mix) = self.frames("streams", &fields, "64")?;
            let flows = self.flows("streams", &fields, 1)?;
            let port = match fields.get("port").map(Dynamic::as_int) {
                None | Some(Ok(0)) => 0,
                Some(Ok(1)) => 1,
                _ => {
                    let shown = fields.get("port").map(Dynamic::to_string).unwrap_or_default();
                    return Err(self.wrong("streams", &shown, "is no port", "write port: 0, the first, or port: 1"));
                }
            };
            all.push(ProfileStream { name, frames, mix, flows, port });
        }
        if all.iter().all(|stream| stream.port != 0) {
            let remedy = "let a stream go into port 0, the first";
            return Err(self.wrong("streams", "port: 1", "is the port of all streams", remedy));
        }
        Ok(all)
    }

    /// How long it lasts, if the script says so.
    fn read_seconds(&self) -> Result<u32, Diagnostic> {
        if !self.script.iter_functions().any(|f| f.name == "seconds" && f.params.is_empty()) {
            return Ok(SECONDS);
        }
        let given: Dynamic = self.call("seconds", vec![])?;
        let seconds = given.as_int().ok().and_then(|n| u32::try_from(n).ok());
        seconds.filter(|n| (1..=MAX_SECONDS).contains(n)).ok_or_else(|| {
            let problem = "is no number of seconds";
            self.wrong("seconds", &given.to_string(), problem, &format!("give a whole number, 1 to {MAX_SECONDS}"))
        })
    }

    fn call<T: Clone + 'static + Send + Sync>(&self, name: &str, arguments: Vec<Dynamic>) -> Result<T, Diagnostic> {
        let given: Dynamic =
            self.engine.call_fn(&mut Scope::new(), &self.script, name, arguments).map_err(|e| self.failed(name, &e))?;
        let kind = given.type_name();
        given.try_cast().ok_or_else(|| {
            let remedy = "let streams() give a list [#{ name: \"web\" }], and at(second) a map #{ web: #{ rate: 1e6 } }";
            self.wrong(name, kind, "is not what it has to give", remedy)
        })
    }

    fn failed(&self, name: &str, why: &EvalAltResult) -> Diagnostic {
        let (problem, remedy) = match why {
            EvalAltResult::ErrorFunctionNotFound(..) if why.position().is_none() => {
                (format!("has no function {name}"), "write `fn streams()` and `fn at(second)`")
            }
            EvalAltResult::ErrorTooManyOperations(_) => {
                (format!("{name} takes more than {OPERATIONS} operations"), "let it reckon less in one call")
            }
            EvalAltResult::ErrorTerminated(..) => {
                let all = format!("all calls together take more than {ALL_OPERATIONS} operations");
                (all, "let it reckon less in each second, or last less long")
            }
            other => (format!("{name}: {other}"), "correct the script"),
        };
        let d = Diagnostic::new(format!("profile: {}", plain(&problem))).value(name).remedy(remedy);
        match innermost(why) {
            position if position.is_none() => self.at_function(name, d),
            position => placed(d, &self.path, position),
        }
    }

    fn wrong(&self, place: &str, value: &str, problem: &str, remedy: &str) -> Diagnostic {
        let shown: String = value.chars().take(80).collect();
        let d = Diagnostic::new(format!("profile, {place}: {}", plain(problem))).value(shown).remedy(remedy);
        self.at_function(place, d)
    }

    /// A fault that has no place in the script has that of the function that gives it, if there is one.
    fn at_function(&self, name: &str, d: Diagnostic) -> Diagnostic {
        let begins = |line: &str| {
            let rest = line.trim_start().strip_prefix("fn ").and_then(|rest| rest.trim_start().strip_prefix(name));
            rest.is_some_and(|rest| rest.trim_start().starts_with('('))
        };
        let line = self.text.lines().position(begins).map(|line| line + 1);
        Diagnostic { file: Some(self.path.clone()), line, column: line.map(|_| 1), ..d }
    }

    /// The fields of a map, which has to have no others.
    fn fields(&self, place: &str, value: &Dynamic, known: &[&str]) -> Result<Map, Diagnostic> {
        let Some(map) = value.read_lock::<Map>() else {
            return Err(self.wrong(place, &value.to_string(), "is no map", "write one: #{ rate: 1e6 }"));
        };
        if let Some(other) = map.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(self.wrong(place, other, "is not known", &format!("use: {}", known.join(", "))));
        }
        Ok(map.clone())
    }

    fn number(&self, name: &str, value: &Dynamic, most: f64) -> Result<f64, Diagnostic> {
        let number = value.as_float().or_else(|_| value.as_int().map(|n| n as f64));
        number.ok().filter(|number| (0.0..=most).contains(number)).ok_or_else(|| {
            let (shown, problem) = (value.to_string(), format!("is no {name} from 0 to {most}"));
            self.wrong("at", &shown, &problem, "write a number in between")
        })
    }

    fn frames(&self, place: &str, fields: &Map, or: &str) -> Result<(String, Mix), Diagnostic> {
        let text = fields.get("frames").map_or_else(|| or.to_owned(), Dynamic::to_string);
        let mix = text.parse().map_err(|e: traffic::SizeError| {
            self.wrong(place, &text, &e.to_string(), "write a size or a mix, such as frames: \"imix\"")
        })?;
        Ok((text, mix))
    }

    fn flows(&self, place: &str, fields: &Map, or: u32) -> Result<u32, Diagnostic> {
        let Some(value) = fields.get("flows") else { return Ok(or) };
        let flows = value.as_int().ok().and_then(|n| u32::try_from(n).ok()).filter(|n| (1..=MAX_FLOWS).contains(n));
        flows.ok_or_else(|| {
            let remedy = format!("write flows: 1 to {MAX_FLOWS}");
            self.wrong(place, &value.to_string(), "is no number of flows", &remedy)
        })
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profile").field("path", &self.path).field("streams", &self.streams).finish_non_exhaustive()
    }
}

/// Where an error is, innermost.
fn innermost(why: &EvalAltResult) -> Position {
    match why {
        EvalAltResult::ErrorInFunctionCall(_, _, inner, _) if !inner.position().is_none() => innermost(inner),
        other => other.position(),
    }
}

impl PartialEq for Profile {
    /// Two are the same where the file and the script are.
    fn eq(&self, other: &Profile) -> bool {
        (&self.path, &self.text) == (&other.path, &other.text)
    }
}

/// Of what a script says, as much as one reads, and nothing that a terminal would obey.
fn plain(text: &str) -> String {
    text.chars().take(400).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn placed(d: Diagnostic, path: &Path, position: Position) -> Diagnostic {
    Diagnostic { file: Some(path.to_owned()), line: position.line(), column: position.position(), ..d }
}

/// One that reckons and nothing else, within bounds.
fn engine() -> (Engine, Arc<AtomicU64>) {
    let mut engine = Engine::new();
    let spent = Arc::new(AtomicU64::new(0));
    let counted = spent.clone();
    // told of every operation
    engine.on_progress(move |_| (counted.fetch_add(1, Ordering::Relaxed) >= ALL_OPERATIONS).then_some(Dynamic::UNIT));
    engine.set_max_operations(OPERATIONS);
    engine.set_max_call_levels(32);
    engine.set_max_expr_depths(64, 64);
    engine.set_max_string_size(4096);
    engine.set_max_array_size(4096);
    engine.set_max_map_size(1024);
    engine.set_max_variables(256);
    engine.set_max_functions(64);
    engine.disable_symbol("eval");
    engine.on_print(|_| {});
    engine.on_debug(|_, _, _| {});
    (engine, spent)
}

#[cfg(test)]
mod tests;
