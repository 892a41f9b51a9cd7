//! Output of `nft -j list ruleset` (libnftables-json(5)).

use super::flatten::{ALL, Chains, FLAGS, Match, SourceRule, Target, flatten, state};
use super::iptables::{parse_icmp_type, parse_protocol};
use super::{ImportedRules, unsupported};
use diagnostics::Diagnostic;
use ipnet::{IpNet, Ipv4Subnets, Ipv6Subnets};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Converts the base chain of the hook `forward` as printed by `nft -j list ruleset`.
///
/// # Errors
/// Returns the first rule that cannot be converted.
pub fn nft(json: &str) -> Result<ImportedRules, Diagnostic> {
    const REMEDY: &str = "pass the output of nft -j list ruleset";
    let all: Value = serde_json::from_str(json)
        .map_err(|e| unsupported(Some(e.line()), "the list", &format!("is not JSON: {e}"), REMEDY))?;
    let Some(all) = all["nftables"].as_array() else {
        return Err(unsupported(None, "nftables", "the array does not exist", REMEDY));
    };
    let forward: Vec<&Value> =
        all.iter().map(|o| &o["chain"]).filter(|c| c["hook"] == "forward" && c["type"] == "filter").collect();
    let &[base] = forward.as_slice() else {
        return Err(unsupported(
            None,
            forward.len(),
            "chains have the hook forward, exactly one is supported",
            "pass the list of one table: nft -j list table FAMILY NAME",
        ));
    };
    let text = |of: &Value, key: &str| of[key].as_str().unwrap_or_default().to_owned();
    let of_table = |o: &Value| o["table"] == base["table"] && o["family"] == base["family"];
    let mut notes = vec![];
    let (mut chains, mut sets) = (Chains::new(), BTreeMap::new());
    for object in all {
        let (chain, set) = (&object["chain"], &object["set"]);
        if of_table(chain) {
            chains.insert(text(chain, "name"), vec![]);
            if chain["hook"].is_string() && chain["hook"] != "forward" {
                notes.push(format!("not imported: {}, which does not affect forwarded packets", text(chain, "name")));
            }
        } else if of_table(set) {
            sets.insert(text(set, "name"), set["elem"].clone());
        } else if chain["hook"].is_string() && chain["policy"] == "drop" {
            return Err(unsupported(None, &chain["name"], "drops packets in another table", "merge the two tables"));
        }
    }
    let v6 = match base["family"].as_str() {
        Some("ip") => Some(false),
        Some("ip6") => Some(true),
        Some("inet") => None,
        _ => {
            return Err(unsupported(
                None,
                &base["family"],
                "is not an address family of IP",
                "pass a table of the family ip, ip6 or inet",
            ));
        }
    };
    for rule in all.iter().map(|o| &o["rule"]).filter(|r| of_table(r)) {
        let description = format!("handle {} of {}: {}", rule["handle"], text(rule, "chain"), rule["expr"]);
        let mut reader = Reader {
            sets: &sets,
            notes: vec![],
            rules: vec![SourceRule::new(None, &description, v6)],
            text: description,
        };
        let expressions = rule["expr"].as_array().into_iter().flatten();
        let error = expressions.map(|expression| reader.expression(expression)).find_map(Result::err);
        let notes = reader.notes;
        reader.rules.iter_mut().for_each(|rule| (rule.error, rule.notes) = (error.clone(), notes.clone()));
        let rules = reader.rules;
        chains.entry(text(rule, "chain")).or_default().extend(rules);
    }
    flatten(&chains, &text(base, "name"), v6, base["policy"] != "drop", notes)
}

struct Reader<'a> {
    sets: &'a BTreeMap<String, Value>,
    notes: Vec<String>,
    text: String,
    /// Rules that the source rule expands to; several for a verdict map.
    rules: Vec<SourceRule>,
}

impl Reader<'_> {
    fn error(&self, element: impl std::fmt::Display, problem: &str) -> Diagnostic {
        let remedy = "remove the rule, or write it without this expression";
        unsupported(None, format!("{element} in {}", self.text), problem, remedy)
    }

    fn expression(&mut self, expression: &Value) -> Result<(), Diagnostic> {
        let Some((key, value)) = expression.as_object().and_then(|o| o.iter().next()) else {
            return Err(self.error(expression, "is not an expression that is supported"));
        };
        match key.as_str() {
            "match" => {
                let (any, states) =
                    self.conditions(&value["left"], &value["right"], value["op"].as_str().unwrap_or_default())?;
                for rule in &mut self.rules {
                    rule.with(&any);
                    rule.states &= states;
                }
            }
            "counter" => {}
            "log" => self.notes.push(format!("omitted, because the firewall counts but does not log: {}", self.text)),
            "vmap" => {
                let data = self.set(&value["data"])?;
                let before = core::mem::take(&mut self.rules);
                for pair in data {
                    let (any, states) = self.conditions(&value["key"], &pair[0], "==")?;
                    for rule in &before {
                        let mut rule = rule.clone();
                        rule.with(&any);
                        rule.states &= states;
                        rule.target = self.verdict(&pair[1])?;
                        self.rules.push(rule);
                    }
                }
            }
            _ => {
                let target = self.verdict(expression)?;
                self.rules.iter_mut().for_each(|rule| rule.target = target.clone());
            }
        }
        Ok(())
    }

    fn verdict(&mut self, expression: &Value) -> Result<Target, Diagnostic> {
        let Some((key, value)) = expression.as_object().and_then(|o| o.iter().next()) else {
            return Err(self.error(expression, "is not a verdict"));
        };
        let target = || value["target"].as_str().unwrap_or_default().to_owned();
        Ok(match key.as_str() {
            "accept" => Target::Accept,
            "drop" => Target::Drop,
            "reject" => {
                self.notes.push(format!("dropped without a reject message: {}", self.text));
                Target::Drop
            }
            "jump" => Target::Jump(target()),
            "goto" => Target::Goto(target()),
            "return" => Target::Return,
            "continue" => Target::Nothing,
            other => return Err(self.error(other, "is a statement that the firewall does not support")),
        })
    }

    /// Returns the elements of an anonymous or named set.
    fn set(&self, value: &Value) -> Result<Vec<Value>, Diagnostic> {
        if let Some(name) = value.as_str().and_then(|s| s.strip_prefix('@')) {
            let Some(elements) = self.sets.get(name) else { return Err(self.error(name, "the set does not exist")) };
            return Ok(elements.as_array().cloned().unwrap_or_default());
        }
        Ok(match value.get("set").unwrap_or(value) {
            Value::Array(all) => all.clone(),
            one => vec![one.clone()],
        })
    }

    /// Returns alternative matches and the states.
    fn conditions(&mut self, left: &Value, right: &Value, op: &str) -> Result<(Vec<Match>, u8), Diagnostic> {
        let none = Match::default();
        if left["ct"]["key"] == "state" && matches!(op, "==" | "in") {
            let states = self.set(right)?.iter().try_fold(0, |all, word| Some(all | state(word.as_str()?)?));
            return states
                .map(|states| (vec![none], states))
                .ok_or_else(|| self.error(right, "contains a state that the firewall does not support"));
        }
        if let Some((mask, value)) = self.flags(left, right, op) {
            return Ok((vec![Match { protocol: Some(6), flags: Some((mask, value)), ..none }], ALL));
        }
        if !matches!(op, "==") {
            return Err(self.error(op, "is a comparison that the firewall does not support"));
        }
        let (space, field) = match (&left["payload"], &left["meta"]["key"]) {
            (Value::Object(payload), _) => {
                let word = |key: &str| payload.get(key).and_then(Value::as_str).unwrap_or_default();
                (word("protocol"), word("field"))
            }
            (_, Value::String(key)) => ("meta", key.as_str()),
            _ => return Err(self.error(left, "is a condition that the firewall does not support")),
        };
        if space == "meta" && matches!(field, "iif" | "oif" | "iifname" | "oifname") && right == "lo" {
            self.notes.push(format!("omitted, because forwarded packets never use lo: {}", self.text));
            return Ok((vec![], ALL));
        }
        let mut any = vec![];
        for element in self.set(right)? {
            // unwrap an element that has a comment or timeout
            let element = element["elem"].get("val").unwrap_or(&element).clone();
            let invalid = || self.error(&element, &format!("is not a value of {space} {field}"));
            match (space, field) {
                ("ip" | "ip6", "saddr") => {
                    any.extend(
                        nets(&element).ok_or_else(invalid)?.into_iter().map(|n| Match { src: Some(n), ..none.clone() }),
                    );
                }
                ("ip" | "ip6", "daddr") => {
                    any.extend(
                        nets(&element).ok_or_else(invalid)?.into_iter().map(|n| Match { dst: Some(n), ..none.clone() }),
                    );
                }
                ("ip", "protocol") | ("ip6", "nexthdr") | ("meta", "l4proto") => {
                    let number = number(&element, parse_protocol).ok_or_else(invalid)?;
                    let v6 = (space != "meta").then_some(space == "ip6");
                    any.push(Match { protocol: Some(number), v6, ..none.clone() });
                }
                ("meta", "nfproto") => {
                    let v6 = match element.as_str() {
                        Some("ipv4") => false,
                        Some("ipv6") => true,
                        _ => return Err(invalid()),
                    };
                    any.push(Match { v6: Some(v6), ..none.clone() });
                }
                ("tcp" | "udp" | "sctp" | "dccp" | "udplite" | "th", "sport" | "dport") => {
                    let ports = Some(range(&element, |word| word.parse().ok()).ok_or_else(invalid)?);
                    let protocol = parse_protocol(space);
                    any.push(match field {
                        "sport" => Match { protocol, sport: ports, ..none.clone() },
                        _ => Match { protocol, dport: ports, ..none.clone() },
                    });
                }
                ("icmp" | "icmpv6", "type" | "code") => {
                    let v6 = space == "icmpv6";
                    let range = Some(
                        range(&element, |word| parse_icmp_type(word, v6).map(|(kind, _)| kind)).ok_or_else(invalid)?,
                    );
                    let protocol = parse_protocol(space);
                    any.push(match field {
                        "type" => Match { v6: Some(v6), protocol, kind: range, ..none.clone() },
                        _ => Match { v6: Some(v6), protocol, code: range, ..none.clone() },
                    });
                }
                ("meta", "iif" | "oif" | "iifname" | "oifname") => {
                    let remedy = "use a separate firewall on the path of that port";
                    return Err(unsupported(
                        None,
                        &self.text,
                        "matches an interface, which rules do not support",
                        remedy,
                    ));
                }
                _ => {
                    return Err(
                        self.error(format!("{space} {field}"), "is a condition that the firewall does not support")
                    );
                }
            }
        }
        Ok((any, ALL))
    }

    /// Parses `tcp flags & (fin | syn) == syn`, or `tcp flags syn`, which requires one of the flags.
    fn flags(&self, left: &Value, right: &Value, op: &str) -> Option<(u8, u8)> {
        let is = |of: &Value| of["payload"]["protocol"] == "tcp" && of["payload"]["field"] == "flags";
        let bits = |of: &Value| -> Option<u8> {
            let word = |of: &Value| FLAGS.iter().position(|f| of == f).map(|n| 1u8 << n);
            match of {
                Value::Array(all) => all.iter().try_fold(0, |bits, of| Some(bits | word(of)?)),
                Value::Object(o) if o.contains_key("|") => {
                    o["|"].as_array()?.iter().try_fold(0, |bits, of| Some(bits | word(of)?))
                }
                Value::Number(n) => u8::try_from(n.as_u64()?).ok(),
                one => word(one),
            }
        };
        if let Some([of, mask]) = left["&"].as_array().map(Vec::as_slice)
            && is(of)
            && op == "=="
        {
            let (mask, value) = (bits(mask)?, bits(right)?);
            return (value & !mask == 0).then_some((mask, value));
        }
        let value = if is(left) { bits(right)? } else { return None };
        match op {
            "==" => Some((0xff, value)),
            "in" if value.count_ones() == 1 => Some((value, value)),
            _ => None,
        }
    }
}

fn number(value: &Value, of: impl Fn(&str) -> Option<u8>) -> Option<u8> {
    match value {
        Value::Number(n) => n.as_u64()?.try_into().ok(),
        word => of(word.as_str()?),
    }
}

fn range<T: TryFrom<u64> + Copy + PartialOrd>(value: &Value, of: impl Fn(&str) -> Option<T>) -> Option<(T, T)> {
    let one = |value: &Value| match value {
        Value::Number(n) => T::try_from(n.as_u64()?).ok(),
        word => of(word.as_str()?),
    };
    match value["range"].as_array().map(Vec::as_slice) {
        Some([from, to]) => Some((one(from)?, one(to)?)).filter(|(from, to)| from <= to),
        Some(_) => None,
        None => one(value).map(|n| (n, n)),
    }
}

fn nets(value: &Value) -> Option<Vec<IpNet>> {
    let address = |value: &Value| value.as_str()?.parse::<IpAddr>().ok();
    if let Some([from, to]) = value["range"].as_array().map(Vec::as_slice) {
        return match (address(from)?, address(to)?) {
            (IpAddr::V4(a), IpAddr::V4(b)) if a <= b => Some(Ipv4Subnets::new(a, b, 0).map(IpNet::V4).collect()),
            (IpAddr::V6(a), IpAddr::V6(b)) if a <= b => Some(Ipv6Subnets::new(a, b, 0).map(IpNet::V6).collect()),
            _ => None,
        };
    }
    if value["prefix"].is_object() {
        let len = value["prefix"]["len"].as_u64()?.try_into().ok()?;
        return Some(vec![IpNet::new(address(&value["prefix"]["addr"])?, len).ok()?.trunc()]);
    }
    Some(vec![address(value)?.into()])
}
