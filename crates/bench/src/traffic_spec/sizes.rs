//! Lists of frame sizes.

use traffic::Mix;
use traffic::size::SizeError;

/// Parses sizes in bytes with FCS and mixes, separated by commas, mixes of several sizes in parentheses:
/// `64,imix,(64:1,1518:1)`. Returns each with its text.
///
/// # Errors
/// The first invalid part, and the cause.
pub fn parse_frame_sizes(text: &str) -> Result<Vec<(String, Mix)>, (String, SizeError)> {
    let mut depth = 0;
    let parts = text.split(|c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    });
    let mut all = vec![];
    for part in parts.map(str::trim).filter(|p| !p.is_empty()) {
        let inner = part.strip_prefix('(').and_then(|p| p.strip_suffix(')')).unwrap_or(part);
        let mix = inner.parse().map_err(|e| (part.to_owned(), e))?;
        all.push((inner.to_owned(), mix));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_in_parentheses_belong_to_a_mix() {
        let names =
            |text: &str| parse_frame_sizes(text).map(|all| all.into_iter().map(|(name, _)| name).collect::<Vec<_>>());
        assert_eq!(names("64, imix,(64:1,1518:1),").unwrap(), ["64", "imix", "64:1,1518:1"]);
        assert_eq!(names("").unwrap(), [""; 0]);
        assert_eq!(names("64,imax").unwrap_err().0, "imax");
        assert_eq!(names("63").unwrap_err().1, SizeError::Range(63));
        assert!(names("((64)").is_err() && names("64)").is_err());
    }
}
