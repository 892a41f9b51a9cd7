//! Frames as people list them.

use traffic::Mix;
use traffic::size::SizeError;

/// Sizes in bytes with FCS and mixes, separated by commas, a mix of several sizes in parentheses: `64,imix,(64:1,1518:1)`.
/// Each comes with its name, which is what was written of it.
///
/// # Errors
/// The first that is neither, and why.
pub fn frames(text: &str) -> Result<Vec<(String, Mix)>, (String, SizeError)> {
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
    fn commas_within_parentheses_separate_sizes_of_a_mix() {
        let names = |text: &str| frames(text).map(|all| all.into_iter().map(|(name, _)| name).collect::<Vec<_>>());
        assert_eq!(names("64, imix,(64:1,1518:1),").unwrap(), ["64", "imix", "64:1,1518:1"]);
        assert_eq!(names("").unwrap(), [""; 0]);
        assert_eq!(names("64,imax").unwrap_err().0, "imax");
        assert_eq!(names("63").unwrap_err().1, SizeError::Range(63));
        assert!(names("((64)").is_err() && names("64)").is_err());
    }
}
