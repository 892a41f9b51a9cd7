//! Files of routes.

use crate::lines;
use diagnostics::Diagnostic;
use ipnet::IpNet;
use std::net::IpAddr;
use std::path::Path;

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
pub(super) fn read(path: &Path, mut each: impl FnMut(IpNet, To) -> Result<(), String>) -> Result<(), Diagnostic> {
    let remedy = "write PREFIX, PREFIX via ADDRESS..., PREFIX unreachable or PREFIX blackhole";
    lines::read(path, "routes", remedy, |line| match route(line)? {
        Some((net, to)) => each(net, to),
        None => Ok(()),
    })
}

/// The route of a line; none on an empty one.
fn route(line: &str) -> Result<Option<(IpNet, To)>, String> {
    let mut words = line.split_ascii_whitespace();
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
        assert_eq!(one(" 2001:db8::/32 via fe80::1 2001:db8::2 "), Ok(Some(("2001:db8::/32".into(), 2))));
        assert_eq!(one("192.0.2.1 blackhole"), Ok(Some(("192.0.2.1/32".into(), 101))));
        assert_eq!(one("0.0.0.0/0 unreachable\n"), Ok(Some(("0.0.0.0/0".into(), 100))));
        assert_eq!(one(" "), Ok(None));
        for wrong in ["10.0.0.0/33", "10.0.0.0/8 via", "10.0.0.0/8 via x", "10.0.0.0/8 blackhole too", "x", "::/0 to y"]
        {
            assert!(one(wrong).is_err(), "{wrong}");
        }
    }
}
