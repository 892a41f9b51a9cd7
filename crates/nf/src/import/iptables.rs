//! What `iptables-save` and `ip6tables-save` print.

use super::flat::{Chains, FLAGS, Match, Rule, Then, flatten, state};
use super::{Imported, refused};
use diagnostics::Diagnostic;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The chain `FORWARD` of the table `filter`, as `iptables-save` prints it, or with `v6` `ip6tables-save`.
///
/// # Errors
/// The first rule that cannot be said otherwise, with its line and what is in the way.
pub fn iptables(text: &str, v6: bool) -> Result<Imported, Diagnostic> {
    let mut table = String::new();
    let (mut chains, mut policies, mut notes) = (Chains::new(), BTreeMap::new(), vec![]);
    for (n, line) in text.lines().enumerate() {
        let number = Some(n + 1);
        let line = line.trim();
        let bad = |problem: &str, remedy: &str| refused(number, line, problem, remedy);
        match line.chars().next() {
            None | Some('#') => {}
            Some('*') => table = line[1..].to_owned(),
            Some(':') => {
                let mut words = line[1..].split_whitespace();
                let (Some(chain), Some(policy)) = (words.next(), words.next()) else {
                    return Err(bad("is no chain with its policy", "give what iptables-save prints"));
                };
                if table == "filter" {
                    chains.entry(chain.to_owned()).or_default();
                    policies.insert(chain.to_owned(), policy == "ACCEPT");
                } else if policy == "DROP" {
                    return Err(bad("drops packets in another table than filter", "write it as a rule of filter"));
                }
            }
            Some('-') if table == "filter" => {
                let all = words(line);
                let [add, chain, rest @ ..] = all.as_slice() else {
                    return Err(bad("adds no rule", "give what iptables-save prints"));
                };
                if add != "-A" {
                    return Err(bad("adds no rule", "give what iptables-save prints"));
                }
                let mut rule = Rule::new(number, line, Some(v6));
                rule.fault = read(rest, &mut rule, v6).err();
                chains.entry(chain.clone()).or_default().push(rule);
            }
            Some('-') => {
                return Err(bad(&format!("is of the table {table}"), "take it out: only filter can be imported"));
            }
            Some(_) if line == "COMMIT" => table.clear(),
            Some(_) => return Err(bad("is not understood", "give what iptables-save prints")),
        }
    }
    let Some(&accepts) = policies.get("FORWARD") else {
        return Err(refused(
            None,
            "FORWARD",
            "is a chain that is not there",
            "give what iptables-save prints, with the table filter",
        ));
    };
    for other in ["INPUT", "OUTPUT"] {
        if chains.get(other).is_some_and(|rules| !rules.is_empty()) {
            notes.push(format!("not imported: {other}, whose packets are not forwarded"));
        }
    }
    flatten(&chains, "FORWARD", Some(v6), accepts, notes)
}

/// Words, with those in quotes as one.
fn words(line: &str) -> Vec<String> {
    let (mut all, mut word, mut quoted, mut any) = (vec![], String::new(), false, false);
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => (quoted, any) = (!quoted, true),
            '\\' if quoted => word.extend(chars.next()),
            c if c.is_whitespace() && !quoted => {
                if any {
                    all.push(core::mem::take(&mut word));
                }
                any = false;
            }
            c => {
                word.push(c);
                any = true;
            }
        }
    }
    if any {
        all.push(word);
    }
    all
}

/// Reads the words of a rule behind its chain.
fn read(words: &[String], rule: &mut Rule, v6: bool) -> Result<(), Diagnostic> {
    let (number, line) = (rule.line, rule.word.clone());
    let bad = |word: &str, problem: &str, remedy: &str| refused(number, format!("{word} in {line}"), problem, remedy);
    let mut words = words.iter().map(String::as_str);
    let mut module = "";
    while let Some(key) = words.next() {
        if key == "!" {
            return Err(bad("!", "turns a condition round", "write a rule in front of it for what is excepted"));
        }
        if key == "--syn" {
            rule.with(&[Match { protocol: Some(6), flags: Some((0x17, 2)), ..Match::default() }]);
            continue;
        }
        if key == "-f" {
            rule.with(&[Match { fragment: Some("later"), ..Match::default() }]);
            continue;
        }
        let Some(value) = words.next() else { return Err(bad(key, "has no value", "give what iptables-save prints")) };
        let wrong = || bad(value, &format!("is no value for {key}"), "give what iptables-save prints");
        let ports = |text: &str| -> Option<(u16, u16)> {
            let (from, to) = text.split_once(':').unwrap_or((text, text));
            Some((from.parse().ok()?, to.parse().ok()?))
        };
        let list = || value.split(',').map(ports).collect::<Option<Vec<_>>>().ok_or_else(wrong);
        match key {
            "-s" | "--source" | "-d" | "--destination" => {
                let net: IpNet =
                    value.parse().or_else(|_| value.parse::<IpAddr>().map(IpNet::from)).map_err(|_| wrong())?;
                let net = Some(net.trunc());
                rule.with(&[match key {
                    "-s" | "--source" => Match { src: net, ..Match::default() },
                    _ => Match { dst: net, ..Match::default() },
                }]);
            }
            "-p" | "--protocol" => {
                let protocol = if value == "all" { None } else { Some(protocol(value).ok_or_else(wrong)?) };
                rule.with(&[Match { protocol, ..Match::default() }]);
            }
            "-m" | "--match" => {
                module = value;
                let known =
                    ["tcp", "udp", "icmp", "icmp6", "icmpv6", "multiport", "state", "conntrack", "comment", "sctp"];
                if !known.contains(&value) {
                    return Err(bad(
                        value,
                        "is a match that the firewall has not",
                        "take the rule out, or write it otherwise",
                    ));
                }
            }
            "--comment" if module == "comment" => {}
            "--sport" | "--source-port" | "--sports" => {
                let all: Vec<_> = list()?.into_iter().map(|p| Match { sport: Some(p), ..Match::default() }).collect();
                rule.with(&all);
            }
            "--dport" | "--destination-port" | "--dports" => {
                let all: Vec<_> = list()?.into_iter().map(|p| Match { dport: Some(p), ..Match::default() }).collect();
                rule.with(&all);
            }
            "--state" | "--ctstate" => {
                rule.states = value.split(',').try_fold(0, |all, word| Some(all | state(word)?)).ok_or_else(|| {
                    bad(value, "has a state that the firewall has not", "use NEW, ESTABLISHED, RELATED, INVALID")
                })?;
            }
            "--icmp-type" | "--icmpv6-type" if value == "any" => {}
            "--icmp-type" | "--icmpv6-type" => {
                let (kind, code) = icmp(value, v6).ok_or_else(wrong)?;
                let code = code.map(|c| (c, c));
                rule.with(&[Match { kind: Some((kind, kind)), code, ..Match::default() }]);
            }
            "--tcp-flags" => {
                let set = |text: &str| match text {
                    "NONE" => Some(0),
                    "ALL" => Some(0x3f),
                    some => some.split(',').try_fold(0u8, |all, word| {
                        Some(all | 1 << FLAGS.iter().position(|f| f.eq_ignore_ascii_case(word))?)
                    }),
                };
                let (mask, value) = (set(value), words.next().and_then(set));
                let (Some(mask), Some(value)) = (mask, value) else { return Err(wrong()) };
                rule.with(&[Match { protocol: Some(6), flags: Some((mask, value & mask)), ..Match::default() }]);
            }
            "-i" | "-o" if value == "lo" => {
                rule.notes.push(format!("left out, for no forwarded packet is on lo: {line}"));
                rule.any.clear();
            }
            "-i" | "-o" | "--in-interface" | "--out-interface" => {
                return Err(bad(
                    value,
                    "is an interface, and rules know none",
                    "put a firewall of its own on the path of that port",
                ));
            }
            "-j" | "--jump" => {
                rule.then = match value {
                    "ACCEPT" => Then::Accept,
                    "DROP" => Then::Drop,
                    "REJECT" => {
                        rule.notes.push(format!("dropped without an answer: {line}"));
                        Then::Drop
                    }
                    "RETURN" => Then::Return,
                    "LOG" | "NFLOG" => {
                        rule.notes.push(format!("left out, the firewall counts and does not log: {line}"));
                        Then::Nothing
                    }
                    chain => Then::Jump(chain.to_owned()),
                }
            }
            "-g" | "--goto" => rule.then = Then::Goto(value.to_owned()),
            "--reject-with" | "--log-prefix" | "--log-level" | "--nflog-prefix" | "--nflog-group" => {}
            _ => {
                return Err(bad(
                    key,
                    "is a condition that the firewall has not",
                    "take the rule out, or write it otherwise",
                ));
            }
        }
    }
    Ok(())
}

pub(super) fn protocol(text: &str) -> Option<u8> {
    Some(match text {
        "icmp" => 1,
        "igmp" => 2,
        "tcp" => 6,
        "udp" => 17,
        "dccp" => 33,
        "gre" => 47,
        "esp" => 50,
        "ah" => 51,
        "icmpv6" | "ipv6-icmp" => 58,
        "sctp" => 132,
        "udplite" => 136,
        number => number.parse().ok()?,
    })
}

/// Names of ICMP types, those of `nft` as well.
pub(super) fn icmp(text: &str, v6: bool) -> Option<(u8, Option<u8>)> {
    if let Some((kind, code)) = text.split_once('/') {
        return Some((kind.parse().ok()?, Some(code.parse().ok()?)));
    }
    let kind = match (v6, text) {
        (_, number) if number.parse::<u8>().is_ok() => number.parse().ok()?,
        (false, "echo-reply" | "pong") => 0,
        (false, "destination-unreachable") => 3,
        (false, "source-quench") => 4,
        (false, "redirect") => 5,
        (false, "echo-request" | "ping") => 8,
        (false, "router-advertisement") => 9,
        (false, "router-solicitation") => 10,
        (false, "time-exceeded" | "ttl-exceeded") => 11,
        (false, "parameter-problem") => 12,
        (false, "timestamp-request") => 13,
        (false, "timestamp-reply") => 14,
        (true, "destination-unreachable") => 1,
        (true, "packet-too-big") => 2,
        (true, "time-exceeded") => 3,
        (true, "parameter-problem") => 4,
        (true, "echo-request") => 128,
        (true, "echo-reply") => 129,
        (true, "nd-router-solicit" | "router-solicitation") => 133,
        (true, "nd-router-advert" | "router-advertisement") => 134,
        (true, "nd-neighbor-solicit" | "neighbour-solicitation") => 135,
        (true, "nd-neighbor-advert" | "neighbour-advertisement") => 136,
        (true, "nd-redirect" | "redirect") => 137,
        _ => return None,
    };
    Some((kind, None))
}
