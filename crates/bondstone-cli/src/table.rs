//! Formatting of tables, counts and rates.

pub(crate) use text_table::{Table, count};

/// Formats a rate with an SI prefix.
pub(crate) fn rate(per_second: f64) -> String {
    match per_second {
        r if r >= 1e9 => format!("{:.2} G", r / 1e9),
        r if r >= 1e6 => format!("{:.2} M", r / 1e6),
        r if r >= 1e3 => format!("{:.2} k", r / 1e3),
        r => format!("{r:.0} "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_a_prefix() {
        assert_eq!([0.0, 1500.0, 14.88e6, 2e9].map(rate), ["0 ", "1.50 k", "14.88 M", "2.00 G"]);
    }
}
