//! Rules and their textual form.

use diagnostics::Diagnostic;
use graph::{Named, SettingFiles};
use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use tables::classifier::{Addresses, FragmentMatch, MAX_RULES, Rule, TcpFlags, Upper};
use wire::IpProtocol;

/// Action of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Action {
    /// Passes the packet.
    Accept,
    /// Drops the packet.
    Drop,
}

graph::named_enum! {
    /// Connection tracking state of a packet; without tracking every packet is new.
    pub(super) enum PacketState {
        New = "new",
        Established = "established",
        Related = "related",
        Invalid = "invalid",
    }
}

impl PacketState {
    pub(super) const ALL: [PacketState; 4] =
        [PacketState::New, PacketState::Established, PacketState::Related, PacketState::Invalid];

    /// Returns the bit of [`FirewallRule::states`].
    pub(super) const fn bit(self) -> u8 {
        1 << self as u8
    }
}

pub(super) fn too_many_rules(rules: usize) -> Diagnostic {
    let d = Diagnostic::new("exceeds the largest number of rules").key("rules").value(rules);
    d.remedy(format!("write at most {MAX_RULES} rules"))
}

/// A rule.
pub(super) struct FirewallRule {
    pub(super) text: String,
    pub(super) action: Action,
    pub(super) matches: Rule,
    /// Bit mask of the [`PacketState`]s that the rule applies to.
    pub(super) states: u8,
}

/// Reason for which a rule is invalid.
struct RuleError {
    problem: String,
    remedy: &'static str,
}

impl From<String> for RuleError {
    fn from(problem: String) -> Self {
        const REMEDY: &str = "write accept or drop, then any of: proto, src, dst, sport, dport, type, code, flags, fragment, state, each with its value";
        RuleError { problem, remedy: REMEDY }
    }
}

impl From<RuleError> for Diagnostic {
    fn from(error: RuleError) -> Self {
        Diagnostic::new(error.problem).remedy(error.remedy)
    }
}

const ANY4: (Ipv4Addr, u8) = (Ipv4Addr::UNSPECIFIED, 0);
const ANY6: (Ipv6Addr, u8) = (Ipv6Addr::UNSPECIFIED, 0);

/// Parses a rule. `state` is valid only with connection tracking.
///
/// # Errors
/// The rule is invalid.
pub(super) fn parse(text: &str, tracked: bool) -> Result<Arc<FirewallRule>, Diagnostic> {
    match parse_rule(text) {
        Ok(rule) if !tracked && rule.states != PacketState::New.bit() => Err(RuleError {
            problem: "matches a connection state, but connection tracking is off".to_owned(),
            remedy: "enable it with track = {}, or remove state",
        }),
        other => other,
    }
    .map(Arc::new)
    .map_err(|e| Diagnostic::from(e).value(text))
}

/// Parses the rules of the settings and of the file. Rules with the same text as one of `known` are reused.
///
/// # Errors
/// Returns the first invalid rule with its location.
pub(super) fn load<'a>(
    rules: &[String],
    file: Option<&Path>,
    files: &SettingFiles,
    tracked: bool,
    known: impl Iterator<Item = &'a Arc<FirewallRule>>,
) -> Result<Vec<Arc<FirewallRule>>, Diagnostic> {
    let known: HashMap<&str, &Arc<FirewallRule>> = known.map(|rule| (rule.text.as_str(), rule)).collect();
    let rule = |text: &str| known.get(text).map_or_else(|| parse(text, tracked), |&rule| Ok(rule.clone()));
    let mut all = vec![];
    for text in rules {
        all.push(rule(text).map_err(|e| e.key("rules"))?);
    }
    if let Some(path) = file {
        let mut text = String::new();
        files.open(path).and_then(|mut file| file.read_to_string(&mut text)).map_err(|e| {
            let d = Diagnostic::new(format!("cannot be read: {e}")).key("file").value(path.display());
            d.remedy("write the path of a file with one rule per line")
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
        return Err(too_many_rules(all.len()));
    }
    Ok(all)
}

/// Parses a rule.
fn parse_rule(text: &str) -> Result<FirewallRule, RuleError> {
    let mut words = text.split_ascii_whitespace();
    let action = match words.next() {
        Some("accept") => Action::Accept,
        Some("drop") => Action::Drop,
        Some(word) => return Err(format!("{word:?} is not an action: expected accept or drop").into()),
        None => return Err("the rule is empty".to_owned().into()),
    };
    let (mut src, mut dst) = (None::<IpNet>, None::<IpNet>);
    let (mut sport, mut dport, mut kind, mut code) = (None, None, None, None);
    let mut matches = Rule::ANY;
    let mut states = PacketState::New.bit();
    let mut keys = vec![];
    while let Some(key) = words.next() {
        let value = words.next().ok_or(format!("{key:?} has no value"))?;
        if keys.contains(&key) {
            return Err(format!("{key:?} is given twice").into());
        }
        keys.push(key);
        match key {
            "proto" => matches.protocol = Some(parse_protocol(value)?),
            "src" => src = Some(parse_network(value)?),
            "dst" => dst = Some(parse_network(value)?),
            "sport" => sport = Some(parse_range::<u16>(value)?),
            "dport" => dport = Some(parse_range::<u16>(value)?),
            "type" => kind = Some(parse_range::<u8>(value)?),
            "code" => code = Some(parse_range::<u8>(value)?),
            "flags" => matches.tcp_flags = Some(parse_flags(value)?),
            "state" => states = parse_state(value)?,
            "fragment" => matches.fragment = parse_fragment(value)?,
            _ => return Err(format!("{key:?} is not a match").into()),
        }
    }
    matches.addresses = match (match_addresses(src, dst)?, matches.protocol) {
        // ICMP types belong to one IP version
        (Addresses::Any, Some(1)) => Addresses::V4 { src: ANY4, dst: ANY4 },
        (Addresses::Any, Some(58)) => Addresses::V6 { src: ANY6, dst: ANY6 },
        (addresses, _) => addresses,
    };
    if let Some(number) = matches.protocol
        && IpProtocol(number).is_extension()
        && !matches!(matches.addresses, Addresses::V4 { .. })
    {
        return Err(RuleError {
            problem: format!(
                "protocol {number} is an IPv6 extension header, which is skipped when packets are matched, so the rule would \
                 not match IPv6 packets that contain it"
            ),
            remedy: "add an IPv4 address, such as src 0.0.0.0/0, to match IPv4 only; for IPv6 write the protocol after the extension header",
        });
    }
    matches.upper = match (sport.is_some() || dport.is_some(), kind.is_some() || code.is_some()) {
        (true, true) => {
            return Err("matches both ports and an ICMP type or code, which no packet has".to_owned().into());
        }
        (true, false) => Upper::Ports { src: sport.unwrap_or(0..=u16::MAX), dst: dport.unwrap_or(0..=u16::MAX) },
        (false, true) => Upper::Icmp { kind: kind.unwrap_or(0..=u8::MAX), code: code.unwrap_or(0..=u8::MAX) },
        (false, false) => Upper::Any,
    };
    matches.check().map_err(|e| e.to_string())?;
    Ok(FirewallRule { text: text.to_owned(), action, matches, states })
}

fn match_addresses(src: Option<IpNet>, dst: Option<IpNet>) -> Result<Addresses, String> {
    match (src, dst) {
        (None, None) => Ok(Addresses::Any),
        (Some(IpNet::V4(_)), Some(IpNet::V6(_))) | (Some(IpNet::V6(_)), Some(IpNet::V4(_))) => {
            Err("matches addresses of both IP versions, which no packet has".to_owned())
        }
        (src, dst) => {
            let ipv4 = |net: Option<IpNet>| match net {
                Some(IpNet::V4(n)) => (n.network(), n.prefix_len()),
                _ => ANY4,
            };
            let ipv6 = |net: Option<IpNet>| match net {
                Some(IpNet::V6(n)) => (n.network(), n.prefix_len()),
                _ => ANY6,
            };
            if matches!(src.or(dst), Some(IpNet::V4(_))) {
                Ok(Addresses::V4 { src: ipv4(src), dst: ipv4(dst) })
            } else {
                Ok(Addresses::V6 { src: ipv6(src), dst: ipv6(dst) })
            }
        }
    }
}

fn parse_network(text: &str) -> Result<IpNet, String> {
    text.parse()
        .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
        .map_err(|_| format!("{text:?} is not an IP address or network"))
}

fn parse_protocol(text: &str) -> Result<u8, String> {
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
            format!("{text:?} is not a protocol: write tcp, udp, icmp, icmpv6, sctp, gre, esp, ah or 0 to 255")
        })?,
    })
}

/// Parses a number or range: `80` or `80-443`.
fn parse_range<T: std::str::FromStr + PartialOrd + Copy>(text: &str) -> Result<RangeInclusive<T>, String> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    match (from.parse::<T>(), to.parse::<T>()) {
        (Ok(from), Ok(to)) if from <= to => Ok(from..=to),
        _ => Err(format!("{text:?} is not a number or a range such as 80-443")),
    }
}

/// Parses TCP flags, `!` for flags that must not be set: `syn,!ack`.
fn parse_flags(text: &str) -> Result<TcpFlags, String> {
    const NAMES: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];
    let mut flags = TcpFlags { mask: 0, value: 0 };
    for word in text.split(',') {
        let (name, set) = word.strip_prefix('!').map_or((word, true), |name| (name, false));
        let bit = NAMES
            .iter()
            .position(|n| *n == name)
            .ok_or(format!("{word:?} is not a TCP flag: write {}", NAMES.join(", ")))?;
        if flags.mask & 1 << bit != 0 {
            return Err(format!("{name:?} is given twice"));
        }
        flags.mask |= 1 << bit;
        flags.value |= u8::from(set) << bit;
    }
    Ok(flags)
}

/// Parses states: `established,related`, or `any`.
fn parse_state(text: &str) -> Result<u8, String> {
    if text == "any" {
        return Ok((1 << PacketState::NAMES.len()) - 1);
    }
    text.split(',').try_fold(0, |states, word| match PacketState::NAMES.iter().position(|name| *name == word) {
        Some(n) if states & 1 << n != 0 => Err(format!("{word:?} is given twice")),
        Some(n) => Ok(states | 1 << n),
        None => Err(format!("{word:?} is not a state: write any, or some of {}", PacketState::NAMES.join(","))),
    })
}

fn parse_fragment(text: &str) -> Result<FragmentMatch, String> {
    Ok(match text {
        "no" => FragmentMatch::Whole,
        "yes" => FragmentMatch::Fragment,
        "first" => FragmentMatch::First,
        "later" => FragmentMatch::Later,
        _ => return Err(format!("{text:?} is not a fragment match: write no, yes, first or later")),
    })
}
