//! Files of routes.

use flate2::read::MultiGzDecoder;
use graph::Diagnostic;
use ipnet::IpNet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::IpAddr;
use std::path::Path;

/// Bytes of a line at most.
const LONGEST_LINE: u64 = 4096;
/// Lines of a file at most.
const MOST_LINES: usize = 1 << 23;

/// Where a line's route leads.
pub(super) enum To {
    /// The line does not say.
    Default,
    /// Next hops.
    Via(Vec<IpAddr>),
    /// Nowhere, and senders are told.
    Unreachable,
    /// Nowhere.
    Blackhole,
}

/// Hands every route of a file, plain or gzipped, to `each`.
///
/// # Errors
/// The first line that is wrong, by number, or for which `each` says what is.
pub(super) fn read(path: &Path, each: impl FnMut(IpNet, To) -> Result<(), String>) -> Result<(), Diagnostic> {
    let unreadable = |e: std::io::Error| {
        Diagnostic::new(format!("cannot be read: {e}"))
            .key("routes")
            .value(path.display())
            .cure("name a file of routes")
    };
    let mut file = BufReader::new(File::open(path).map_err(unreadable)?);
    let gzipped = file.fill_buf().map_err(unreadable)?.starts_with(&[0x1f, 0x8b]);
    let text: Box<dyn BufRead> =
        if gzipped { Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(file))) } else { Box::new(file) };
    lines(text, each).map_err(|(line, problem)| Diagnostic {
        file: Some(path.to_owned()),
        line: Some(line),
        key: Some("routes"),
        ..Diagnostic::new(problem).cure("write PREFIX, PREFIX via ADDRESS..., PREFIX unreachable or PREFIX blackhole")
    })
}

fn lines(
    mut text: Box<dyn BufRead>,
    mut each: impl FnMut(IpNet, To) -> Result<(), String>,
) -> Result<(), (usize, String)> {
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
        if let Some((net, to)) = route(line).map_err(|e| (number, e))? {
            each(net, to).map_err(|e| (number, e))?;
        }
    }
    Ok(())
}

/// The route of a line; none on an empty one, or behind `#`.
fn route(line: &str) -> Result<Option<(IpNet, To)>, String> {
    let mut words = line.split('#').next().unwrap_or_default().split_ascii_whitespace();
    let Some(prefix) = words.next() else { return Ok(None) };
    let net = prefix
        .parse::<IpNet>()
        .or_else(|_| prefix.parse::<IpAddr>().map(IpNet::from))
        .map_err(|_| format!("{prefix:?} is no prefix"))?;
    let to = match words.next() {
        None => To::Default,
        Some("unreachable") => To::Unreachable,
        Some("blackhole") => To::Blackhole,
        Some("via") => {
            let hops: Vec<IpAddr> = words
                .by_ref()
                .map(|w| w.parse().map_err(|_| format!("{w:?} is no address")))
                .collect::<Result<_, String>>()?;
            if hops.is_empty() {
                return Err("has no address behind \"via\"".to_owned());
            }
            To::Via(hops)
        }
        Some(word) => return Err(format!("{word:?} is not understood")),
    };
    match words.next() {
        Some(word) => Err(format!("{word:?} is not understood")),
        None => Ok(Some((net.trunc(), to))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Result<Option<(String, usize)>, String> {
        route(line).map(|r| {
            r.map(|(net, to)| {
                let n = match to {
                    To::Via(hops) => hops.len(),
                    To::Default => 0,
                    To::Unreachable => 100,
                    To::Blackhole => 101,
                };
                (net.to_string(), n)
            })
        })
    }

    #[test]
    fn lines_are_understood_or_named() {
        assert_eq!(one("10.1.2.3/8"), Ok(Some(("10.0.0.0/8".into(), 0))));
        assert_eq!(one(" 2001:db8::/32 via fe80::1 2001:db8::2 # two"), Ok(Some(("2001:db8::/32".into(), 2))));
        assert_eq!(one("192.0.2.1 blackhole"), Ok(Some(("192.0.2.1/32".into(), 101))));
        assert_eq!(one("0.0.0.0/0 unreachable\n"), Ok(Some(("0.0.0.0/0".into(), 100))));
        assert_eq!(one("# nothing"), Ok(None));
        for wrong in ["10.0.0.0/33", "10.0.0.0/8 via", "10.0.0.0/8 via x", "10.0.0.0/8 blackhole too", "x", "::/0 to y"]
        {
            assert!(one(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_fault_is_placed() {
        let text: &[u8] = b"10.0.0.0/8\n\n10.0.0.0/40\n";
        let mut n = 0;
        let fault = lines(Box::new(text), |_, _| {
            n += 1;
            Ok(())
        });
        assert_eq!((fault.unwrap_err().0, n), (3, 1));
        let long: &[u8] = &[b' '; 5000];
        assert_eq!(lines(Box::new(long), |_, _| Ok(())).unwrap_err().0, 1);
    }
}
