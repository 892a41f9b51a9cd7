//! Reading files of /proc and /sys.

use std::path::Path;

/// Reads a file without the trailing line end; `None` if it cannot be read.
pub(super) fn read(path: impl AsRef<Path>) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|s| s.trim_end().to_owned())
}

/// Returns the sorted names in a folder; empty if it does not exist.
pub(super) fn list(path: impl AsRef<Path>) -> Vec<String> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Returns the value of the first line `key: value`, as in `/proc/cpuinfo` and `/proc/self/status`.
pub(super) fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (k, v) = line.split_once(':')?;
        (k.trim() == key).then(|| v.trim())
    })
}

/// Parses a list such as `0-3,8,10-11`; invalid lists are empty.
pub(super) fn numbers(text: &str) -> Vec<usize> {
    /// Upper limit of numbers.
    const LIMIT: usize = 1 << 16;
    let mut all = vec![];
    for part in text.trim().split(',').filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.trim().parse::<usize>(), last.trim().parse::<usize>()) {
            (Ok(first), Ok(last)) if last < LIMIT => all.extend(first..=last),
            _ => return vec![],
        }
    }
    all
}

/// Formats numbers as such a list.
pub(super) fn ranges(numbers: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = vec![];
    for &n in numbers {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == n => *last = n,
            _ => parts.push((n, n)),
        }
    }
    let parts = parts.iter().map(|&(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") });
    parts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_formats_lists() {
        for (text, all) in [
            ("", &[][..]),
            ("\n", &[]),
            ("3", &[3]),
            ("0-2,7\n", &[0, 1, 2, 7]),
            ("(null)", &[]),
            ("2-1", &[]),
            ("0-99999999999", &[]),
            ("0-4000000000", &[]),
        ] {
            assert_eq!(numbers(text), all, "{text:?}");
        }
        assert_eq!(ranges(&[0, 1, 2, 7]), "0-2,7");
        assert_eq!(ranges(&[]), "");
    }

    #[test]
    fn finds_fields() {
        let text = "a\t: 1\nb c : x: y\na : 2\nno colon\n";
        assert_eq!((field(text, "a"), field(text, "b c"), field(text, "d")), (Some("1"), Some("x: y"), None));
    }

    #[test]
    fn missing_files_and_folders() {
        assert_eq!(read("/proc/no/such/file"), None);
        assert_eq!(list("/proc/no/such/folder"), Vec::<String>::new());
    }
}
