//! Text files with one entry per line, such as routes.

use diagnostics::Diagnostic;
use flate2::read::MultiGzDecoder;
use graph::BuildContext;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Longest line in bytes.
const MAX_LINE_LEN: u64 = 4096;
/// Largest number of lines.
const MAX_LINES: usize = 1 << 23;

/// Calls `each` with every line of a file, plain or gzipped, without comments (`#`). `key` is the setting that names
/// the file; `remedy` describes valid lines.
///
/// # Errors
/// The file cannot be read, or a line is invalid: too long, not UTF-8, or rejected by `each`.
pub(crate) fn read(
    cx: &BuildContext,
    path: &Path,
    key: &'static str,
    remedy: &str,
    each: impl FnMut(&str) -> Result<(), String>,
) -> Result<(), Diagnostic> {
    let at = cx.resolve_path(path);
    let unreadable = |e: std::io::Error| {
        Diagnostic::new(format!("cannot be read: {e}"))
            .key(key)
            .value(at.display())
            .remedy("write the path of a readable file")
    };
    let mut file = BufReader::new(cx.open(path).map_err(unreadable)?);
    let gzipped = file.fill_buf().map_err(unreadable)?.starts_with(&[0x1f, 0x8b]);
    let text: Box<dyn BufRead> =
        if gzipped { Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(file))) } else { Box::new(file) };
    read_lines(text, each).map_err(|(line, problem)| Diagnostic {
        file: Some(at.clone()),
        line: Some(line),
        key: Some(key),
        ..Diagnostic::new(problem).remedy(remedy)
    })
}

fn read_lines(
    mut text: Box<dyn BufRead>,
    mut each: impl FnMut(&str) -> Result<(), String>,
) -> Result<(), (usize, String)> {
    let mut line = vec![];
    for number in 1.. {
        line.clear();
        let n = text.by_ref().take(MAX_LINE_LEN + 1).read_until(b'\n', &mut line);
        match n.map_err(|e| (number, e.to_string()))? as u64 {
            0 => break,
            n if n > MAX_LINE_LEN => return Err((number, format!("is longer than {MAX_LINE_LEN} bytes"))),
            _ if number > MAX_LINES => {
                return Err((number, format!("exceeds the largest number of lines, {MAX_LINES}")));
            }
            _ => {}
        }
        let line = str::from_utf8(&line).map_err(|_| (number, "is not UTF-8 text".to_owned()))?;
        each(line.split('#').next().unwrap_or_default()).map_err(|e| (number, e))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_the_number_of_its_line() {
        let text: &[u8] = b"good\n\nbad # good\n";
        let mut n = 0;
        let result = read_lines(Box::new(text), |line| {
            n += 1;
            if line.contains("bad") { Err(line.to_owned()) } else { Ok(()) }
        });
        assert_eq!((result.unwrap_err(), n), ((3, "bad ".to_owned()), 3));
        let long: &[u8] = &[b' '; 5000];
        assert_eq!(read_lines(Box::new(long), |_| Ok(())).unwrap_err().0, 1);
        assert_eq!(read_lines(Box::new(&b"\xff\n"[..]), |_| Ok(())).unwrap_err().0, 1);
    }
}
