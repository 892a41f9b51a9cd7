//! What the kernel says in its files.

use std::path::Path;

/// A small file of the kernel's, without the line end; `None` when it is not there or may not be read.
pub(super) fn read(path: impl AsRef<Path>) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|s| s.trim_end().to_owned())
}

/// Names in a folder, sorted; none when it is not there.
pub(super) fn list(path: impl AsRef<Path>) -> Vec<String> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The value of a `key: value` line, as in `/proc/cpuinfo` and `/proc/self/status`; the first one.
pub(super) fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (k, v) = line.split_once(':')?;
        (k.trim() == key).then(|| v.trim())
    })
}

/// The numbers of a list such as `0-3,8,10-11`; what is no such list holds none.
pub(super) fn numbers(text: &str) -> Vec<usize> {
    /// More than any machine has.
    const MOST: usize = 1 << 16;
    let mut all = vec![];
    for part in text.trim().split(',').filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.trim().parse::<usize>(), last.trim().parse::<usize>()) {
            (Ok(first), Ok(last)) if last < MOST => all.extend(first..=last),
            _ => return vec![],
        }
    }
    all
}

/// Numbers as such a list.
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
    fn lists_of_numbers() {
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
    fn fields() {
        let text = "a\t: 1\nb c : x: y\na : 2\nno colon\n";
        assert_eq!((field(text, "a"), field(text, "b c"), field(text, "d")), (Some("1"), Some("x: y"), None));
    }

    #[test]
    fn what_is_not_there() {
        assert_eq!(read("/proc/no/such/file"), None);
        assert_eq!(list("/proc/no/such/folder"), Vec::<String>::new());
    }
}
