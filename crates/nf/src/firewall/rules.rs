//! Rules as they are written.

use super::Action;
use super::policy::{Class, too_many};
use diagnostics::Diagnostic;
use ipnet::IpNet;
use std::collections::HashMap;
use std::fs::read_to_string;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use tables::classifier::{Addresses, FragmentMatch, MAX_RULES, Rule, TcpFlags, Upper};
use wire::IpProtocol;

/// A rule.
pub(super) struct Written {
    pub(super) text: String,
    pub(super) action: Action,
    pub(super) matches: Rule,
    /// Of the classes of packets that it is for, their bits.
    pub(super) states: u8,
}

/// Why a rule is refused.
struct Fault {
    problem: String,
    remedy: &'static str,
}

impl From<String> for Fault {
    fn from(problem: String) -> Self {
        const CURE: &str = "write accept or drop, then any of: proto, src, dst, sport, dport, type, code, flags, fragment, state, each with its value";
        Fault { problem, remedy: CURE }
    }
}

impl From<Fault> for Diagnostic {
    fn from(fault: Fault) -> Self {
        Diagnostic::new(fault.problem).remedy(fault.remedy)
    }
}

const ANY4: (Ipv4Addr, u8) = (Ipv4Addr::UNSPECIFIED, 0);
const ANY6: (Ipv6Addr, u8) = (Ipv6Addr::UNSPECIFIED, 0);

/// A rule. Words on states mean something only where connections are tracked.
///
/// # Errors
/// What is wrong with it.
pub(super) fn one(text: &str, tracked: bool) -> Result<Arc<Written>, Diagnostic> {
    match rule(text) {
        Ok(rule) if !tracked && rule.states != Class::New.bit() => Err(Fault {
            problem: "asks for the state of a connection, and none is tracked".to_owned(),
            remedy: "write track = {} beside the rules, or leave the word out",
        }),
        other => other,
    }
    .map(Arc::new)
    .map_err(|e| Diagnostic::from(e).value(text))
}

/// All rules: these, and behind them those of a file. Of those that are known the text need not be read again.
///
/// # Errors
/// What is wrong with the first that is wrong, and where it stands.
pub(super) fn read<'a>(
    rules: &[String],
    file: Option<&Path>,
    tracked: bool,
    known: impl Iterator<Item = &'a Arc<Written>>,
) -> Result<Vec<Arc<Written>>, Diagnostic> {
    let known: HashMap<&str, &Arc<Written>> = known.map(|rule| (rule.text.as_str(), rule)).collect();
    let rule = |text: &str| known.get(text).map_or_else(|| one(text, tracked), |&rule| Ok(rule.clone()));
    let mut all = vec![];
    for text in rules {
        all.push(rule(text).map_err(|e| e.key("rules"))?);
    }
    if let Some(path) = file {
        let text = read_to_string(path).map_err(|e| {
            let d = Diagnostic::new(format!("cannot be read: {e}")).key("file").value(path.display());
            d.remedy("name a file of rules, one a line")
        })?;
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let rule =
                rule(line).map_err(|e| Diagnostic { file: Some(path.to_owned()), line: Some(number + 1), ..e })?;
            all.push(rule);
        }
    }
    if all.len() > MAX_RULES {
        return Err(too_many(all.len()));
    }
    Ok(all)
}

/// One rule.
fn rule(text: &str) -> Result<Written, Fault> {
    let mut words = text.split_ascii_whitespace();
    let action = match words.next() {
        Some("accept") => Action::Accept,
        Some("drop") => Action::Drop,
        Some(word) => return Err(format!("{word:?} is neither accept nor drop").into()),
        None => return Err("there is no rule".to_owned().into()),
    };
    let (mut src, mut dst) = (None::<IpNet>, None::<IpNet>);
    let (mut sport, mut dport, mut kind, mut code) = (None, None, None, None);
    let mut matches = Rule::ANY;
    let mut states = Class::New.bit();
    let mut seen = vec![];
    while let Some(key) = words.next() {
        let value = words.next().ok_or(format!("{key:?} has no value"))?;
        if seen.contains(&key) {
            return Err(format!("{key:?} stands there twice").into());
        }
        seen.push(key);
        match key {
            "proto" => matches.protocol = Some(protocol(value)?),
            "src" => src = Some(net(value)?),
            "dst" => dst = Some(net(value)?),
            "sport" => sport = Some(range::<u16>(value)?),
            "dport" => dport = Some(range::<u16>(value)?),
            "type" => kind = Some(range::<u8>(value)?),
            "code" => code = Some(range::<u8>(value)?),
            "flags" => matches.tcp_flags = Some(flags(value)?),
            "state" => states = state(value)?,
            "fragment" => matches.fragment = fragment(value)?,
            _ => return Err(format!("{key:?} is not understood").into()),
        }
    }
    matches.addresses = match (addresses(src, dst)?, matches.protocol) {
        // types are those of one version's ICMP
        (Addresses::Any, Some(1)) => Addresses::V4 { src: ANY4, dst: ANY4 },
        (Addresses::Any, Some(58)) => Addresses::V6 { src: ANY6, dst: ANY6 },
        (addresses, _) => addresses,
    };
    if let Some(number) = matches.protocol
        && IpProtocol(number).is_extension()
        && !matches!(matches.addresses, Addresses::V4 { .. })
    {
        return Err(Fault {
            problem: format!(
                "protocol {number} is an extension header in IPv6: it is walked over to the protocol behind it, so the rule \
                 would let IPv6 packets that have one go by"
            ),
            remedy: "add an IPv4 address, such as src 0.0.0.0/0, for a rule on IPv4 only; for IPv6 name the protocol behind it",
        });
    }
    matches.upper = match (sport.is_some() || dport.is_some(), kind.is_some() || code.is_some()) {
        (true, true) => return Err("has ports and an ICMP type, and no packet has both".to_owned().into()),
        (true, false) => Upper::Ports { src: sport.unwrap_or(0..=u16::MAX), dst: dport.unwrap_or(0..=u16::MAX) },
        (false, true) => Upper::Icmp { kind: kind.unwrap_or(0..=u8::MAX), code: code.unwrap_or(0..=u8::MAX) },
        (false, false) => Upper::Any,
    };
    matches.check().map_err(|fault| fault.to_string())?;
    Ok(Written { text: text.to_owned(), action, matches, states })
}

fn addresses(src: Option<IpNet>, dst: Option<IpNet>) -> Result<Addresses, String> {
    match (src, dst) {
        (None, None) => Ok(Addresses::Any),
        (Some(IpNet::V4(_)), Some(IpNet::V6(_))) | (Some(IpNet::V6(_)), Some(IpNet::V4(_))) => {
            Err("has addresses of both IP versions, and no packet has both".to_owned())
        }
        (src, dst) => {
            let four = |net: Option<IpNet>| match net {
                Some(IpNet::V4(n)) => (n.network(), n.prefix_len()),
                _ => ANY4,
            };
            let six = |net: Option<IpNet>| match net {
                Some(IpNet::V6(n)) => (n.network(), n.prefix_len()),
                _ => ANY6,
            };
            if matches!(src.or(dst), Some(IpNet::V4(_))) {
                Ok(Addresses::V4 { src: four(src), dst: four(dst) })
            } else {
                Ok(Addresses::V6 { src: six(src), dst: six(dst) })
            }
        }
    }
}

fn net(text: &str) -> Result<IpNet, String> {
    text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).map_err(|_| format!("{text:?} is no network"))
}

fn protocol(text: &str) -> Result<u8, String> {
    Ok(match text {
        "icmp" => 1,
        "tcp" => 6,
        "udp" => 17,
        "gre" => 47,
        "esp" => 50,
        "ah" => 51,
        "icmpv6" => 58,
        "sctp" => 132,
        number => number.parse().map_err(|_| {
            format!("{text:?} is no protocol: use tcp, udp, icmp, icmpv6, sctp, gre, esp, ah or 0 to 255")
        })?,
    })
}

/// `80` or `80-443`.
fn range<T: std::str::FromStr + PartialOrd + Copy>(text: &str) -> Result<RangeInclusive<T>, String> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    match (from.parse::<T>(), to.parse::<T>()) {
        (Ok(from), Ok(to)) if from <= to => Ok(from..=to),
        _ => Err(format!("{text:?} is no number or range such as 80-443")),
    }
}

/// `syn,!ack`: flags that are set, and with `!` that are not.
fn flags(text: &str) -> Result<TcpFlags, String> {
    const NAMES: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];
    let mut flags = TcpFlags { mask: 0, value: 0 };
    for word in text.split(',') {
        let (name, set) = word.strip_prefix('!').map_or((word, true), |name| (name, false));
        let bit = NAMES
            .iter()
            .position(|n| *n == name)
            .ok_or(format!("{word:?} is no TCP flag: use {}", NAMES.join(", ")))?;
        if flags.mask & 1 << bit != 0 {
            return Err(format!("{name:?} stands there twice"));
        }
        flags.mask |= 1 << bit;
        flags.value |= u8::from(set) << bit;
    }
    Ok(flags)
}

/// `established,related`, or `any`.
fn state(text: &str) -> Result<u8, String> {
    if text == "any" {
        return Ok((1 << Class::NAMES.len()) - 1);
    }
    text.split(',').try_fold(0, |states, word| match Class::NAMES.iter().position(|name| *name == word) {
        Some(n) if states & 1 << n != 0 => Err(format!("{word:?} stands there twice")),
        Some(n) => Ok(states | 1 << n),
        None => Err(format!("{word:?} is no state: use any, or some of {}", Class::NAMES.join(","))),
    })
}

fn fragment(text: &str) -> Result<FragmentMatch, String> {
    Ok(match text {
        "no" => FragmentMatch::Whole,
        "yes" => FragmentMatch::Fragment,
        "first" => FragmentMatch::First,
        "later" => FragmentMatch::Later,
        _ => return Err(format!("{text:?} is not understood: write no, yes, first or later")),
    })
}
