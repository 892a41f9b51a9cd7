//! Filters of results.

use super::backend::Value;
use crate::Error;
use std::str::FromStr;

/// Conditions that listed results satisfy; `None` and empty lists match any result.
///
/// Parsed from `key=value` pairs separated by commas: `dut=native,frame=64,cell.isolation=vm`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Prefix of the id, hexadecimal.
    pub id: Option<String>,
    /// Study.
    pub study: Option<String>,
    /// Device under test: its kind, such as `bondstone`, or its label, such as `bondstone ttl+lpm`.
    pub dut: Option<String>,
    /// Version of the device under test.
    pub version: Option<String>,
    /// Frames: bytes with the FCS, such as `64`, or the name of a mix.
    pub frame: Option<String>,
    /// Method, such as `throughput`.
    pub method: Option<String>,
    /// Program that measured: its name, such as `csit`, or name and version, such as `bondstone 0.1.0`.
    pub tool: Option<String>,
    /// A tag.
    pub tag: Option<String>,
    /// Parameters of the cell, with their values.
    pub cell: Vec<(String, String)>,
    /// Earliest time of the measurement, inclusive, seconds since 1970-01-01T00:00:00Z.
    pub since: Option<i64>,
    /// Latest time of the measurement, inclusive, seconds since 1970-01-01T00:00:00Z.
    pub until: Option<i64>,
    /// Maximum number of results, up to [`Filter::MAX_RESULTS`], the default.
    pub limit: Option<usize>,
}

/// Keys in the text of a filter.
const KEYS: &str = "id, study, dut, version, frame, method, tool, tag, since, until, cell.NAME";

impl Filter {
    /// Maximum number of results in a list.
    pub const MAX_RESULTS: usize = 10_000;

    pub(crate) fn limit(&self) -> i64 {
        self.limit.unwrap_or(Self::MAX_RESULTS).min(Self::MAX_RESULTS) as i64
    }

    /// Returns the condition in SQL, and its parameters.
    pub(crate) fn condition(&self) -> (String, Vec<Value>) {
        let mut parts: Vec<String> = vec!["TRUE".to_owned()];
        let mut values: Vec<Value> = vec![];
        let mut add = |sql: &str, with: &[&str]| {
            let mut sql = sql.to_owned();
            for (n, value) in with.iter().enumerate() {
                values.push(Value::text(*value));
                sql = sql.replace(&format!("@{}", n + 1), &format!("?{}", values.len()));
            }
            parts.push(sql);
        };
        for (sql, value) in [
            ("substr(id, 1, length(@1)) = @1", &self.id),
            ("study = @1", &self.study),
            ("(dut = @1 OR dut_kind = @1)", &self.dut),
            ("dut_version = @1", &self.version),
            ("frame = @1", &self.frame),
            ("method = @1", &self.method),
            ("(tool = @1 OR substr(tool, 1, length(@1) + 1) = @1 || ' ')", &self.tool),
            ("EXISTS (SELECT 1 FROM tag WHERE tag.result = result.id AND tag.tag = @1)", &self.tag),
        ] {
            if let Some(value) = value {
                add(sql, &[value]);
            }
        }
        for (name, value) in &self.cell {
            let sql = "EXISTS (SELECT 1 FROM parameter p WHERE p.result = result.id AND p.name = @1 AND p.value = @2)";
            add(sql, &[name, value]);
        }
        for (sql, value) in [("date_s >=", self.since), ("date_s <=", self.until)] {
            if let Some(value) = value {
                values.push(Value::Int(value));
                parts.push(format!("{sql} ?{}", values.len()));
            }
        }
        (parts.join(" AND "), values)
    }
}

impl FromStr for Filter {
    type Err = Error;

    fn from_str(text: &str) -> Result<Filter, Error> {
        let invalid = |value: &str, problem: String| Error::Filter { value: value.to_owned(), problem };
        let mut filter = Filter::default();
        for pair in text.split(',') {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(invalid(pair, format!("not key=value; valid keys: {KEYS}")));
            };
            let (key, value) = (key.trim(), value.trim());
            if let Some(name) = key.strip_prefix("cell.") {
                filter.cell.push((name.to_owned(), value.to_owned()));
                continue;
            }
            let field = match key {
                "id" => &mut filter.id,
                "study" => &mut filter.study,
                "dut" => &mut filter.dut,
                "version" => &mut filter.version,
                "frame" => &mut filter.frame,
                "method" => &mut filter.method,
                "tool" => &mut filter.tool,
                "tag" => &mut filter.tag,
                "since" | "until" => {
                    let seconds = date(value, key == "until").ok_or_else(|| {
                        invalid(value, "not a date; use 2026-02-28 or 2026-02-28T12:00:00Z".to_owned())
                    })?;
                    *(if key == "since" { &mut filter.since } else { &mut filter.until }) = Some(seconds);
                    continue;
                }
                _ => return Err(invalid(key, format!("unknown key; valid keys: {KEYS}"))),
            };
            if field.replace(value.to_owned()).is_some() {
                return Err(invalid(pair, "duplicate key: no result has two values".to_owned()));
            }
        }
        Ok(filter)
    }
}

/// Parses a day into its first or last second in UTC, or a time (RFC 3339).
fn date(text: &str, end: bool) -> Option<i64> {
    let day = || report::unix_seconds(&format!("{text}T{}Z", if end { "23:59:59" } else { "00:00:00" }));
    report::unix_seconds(text).or_else(day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_filters() {
        let f: Filter = "dut=native, frame=64,cell.chain length=3,since=1970-01-02,until=1970-01-02".parse().unwrap();
        assert_eq!((f.dut.as_deref(), f.frame.as_deref()), (Some("native"), Some("64")));
        assert_eq!(f.cell, [("chain length".to_owned(), "3".to_owned())]);
        assert_eq!((f.since, f.until), (Some(86_400), Some(2 * 86_400 - 1)));
        for (text, expected) in [
            ("dut", "not key=value"),
            ("duty=x", "duty: unknown key"),
            ("since=yesterday", "yesterday: not a date"),
            ("dut=a,dut=b", "duplicate key"),
        ] {
            let e = text.parse::<Filter>().unwrap_err().to_string();
            assert!(e.contains(expected), "{e}");
        }
    }
}
