//! Files of many lines, such as routes.

use diagnostics::Diagnostic;
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Bytes of a line at most.
const LONGEST_LINE: u64 = 4096;
/// Lines of a file at most.
const MOST_LINES: usize = 1 << 23;

/// Hands every line of a file, plain or gzipped, to `each`, without what stands behind `#`; `key` is the setting that names
/// the file, `remedy` what its lines should be.
///
/// # Errors
/// The first line that is wrong, by number, or for which `each` says what is.
pub(crate) fn read(
    path: &Path,
    key: &'static str,
    remedy: &str,
    each: impl FnMut(&str) -> Result<(), String>,
) -> Result<(), Diagnostic> {
    let unreadable = |e: std::io::Error| {
        Diagnostic::new(format!("cannot be read: {e}"))
            .key(key)
            .value(path.display())
            .remedy("name a file that can be read")
    };
    let mut file = BufReader::new(File::open(path).map_err(unreadable)?);
    let gzipped = file.fill_buf().map_err(unreadable)?.starts_with(&[0x1f, 0x8b]);
    let text: Box<dyn BufRead> =
        if gzipped { Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(file))) } else { Box::new(file) };
    lines(text, each).map_err(|(line, problem)| Diagnostic {
        file: Some(path.to_owned()),
        line: Some(line),
        key: Some(key),
        ..Diagnostic::new(problem).remedy(remedy)
    })
}

fn lines(mut text: Box<dyn BufRead>, mut each: impl FnMut(&str) -> Result<(), String>) -> Result<(), (usize, String)> {
    let mut line = vec![];
    for number in 1.. {
        line.clear();
        let n = text.by_ref().take(LONGEST_LINE + 1).read_until(b'\n', &mut line);
        match n.map_err(|e| (number, e.to_string()))? as u64 {
            0 => break,
            n if n > LONGEST_LINE => return Err((number, format!("is longer than {LONGEST_LINE} bytes"))),
            _ if number > MOST_LINES => return Err((number, format!("is one more than the {MOST_LINES} allowed"))),
            _ => {}
        }
        let line = str::from_utf8(&line).map_err(|_| (number, "is not text".to_owned()))?;
        each(line.split('#').next().unwrap_or_default()).map_err(|e| (number, e))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_placed() {
        let text: &[u8] = b"good\n\nbad # good\n";
        let mut n = 0;
        let fault = lines(Box::new(text), |line| {
            n += 1;
            if line.contains("bad") { Err(line.to_owned()) } else { Ok(()) }
        });
        assert_eq!((fault.unwrap_err(), n), ((3, "bad ".to_owned()), 3));
        let long: &[u8] = &[b' '; 5000];
        assert_eq!(lines(Box::new(long), |_| Ok(())).unwrap_err().0, 1);
        assert_eq!(lines(Box::new(&b"\xff\n"[..]), |_| Ok(())).unwrap_err().0, 1);
    }
}
