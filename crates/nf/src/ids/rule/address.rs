//! Addresses and ports of rules.

use super::text::split_list;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Variables by name, without `$`.
pub(in crate::ids) type Variables = BTreeMap<String, String>;

/// Deepest nesting of lists and variables.
const MAX_DEPTH: u32 = 16;

/// A set of values: those of an accepted range (all, if there is none or `any` is in the list) without those of the excluded
/// ranges.
#[derive(Clone, Debug, Default)]
pub(in crate::ids) struct Ranges {
    has_any: bool,
    accepted: Vec<(u128, u128)>,
    excluded: Vec<(u128, u128)>,
}

impl Ranges {
    fn accepts_all(&self) -> bool {
        self.has_any || self.accepted.is_empty()
    }

    fn contains(&self, is_within: impl Fn(&(u128, u128)) -> bool) -> bool {
        (self.accepts_all() || self.accepted.iter().any(&is_within)) && !self.excluded.iter().any(&is_within)
    }
}

/// Addresses. IPv4 addresses are values above [`V4`].
#[derive(Clone, Debug, Default)]
pub(in crate::ids) struct Addresses(Ranges);

/// Ports.
#[derive(Clone, Debug, Default)]
pub(in crate::ids) struct Ports(Ranges);

/// Offset of IPv4 addresses, the prefix of mapped addresses (RFC 4291 §2.5.5.2).
const V4: u128 = 0xffff_0000_0000;

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => V4 | u128::from(ip.to_bits()),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

impl Addresses {
    pub(in crate::ids) fn contains(&self, ip: IpAddr) -> bool {
        let value = number(ip);
        // a network of IPv6 that contains the mapped addresses has no IPv4 addresses
        let versions = if ip.is_ipv4() { V4..=V4 | u128::from(u32::MAX) } else { 0..=u128::MAX };
        self.0.contains(|(from, to)| (*from..=*to).contains(&value) && versions.contains(from) && versions.contains(to))
    }

    pub(in crate::ids) fn has_negation(&self) -> bool {
        !self.0.excluded.is_empty()
    }

    /// Parses `any`, addresses, networks, ranges, lists, negations and variables.
    pub(super) fn parse(text: &str, variables: &Variables) -> Result<Self, String> {
        let mut ranges = Ranges::default();
        collect(text, false, variables, 0, &mut ranges, &address_range)?;
        Ok(Addresses(ranges))
    }
}

impl Ports {
    pub(in crate::ids) fn contains(&self, port: u16) -> bool {
        self.0.contains(|(from, to)| (*from..=*to).contains(&port.into()))
    }

    /// Returns the lowest and the highest port that may be accepted.
    pub(in crate::ids) fn bounds(&self) -> (u16, u16) {
        if self.0.accepts_all() {
            return (0, u16::MAX);
        }
        let port = |value: Option<u128>, default| value.and_then(|n| u16::try_from(n).ok()).unwrap_or(default);
        let ranges = || self.0.accepted.iter();
        (port(ranges().map(|r| r.0).min(), 0), port(ranges().map(|r| r.1).max(), u16::MAX))
    }

    pub(in crate::ids) fn is_any(&self) -> bool {
        self.0.accepts_all() && self.0.excluded.is_empty()
    }

    /// Parses `any`, ports, ranges `N:M`, lists, negations and variables.
    pub(super) fn parse(text: &str, variables: &Variables) -> Result<Self, String> {
        let mut ranges = Ranges::default();
        collect(text, false, variables, 0, &mut ranges, &port_range)?;
        Ok(Ports(ranges))
    }
}

/// Parses a range; `None` is `any`.
type ParseRange = dyn Fn(&str) -> Result<Option<(u128, u128)>, String>;

fn collect(
    text: &str,
    negated: bool,
    variables: &Variables,
    depth: u32,
    out: &mut Ranges,
    parse: &ParseRange,
) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Err(format!("{text}: lists or variables are nested too deeply"));
    }
    let text = text.trim();
    if let Some(rest) = text.strip_prefix('!') {
        return collect(rest, !negated, variables, depth + 1, out, parse);
    }
    if let Some(name) = text.strip_prefix('$') {
        let value = variables.get(name).ok_or_else(|| format!("${name}: no such variable"))?;
        return collect(value, negated, variables, depth + 1, out, parse);
    }
    if let Some(list) = text.strip_prefix('[') {
        let list = list.strip_suffix(']').ok_or_else(|| format!("{text}: a bracket is not closed"))?;
        if negated && split_list(list).iter().any(|part| part.starts_with('!')) {
            return Err(format!("!{text}: a negated list contains a negation"));
        }
        return split_list(list)
            .into_iter()
            .try_for_each(|part| collect(part, negated, variables, depth + 1, out, parse));
    }
    match parse(text)? {
        None if negated => Err("!any matches nothing".into()),
        None => {
            out.has_any = true;
            Ok(())
        }
        Some(range) => {
            if negated { &mut out.excluded } else { &mut out.accepted }.push(range);
            Ok(())
        }
    }
}

fn address_range(text: &str) -> Result<Option<(u128, u128)>, String> {
    if text == "any" {
        return Ok(None);
    }
    let invalid = || format!("{text}: not an address, network or range");
    let address = |text: &str| text.trim().parse::<IpAddr>().map_err(|_| invalid());
    if let Some((from, to)) = text.split_once('-') {
        let (from, to) = (address(from)?, address(to)?);
        let range = (number(from), number(to));
        return if from.is_ipv4() == to.is_ipv4() && range.0 <= range.1 { Ok(Some(range)) } else { Err(invalid()) };
    }
    let Some((ip, mask)) = text.split_once('/') else {
        let ip = number(address(text)?);
        return Ok(Some((ip, ip)));
    };
    let ip = address(ip)?;
    let width: u32 = if ip.is_ipv4() { 32 } else { 128 };
    let prefix = match mask.parse::<std::net::Ipv4Addr>() {
        Ok(mask) if ip.is_ipv4() && mask.to_bits().leading_ones() + mask.to_bits().trailing_zeros() == 32 => {
            mask.to_bits().leading_ones()
        }
        Ok(_) => return Err(invalid()),
        Err(_) => mask.parse::<u32>().ok().filter(|n| *n <= width).ok_or_else(invalid)?,
    };
    let host = 1u128.checked_shl(width - prefix).map_or(u128::MAX, |size| size - 1);
    let first = number(ip) & !host;
    Ok(Some((first, first | host)))
}

fn port_range(text: &str) -> Result<Option<(u128, u128)>, String> {
    if text == "any" {
        return Ok(None);
    }
    let invalid = || format!("{text}: not a port or range of ports");
    let port = |text: &str, default: u16| match text.trim() {
        "" => Ok(default),
        text => text.parse::<u16>().map_err(|_| invalid()),
    };
    let (from, to) = match text.split_once(':') {
        Some((from, to)) => (port(from, 0)?, port(to, u16::MAX)?),
        None if text.is_empty() => return Err(invalid()),
        None => (port(text, 0)?, port(text, 0)?),
    };
    if from <= to { Ok(Some((from.into(), to.into()))) } else { Err(invalid()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_lists_negations_and_variables() {
        let variables = Variables::from([("HOME".to_owned(), "[10.0.0.0/8,!10.1.0.0/16]".to_owned())]);
        let home = Addresses::parse("$HOME", &variables).unwrap();
        for (ip, expected) in [("10.2.3.4", true), ("10.1.0.1", false), ("11.0.0.1", false), ("::a02:304", false)] {
            assert_eq!(home.contains(ip.parse().unwrap()), expected, "{ip}");
        }
        let range = Addresses::parse("[1.2.3.4-1.2.3.6, 2001:db8::/32]", &variables).unwrap();
        assert!(range.contains("1.2.3.6".parse().unwrap()) && range.contains("2001:db8::1".parse().unwrap()));
        assert!(!range.contains("1.2.3.7".parse().unwrap()));
        let any = Addresses::parse("[any,1.2.3.4,!9.9.9.9]", &variables).unwrap();
        assert!(any.contains("5.6.7.8".parse().unwrap()) && !any.contains("9.9.9.9".parse().unwrap()));
        let all6 = Addresses::parse("::/0", &variables).unwrap();
        assert!(all6.contains("::1".parse().unwrap()) && !all6.contains("10.0.0.1".parse().unwrap()));
        for invalid in ["$NO", "[1.2.3.4", "1.2.3.4/33", "1.2.3.9-1.2.3.1", "!any", "x"] {
            assert!(Addresses::parse(invalid, &variables).is_err(), "{invalid}");
        }
    }

    #[test]
    fn parses_ports() {
        let ports = Ports::parse("[80,1024:,!2000:3000]", &Variables::new()).unwrap();
        for (port, expected) in [(80, true), (81, false), (1024, true), (2500, false), (65535, true)] {
            assert_eq!(ports.contains(port), expected, "{port}");
        }
        for (text, bounds) in
            [("any", (0, 65535)), ("[80,8080:8090,!81]", (80, 8090)), ("!80", (0, 65535)), (":9", (0, 9))]
        {
            assert_eq!(Ports::parse(text, &Variables::new()).unwrap().bounds(), bounds, "{text}");
        }
        assert!(Ports::parse("70000", &Variables::new()).is_err() && Ports::parse("9:1", &Variables::new()).is_err());
    }
}
