//! Comparisons of numeric options.

/// A comparison: `N`, `<N`, `<=N`, `>N`, `>=N`, `!N`, between `N-M` or `N<>M`, both ends excluded, the contrary `!N-M`, or of
/// bits: `&MASK=N`, `&MASK!=N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ids) enum Comparison {
    Equal(u64),
    NotEqual(u64),
    Below(u64),
    Above(u64),
    AtMost(u64),
    AtLeast(u64),
    Between(u64, u64),
    NotBetween(u64, u64),
    Bits { mask: u64, equal: bool, value: u64 },
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
            Comparison::NotBetween(from, to) => value <= from || to <= value,
            Comparison::Bits { mask, equal, value: bits } => (value & mask == bits) == equal,
        }
    }

    /// Parses a comparison with numbers up to `max`.
    pub(super) fn parse(text: &str, max: u64) -> Result<Self, String> {
        let text = text.trim().trim_matches('"');
        let number = |text: &str| match parse_number(text) {
            Some(n) if n <= max => Ok(n),
            _ => Err(format!("{text}: not a number from 0 to {max}")),
        };
        if let Some(bits) = text.strip_prefix('&') {
            let (mask, value) = bits.split_once('=').ok_or_else(|| format!("{text}: write &MASK=N or &MASK!=N"))?;
            let (equal, mask) = mask.strip_suffix('!').map_or((true, mask), |mask| (false, mask));
            let (mask, value) = (number(mask)?, number(value)?);
            return match value & !mask {
                0 => Ok(Comparison::Bits { mask, equal, value }),
                _ => Err(format!("{text}: the number has bits that the mask has not")),
            };
        }
        for separator in ["<>", "-"] {
            if let Some((from, to)) = text.split_once(separator) {
                let (make, from): (fn(u64, u64) -> Comparison, _) = match from.strip_prefix('!') {
                    Some(from) => (Comparison::NotBetween, from),
                    None => (Comparison::Between, from),
                };
                let (from, to) = (number(from)?, number(to)?);
                return if from < to { Ok(make(from, to)) } else { Err(format!("{text}: an empty range")) };
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

/// Parses a decimal number, in units of `kb`, `mb` or `gb` (`kib`, `mib`, `gib`) if one follows, or a hexadecimal one after
/// `0x`.
pub(super) fn parse_number(text: &str) -> Option<u64> {
    let text = text.trim();
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return u64::from_str_radix(hex, 16).ok();
    }
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let unit = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" => 1,
        "kb" | "kib" => 1 << 10,
        "mb" | "mib" => 1 << 20,
        "gb" | "gib" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
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
            ("!1-4", vec![0, 1, 4]),
            ("&0x3=2", vec![2]),
            ("&3!=0", vec![1, 2, 3]),
            ("<4 kb", vec![0, 1, 2, 3, 4]),
        ] {
            let comparison = Comparison::parse(text, 4096).unwrap();
            assert_eq!((0..5).filter(|n| comparison.matches(*n)).collect::<Vec<_>>(), matching, "{text}");
        }
        for invalid in ["", "256", "-1", "4-1", "x", "1k", "!4-1", "&3", "&1=2", "99999999999gb"] {
            assert!(Comparison::parse(invalid, 255).is_err(), "{invalid}");
        }
    }
}
