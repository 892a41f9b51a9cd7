//! Locations and suggestions for errors in a file.

use crate::renamed::new_name;
use diagnostics::Diagnostic;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

/// Errors that are reported of a file; locating one and guessing the intended word takes time in proportion to its
/// size.
pub const MAX_ERRORS: usize = 100;

/// Reads a text file of up to 16 MiB; `what` describes it in errors, such as `chain file`.
///
/// # Errors
/// The file cannot be read, is not UTF-8 or too large.
pub fn read(file: &Path, what: &str) -> Result<String, Diagnostic> {
    /// Largest file in bytes.
    const LARGEST: u64 = 16 << 20;
    let fail = |problem: String, remedy: String| Diagnostic {
        file: Some(file.to_owned()),
        problem,
        remedy: Some(remedy),
        ..Default::default()
    };
    let mut text = String::new();
    // pipes and devices have no size
    File::open(file)
        .and_then(|f| f.take(LARGEST + 1).read_to_string(&mut text))
        .map_err(|e| fail(format!("cannot be read: {e}"), format!("name a {what} that this user may read")))?;
    if text.len() as u64 > LARGEST {
        return Err(fail(format!("is larger than {LARGEST} bytes"), format!("name a {what}")));
    }
    Ok(text)
}

/// Text and path of a file, to locate errors in it.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Text.
    pub text: &'a str,
    /// Path.
    pub file: &'a Path,
}

impl Source<'_> {
    /// Returns the line that contains a byte.
    fn line(&self, at: usize) -> &str {
        let (before, after) = self.text.split_at_checked(at).unwrap_or((self.text, ""));
        let start = before.rfind('\n').map_or(0, |i| i + 1);
        let end = after.find('\n').map_or(self.text.len(), |i| before.len() + i);
        self.text[start..end].trim()
    }

    /// Adds the file, line and column of a span's first byte to a diagnostic.
    pub fn locate(&self, span: Range<usize>, mut d: Diagnostic) -> Diagnostic {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        d.problem = printable(&d.problem);
        d.remedy = d.remedy.as_deref().map(printable);
        d.file = Some(self.file.to_owned());
        d.line = Some(before.matches('\n').count() + 1);
        d.column = Some(before[line_start..].chars().count() + 1);
        d
    }

    /// Returns an error of the TOML parser with its location, the value and a likely remedy.
    pub fn toml_error(&self, e: &toml::de::Error) -> Diagnostic {
        let (problem, remedy) = in_users_words(e.message().trim());
        let mut d = Diagnostic { remedy, ..Diagnostic::new(problem) };
        match e.span() {
            Some(span) => {
                let value = self.text.get(span.clone()).unwrap_or_default();
                // the line shows what a value is missing from
                let value = if value.trim().is_empty() { self.line(span.start) } else { value };
                if !value.is_empty() && !value.contains('\n') {
                    d = d.value(value.trim_matches('"'));
                }
                self.locate(span, d)
            }
            None => self.locate(0..0, d),
        }
    }

    /// Returns the errors of the syntax of a file. An error of brackets or quotes causes others further down, of which
    /// only duplicate keys and invalid values are reported.
    pub fn syntax_errors(&self, all: &[toml::de::Error]) -> Vec<Diagnostic> {
        let is_independent = |(n, e): &(usize, &toml::de::Error)| {
            *n == 0 || e.message().starts_with("duplicate key") || is_invalid_value(e.message())
        };
        let all = all.iter().enumerate().filter(is_independent).take(MAX_ERRORS);
        all.map(|(_, e)| self.toml_error(e)).collect()
    }
}

/// Returns true for the message of the TOML parser about a value of no type, such as a word without quotes.
fn is_invalid_value(message: &str) -> bool {
    ["float", "integer", "boolean", "datetime", "number"]
        .iter()
        .any(|kind| message.strip_prefix("invalid ").is_some_and(|rest| rest.starts_with(kind)))
        || message.starts_with("string values must be quoted")
}

/// Returns the problem and the remedy for a message of the TOML parser or of `serde`.
fn in_users_words(message: &str) -> (String, Option<String>) {
    let quoted = || message.split('`').skip(1).step_by(2);
    if let Some(kind) = ["field", "variant"].into_iter().find(|kind| message.starts_with(&format!("unknown {kind} "))) {
        let wrong = quoted().next().unwrap_or_default();
        let known: Vec<_> = quoted().skip(1).collect();
        let kind = if kind == "field" { "key" } else { "value" };
        return (format!("unknown {kind} `{wrong}`"), Some(known_word(wrong, &known)));
    }
    if let Some(field) = message.strip_prefix("missing field ") {
        return (format!("{field} is missing"), Some(format!("add {} = ...", field.trim_matches('`'))));
    }
    if is_invalid_value(message) {
        let remedy = "write text in quotes, a number, or true or false";
        return ("is not a value".to_owned(), Some(remedy.to_owned()));
    }
    if message.starts_with("duplicate key") {
        return (message.to_owned(), Some("write each key once".to_owned()));
    }
    let Some((problem, wanted)) = message.split_once("expected ") else { return (message.to_owned(), None) };
    let problem = problem.trim_end_matches([',', ' ']);
    match problem.strip_prefix("invalid ") {
        Some(rest)
            if ["type: ", "length "].iter().any(|kind| rest.starts_with(kind)) || rest.starts_with("value: ") =>
        {
            // an error of a setting's own parser says what the value is not
            let own = rest.strip_prefix("value: ").filter(|own| own.contains(" is not "));
            let wanted = kind_of_value(wanted);
            (own.map_or_else(|| format!("is not {wanted}"), str::to_owned), Some(format!("write {wanted}")))
        }
        _ => (message.to_owned(), Some(format!("write {wanted} here"))),
    }
}

/// Returns the kind of value that a message of `serde` expects, in the words of a user.
fn kind_of_value(expected: &str) -> String {
    let up_to = |most: u64| format!("a whole number from 0 to {most}");
    match expected {
        "u8" => up_to(u8::MAX.into()),
        "u16" => up_to(u16::MAX.into()),
        "u32" => up_to(u32::MAX.into()),
        "u64" | "usize" => "a whole number, 0 or more".to_owned(),
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number".to_owned(),
        nonzero if nonzero.starts_with("a nonzero ") => "a whole number, 1 or more".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a string" | "a borrowed string" | "string" | "str" => "text in quotes".to_owned(),
        "a sequence" => "a list, in square brackets".to_owned(),
        "a map" => "a table".to_owned(),
        structure if structure.starts_with("struct ") => "a table".to_owned(),
        one_of if one_of.contains("enum") => "one of the known words".to_owned(),
        other => match other.strip_prefix("an array of length ").or(other.strip_prefix("a tuple of size ")) {
            Some(n) => format!("a list of {n} values"),
            None => other.to_owned(),
        },
    }
}

/// Returns the remedy for an unknown word.
pub(crate) fn known_word(wrong: &str, known: &[&str]) -> String {
    if let Some(new) = new_name(wrong, known.iter().copied()) {
        return format!("it was renamed: write `{new}`");
    }
    match nearest(wrong, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => "remove it".to_owned(),
        None => format!("use one of: {}", known.join(", ")),
    }
}

/// Returns the text with control characters escaped: the file may come from an untrusted source.
fn printable(text: &str) -> String {
    let escape = |c: char| if c.is_control() && c != '\n' { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
}

/// Returns the known word that is most similar to the wrong one, if similar enough.
pub fn nearest<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    /// Longest word that is compared, in bytes: memory use is the product of both lengths.
    const LONGEST: usize = 64;
    known
        .filter(|k| k.len() <= LONGEST && wrong.len() <= LONGEST)
        .map(|k| (strsim::damerau_levenshtein(wrong, k), k))
        .filter(|(d, k)| *d <= 1 + k.len().min(wrong.len()) / 4)
        .min()
        .map(|(_, k)| k)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_similar_words() {
        assert_eq!(nearest("tpa", ["tap", "null"].into_iter()), Some("tap"));
        assert_eq!(nearest("wide", ["tap", "null"].into_iter()), None);
    }

    #[test]
    fn reports_every_word_without_quotes_but_no_consequence_of_an_open_bracket() {
        let lines = |text: &str| -> Vec<usize> {
            let source = Source { text, file: Path::new("x.toml") };
            let (_, errors) = toml::de::DeTable::parse_recoverable(text);
            source.syntax_errors(&errors).iter().filter_map(|d| d.line).collect()
        };
        assert_eq!(lines("a = null\nb = 1\nc = 5x\nd = yes\n"), [1, 3, 4]);
        assert_eq!(lines("[a\nb = 1\n[c]\nd = [1, 2\n"), [1]);
        assert_eq!(lines("a = 1\na = 2\n[b]\nb.c = 1\nb.c = 2\n"), [2, 5]);
    }

    #[test]
    fn does_not_compare_long_words() {
        // their product would be terabytes
        let (wrong, known) = ("a".repeat(1 << 20), "b".repeat(1 << 20));
        assert_eq!(nearest(&wrong, ["tap", &known].into_iter()), None);
    }
}
