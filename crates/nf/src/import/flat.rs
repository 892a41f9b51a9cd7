//! Chains that jump to each other, as one list.

use super::{Imported, refused};
use diagnostics::Diagnostic;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// States of connections as bits: new, established, related, invalid.
pub(super) const NEW: u8 = 1;
pub(super) const ALL: u8 = 15;
const STATES: [&str; 4] = ["new", "established", "related", "invalid"];
/// Most rules that a list may become: more than the classifier takes.
const MOST: usize = 100_000;
/// Chains that may jump to the next.
const DEPTH: usize = 16;

pub(super) fn state(word: &str) -> Option<u8> {
    STATES.iter().position(|s| s.eq_ignore_ascii_case(word)).map(|n| 1 << n)
}

/// Conditions of a rule, all of which have to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Match {
    /// IPv6 only, or IPv4 only.
    pub(super) v6: Option<bool>,
    pub(super) src: Option<IpNet>,
    pub(super) dst: Option<IpNet>,
    pub(super) protocol: Option<u8>,
    pub(super) sport: Option<(u16, u16)>,
    pub(super) dport: Option<(u16, u16)>,
    pub(super) kind: Option<(u8, u8)>,
    pub(super) code: Option<(u8, u8)>,
    /// TCP flags that matter, and which of them are set.
    pub(super) flags: Option<(u8, u8)>,
    pub(super) fragment: Option<&'static str>,
}

/// What both ask, or nothing if no packet has both.
fn same<T: PartialEq + Copy>(a: Option<T>, b: Option<T>) -> Option<Option<T>> {
    match (a, b) {
        (Some(a), Some(b)) if a != b => None,
        (a, b) => Some(a.or(b)),
    }
}

fn within<T: Ord + Copy>(a: Option<(T, T)>, b: Option<(T, T)>) -> Option<Option<(T, T)>> {
    let (Some(a), Some(b)) = (a, b) else { return Some(a.or(b)) };
    let both = (a.0.max(b.0), a.1.min(b.1));
    (both.0 <= both.1).then_some(Some(both))
}

fn net(a: Option<IpNet>, b: Option<IpNet>) -> Option<Option<IpNet>> {
    let (Some(a), Some(b)) = (a, b) else { return Some(a.or(b)) };
    if a.contains(&b) { Some(Some(b)) } else { b.contains(&a).then_some(Some(a)) }
}

impl Match {
    /// What meets both, if anything can.
    pub(super) fn and(&self, other: &Self) -> Option<Self> {
        let flags = match (self.flags, other.flags) {
            (Some((m, v)), Some((n, w))) if (v ^ w) & m & n != 0 => return None,
            (Some((m, v)), Some((n, w))) => Some((m | n, v | w)),
            (a, b) => a.or(b),
        };
        let both = Match {
            v6: same(self.v6, other.v6)?,
            src: net(self.src, other.src)?,
            dst: net(self.dst, other.dst)?,
            protocol: same(self.protocol, other.protocol)?,
            sport: within(self.sport, other.sport)?,
            dport: within(self.dport, other.dport)?,
            kind: within(self.kind, other.kind)?,
            code: within(self.code, other.code)?,
            flags,
            fragment: same(self.fragment, other.fragment)?,
        };
        let version = |v6: bool| [both.src, both.dst].into_iter().flatten().all(|n| matches!(n, IpNet::V6(_)) == v6);
        (both.v6.map_or_else(|| version(true) || version(false), version)).then_some(both)
    }

    /// As a rule of the firewall.
    fn text(&self) -> String {
        let mut text = String::new();
        let (mut src, dst) = (self.src, self.dst);
        if src.is_none() && dst.is_none() {
            src = self.v6.filter(|v6| self.protocol != Some(if *v6 { 58 } else { 1 })).map(|v6| {
                let all = if v6 { "::/0" } else { "0.0.0.0/0" };
                all.parse().expect("a network")
            });
        }
        let mut say = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                write!(text, " {key} {value}").expect("memory");
            }
        };
        say("src", src.map(|n| n.to_string()));
        say("dst", dst.map(|n| n.to_string()));
        say("proto", self.protocol.map(name));
        say("sport", self.sport.map(range));
        say("dport", self.dport.map(range));
        say("type", self.kind.map(range));
        say("code", self.code.map(range));
        say("flags", self.flags.map(flags));
        say("fragment", self.fragment.map(str::to_owned));
        text
    }
}

fn range<T: PartialEq + ToString>((from, to): (T, T)) -> String {
    if from == to { from.to_string() } else { format!("{}-{}", from.to_string(), to.to_string()) }
}

fn name(protocol: u8) -> String {
    match protocol {
        1 => "icmp".to_owned(),
        6 => "tcp".to_owned(),
        17 => "udp".to_owned(),
        58 => "icmpv6".to_owned(),
        132 => "sctp".to_owned(),
        other => other.to_string(),
    }
}

pub(super) const FLAGS: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];

fn flags((mask, value): (u8, u8)) -> String {
    let word = |(bit, name): (usize, &&str)| {
        (mask >> bit & 1 != 0).then(|| format!("{}{name}", if value >> bit & 1 == 0 { "!" } else { "" }))
    };
    FLAGS.iter().enumerate().filter_map(word).collect::<Vec<_>>().join(",")
}

/// What a rule does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Accept,
    Drop,
    /// Goes on in a chain, and comes back.
    Jump(String),
    /// Goes on in a chain, and comes back to where this chain was jumped to.
    Goto(String),
    Return,
    /// Nothing that matters: it counts, or logs.
    Nothing,
}

/// A rule: any of some matches, with a state among those.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) line: Option<usize>,
    /// As it was written.
    pub(super) word: String,
    pub(super) any: Vec<Match>,
    pub(super) states: u8,
    pub(super) then: Then,
    /// Why it cannot be said, if a forwarded packet can come to it.
    pub(super) fault: Option<Diagnostic>,
    pub(super) notes: Vec<String>,
}

impl Rule {
    /// One of a packet of this version, or of any, that says nothing yet.
    pub(super) fn new(line: Option<usize>, word: &str, v6: Option<bool>) -> Self {
        let any = vec![Match { v6, ..Match::default() }];
        Rule { line, word: word.to_owned(), any, states: ALL, then: Then::Nothing, fault: None, notes: vec![] }
    }

    /// Each of the matches, with one of these.
    pub(super) fn with(&mut self, more: &[Match]) {
        self.any = self.any.iter().flat_map(|a| more.iter().filter_map(|b| a.and(b))).collect();
    }
}

pub(super) type Chains = BTreeMap<String, Vec<Rule>>;

struct Flat<'a> {
    chains: &'a Chains,
    rules: Vec<(bool, Match, u8)>,
    /// States of which every packet has found its end.
    done: u8,
    tracked: bool,
    notes: Vec<String>,
    /// What all packets of the list meet: its IP version.
    base: Match,
}

/// The chain `from` as a list, with what becomes of packets at its end.
pub(super) fn flatten(
    chains: &Chains,
    from: &str,
    v6: Option<bool>,
    accepts: bool,
    notes: Vec<String>,
) -> Result<Imported, Diagnostic> {
    let base = Match { v6, ..Match::default() };
    let mut flat = Flat { chains, rules: vec![], done: 0, tracked: false, notes, base: base.clone() };
    flat.walk(from, &base, ALL, 0)?;
    let (tracked, mut notes) = (flat.tracked, core::mem::take(&mut flat.notes));
    let left = ALL & !flat.done;
    let mut rules: Vec<String> = vec![];
    let verb = |accept: bool| if accept { "accept" } else { "drop" };
    for (accept, conditions, states) in &flat.rules {
        let words = if tracked { words(*states) } else { String::new() };
        rules.push(format!("{}{words}{}", verb(*accept), conditions.text()));
    }
    // the firewall's own way with the rest is to pass what is established and related, and to drop what is invalid
    let rest = left & if accepts { 8 } else { 6 };
    if tracked && rest != 0 {
        rules.push(format!("{}{}", verb(accepts), words(rest)));
    }
    if let Some(v6) = v6 {
        let (these, others) = if v6 { (6, 4) } else { (4, 6) };
        notes.push(format!("the list is of IPv{these}: packets of IPv{others} meet the default alone"));
    }
    if tracked {
        notes.push(
            "states are those of the firewall's own tracking: see docs/firewall.md for what it calls invalid"
                .to_owned(),
        );
    }
    // new packets that have all found their end need no default: nobody gets there
    Ok(Imported { rules, accepts, tracked, notes })
}

fn words(states: u8) -> String {
    match states {
        NEW => String::new(),
        ALL => " state any".to_owned(),
        some => {
            let words: Vec<_> = (0..4).filter(|n| some >> n & 1 != 0).map(|n| STATES[n]).collect();
            format!(" state {}", words.join(","))
        }
    }
}

impl Flat<'_> {
    /// Whether a chain was left by a return that all packets of the states `states` take is told by what it leaves of them.
    fn walk(&mut self, chain: &str, outer: &Match, states: u8, depth: usize) -> Result<u8, Diagnostic> {
        let Some(rules) = self.chains.get(chain) else {
            return Err(refused(None, chain, "is a chain that is not there", "import the whole list"));
        };
        let mut left = states;
        for rule in rules {
            if let Some(fault) = &rule.fault {
                return Err(fault.clone());
            }
            let fresh = rule.notes.iter().filter(|note| !self.notes.contains(note)).cloned();
            let fresh: Vec<_> = fresh.collect();
            self.notes.extend(fresh);
            self.tracked |= rule.states != ALL;
            let mine = rule.states & left & !self.done;
            if mine == 0 {
                continue;
            }
            let at = |problem: &str, remedy: &str| refused(rule.line, &rule.word, problem, remedy);
            let all: Vec<Match> = rule.any.iter().filter_map(|m| outer.and(m)).collect();
            // of this chain's packets all that have such a state
            let everything = all.contains(outer);
            match &rule.then {
                Then::Nothing => {}
                Then::Return if everything => left &= !mine,
                Then::Return => {
                    return Err(at(
                        "returns some packets from a chain, which a list of rules cannot",
                        "turn the rule round, so that it says what becomes of the others",
                    ));
                }
                Then::Jump(to) | Then::Goto(to) => {
                    if depth == DEPTH {
                        return Err(at("jumps too deep, or in a circle", "write fewer chains"));
                    }
                    for conditions in &all {
                        self.walk(to, conditions, mine, depth + 1)?;
                    }
                    if matches!(rule.then, Then::Goto(_)) {
                        if depth != 0 && !everything {
                            return Err(at("goes to a chain for good, from one that was jumped to", "write jump"));
                        }
                        if everything {
                            left &= !mine;
                        } else {
                            return Err(at(
                                "goes to a chain for good",
                                "write jump, and the policy at the end of that chain",
                            ));
                        }
                    }
                }
                Then::Accept | Then::Drop => {
                    for conditions in all {
                        if conditions == self.base {
                            self.done |= mine;
                            // the firewall's own way: no rule
                            let own = if rule.then == Then::Accept { 6 } else { 8 };
                            if mine & !own == 0 {
                                continue;
                            }
                        }
                        self.rules.push((rule.then == Then::Accept, conditions, mine));
                        if self.rules.len() > MOST {
                            return Err(at("becomes too many rules", "write fewer sets and chains"));
                        }
                    }
                }
            }
        }
        Ok(left)
    }
}
