//! Tables for people.

use std::fmt;

/// Rows of cells, the first the heading; columns are as wide as they need, those of numbers stand right.
#[derive(Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(heading: &[&str]) -> Self {
        Table { rows: vec![heading.iter().map(|h| (*h).to_owned()).collect()] }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cell = |r: &'_ [String], c: usize| r.get(c).cloned().unwrap_or_default();
        let width = |c| self.rows.iter().map(|r| cell(r, c).chars().count()).max().unwrap_or(0);
        let number = |s: &str| s.is_empty() || s == "-" || s.starts_with(|c: char| c.is_ascii_digit());
        let right = |c| self.rows[1..].iter().all(|r| number(&cell(r, c)));
        let shape: Vec<(usize, bool)> = (0..columns).map(|c| (width(c), right(c))).collect();
        for row in &self.rows {
            let mut line = String::from(" ");
            for (c, &(width, right)) in shape.iter().enumerate() {
                let cell = cell(row, c);
                line += &if right { format!(" {cell:>width$} ") } else { format!(" {cell:<width$} ") };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A count, in groups of three digits.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, d) in digits.chars().enumerate() {
        if i != 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(d);
    }
    out
}

/// A rate, with the prefix that keeps it short.
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
    fn numbers_are_grouped_and_scaled() {
        assert_eq!([0, 999, 1000, 1234567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0.0, 1500.0, 14.88e6, 2e9].map(rate), ["0 ", "1.50 k", "14.88 M", "2.00 G"]);
    }

    #[test]
    fn columns_of_numbers_stand_right() {
        let mut t = Table::new(&["name", "n"]);
        t.row(["a".to_owned(), "1".to_owned()]);
        t.row(["bcdef".to_owned(), "10".to_owned()]);
        assert_eq!(t.to_string(), "  name    n\n  a       1\n  bcdef  10\n");
    }
}
