//! Tags of results.

use crate::Error;

/// Maximum length of a tag, characters.
pub(crate) const MAX_LEN: usize = 64;
/// Maximum number of tags of a result.
pub(crate) const MAX_TAGS: usize = 64;

/// Checks that a tag consists of letters, digits and `._-/:+@`, which distinguishes it from filters and needs no
/// quotes.
pub(crate) fn check(tag: &str) -> Result<(), Error> {
    let problem = if tag.is_empty() {
        "a tag must not be empty".to_owned()
    } else if tag.chars().count() > MAX_LEN {
        format!("a tag has at most {MAX_LEN} characters")
    } else if let Some(c) = tag.chars().find(|c| !c.is_alphanumeric() && !"._-/:+@".contains(*c)) {
        format!("invalid character `{}`; use letters, digits and . _ - / : + @", c.escape_debug())
    } else if tag.starts_with('-') {
        "a tag must not begin with `-`".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::Tag { tag: tag.chars().take(80).collect::<String>().escape_debug().to_string(), problem })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_tags() {
        for valid in ["a", "v1.2-rc+3", "nightly/2026-01-01", "größe", "x@y:z_1"] {
            check(valid).unwrap();
        }
        for invalid in ["", "a b", "a=b", "a,b", "-a", "a\nb", "a\u{202e}b", &"x".repeat(65)] {
            check(invalid).unwrap_err();
        }
    }
}
