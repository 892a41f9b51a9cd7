//! Files of routes.

use crate::settings::line_file;
use diagnostics::Diagnostic;
use graph::BuildContext;
use ipnet::IpNet;
use std::net::IpAddr;
use std::path::Path;

/// Target of a route.
#[derive(Clone)]
pub(in crate::l3fwd) enum RouteTarget {
    /// None is given: one of the default next hops.
    Default,
    /// Next hops.
    Via(Vec<IpAddr>),
    /// Packets are dropped, and senders receive an ICMP error.
    Unreachable,
    /// As [`RouteTarget::Unreachable`], and the error says that it is prohibited.
    Prohibited,
    /// Packets are dropped silently.
    Blackhole,
}

/// Passes every route of a file, plain or gzipped, to `each`.
///
/// # Errors
/// The first line that is invalid or for which `each` fails.
pub(super) fn read(
    cx: &BuildContext,
    path: &Path,
    mut each: impl FnMut(IpNet, RouteTarget) -> Result<(), String>,
) -> Result<(), Diagnostic> {
    let remedy = "write PREFIX, PREFIX via ADDRESS..., PREFIX unreachable, PREFIX prohibit or PREFIX blackhole";
    line_file::read(cx, path, "routes", remedy, |line| match parse(line)? {
        Some((net, to)) => each(net, to),
        None => Ok(()),
    })
}

/// Parses a line; returns `None` for an empty one.
pub(in crate::l3fwd) fn parse(line: &str) -> Result<Option<(IpNet, RouteTarget)>, String> {
    let mut words = line.split_ascii_whitespace();
    let Some(prefix) = words.next() else { return Ok(None) };
    let net = prefix
        .parse::<IpNet>()
        .or_else(|_| prefix.parse::<IpAddr>().map(IpNet::from))
        .map_err(|_| format!("{prefix:?} is not a prefix"))?;
    let to = match words.next() {
        None => RouteTarget::Default,
        Some("unreachable") => RouteTarget::Unreachable,
        Some("prohibit") => RouteTarget::Prohibited,
        Some("blackhole") => RouteTarget::Blackhole,
        Some("via") => {
            let hops: Vec<IpAddr> = words
                .by_ref()
                .map(|w| w.parse().map_err(|_| format!("{w:?} is not an address")))
                .collect::<Result<_, String>>()?;
            if hops.is_empty() {
                return Err("no address after \"via\"".to_owned());
            }
            RouteTarget::Via(hops)
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
        parse(line).map(|r| {
            r.map(|(net, to)| {
                let n = match to {
                    RouteTarget::Via(hops) => hops.len(),
                    RouteTarget::Default => 0,
                    RouteTarget::Unreachable => 100,
                    RouteTarget::Blackhole => 101,
                    RouteTarget::Prohibited => 102,
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
        assert_eq!(one("192.0.2.1/32 prohibit"), Ok(Some(("192.0.2.1/32".into(), 102))));
        assert_eq!(one("0.0.0.0/0 unreachable\n"), Ok(Some(("0.0.0.0/0".into(), 100))));
        assert_eq!(one(" "), Ok(None));
        for wrong in ["10.0.0.0/33", "10.0.0.0/8 via", "10.0.0.0/8 via x", "10.0.0.0/8 blackhole too", "x", "::/0 to y"]
        {
            assert!(one(wrong).is_err(), "{wrong}");
        }
    }
}
