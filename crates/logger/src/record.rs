//! A message with its fields, and how outputs represent it.

use crate::level::{TARGETS, name};
use serde::Serialize;
use serde_json::Value;
use std::fmt::Write as _;
use std::time::SystemTime;
use tracing::Level;

/// Targets whose messages are complete without a prefix.
const UNPREFIXED: [&str; 2] = ["output", "rates"];
/// Longest message and longest value of a field, in bytes; datagrams are limited.
pub(crate) const MAX_LEN: usize = 32 << 10;
/// Longest message that is sent to syslog, in bytes: its servers accept 8 KiB.
const MAX_SYSLOG_LEN: usize = 8000;
/// Facility `daemon` of syslog (RFC 5424 §6.2.1).
const FACILITY: u8 = 3;
/// Name of the program in syslog and journald.
const IDENTIFIER: &str = "bondstone";

/// A message.
pub(crate) struct Record<'a> {
    pub(crate) level: Level,
    pub(crate) target: &'a str,
    pub(crate) message: &'a str,
    pub(crate) fields: Vec<(&'static str, Value)>,
    /// File and line of the code.
    pub(crate) code: Option<(&'static str, u32)>,
}

/// Representation of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// Lines that begin with `error:`, `warning:` or `note:`.
    Text,
    /// An object in each line; with priorities of `sd-daemon(3)` in front of them, if `priority` is set.
    Json { priority: bool },
    /// Datagrams of the native protocol of journald (<https://systemd.io/JOURNAL_NATIVE_PROTOCOL>).
    Journald,
    /// Datagrams as `syslog(3)` sends them, but without a time, which the server adds; as JSON if `json` is set.
    Syslog { json: bool },
}

impl Encoding {
    /// Returns the bytes of a record; `common` are further fields.
    pub(crate) fn encode(self, record: &Record<'_>, common: &[(&'static str, String)]) -> Vec<u8> {
        match self {
            Encoding::Text => format!("{}\n", text(record)).into_bytes(),
            Encoding::Json { priority: false } => format!("{}\n", json(record, common)).into_bytes(),
            Encoding::Json { priority: true } => {
                format!("<{}>{}\n", severity(record.level), json(record, common)).into_bytes()
            }
            Encoding::Journald => journald(record, common),
            Encoding::Syslog { json: as_json } => {
                let text =
                    if as_json { json(record, common) } else { text(record).replace("\n  ", "; ").replace('\n', "; ") };
                let priority = FACILITY * 8 + severity(record.level);
                let head = format!("<{priority}>{IDENTIFIER}[{}]: ", std::process::id());
                format!("{head}{}", cut(&text, MAX_SYSLOG_LEN)).into_bytes()
            }
        }
    }
}

/// Returns the level that a line of text begins with.
pub fn level_of(line: &str) -> Level {
    match line.split_once(": ").map(|(first, _)| first) {
        Some("error") => Level::ERROR,
        Some("warning") => Level::WARN,
        Some("debug") => Level::DEBUG,
        Some("trace") => Level::TRACE,
        _ => Level::INFO,
    }
}

/// Returns the severity of `syslog(3)`.
fn severity(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

/// Returns text of at most `len` bytes, with an ellipsis if it was longer.
pub(crate) fn cut(text: &str, len: usize) -> String {
    if text.len() <= len {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(len)])
}

/// Returns text without the control characters that change what a terminal displays.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && !matches!(c, '\n' | '\t') { '\u{fffd}' } else { c }).collect()
}

fn text(record: &Record<'_>) -> String {
    let prefix = match record.level {
        _ if UNPREFIXED.contains(&record.target) => "",
        Level::ERROR => "error: ",
        Level::WARN => "warning: ",
        Level::INFO => "note: ",
        Level::DEBUG => "debug: ",
        Level::TRACE => "trace: ",
    };
    let mut text = String::from(prefix);
    // our own messages contain their values
    let is_own = TARGETS.iter().any(|(name, _)| *name == record.target);
    if !is_own {
        _ = write!(text, "{}: ", record.target);
    }
    text += record.message;
    for (field, value) in record.fields.iter().filter(|_| !is_own) {
        _ = write!(text, " {field}={value}");
    }
    printable(&text)
}

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    level: &'static str,
    target: &'a str,
    message: String,
    fields: serde_json::Map<String, Value>,
}

fn json(record: &Record<'_>, common: &[(&'static str, String)]) -> String {
    let common = common.iter().map(|(name, value)| ((*name).to_owned(), Value::from(value.as_str())));
    let own = record.fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
    let line = Line {
        time: humantime::format_rfc3339_micros(SystemTime::now()).to_string(),
        level: name(record.level),
        target: record.target,
        message: cut(record.message, MAX_LEN),
        fields: common.chain(own).collect(),
    };
    // an object of strings and numbers
    serde_json::to_string(&line).unwrap_or_default()
}

fn journald(record: &Record<'_>, common: &[(&'static str, String)]) -> Vec<u8> {
    let mut bytes = vec![];
    // with its length, a value may contain line feeds
    let mut put = |name: &str, value: &str| {
        let value = cut(value, MAX_LEN);
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(b'\n');
        bytes.extend_from_slice(&(value.len() as u64).to_le_bytes());
        bytes.extend_from_slice(value.as_bytes());
        bytes.push(b'\n');
    };
    put("MESSAGE", record.message);
    put("PRIORITY", &severity(record.level).to_string());
    put("SYSLOG_IDENTIFIER", IDENTIFIER);
    if let Some((file, line)) = record.code {
        put("CODE_FILE", file);
        put("CODE_LINE", &line.to_string());
    }
    put("BONDSTONE_TARGET", record.target);
    common.iter().for_each(|(name, value)| put(&journald_name(name), value));
    for (name, value) in &record.fields {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        put(&journald_name(name), &text);
    }
    bytes
}

/// Returns the name of a field in journald: capital letters, digits and underscores, at most 64 characters.
fn journald_name(name: &str) -> String {
    let own = name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' });
    "BONDSTONE_".chars().chain(own).take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMON: &[(&str, String)] = &[];

    fn record<'a>(level: Level, target: &'a str, message: &'a str) -> Record<'a> {
        Record { level, target, message, fields: vec![("port", "wan".into()), ("count", 7.into())], code: None }
    }

    fn encoded(encoding: Encoding, record: &Record<'_>) -> String {
        String::from_utf8(encoding.encode(record, COMMON)).unwrap()
    }

    #[test]
    fn text_has_a_prefix_and_no_escape_sequences() {
        let line = |level, target, message| encoded(Encoding::Text, &record(level, target, message));
        assert_eq!(line(Level::WARN, "run", "link down"), "warning: link down\n");
        assert_eq!(line(Level::INFO, "rates", "    1 s"), "    1 s\n");
        assert_eq!(line(Level::ERROR, "run", "a\n  help: b\x1b[2J"), "error: a\n  help: b\u{fffd}[2J\n");
        assert_eq!(line(Level::INFO, "my_nf", "full"), "note: my_nf: full port=\"wan\" count=7\n");
    }

    #[test]
    fn json_is_one_line() {
        let line = encoded(Encoding::Json { priority: true }, &record(Level::WARN, "run", "a\nb\""));
        let object: Value = serde_json::from_str(line.strip_prefix("<4>").unwrap()).unwrap();
        assert!(line.ends_with('\n') && line.lines().count() == 1, "{line}");
        assert_eq!(
            (&object["level"], &object["target"], &object["message"]),
            (&"warn".into(), &"run".into(), &"a\nb\"".into())
        );
        assert_eq!(object["fields"], serde_json::json!({"port": "wan", "count": 7}));
        // RFC 3339, UTC, microseconds
        let time = object["time"].as_str().unwrap();
        assert!(time.len() == 27 && time.ends_with('Z') && humantime::parse_rfc3339(time).is_ok(), "{time}");
    }

    #[test]
    fn datagrams_are_bounded() {
        let long = "é".repeat(1 << 20);
        let syslog = Encoding::Syslog { json: false }.encode(&record(Level::ERROR, "run", &long), COMMON);
        assert!(syslog.starts_with(b"<27>bondstone[") && syslog.len() < 8192);
        let lines = encoded(Encoding::Syslog { json: false }, &record(Level::DEBUG, "run", "a\n  help: b"));
        assert!(lines.starts_with("<31>") && lines.ends_with("]: debug: a; help: b"), "{lines}");
        let journald = Encoding::Journald.encode(&record(Level::INFO, "run", &long), COMMON);
        assert!(journald.len() < 2 * MAX_LEN);
    }

    #[test]
    fn journald_receives_fields_with_their_lengths() {
        let bytes = encoded(Encoding::Journald, &record(Level::INFO, "run", "a\nb"));
        assert!(bytes.starts_with("MESSAGE\n\x03\0\0\0\0\0\0\0a\nb\nPRIORITY\n\x01\0\0\0\0\0\0\x006\n"), "{bytes:?}");
        assert!(bytes.contains("BONDSTONE_PORT\n\x03\0\0\0\0\0\0\0wan\n"), "{bytes:?}");
        assert_eq!(journald_name("a.b-c"), "BONDSTONE_A_B_C");
    }
}
