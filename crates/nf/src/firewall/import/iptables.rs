//! Output of `iptables-save` and `ip6tables-save`.

use super::flatten::{Chains, FLAGS, Match, SourceRule, Target, flatten, state};
use super::{ImportedRules, unsupported};
use diagnostics::Diagnostic;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::IpAddr;

const REMEDY: &str = "pass the output of iptables-save";

/// Converts the chain `FORWARD` of the table `filter` as printed by `iptables-save` or, with `v6`, `ip6tables-save`.
///
/// # Errors
/// Returns the first rule that cannot be converted.
pub fn iptables(text: &str, v6: bool) -> Result<ImportedRules, Diagnostic> {
    let mut table = String::new();
    let (mut chains, mut policies, mut notes) = (Chains::new(), BTreeMap::new(), vec![]);
    for (n, line) in text.lines().enumerate() {
        let number = Some(n + 1);
        let line = line.trim();
        let error = |problem: &str, remedy: &str| unsupported(number, line, problem, remedy);
        match line.chars().next() {
            None | Some('#') => {}
            Some('*') => table = line[1..].to_owned(),
            Some(':') => {
                let mut words = line[1..].split_whitespace();
                let (Some(chain), Some(policy)) = (words.next(), words.next()) else {
                    return Err(error("is not a chain with a policy", REMEDY));
                };
                if table == "filter" {
                    chains.entry(chain.to_owned()).or_default();
                    policies.insert(chain.to_owned(), policy == "ACCEPT");
                } else if policy == "DROP" {
                    return Err(error("drops packets in a table other than filter", "move the policy to filter"));
                }
            }
            Some('-') if table == "filter" => {
                let all = split_words(line);
                let [add, chain, rest @ ..] = all.as_slice() else {
                    return Err(error("does not add a rule", REMEDY));
                };
                if add != "-A" {
                    return Err(error("does not add a rule", REMEDY));
                }
                let mut rule = SourceRule::new(number, line, Some(v6));
                rule.error = parse_rule(rest, &mut rule, v6).err();
                chains.entry(chain.clone()).or_default().push(rule);
            }
            Some('-') => {
                return Err(error(
                    &format!("is a rule of the table {table}"),
                    "remove it: only filter can be imported",
                ));
            }
            Some(_) if line == "COMMIT" => table.clear(),
            Some(_) => return Err(error("is not valid", REMEDY)),
        }
    }
    let Some(&default_accept) = policies.get("FORWARD") else {
        return Err(unsupported(
            None,
            "FORWARD",
            "the chain does not exist",
            "pass the output of iptables-save, with the table filter",
        ));
    };
    for other in ["INPUT", "OUTPUT"] {
        if chains.get(other).is_some_and(|rules| !rules.is_empty()) {
            notes.push(format!("not imported: {other}, which does not affect forwarded packets"));
        }
    }
    flatten(&chains, "FORWARD", Some(v6), default_accept, notes)
}

/// Splits a line into words; quoted text is one word.
fn split_words(line: &str) -> Vec<String> {
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

/// Parses the words of a rule after its chain.
fn parse_rule(words: &[String], rule: &mut SourceRule, v6: bool) -> Result<(), Diagnostic> {
    let (number, line) = (rule.line, rule.text.clone());
    let error =
        |word: &str, problem: &str, remedy: &str| unsupported(number, format!("{word} in {line}"), problem, remedy);
    let mut words = words.iter().map(String::as_str);
    let mut module = "";
    while let Some(key) = words.next() {
        if key == "!" {
            return Err(error("!", "inverts a condition", "write a preceding rule for the excluded packets"));
        }
        if key == "--syn" {
            rule.with(&[Match { protocol: Some(6), flags: Some((0x17, 2)), ..Match::default() }]);
            continue;
        }
        if key == "-f" {
            rule.with(&[Match { fragment: Some("later"), ..Match::default() }]);
            continue;
        }
        let Some(value) = words.next() else { return Err(error(key, "has no value", REMEDY)) };
        let invalid = || error(value, &format!("is not a value of {key}"), REMEDY);
        let ports = |text: &str| -> Option<(u16, u16)> {
            let (from, to) = text.split_once(':').unwrap_or((text, text));
            Some((from.parse().ok()?, to.parse().ok()?))
        };
        let list = || value.split(',').map(ports).collect::<Option<Vec<_>>>().ok_or_else(invalid);
        match key {
            "-s" | "--source" | "-d" | "--destination" => {
                let net: IpNet =
                    value.parse().or_else(|_| value.parse::<IpAddr>().map(IpNet::from)).map_err(|_| invalid())?;
                let net = Some(net.trunc());
                rule.with(&[match key {
                    "-s" | "--source" => Match { src: net, ..Match::default() },
                    _ => Match { dst: net, ..Match::default() },
                }]);
            }
            "-p" | "--protocol" => {
                let protocol = if value == "all" { None } else { Some(parse_protocol(value).ok_or_else(invalid)?) };
                rule.with(&[Match { protocol, ..Match::default() }]);
            }
            "-m" | "--match" => {
                module = value;
                let known =
                    ["tcp", "udp", "icmp", "icmp6", "icmpv6", "multiport", "state", "conntrack", "comment", "sctp"];
                if !known.contains(&value) {
                    return Err(error(
                        value,
                        "is a match that the firewall does not support",
                        "remove the rule, or write it without this match",
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
                    error(
                        value,
                        "contains a state that the firewall does not support",
                        "use NEW, ESTABLISHED, RELATED or INVALID",
                    )
                })?;
            }
            "--icmp-type" | "--icmpv6-type" if value == "any" => {}
            "--icmp-type" | "--icmpv6-type" => {
                let (kind, code) = parse_icmp_type(value, v6).ok_or_else(invalid)?;
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
                let (Some(mask), Some(value)) = (mask, value) else { return Err(invalid()) };
                rule.with(&[Match { protocol: Some(6), flags: Some((mask, value & mask)), ..Match::default() }]);
            }
            "-i" | "-o" if value == "lo" => {
                rule.notes.push(format!("omitted, because forwarded packets never use lo: {line}"));
                rule.matches.clear();
            }
            "-i" | "-o" | "--in-interface" | "--out-interface" => {
                return Err(error(
                    value,
                    "matches an interface, which rules do not support",
                    "use a separate firewall on the path of that port",
                ));
            }
            "-j" | "--jump" => {
                rule.target = match value {
                    "ACCEPT" => Target::Accept,
                    "DROP" => Target::Drop,
                    "REJECT" => {
                        rule.notes.push(format!("dropped without a reject message: {line}"));
                        Target::Drop
                    }
                    "RETURN" => Target::Return,
                    "LOG" | "NFLOG" => {
                        rule.notes.push(format!("omitted, because the firewall counts but does not log: {line}"));
                        Target::Nothing
                    }
                    chain => Target::Jump(chain.to_owned()),
                }
            }
            "-g" | "--goto" => rule.target = Target::Goto(value.to_owned()),
            "--reject-with" | "--log-prefix" | "--log-level" | "--nflog-prefix" | "--nflog-group" => {}
            _ => {
                return Err(error(
                    key,
                    "is a condition that the firewall does not support",
                    "remove the rule, or write it without this match",
                ));
            }
        }
    }
    Ok(())
}

pub(super) fn parse_protocol(text: &str) -> Option<u8> {
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

/// Parses a name or number of an ICMP type, as in `iptables` or `nft`.
pub(super) fn parse_icmp_type(text: &str, v6: bool) -> Option<(u8, Option<u8>)> {
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
