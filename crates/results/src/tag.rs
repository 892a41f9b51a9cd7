//! Names that people give to results.

use crate::Error;

/// Longest tag, characters.
pub(crate) const LONGEST: usize = 64;
/// Most tags of one result.
pub(crate) const MOST: usize = 64;

/// Whether a text may be a tag: letters, digits and `._-/:+@`, so that it is told from filters and needs no quotes.
pub(crate) fn check(tag: &str) -> Result<(), Error> {
    let problem = if tag.is_empty() {
        "a tag has at least one character".to_owned()
    } else if tag.chars().count() > LONGEST {
        format!("a tag has at most {LONGEST} characters")
    } else if let Some(c) = tag.chars().find(|c| !c.is_alphanumeric() && !"._-/:+@".contains(*c)) {
        format!("`{}` is none of a tag's letters, digits, and . _ - / : + @", c.escape_debug())
    } else if tag.starts_with('-') {
        "a tag does not begin with a minus".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::Tag { tag: tag.chars().take(80).collect::<String>().escape_debug().to_string(), problem })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_plain() {
        for good in ["a", "v1.2-rc+3", "nightly/2026-01-01", "größe", "x@y:z_1"] {
            check(good).unwrap();
        }
        for bad in ["", "a b", "a=b", "a,b", "-a", "a\nb", "a\u{202e}b", &"x".repeat(65)] {
            check(bad).unwrap_err();
        }
    }
}
