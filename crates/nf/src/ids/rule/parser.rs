//! Parsing of rule files.

use super::address::{Addresses, Ports, Variables};
use super::app::{AppProtocol, AppRule, Cursor, Field, Parsed};
use super::bytes::{self, Match};
use super::content::{Content, parse_bytes};
use super::header::HeaderCheck;
use super::number::Comparison;
use super::operand::{Operand, VariableNames, operand};
use super::state::FlowCheck;
use super::text::{split_options, split_words, unquote};
use super::{Action, BitNumbers, Buffer, Protocol, RejectTo, Rule, state};
use diagnostics::Diagnostic;
use std::collections::HashMap;

/// Longest rule in bytes.
const MAX_LEN: usize = 64 * 1024;
/// Largest number of payload options of a rule, which are verified recursively.
const MAX_MATCHES: usize = 128;

/// Descriptions and priorities of classes by name.
type Classes = HashMap<String, (String, u8)>;

/// Parser of rules; numbers the bits that they name.
#[derive(Debug, Default)]
pub(in crate::ids) struct Parser {
    variables: Variables,
    classes: Classes,
    bits: BitNumbers,
}

impl Parser {
    #[cfg(test)]
    pub(in crate::ids) fn new(variables: Variables) -> Self {
        Self::with_bits(variables, BitNumbers::default())
    }

    /// Creates a parser that continues the numbers of bits of other rules.
    pub(in crate::ids) fn with_bits(variables: Variables, bits: BitNumbers) -> Self {
        Parser { variables, classes: Classes::new(), bits }
    }

    /// Returns the numbers of bits.
    pub(in crate::ids) fn into_bits(self) -> BitNumbers {
        self.bits
    }

    /// Returns the rules of a file, and a diagnostic for each rule that is refused.
    pub(in crate::ids) fn parse(&mut self, file: &str, text: &str) -> (Vec<Rule>, Vec<Diagnostic>) {
        let (mut rules, mut refused) = (vec![], vec![]);
        let (mut whole, mut first) = (String::new(), 0);
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if whole.is_empty() {
                first = at + 1;
                if line.starts_with('#') {
                    continue;
                }
            }
            if let Some(part) = line.strip_suffix('\\')
                && whole.len() + part.len() < MAX_LEN
            {
                whole.push_str(part);
                continue;
            }
            whole.push_str(line);
            let rule = std::mem::take(&mut whole);
            if rule.is_empty() {
                continue;
            }
            let parsed = match rule.strip_prefix("config ") {
                Some(definition) => self.definition(definition).map(|()| None),
                None => self.rule(&rule).map(Some),
            };
            match parsed {
                Ok(rule) => rules.extend(rule),
                Err(problem) => {
                    let shown: String = rule.chars().take(200).collect();
                    let d = Diagnostic::new(format!("{file}:{first}: the rule is refused: {problem}"));
                    refused.push(d.value(shown).remedy("correct or remove the rule; the others are in effect"));
                }
            }
        }
        if !whole.is_empty() {
            let d =
                Diagnostic::new(format!("{file}:{first}: the rule is refused: the line behind the last \\ is missing"));
            refused.push(d.remedy("remove the \\"));
        }
        (rules, refused)
    }

    /// Parses a line of `classification.config` or `reference.config` without its first word.
    fn definition(&mut self, text: &str) -> Result<(), String> {
        let (kind, value) = text.split_once(':').ok_or("the name of a definition does not precede a colon")?;
        match (kind.trim(), value.split(',').map(str::trim).collect::<Vec<_>>().as_slice()) {
            ("classification", [name, description, priority]) => {
                let priority = priority.parse().ok().filter(|n| *n > 0).ok_or("the priority is not from 1 to 255")?;
                self.classes.insert((*name).to_owned(), ((*description).to_owned(), priority));
            }
            // references have no effect
            ("reference", [_, _]) => {}
            _ => return Err(format!("{text}: write classification: NAME,DESCRIPTION,PRIORITY or reference: NAME,URL")),
        }
        Ok(())
    }

    /// Parses one rule.
    pub(in crate::ids) fn rule(&mut self, text: &str) -> Result<Rule, String> {
        if text.len() > MAX_LEN {
            return Err(format!("the rule is longer than {MAX_LEN} bytes"));
        }
        let (header, options) = text.split_once('(').ok_or("no parenthesis follows the header")?;
        let options = options.trim().strip_suffix(')').ok_or("the last parenthesis is missing")?;
        let words = split_words(header);
        let [action, protocol, src, src_ports, arrow, dst, dst_ports] = &words[..] else {
            return Err("the header is not: ACTION PROTOCOL ADDRESS PORT -> ADDRESS PORT".into());
        };
        let both_directions = match arrow.as_str() {
            "->" => false,
            "<>" => true,
            other => return Err(format!("{other}: not a direction")),
        };
        let app_protocol = AppProtocol::parse(protocol);
        let rule = Rule {
            id: 0,
            action: action_of(action)?,
            reject_to: reject_to(action),
            protocol: match app_protocol {
                Some(AppProtocol::Dns) => Protocol::Ip,
                Some(_) => Protocol::Tcp,
                None => protocol_of(protocol)?,
            },
            src: Addresses::parse(src, &self.variables)?,
            dst: Addresses::parse(dst, &self.variables)?,
            src_ports: Ports::parse(src_ports, &self.variables)?,
            dst_ports: Ports::parse(dst_ports, &self.variables)?,
            both_directions,
            msg: String::new(),
            sid: 0,
            gid: 1,
            rev: 0,
            classtype: String::new(),
            priority: 3,
            checks: vec![],
            flow: vec![],
            flow_checks: vec![],
            states: vec![],
            integers: vec![],
            noalert: false,
            threshold: None,
            buffers: vec![],
            app: AppRule { protocol: app_protocol, ..AppRule::default() },
            variables: 0,
        };
        let cursor = Cursor::default();
        let (classes, bits) = (&self.classes, &mut self.bits);
        let (buffer, names) = (Buffer::Payload, HashMap::new());
        let mut build = Builder { rule, buffer, cursor, names, priority: None, classes, bits };
        for (name, value) in split_options(options)? {
            build.option(&name, value.as_deref()).map_err(|problem| format!("{name}: {problem}"))?;
        }
        build.finish()
    }
}

/// Removes rules whose gid and sid are those of another one with a higher revision, or of an earlier one with the same.
pub(in crate::ids) fn remove_duplicates(rules: &mut Vec<Rule>) -> Vec<Diagnostic> {
    let mut newest: HashMap<(u32, u32), (u32, usize)> = HashMap::with_capacity(rules.len());
    for (at, rule) in rules.iter().enumerate() {
        let kept = newest.entry((rule.gid, rule.sid)).or_insert((rule.rev, at));
        if rule.rev > kept.0 {
            *kept = (rule.rev, at);
        }
    }
    let (mut at, mut removed) = (0, vec![]);
    rules.retain(|rule| {
        let keeps = newest.get(&(rule.gid, rule.sid)).is_none_or(|(_, kept)| *kept == at);
        at += 1;
        if !keeps {
            let d = Diagnostic::new(format!("another rule has gid {} and sid {}", rule.gid, rule.sid));
            removed
                .push(d.value(&rule.msg).remedy("remove one of the rules; the one with the highest rev is in effect"));
        }
        keeps
    });
    removed
}

fn action_of(text: &str) -> Result<Action, String> {
    Ok(match text {
        "alert" => Action::Alert,
        "pass" => Action::Pass,
        "drop" => Action::Drop,
        "reject" | "rejectsrc" | "rejectdst" | "rejectboth" => Action::Reject,
        other => return Err(format!("{other}: not an action")),
    })
}

/// Returns the ends to which an action replies.
fn reject_to(action: &str) -> RejectTo {
    match action {
        "rejectdst" => RejectTo::Destination,
        "rejectboth" => RejectTo::Both,
        _ => RejectTo::Source,
    }
}

fn protocol_of(text: &str) -> Result<Protocol, String> {
    Ok(match text {
        "ip" | "any" => Protocol::Ip,
        "ipv4" | "ip4" => Protocol::Ipv4,
        "ipv6" | "ip6" => Protocol::Ipv6,
        "tcp" => Protocol::Tcp,
        "tcp-pkt" => Protocol::TcpPacket,
        "tcp-stream" => Protocol::TcpStream,
        "udp" => Protocol::Udp,
        "icmp" => Protocol::Icmp,
        "icmpv4" => Protocol::Icmpv4,
        "icmpv6" => Protocol::Icmpv6,
        "igmp" => Protocol::Igmp,
        "sctp" => Protocol::Sctp,
        other => return Err(format!("{other}: this protocol is not supported")),
    })
}

/// Rule under construction.
struct Builder<'a> {
    rule: Rule,
    buffer: Buffer,
    /// Buffer of an application protocol, in place of the former if there is one.
    cursor: Cursor,
    names: VariableNames,
    /// Value of the option `priority`.
    priority: Option<u8>,
    classes: &'a Classes,
    bits: &'a mut BitNumbers,
}

impl Builder<'_> {
    fn option(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        let text = value.unwrap_or("");
        if let Some(check) = HeaderCheck::parse(name, text) {
            self.rule.checks.push(check?);
            return Ok(());
        }
        if let Some(check) = FlowCheck::parse(name, text) {
            self.rule.flow_checks.push(check?);
            return Ok(());
        }
        if let Some(parsed) = self.cursor.option(&mut self.rule.app, name, value) {
            match parsed? {
                Parsed::Done => {}
                Parsed::Move(field) => self.move_content(field)?,
                Parsed::PushTo(field, option) => self.cursor.push_to(&mut self.rule.app, field, option)?,
            }
            return Ok(());
        }
        if name == "pkt_data" || name.ends_with(".hdr") {
            self.cursor.leave()?;
        }
        let number = |text: &str| text.parse::<u32>().map_err(|_| format!("{text}: not a number"));
        let bits = &mut *self.bits;
        let mut number_of = |bit: &str| bits.number(bit);
        match name {
            "msg" => self.rule.msg = unescape(unquote(text)?.1),
            "sid" => self.rule.sid = number(text)?,
            "gid" => self.rule.gid = number(text)?,
            "rev" => self.rule.rev = number(text)?,
            "classtype" => {
                let class = self.classes.get(text);
                class.map_or(text, |(description, _)| description).clone_into(&mut self.rule.classtype);
                self.rule.priority = class.map_or_else(|| class_priority(text), |(_, priority)| *priority);
            }
            "priority" => self.priority = Some(text.parse().ok().filter(|n| *n > 0).ok_or("write 1 to 255")?),
            "reference" | "metadata" | "target" | "prefilter" => {}
            "noalert" => self.rule.noalert = true,
            "alert" => self.rule.noalert = false,
            "flow" => self.rule.flow.extend(state::parse_flow(text)?),
            "flowbits" => match state::parse_flowbits(text, &mut number_of)? {
                Some(option) => self.rule.states.push(option),
                None => self.rule.noalert = true,
            },
            "xbits" => match state::parse_xbits(text, &mut number_of)? {
                Some(option) => self.rule.states.push(option),
                None => self.rule.noalert = true,
            },
            "hostbits" => match state::parse_hostbits(text, &mut number_of)? {
                Some(option) => self.rule.states.push(option),
                None => self.rule.noalert = true,
            },
            "flowint" => self.rule.integers.push(state::parse_flowint(text, &mut number_of)?),
            "threshold" => self.threshold(state::parse_threshold(text, false)?)?,
            "detection_filter" => self.threshold(state::parse_threshold(text, true)?)?,
            "ipv4.hdr" => self.buffer = Buffer::Ipv4Header,
            "ipv6.hdr" => self.buffer = Buffer::Ipv6Header,
            "tcp.hdr" => self.buffer = Buffer::TcpHeader,
            "udp.hdr" => self.buffer = Buffer::UdpHeader,
            "icmpv4.hdr" => self.buffer = Buffer::Icmpv4Header,
            "icmpv6.hdr" => self.buffer = Buffer::Icmpv6Header,
            "pkt_data" => self.buffer = Buffer::Payload,
            "content" => {
                let (negated, quoted) = unquote(text)?;
                self.push(Match::Content(Content { bytes: parse_bytes(quoted)?, negated, ..Content::default() }));
            }
            "isdataat" => {
                let option = bytes::parse_is_data_at(text, &self.names)?;
                self.push(option);
            }
            "bsize" => self.push(Match::BufferSize(Comparison::parse(text, u64::MAX)?)),
            "pcre" => {
                let (negated, quoted) = unquote(text)?;
                self.push(bytes::parse_pcre(quoted, negated)?);
            }
            "byte_test" => {
                let option = bytes::parse_byte_test(text, &self.names)?;
                self.push(option);
            }
            "byte_jump" => {
                let option = bytes::parse_byte_jump(text, &self.names)?;
                self.push(option);
            }
            "byte_extract" => {
                let option = bytes::parse_byte_extract(text, &mut self.names)?;
                self.push(option);
            }
            "byte_math" => {
                let option = bytes::parse_byte_math(text, &mut self.names)?;
                self.push(option);
            }
            "base64_decode" => {
                if decoded(&mut self.rule).is_some() {
                    return Err("the rule has this option twice".into());
                }
                self.push(bytes::parse_base64_decode(text)?);
            }
            "base64_data" => {
                self.cursor.leave()?;
                decoded(&mut self.rule).ok_or("no base64_decode precedes")?;
                self.cursor.in_decoded = true;
            }
            "nocase" | "offset" | "depth" | "distance" | "within" | "startswith" | "endswith" | "rawbytes"
            | "fast_pattern" => return self.modifier(name, value),
            _ => return Err("this option is not supported".into()),
        }
        Ok(())
    }

    fn threshold(&mut self, threshold: state::Threshold) -> Result<(), String> {
        match self.rule.threshold.replace(threshold) {
            None => Ok(()),
            Some(_) => Err("the rule has two thresholds".into()),
        }
    }

    fn push(&mut self, option: Match) {
        if self.cursor.in_decoded {
            if let Some(list) = decoded(&mut self.rule) {
                list.push(option);
            }
            return;
        }
        let Some(option) = self.cursor.push(&mut self.rule.app, option) else { return };
        match self.rule.buffers.iter_mut().find(|(buffer, _)| *buffer == self.buffer) {
            Some((_, list)) => list.push(option),
            None => self.rule.buffers.push((self.buffer, vec![option])),
        }
    }

    /// Moves the last content to a buffer of an application protocol.
    fn move_content(&mut self, field: Field) -> Result<(), String> {
        let at = self.rule.buffers.iter().position(|(buffer, _)| *buffer == self.buffer);
        let is_content = |option: &Match| matches!(option, Match::Content(_));
        let at = at.and_then(|at| Some((at, self.rule.buffers.get(at)?.1.iter().rposition(is_content)?)));
        let Some((at, n)) =
            at.filter(|_| self.cursor.last.is_none() && !self.cursor.in_decoded && self.buffer == Buffer::Payload)
        else {
            return Err("no content precedes".into());
        };
        let option = self.rule.buffers[at].1.remove(n);
        if self.rule.buffers[at].1.is_empty() {
            self.rule.buffers.remove(at);
        }
        self.cursor.push_to(&mut self.rule.app, field, option)
    }

    fn modifier(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        let names = &self.names;
        let list = match self.cursor.last {
            _ if self.cursor.in_decoded => decoded(&mut self.rule),
            Some(n) => self.rule.app.buffers.get_mut(n).map(|buffer| &mut buffer.options),
            None => self.rule.buffers.iter_mut().find(|(buffer, _)| *buffer == self.buffer).map(|(_, list)| list),
        };
        let last = list.and_then(|list| {
            list.iter_mut().rev().find_map(|option| if let Match::Content(c) = option { Some(c) } else { None })
        });
        let content = last.ok_or("no content precedes")?;
        let parsed = || operand(value.ok_or("the number is missing")?, names);
        let set = |to: &mut Option<Operand>| match to.replace(parsed()?) {
            None => Ok(()),
            Some(_) => Err("the content has this option twice".to_owned()),
        };
        match name {
            "nocase" => content.nocase = true,
            "offset" => set(&mut content.offset)?,
            "depth" => {
                set(&mut content.depth)?;
                if matches!(content.depth, Some(Operand::Number(n)) if n < content.bytes.len() as i64) {
                    return Err("the depth is less than the length of the content".into());
                }
            }
            "distance" => set(&mut content.distance)?,
            "within" => {
                set(&mut content.within)?;
                if matches!(content.within, Some(Operand::Number(n)) if n < content.bytes.len() as i64) {
                    return Err("within is less than the length of the content".into());
                }
            }
            "startswith" => content.startswith = true,
            "endswith" => content.endswith = true,
            "fast_pattern" if self.cursor.in_decoded => return Err("decoded bytes have no fast_pattern".into()),
            "fast_pattern" => {
                content.fast_pattern = true;
                match value.map(str::trim) {
                    None | Some("only") => {}
                    Some(chop) => {
                        let part = chop.split_once(',').and_then(|(at, len)| {
                            Some((at.trim().parse::<usize>().ok()?, len.trim().parse::<usize>().ok()?))
                        });
                        let len = content.bytes.len();
                        let part = part.filter(|(at, n)| *n > 0 && at.checked_add(*n).is_some_and(|end| end <= len));
                        content.chop = Some(part.ok_or("write: fast_pattern:OFFSET,LENGTH within the content")?);
                    }
                }
            }
            _ => {}
        }
        let positioned = content.offset.is_some() || content.depth.is_some();
        if content.is_relative() && (positioned || content.startswith) {
            return Err("distance and within contradict offset, depth and startswith".into());
        }
        if content.startswith && positioned {
            return Err("startswith contradicts offset and depth".into());
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Rule, String> {
        if self.rule.sid == 0 {
            return Err("sid is missing or 0".into());
        }
        self.rule.variables = self.names.len();
        self.rule.priority = self.priority.unwrap_or(self.rule.priority);
        self.cursor.finish(&mut self.rule.app, &self.rule.flow)?;
        let protocol = self.rule.protocol;
        let lens = self.rule.buffers.iter().map(|(_, list)| list.len());
        let lens = lens.chain(self.rule.app.buffers.iter().map(|buffer| buffer.options.len())).collect::<Vec<_>>();
        let lens = lens.into_iter().chain(decoded(&mut self.rule).map(|list| list.len()));
        if let Some(len) = lens.max().filter(|len| *len > MAX_MATCHES) {
            return Err(format!("the rule has {len} payload options, at most {MAX_MATCHES} are possible"));
        }
        if let Some(app) = self.rule.app.protocol
            && match protocol {
                Protocol::Icmp | Protocol::Icmpv4 | Protocol::Icmpv6 | Protocol::Igmp | Protocol::Sctp => true,
                Protocol::Udp => app != AppProtocol::Dns,
                _ => false,
            }
        {
            return Err(format!("{}: the protocol of the rule does not carry it", app.name()));
        }
        for (buffer, _) in &self.rule.buffers {
            let fits = match buffer {
                Buffer::TcpHeader => matches!(protocol, Protocol::Tcp | Protocol::TcpPacket),
                Buffer::UdpHeader => protocol == Protocol::Udp,
                Buffer::Icmpv4Header | Buffer::Icmpv6Header => !matches!(
                    protocol,
                    Protocol::Tcp
                        | Protocol::TcpPacket
                        | Protocol::TcpStream
                        | Protocol::Udp
                        | Protocol::Igmp
                        | Protocol::Sctp
                ),
                _ => true,
            };
            if !fits {
                return Err(format!("{buffer:?}: the protocol of the rule has no such header"));
            }
        }
        Ok(self.rule)
    }
}

/// Returns the options about the bytes that base64_decode decodes.
fn decoded(rule: &mut Rule) -> Option<&mut Vec<Match>> {
    let of_messages = rule.app.buffers.iter_mut().map(|buffer| &mut buffer.options);
    let mut all = of_messages.chain(rule.buffers.iter_mut().map(|(_, list)| list)).flatten();
    all.find_map(|option| if let Match::Base64Decode { options, .. } = option { Some(options) } else { None })
}

fn unescape(text: &str) -> String {
    let (mut out, mut escaped) = (String::new(), false);
    for c in text.chars() {
        if c == '\\' && !escaped {
            escaped = true;
        } else {
            out.push(c);
            escaped = false;
        }
    }
    out
}

/// Returns the usual priority of a class, 1 to 4.
fn class_priority(class: &str) -> u8 {
    match class {
        "attempted-admin"
        | "attempted-user"
        | "successful-admin"
        | "successful-user"
        | "unsuccessful-user"
        | "trojan-activity"
        | "web-application-attack"
        | "shellcode-detect"
        | "policy-violation"
        | "inappropriate-content"
        | "command-and-control"
        | "credential-theft"
        | "exploit-kit"
        | "domain-c2"
        | "targeted-activity" => 1,
        "attempted-dos"
        | "attempted-recon"
        | "bad-unknown"
        | "denial-of-service"
        | "misc-attack"
        | "rpc-portmap-decode"
        | "successful-dos"
        | "successful-recon-largescale"
        | "successful-recon-limited"
        | "suspicious-filename-detect"
        | "suspicious-login"
        | "system-call-detect"
        | "unusual-client-port-connection"
        | "web-application-activity"
        | "default-login-attempt" => 2,
        "tcp-connection" => 4,
        _ => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(rule: &str) -> Result<Rule, String> {
        Parser::new(Variables::from([("HOME_NET".into(), "10.0.0.0/8".into())])).rule(rule)
    }

    #[test]
    fn parses_rules() {
        let rule = "alert tcp $HOME_NET any -> [1.2.3.4, !5.6.7.8] 80:90 (msg:\"a\\;b (c)\"; content:\"x|3b|y\"; nocase; depth:9; \
                    pcre:\"/a;b/iR\"; flags:S,12; flow:established,to_server; classtype:bad-unknown; sid:7; rev:2;)";
        let rule = parse(rule).unwrap();
        assert_eq!((rule.msg.as_str(), rule.sid, rule.rev, rule.priority), ("a;b (c)", 7, 2, 2));
        assert_eq!((rule.checks.len(), rule.flow.len(), rule.buffers[0].1.len()), (1, 2, 2));
    }

    #[test]
    fn refuses_invalid_and_unsupported_options() {
        for option in [
            "content:\"\"",
            "nocase",
            "content:\"ab\"; depth:1",
            "content:\"a\"; offset:1; distance:1",
            "http2.header_name; content:\"a\"",
            "geoip:src,DE",
            "pcre:\"/(?=a)/\"",
            "pcre:\"/(a)\\1/\"",
            "byte_test:1,=,x,0",
            "byte_jump:4,0,dce",
            "base64_data; content:\"a\"",
            "base64_decode; base64_decode",
            "base64_decode:bytes x",
            "hostbits:set,a,both",
            "flowint:a,==",
            "flowint:a,isset,1",
            "flowint:a,+,99999999999",
            "stream_size:server,>",
            "stream_size:up,>,1",
            "flow.pkts:toserver",
            "threshold:type backoff, track by_src, count 1, multiplier 2",
            "threshold:type backoff, track by_flow, count 1, multiplier 1",
            "threshold:type limit, track by_flow, count 1, multiplier 2",
            "flags:X",
            "flow:up",
            "flowbits:set,a|b",
            "threshold:type limit, track by_src, count 0, seconds 1",
            "ttl:256",
        ] {
            let rule = format!("alert ip any any -> any any ({option}; sid:1;)");
            assert!(parse(&rule).is_err(), "{option}");
        }
        for rule in
            ["", "alert ip any any -> any any", "alert ip any any (sid:1;)", "alert ip any any -> any any (msg:\"x;)"]
        {
            assert!(parse(rule).is_err(), "{rule}");
        }
    }

    #[test]
    fn loads_the_rules_beside_a_refused_one() {
        let text = "# comment\nalert ip any any -> any any (sid:1;)\n\nalert ip any any \\\n -> any any (foo; sid:2;)\n\
                    alert ip any any -> any any \\\n (sid:3;)\n";
        let (rules, refused) = Parser::new(Variables::new()).parse("test.rules", text);
        assert_eq!(rules.iter().map(|rule| rule.sid).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(refused.len(), 1);
        assert!(refused[0].to_string().contains("test.rules:4"), "{}", refused[0]);
    }

    #[test]
    fn classes_have_descriptions_and_priorities() {
        let text = "config classification: own,Own class,7\nconfig reference: url, http://\nconfig x: y\n\
                    alert ip any any -> any any (classtype:own; sid:1;)\n\
                    alert ip any any -> any any (priority:3; classtype:own; sid:2;)\n\
                    alert ip any any -> any any (classtype:bad-unknown; sid:3;)\n";
        let (rules, refused) = Parser::new(Variables::new()).parse("test.rules", text);
        let found: Vec<_> = rules.iter().map(|rule| (rule.classtype.as_str(), rule.priority)).collect();
        assert_eq!(found, [("Own class", 7), ("Own class", 3), ("bad-unknown", 2)]);
        assert_eq!(refused.len(), 1);
    }

    #[test]
    fn keeps_the_newest_of_rules_with_the_same_sid() {
        let text = "alert ip any any -> any any (sid:1; rev:1;)\nalert ip any any -> any any (sid:1; rev:2;)\n\
                    alert ip any any -> any any (sid:1; rev:2; msg:\"x\";)\nalert ip any any -> any any (gid:2; sid:1;)\n";
        let mut rules = Parser::new(Variables::new()).parse("test.rules", text).0;
        assert_eq!(remove_duplicates(&mut rules).len(), 2);
        assert_eq!(rules.iter().map(|rule| (rule.gid, rule.rev)).collect::<Vec<_>>(), [(1, 2), (2, 0)]);
        assert!(rules[0].msg.is_empty());
    }
}
