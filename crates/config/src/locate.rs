//! From bytes of the text to lines, and from what was written to what was meant.

use diagnostics::Diagnostic;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

/// Reads a file that somebody wrote, 16 MiB at most; `what` names its sort, such as `chain file`.
///
/// # Errors
/// When it cannot be read, is no text or too large.
pub fn read(file: &Path, what: &str) -> Result<String, Diagnostic> {
    /// Largest file that is read, in bytes.
    const LARGEST: u64 = 16 << 20;
    let fail = |problem: String, remedy: String| Diagnostic {
        file: Some(file.to_owned()),
        problem,
        remedy: Some(remedy),
        ..Default::default()
    };
    let mut text = String::new();
    // pipes and devices have no size to ask for
    File::open(file)
        .and_then(|f| f.take(LARGEST + 1).read_to_string(&mut text))
        .map_err(|e| fail(format!("cannot be read: {e}"), format!("name a {what} that this user may read")))?;
    if text.len() as u64 > LARGEST {
        return Err(fail(format!("has more than {LARGEST} bytes"), format!("is this a {what}?")));
    }
    Ok(text)
}

/// The file's text and name, to say where something stands.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// All of its text.
    pub text: &'a str,
    /// Where it came from.
    pub file: &'a Path,
}

impl Source<'_> {
    /// The line that holds a byte.
    fn line(&self, at: usize) -> &str {
        let (before, after) = self.text.split_at_checked(at).unwrap_or((self.text, ""));
        let start = before.rfind('\n').map_or(0, |i| i + 1);
        let end = after.find('\n').map_or(self.text.len(), |i| before.len() + i);
        self.text[start..end].trim()
    }

    /// Puts a diagnostic in its place: the line and column of the span's first byte.
    pub fn at(&self, span: Range<usize>, mut d: Diagnostic) -> Diagnostic {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        d.problem = printable(&d.problem);
        d.remedy = d.remedy.as_deref().map(printable);
        d.file = Some(self.file.to_owned());
        d.line = Some(before.matches('\n').count() + 1);
        d.column = Some(before[line_start..].chars().count() + 1);
        d
    }

    /// A fault that the TOML reader found, put in place, with the value it names and the likely remedy.
    pub fn toml(&self, e: &toml::de::Error) -> Diagnostic {
        let mut d = Diagnostic::new(e.message().trim());
        let quoted: Vec<_> = e.message().split('`').skip(1).step_by(2).collect();
        if e.message().starts_with("unknown") {
            if let Some((wrong, known)) = quoted.split_first() {
                d.problem = e.message().split(',').next().unwrap_or_default().to_owned();
                d.remedy = Some(match nearest(wrong, known.iter().copied()) {
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
                // where something is missing, the line shows what it is missing from
                let value = if value.trim().is_empty() { self.line(span.start) } else { value };
                if !value.is_empty() && !value.contains('\n') && value.len() <= 80 {
                    d.value = Some(value.trim_matches('"').to_owned());
                }
                self.at(span, d)
            }
            None => self.at(0..0, d),
        }
    }
}

/// The text without what a terminal would take for commands: a file may come from a stranger.
fn printable(text: &str) -> String {
    let escape = |c: char| if c.is_control() && c != '\n' { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
}

/// The known word that the wrong one was probably meant to be.
pub fn nearest<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    /// Longest word that is compared, bytes: the comparison takes memory by the product of both lengths.
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
    fn a_slip_is_mended_and_a_stranger_is_not() {
        assert_eq!(nearest("tpa", ["tap", "null"].into_iter()), Some("tap"));
        assert_eq!(nearest("wide", ["tap", "null"].into_iter()), None);
    }

    #[test]
    fn long_words_are_not_compared() {
        // their product would be terabytes
        let (wrong, known) = ("a".repeat(1 << 20), "b".repeat(1 << 20));
        assert_eq!(nearest(&wrong, ["tap", &known].into_iter()), None);
    }
}
