//! Text tables with aligned columns, for a terminal.
#![forbid(unsafe_code)]

use std::fmt;
use unicode_width::UnicodeWidthStr;

/// Placeholder for a missing value.
pub const NONE: &str = "–";

/// Rows of cells, the first of them the heading. Control characters in cells are replaced; columns of numbers are
/// aligned to the right.
#[derive(Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Returns a table without rows.
    pub fn new<S: AsRef<str>>(heading: &[S]) -> Self {
        Table { rows: vec![heading.iter().map(|h| printable(h.as_ref())).collect()] }
    }

    /// Appends a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| printable(&cell)).collect());
    }

    /// Returns the rows, the first of them the heading.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// Returns true if there are no rows below the heading.
    pub fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }

    /// Removes a column whose cells are all equal.
    pub fn without_constant(mut self, column: usize) -> Self {
        let cells = |row: &Vec<String>| row.get(column).cloned();
        if self.rows.iter().skip(2).all(|row| cells(row) == cells(&self.rows[1])) {
            self.rows.iter_mut().for_each(|row| drop(row.remove(column)));
        }
        self
    }

    /// Returns true if all cells of a column are numbers or empty.
    pub fn is_numeric(&self, column: usize) -> bool {
        let number = |s: &str| matches!(s, "" | "-" | NONE) || s.starts_with(|c: char| c.is_ascii_digit());
        self.rows.iter().skip(1).all(|row| row.get(column).is_none_or(|cell| number(cell)))
    }
}

impl fmt::Display for Table {
    /// Writes one line per row.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |c: usize| self.rows.iter().filter_map(|r| r.get(c)).map(|s| s.width()).max().unwrap_or(0);
        let layout: Vec<(usize, bool)> = (0..columns).map(|c| (width(c), self.is_numeric(c))).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, &(width, right)) in row.iter().zip(&layout) {
                let padding = " ".repeat(width - cell.width());
                line += &if right { format!("  {padding}{cell}") } else { format!("  {cell}{padding}") };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Replaces characters that control the terminal or the direction of writing by U+FFFD.
pub fn printable(text: &str) -> String {
    let unsafe_char = |c: char| {
        c.is_control()
            || matches!(c, '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
            || matches!(c, '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}')
    };
    text.chars().map(|c| if unsafe_char(c) { '\u{fffd}' } else { c }).collect()
}

/// Formats a count in groups of three digits.
pub fn count(n: u64) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligns_columns_by_display_width() {
        let mut t = Table::new(&["name", "n"]);
        t.row(["wide 網".to_owned(), "1".to_owned()]);
        t.row(["x\x1b".to_owned(), "10".to_owned()]);
        t.row(["y".to_owned(), NONE.to_owned()]);
        assert_eq!(t.to_string(), "  name      n\n  wide 網   1\n  x\u{fffd}       10\n  y         –\n");
    }

    #[test]
    fn replaces_control_characters() {
        assert_eq!(printable("a\x1b[2J\u{202e}b\n"), "a\u{fffd}[2J\u{fffd}b\u{fffd}");
        assert_eq!(printable("Zürich 64 µs"), "Zürich 64 µs");
    }

    #[test]
    fn groups_digits() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
    }
}
