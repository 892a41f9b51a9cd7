//! Formatting of numbers and names.

pub(crate) use text_table::{NONE, count, printable};

/// Truncates a text to `max` characters, the last of them `…`.
pub(crate) fn short(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    text.chars().take(max.saturating_sub(1)).chain(['…']).collect()
}

/// Formats a rate in millions per second.
pub(crate) fn mpps(pps: f64) -> String {
    match pps / 1e6 {
        m if m == 0.0 || m >= 0.1 => format!("{m:.3}"),
        m if m >= 0.0001 => format!("{m:.5}"),
        m => significant(m, 2),
    }
}

/// Formats a rate with its unit, in three significant digits.
pub(crate) fn pps(pps: f64) -> String {
    match pps {
        p if p >= 1e6 => format!("{} Mpps", significant(p / 1e6, 3)),
        p if p >= 1e3 => format!("{} kpps", significant(p / 1e3, 3)),
        p => format!("{} pps", significant(p, 3)),
    }
}

/// Formats bits per second as Gbit/s.
pub(crate) fn gbps(bps: f64) -> String {
    format!("{:.2}", bps / 1e9)
}

/// Formats nanoseconds as microseconds.
pub(crate) fn us(ns: f64) -> String {
    match ns / 1e3 {
        us if us >= 1000.0 => format!("{us:.0}"),
        us if us >= 1.0 || us == 0.0 => format!("{us:.1}"),
        us => format!("{us:.3}"),
    }
}

/// Formats a share in percent.
pub(crate) fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".to_owned(),
        p if p >= 9.95 => format!("{p:.1} %").replace(".0 %", " %"),
        p => format!("{} %", significant(p, 2)),
    }
}

/// Formats cycles.
pub(crate) fn cycles(cycles: f64) -> String {
    if cycles >= 1000.0 { format!("{cycles:.0}") } else { format!("{cycles:.1}") }
}

/// Formats a number with so many significant digits, without trailing zeros.
pub(crate) fn significant(x: f64, digits: i32) -> String {
    if x == 0.0 || !x.is_finite() {
        return "0".to_owned();
    }
    let decimals = (digits - 1 - x.abs().log10().floor() as i32).clamp(0, 12) as usize;
    let text = format!("{x:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Formats a number with three significant digits, padded with zeros.
pub(crate) fn three(x: f64) -> String {
    match x {
        x if x >= 99.95 => format!("{x:.0}"),
        x if x >= 9.995 => format!("{x:.1}"),
        x if x >= 0.9995 => format!("{x:.2}"),
        x if x >= 0.01 => format!("{x:.3}"),
        x => significant(x, 2),
    }
}

/// Formats a count with the singular or plural of a noun.
pub(crate) fn plural(n: usize, singular: &str, plural: &str) -> String {
    format!("{n} {}", if n == 1 { singular } else { plural })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!([14_880_952.0, 90_000.0, 0.0, 12.0].map(mpps), ["14.881", "0.09000", "0.000", "0.000012"]);
        assert_eq!([14_880_952.0, 90_000.0, 1234.0, 0.0].map(pps), ["14.9 Mpps", "90 kpps", "1.23 kpps", "0 pps"]);
        assert_eq!([16_160.0, 1_234_567.0, 240.0].map(us), ["16.2", "1235", "0.240"]);
        assert_eq!([0.0, 1.0, 0.5, 0.000_012, 0.7525].map(percent), ["0 %", "100 %", "50 %", "0.0012 %", "75.2 %"]);
        assert_eq!(significant(0.00625, 2), "0.0063");
        assert_eq!([14.88, 9.999, 1.197, 0.8127, 123.4].map(three), ["14.9", "10.0", "1.20", "0.813", "123"]);
    }

    #[test]
    fn long_texts_are_truncated() {
        assert_eq!(short("abcdef", 4), "abc…");
    }
}
