//! Comparisons of numeric options.

/// A comparison: `N`, `<N`, `<=N`, `>N`, `>=N`, `!N`, or between `N-M` and `N<>M`, both ends excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ids) enum Comparison {
    Equal(u64),
    NotEqual(u64),
    Below(u64),
    Above(u64),
    AtMost(u64),
    AtLeast(u64),
    Between(u64, u64),
}

impl Comparison {
    pub(in crate::ids) fn matches(self, value: u64) -> bool {
        match self {
            Comparison::Equal(n) => value == n,
            Comparison::NotEqual(n) => value != n,
            Comparison::Below(n) => value < n,
            Comparison::Above(n) => value > n,
            Comparison::AtMost(n) => value <= n,
            Comparison::AtLeast(n) => value >= n,
            Comparison::Between(from, to) => from < value && value < to,
        }
    }

    /// Parses a comparison with numbers up to `max`.
    pub(super) fn parse(text: &str, max: u64) -> Result<Self, String> {
        let text = text.trim().trim_matches('"');
        let number = |text: &str| match parse_number(text) {
            Some(n) if n <= max => Ok(n),
            _ => Err(format!("{text}: not a number from 0 to {max}")),
        };
        for separator in ["<>", "-"] {
            if let Some((from, to)) = text.split_once(separator) {
                let (from, to) = (number(from)?, number(to)?);
                return if from < to {
                    Ok(Comparison::Between(from, to))
                } else {
                    Err(format!("{text}: an empty range"))
                };
            }
        }
        for (prefix, make) in [
            ("<=", Comparison::AtMost as fn(u64) -> Comparison),
            (">=", Comparison::AtLeast),
            ("<", Comparison::Below),
            (">", Comparison::Above),
            ("!=", Comparison::NotEqual),
            ("!", Comparison::NotEqual),
            ("=", Comparison::Equal),
        ] {
            if let Some(rest) = text.strip_prefix(prefix) {
                return Ok(make(number(rest)?));
            }
        }
        Ok(Comparison::Equal(number(text)?))
    }
}

/// Parses a decimal number, or a hexadecimal one after `0x`.
pub(super) fn parse_number(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_numbers() {
        for (text, matching) in [
            ("3", vec![3]),
            ("<2", vec![0, 1]),
            ("!0", vec![1, 2, 3, 4]),
            ("1-4", vec![2, 3]),
            ("1<>3", vec![2]),
            (">=4", vec![4]),
        ] {
            let comparison = Comparison::parse(text, 255).unwrap();
            assert_eq!((0..5).filter(|n| comparison.matches(*n)).collect::<Vec<_>>(), matching, "{text}");
        }
        for invalid in ["", "256", "-1", "4-1", "x"] {
            assert!(Comparison::parse(invalid, 255).is_err(), "{invalid}");
        }
    }
}
