//! Rules with all that is derived from them. The copies of an NF share it.

use super::app::AppIndex;
use super::decode::{ICMP, ICMPV6, Packet, TCP, UDP};
use super::pattern_set::{PatternSet, pattern_of};
use crate::ids::rule::state::{BitScope, FlowOption, IntegerOption, StateOption, Threshold};
use crate::ids::rule::{Action, BitNumbers, Protocol, Rule};
use diagnostics::Diagnostic;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

/// Protocols by which rules are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Tcp,
    Udp,
    Icmp,
    Other,
}

impl Class {
    const ALL: [Class; 4] = [Class::Tcp, Class::Udp, Class::Icmp, Class::Other];

    fn of(packet: &Packet<'_>) -> Self {
        match packet.protocol {
            TCP => Class::Tcp,
            UDP => Class::Udp,
            ICMP | ICMPV6 => Class::Icmp,
            _ => Class::Other,
        }
    }

    fn accepts(self, protocol: Protocol) -> bool {
        match protocol {
            Protocol::Ip | Protocol::Ipv4 | Protocol::Ipv6 => true,
            Protocol::Tcp | Protocol::TcpPacket | Protocol::TcpStream => self == Class::Tcp,
            Protocol::Udp => self == Class::Udp,
            Protocol::Icmp | Protocol::Icmpv4 | Protocol::Icmpv6 => self == Class::Icmp,
            Protocol::Igmp | Protocol::Sctp => self == Class::Other,
        }
    }
}

/// Inputs that are searched for the same patterns, in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    /// Bytes of a TCP stream.
    Stream,
    /// A TCP packet.
    TcpPacket,
    Udp,
    /// A packet of another protocol.
    Other,
}

impl Input {
    const ALL: [Input; 4] = [Input::Stream, Input::TcpPacket, Input::Udp, Input::Other];

    fn accepts(self, rule: &Rule) -> bool {
        match self {
            Input::Stream => rule.uses_stream(),
            Input::TcpPacket => Class::Tcp.accepts(rule.protocol) && rule.uses_packets(),
            Input::Udp => Class::Udp.accepts(rule.protocol),
            Input::Other => Class::Icmp.accepts(rule.protocol) || Class::Other.accepts(rule.protocol),
        }
    }
}

/// Properties of a rule that are checked first; most candidates differ in one of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    src_ports: (u16, u16),
    dst_ports: (u16, u16),
    to_server: bool,
    to_client: bool,
    established: Option<bool>,
    pub(super) uses_stream: bool,
    pub(super) uses_packets: bool,
    pub(super) spans_chunks: bool,
    /// True if another option than that with the pattern may match later bytes of a stream.
    pub(super) has_later_options: bool,
}

impl Head {
    fn of(rule: &Rule) -> Self {
        let has = |option| rule.flow.contains(&option);
        let any = (0, u16::MAX);
        let both = rule.both_directions;
        Head {
            src_ports: if both { any } else { rule.src_ports.bounds() },
            dst_ports: if both { any } else { rule.dst_ports.bounds() },
            to_server: !has(FlowOption::ToClient),
            to_client: !has(FlowOption::ToServer),
            established: match (has(FlowOption::Established), has(FlowOption::NotEstablished)) {
                (true, false) => Some(true),
                (false, true) => Some(false),
                _ => None,
            },
            uses_stream: rule.uses_stream(),
            uses_packets: rule.uses_packets(),
            spans_chunks: rule.spans_chunks(),
            has_later_options: rule.spans_chunks() && rule.buffers.iter().any(|(_, list)| list.len() > 1),
        }
    }

    fn accepts_direction(&self, to_client: bool) -> bool {
        if to_client { self.to_client } else { self.to_server }
    }

    /// Returns false if the rule cannot match the packet.
    pub(super) fn may_match(&self, packet: &Packet<'_>, to_client: bool, established: bool) -> bool {
        let within = |(from, to): (u16, u16), port| from <= port && port <= to;
        within(self.dst_ports, packet.dst_port)
            && within(self.src_ports, packet.src_port)
            && self.accepts_direction(to_client)
            && self.established.is_none_or(|required| required == established)
    }
}

/// Rules without a pattern, by class.
#[derive(Default)]
struct ByClass([Vec<u32>; 4]);

impl ByClass {
    fn push(&mut self, number: u32, rule: &Rule) {
        for (class, list) in Class::ALL.into_iter().zip(&mut self.0) {
            if class.accepts(rule.protocol) {
                list.push(number);
            }
        }
    }

    fn get(&self, packet: &Packet<'_>) -> &[u32] {
        self.0.get(Class::of(packet) as usize).map_or(&[], Vec::as_slice)
    }
}

/// Rule and threshold across reloads: `gid`, `sid` and threshold.
type RuleKey = (u32, u32, Option<Threshold>);

/// Rules in the order of evaluation.
pub(in crate::ids) struct RuleSet {
    /// Number of this set in the process.
    id: u64,
    /// Number of the set before, from which it has the numbers of bits and rules.
    follows: Option<u64>,
    rules: Vec<Rule>,
    heads: Vec<Head>,
    /// Rules without a pattern that are matched with every packet, with the first one of a direction, and with streams.
    without_pattern: ByClass,
    ip_only: ByClass,
    stream_without_pattern: Vec<u32>,
    /// Different sets of patterns, and the index of that for each input and direction.
    pub(super) sets: Vec<PatternSet>,
    set_of: [[usize; 2]; 4],
    /// Rules about application protocols.
    pub(super) app: AppIndex,
    bits: BitNumbers,
    ids: HashMap<RuleKey, u32>,
    next_id: u32,
}

impl RuleSet {
    /// Sorts and compiles rules, of which no two have the same `gid` and `sid`. Without an engine they cannot be searched for, only checked.
    pub(in crate::ids) fn new(
        mut rules: Vec<Rule>,
        mut bits: BitNumbers,
        before: Option<&RuleSet>,
        action_order: &[Action],
        engine: Option<multi_pattern::Engine>,
    ) -> Result<Self, Diagnostic> {
        static SETS: AtomicU64 = AtomicU64::new(1);
        let action = |rule: &Rule| action_order.iter().position(|action| *action == rule.action).unwrap_or(4);
        rules.sort_by_key(|rule| (action(rule), state_order(rule), rule.priority));
        let bits_of = |rule: &Rule| {
            let integers = rule.integers.iter().flat_map(IntegerOption::variables);
            rule.states.iter().flat_map(|s| s.bits.iter().copied()).chain(integers).collect::<Vec<_>>()
        };
        bits.retain(&rules.iter().flat_map(bits_of).collect::<HashSet<_>>());
        let mut next_id = before.map_or(0, |before| before.next_id);
        let mut ids = HashMap::new();
        for rule in &mut rules {
            let key = (rule.gid, rule.sid, rule.threshold);
            rule.id = before.and_then(|before| before.ids.get(&key).copied()).unwrap_or_else(|| {
                next_id = next_id.wrapping_add(1);
                next_id
            });
            ids.insert(key, rule.id);
        }
        let heads: Vec<Head> = rules.iter().map(Head::of).collect();
        let (mut without_pattern, mut ip_only) = (ByClass::default(), ByClass::default());
        let mut stream_without_pattern = vec![];
        for (number, rule) in (0..).zip(&rules) {
            if pattern_of(number, rule).is_some() || rule.app.is_about_messages() {
                continue;
            }
            if rule.is_ip_only() { &mut ip_only } else { &mut without_pattern }.push(number, rule);
            if rule.uses_stream() {
                stream_without_pattern.push(number);
            }
        }
        let (mut sets, mut members, mut set_of) = (vec![], Vec::<Vec<u32>>::new(), [[0; 2]; 4]);
        for (input, set_of) in Input::ALL.into_iter().zip(&mut set_of) {
            for (to_client, set_of) in [false, true].into_iter().zip(set_of) {
                let has = |n: &u32| {
                    let (rule, head) = (rules.get(*n as usize), heads.get(*n as usize));
                    rule.zip(head).is_some_and(|(r, h)| input.accepts(r) && h.accepts_direction(to_client))
                        && engine.is_some()
                };
                let patterns = |n: u32| pattern_of(n, rules.get(n as usize)?);
                let own: Vec<u32> = (0..rules.len() as u32).filter(has).filter(|n| patterns(*n).is_some()).collect();
                *set_of = match members.iter().position(|other| *other == own) {
                    Some(same) => same,
                    None => {
                        let engine = engine.unwrap_or(multi_pattern::Engine::AhoCorasick);
                        sets.push(PatternSet::new(engine, own.iter().filter_map(|n| patterns(*n)))?);
                        members.push(own);
                        sets.len() - 1
                    }
                };
            }
        }
        Ok(RuleSet {
            app: AppIndex::new(&rules, engine)?,
            id: SETS.fetch_add(1, Ordering::Relaxed),
            follows: before.map(|before| before.id),
            rules,
            heads,
            without_pattern,
            ip_only,
            stream_without_pattern,
            sets,
            set_of,
            bits,
            ids,
            next_id,
        })
    }

    pub(in crate::ids) fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns the numbers of bits, from which those of the next set continue.
    pub(in crate::ids) fn bits(&self) -> &BitNumbers {
        &self.bits
    }

    /// Returns the memory of compiled patterns in bytes.
    pub(in crate::ids) fn pattern_memory(&self) -> usize {
        self.sets.iter().map(PatternSet::memory).sum::<usize>() + self.app.patterns().1
    }

    /// Returns the number of compiled patterns, those that several inputs are searched for once each.
    pub(in crate::ids) fn pattern_count(&self) -> usize {
        self.sets.iter().map(PatternSet::len).sum::<usize>() + self.app.patterns().0
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Returns true if state that refers to bits and rules of the other set is valid here.
    pub(super) fn continues(&self, other: &RuleSet) -> bool {
        self.id == other.id || self.follows == Some(other.id)
    }

    pub(super) fn head(&self, number: u32) -> Option<&Head> {
        self.heads.get(number as usize)
    }

    /// Returns the index of the set for bytes of streams.
    pub(super) fn stream_set(&self, to_client: bool) -> usize {
        self.set_of[Input::Stream as usize][usize::from(to_client)]
    }

    /// Returns the indices of the sets for a packet, whose payload is part of a stream if `added`.
    pub(super) fn packet_sets(&self, packet: &Packet<'_>, added: bool, to_client: bool) -> [Option<usize>; 2] {
        let input = match Class::of(packet) {
            Class::Tcp => Input::TcpPacket,
            Class::Udp => Input::Udp,
            Class::Icmp | Class::Other => Input::Other,
        };
        let first = self.set_of[input as usize][usize::from(to_client)];
        let stream = input == Input::TcpPacket && !added;
        [Some(first), stream.then(|| self.stream_set(to_client)).filter(|second| *second != first)]
    }

    /// Returns the rules without a pattern that are matched with a packet.
    pub(super) fn without_pattern(&self, packet: &Packet<'_>) -> &[u32] {
        self.without_pattern.get(packet)
    }

    /// Returns those that are matched with the first packet of a direction only.
    pub(super) fn ip_only(&self, packet: &Packet<'_>) -> &[u32] {
        self.ip_only.get(packet)
    }

    /// Returns those that are matched with streams.
    pub(super) fn stream_without_pattern(&self) -> &[u32] {
        &self.stream_without_pattern
    }
}

/// Returns the order of a rule by its use of bits and numbers of flows, of hosts, and of pairs of hosts: those that change them
/// are evaluated first.
fn state_order(rule: &Rule) -> [u8; 4] {
    let order = |reads: &mut dyn Iterator<Item = bool>| {
        let (tests, changes) =
            reads.fold((false, false), |(tests, changes), reads| (tests || reads, changes || !reads));
        match (changes, tests) {
            (true, false) => 0,
            (true, true) => 1,
            (false, true) => 2,
            (false, false) => 3,
        }
    };
    let bits = |scopes: &'static [BitScope]| {
        rule.states.iter().filter(|state| scopes.contains(&state.scope)).map(StateOption::reads)
    };
    [
        order(&mut bits(&[BitScope::Flow])),
        order(&mut rule.integers.iter().map(IntegerOption::reads)),
        order(&mut bits(&[BitScope::Source, BitScope::Destination])),
        order(&mut bits(&[BitScope::Pair])),
    ]
}
