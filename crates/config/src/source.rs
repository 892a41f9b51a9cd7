//! Locations and suggestions for errors in a file.

use crate::renamed::new_name;
use diagnostics::Diagnostic;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

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
        let mut d = Diagnostic::new(e.message().trim());
        let quoted: Vec<_> = e.message().split('`').skip(1).step_by(2).collect();
        if e.message().starts_with("unknown") {
            if let Some((wrong, known)) = quoted.split_first() {
                d.problem = e.message().split(',').next().unwrap_or_default().to_owned();
                let renamed = new_name(wrong, known.iter().copied());
                d.remedy = Some(match renamed.or_else(|| nearest(wrong, known.iter().copied())) {
                    Some(new) if renamed.is_some() => format!("it was renamed: write `{new}`"),
                    Some(near) => format!("did you mean `{near}`?"),
                    None if known.is_empty() => "remove it".to_owned(),
                    None => format!("use one of: {}", known.join(", ")),
                });
            }
        } else if e.message().starts_with("invalid type") || e.message().starts_with("invalid value") {
            d.remedy = e.message().split("expected ").nth(1).map(|what| match what {
                "a sequence" => "write a list, in square brackets".to_owned(),
                what => format!("write {what}"),
            });
        } else if let Some(field) = e.message().strip_prefix("missing field ") {
            d.remedy = Some(format!("add {} = ...", field.trim_matches('`')));
        } else if e.message().starts_with("duplicate key") {
            d.remedy = Some("write each key once".to_owned());
        } else if let Some((_, what)) = e.message().split_once("expected ") {
            d.remedy = Some(format!("write {what} here"));
        }
        match e.span() {
            Some(span) => {
                let value = self.text.get(span.clone()).unwrap_or_default();
                // the line shows what a value is missing from
                let value = if value.trim().is_empty() { self.line(span.start) } else { value };
                if !value.is_empty() && !value.contains('\n') && value.len() <= 80 {
                    d.value = Some(value.trim_matches('"').to_owned());
                }
                self.locate(span, d)
            }
            None => self.locate(0..0, d),
        }
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
    fn does_not_compare_long_words() {
        // their product would be terabytes
        let (wrong, known) = ("a".repeat(1 << 20), "b".repeat(1 << 20));
        assert_eq!(nearest(&wrong, ["tap", &known].into_iter()), None);
    }
}
