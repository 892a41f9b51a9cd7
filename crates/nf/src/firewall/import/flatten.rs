//! Conversion of chains that jump to each other to one list of rules.

use super::{ImportedRules, unsupported};
use diagnostics::Diagnostic;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Connection states as bits: new, established, related, invalid.
pub(super) const NEW: u8 = 1;
pub(super) const ALL: u8 = 15;
const STATES: [&str; 4] = ["new", "established", "related", "invalid"];
/// Largest number of resulting rules, more than the classifier supports.
const MAX_RULES: usize = 100_000;
/// Largest depth of jumps.
const MAX_CHAIN_DEPTH: usize = 16;

pub(super) fn state(word: &str) -> Option<u8> {
    STATES.iter().position(|s| s.eq_ignore_ascii_case(word)).map(|n| 1 << n)
}

/// Conditions of a rule, all of which must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Match {
    /// True for IPv6 only, false for IPv4 only.
    pub(super) v6: Option<bool>,
    pub(super) src: Option<IpNet>,
    pub(super) dst: Option<IpNet>,
    pub(super) protocol: Option<u8>,
    pub(super) sport: Option<(u16, u16)>,
    pub(super) dport: Option<(u16, u16)>,
    pub(super) kind: Option<(u8, u8)>,
    pub(super) code: Option<(u8, u8)>,
    /// Mask of the TCP flags that are compared, and their values.
    pub(super) flags: Option<(u8, u8)>,
    pub(super) fragment: Option<&'static str>,
}

/// Returns the condition that is equivalent to both, or `None` if no packet meets both.
fn intersect_equal<T: PartialEq + Copy>(a: Option<T>, b: Option<T>) -> Option<Option<T>> {
    match (a, b) {
        (Some(a), Some(b)) if a != b => None,
        (a, b) => Some(a.or(b)),
    }
}

fn intersect_range<T: Ord + Copy>(a: Option<(T, T)>, b: Option<(T, T)>) -> Option<Option<(T, T)>> {
    let (Some(a), Some(b)) = (a, b) else { return Some(a.or(b)) };
    let both = (a.0.max(b.0), a.1.min(b.1));
    (both.0 <= both.1).then_some(Some(both))
}

fn intersect_network(a: Option<IpNet>, b: Option<IpNet>) -> Option<Option<IpNet>> {
    let (Some(a), Some(b)) = (a, b) else { return Some(a.or(b)) };
    if a.contains(&b) { Some(Some(b)) } else { b.contains(&a).then_some(Some(a)) }
}

impl Match {
    /// Returns the conditions that are equivalent to both, or `None` if no packet meets both.
    pub(super) fn intersect(&self, other: &Self) -> Option<Self> {
        let flags = match (self.flags, other.flags) {
            (Some((m, v)), Some((n, w))) if (v ^ w) & m & n != 0 => return None,
            (Some((m, v)), Some((n, w))) => Some((m | n, v | w)),
            (a, b) => a.or(b),
        };
        let both = Match {
            v6: intersect_equal(self.v6, other.v6)?,
            src: intersect_network(self.src, other.src)?,
            dst: intersect_network(self.dst, other.dst)?,
            protocol: intersect_equal(self.protocol, other.protocol)?,
            sport: intersect_range(self.sport, other.sport)?,
            dport: intersect_range(self.dport, other.dport)?,
            kind: intersect_range(self.kind, other.kind)?,
            code: intersect_range(self.code, other.code)?,
            flags,
            fragment: intersect_equal(self.fragment, other.fragment)?,
        };
        let version = |v6: bool| [both.src, both.dst].into_iter().flatten().all(|n| matches!(n, IpNet::V6(_)) == v6);
        (both.v6.map_or_else(|| version(true) || version(false), version)).then_some(both)
    }

    /// Returns the conditions in the syntax of the firewall.
    fn to_rule(&self) -> String {
        let mut text = String::new();
        let (mut src, dst) = (self.src, self.dst);
        if src.is_none() && dst.is_none() {
            src = self.v6.filter(|v6| self.protocol != Some(if *v6 { 58 } else { 1 })).map(|v6| {
                let all = if v6 { "::/0" } else { "0.0.0.0/0" };
                all.parse().expect("a network")
            });
        }
        let mut push = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                write!(text, " {key} {value}").expect("memory");
            }
        };
        push("src", src.map(|n| n.to_string()));
        push("dst", dst.map(|n| n.to_string()));
        push("proto", self.protocol.map(name));
        push("sport", self.sport.map(range));
        push("dport", self.dport.map(range));
        push("type", self.kind.map(range));
        push("code", self.code.map(range));
        push("flags", self.flags.map(flags));
        push("fragment", self.fragment.map(str::to_owned));
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

/// Action of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Accept,
    Drop,
    /// Continues in a chain and returns.
    Jump(String),
    /// Continues in a chain and returns to the caller of this one.
    Goto(String),
    Return,
    /// No effect on packets: counts or logs.
    Nothing,
}

/// A rule of the source: any of the matches, together with any of the states.
#[derive(Clone, Debug)]
pub(super) struct SourceRule {
    pub(super) line: Option<usize>,
    /// Text of the rule, for messages.
    pub(super) text: String,
    pub(super) matches: Vec<Match>,
    pub(super) states: u8,
    pub(super) target: Target,
    /// Reason for which the rule cannot be converted; an error only if forwarded packets reach it.
    pub(super) error: Option<Diagnostic>,
    pub(super) notes: Vec<String>,
}

impl SourceRule {
    /// Creates a rule without conditions for one IP version or both.
    pub(super) fn new(line: Option<usize>, text: &str, v6: Option<bool>) -> Self {
        let matches = vec![Match { v6, ..Match::default() }];
        SourceRule {
            line,
            text: text.to_owned(),
            matches,
            states: ALL,
            target: Target::Nothing,
            error: None,
            notes: vec![],
        }
    }

    /// Combines each match with each of `more`.
    pub(super) fn with(&mut self, more: &[Match]) {
        self.matches = self.matches.iter().flat_map(|a| more.iter().filter_map(|b| a.intersect(b))).collect();
    }
}

pub(super) type Chains = BTreeMap<String, Vec<SourceRule>>;

struct Flattener<'a> {
    chains: &'a Chains,
    rules: Vec<(bool, Match, u8)>,
    /// States whose packets are all decided.
    done: u8,
    tracked: bool,
    notes: Vec<String>,
    /// Conditions that all packets meet: the IP version.
    base: Match,
}

/// Converts the chain `from`; `default_accept` is its policy.
pub(super) fn flatten(
    chains: &Chains,
    from: &str,
    v6: Option<bool>,
    default_accept: bool,
    notes: Vec<String>,
) -> Result<ImportedRules, Diagnostic> {
    let base = Match { v6, ..Match::default() };
    let mut flattener = Flattener { chains, rules: vec![], done: 0, tracked: false, notes, base: base.clone() };
    flattener.walk(from, &base, ALL, 0)?;
    let (tracked, mut notes) = (flattener.tracked, core::mem::take(&mut flattener.notes));
    let left = ALL & !flattener.done;
    let mut rules: Vec<String> = vec![];
    let verb = |accept: bool| if accept { "accept" } else { "drop" };
    for (accept, conditions, states) in &flattener.rules {
        let states = if tracked { states_text(*states) } else { String::new() };
        rules.push(format!("{}{states}{}", verb(*accept), conditions.to_rule()));
    }
    // the default of the firewall accepts established and related packets and drops invalid ones
    let rest = left & if default_accept { 8 } else { 6 };
    if tracked && rest != 0 {
        rules.push(format!("{}{}", verb(default_accept), states_text(rest)));
    }
    if let Some(v6) = v6 {
        let (these, others) = if v6 { (6, 4) } else { (4, 6) };
        notes.push(format!("the rules are for IPv{these}: the default applies to IPv{others} packets"));
    }
    if tracked {
        notes.push(
            "connection states are those of the firewall's own tracking; docs/reference/nfs/firewall.md defines \"invalid\""
                .to_owned(),
        );
    }
    Ok(ImportedRules { rules, default_accept, tracked, notes })
}

fn states_text(states: u8) -> String {
    match states {
        NEW => String::new(),
        ALL => " state any".to_owned(),
        some => {
            let words: Vec<_> = (0..4).filter(|n| some >> n & 1 != 0).map(|n| STATES[n]).collect();
            format!(" state {}", words.join(","))
        }
    }
}

impl Flattener<'_> {
    /// Converts a chain for packets with conditions `outer` and these states. Returns the states whose packets did not
    /// leave the chain by a return.
    fn walk(&mut self, chain: &str, outer: &Match, states: u8, depth: usize) -> Result<u8, Diagnostic> {
        let Some(rules) = self.chains.get(chain) else {
            return Err(unsupported(None, chain, "is not a chain of the list", "import the whole list"));
        };
        let mut left = states;
        for rule in rules {
            if let Some(error) = &rule.error {
                return Err(error.clone());
            }
            let fresh = rule.notes.iter().filter(|note| !self.notes.contains(note)).cloned();
            let new: Vec<_> = fresh.collect();
            self.notes.extend(new);
            self.tracked |= rule.states != ALL;
            let undecided = rule.states & left & !self.done;
            if undecided == 0 {
                continue;
            }
            let error = |problem: &str, remedy: &str| unsupported(rule.line, &rule.text, problem, remedy);
            let all: Vec<Match> = rule.matches.iter().filter_map(|m| outer.intersect(m)).collect();
            // true if all packets of the chain with these states match
            let matches_all = all.contains(outer);
            match &rule.target {
                Target::Nothing => {}
                Target::Return if matches_all => left &= !undecided,
                Target::Return => {
                    return Err(error(
                        "returns only some packets from a chain, which a list of rules cannot express",
                        "invert the rule so that it decides on the other packets",
                    ));
                }
                Target::Jump(to) | Target::Goto(to) => {
                    if depth == MAX_CHAIN_DEPTH {
                        return Err(error(
                            "the jumps are nested too deeply, or form a circle",
                            "use fewer nested chains",
                        ));
                    }
                    for conditions in &all {
                        self.walk(to, conditions, undecided, depth + 1)?;
                    }
                    if matches!(rule.target, Target::Goto(_)) {
                        if depth != 0 && !matches_all {
                            return Err(error("goto from a chain that was entered by a jump", "write jump"));
                        }
                        if matches_all {
                            left &= !undecided;
                        } else {
                            return Err(error(
                                "goto of only some packets of a chain",
                                "write jump, and the policy at the end of the target chain",
                            ));
                        }
                    }
                }
                Target::Accept | Target::Drop => {
                    for conditions in all {
                        if conditions == self.base {
                            self.done |= undecided;
                            // equal to the default of the firewall: needs no rule
                            let default = if rule.target == Target::Accept { 6 } else { 8 };
                            if undecided & !default == 0 {
                                continue;
                            }
                        }
                        self.rules.push((rule.target == Target::Accept, conditions, undecided));
                        if self.rules.len() > MAX_RULES {
                            return Err(error("expands to too many rules", "use smaller sets or fewer chains"));
                        }
                    }
                }
            }
        }
        Ok(left)
    }
}
