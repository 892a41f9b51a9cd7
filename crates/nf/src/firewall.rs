//! A packet filter.

mod key;
mod rules;

use graph::{BuildCx, Counter, Cx, Diagnostic, Nf, Node};
use key::View;
use packet::{BURST, Batch};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use tables::Classifier;
use tables::classifier::{FragmentKind, Key4, Key6, NONE};

/// `firewall`: the first rule that a packet matches says whether it passes.
pub struct Firewall;

/// Settings of [`Firewall`].
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Rules, first match first: "accept proto tcp dst 192.0.2.0/24 dport 80-443", "drop src 10.0.0.0/8", "accept proto icmp type 8",
    /// "drop proto tcp flags syn,!ack", "drop fragment later". IPv6 extension headers (proto ah, 0, 43, 44, 60, 135) are walked over:
    /// only rules with an IPv4 address may name them.
    rules: Vec<String>,
    /// A file of further rules, one a line, behind those of rules.
    file: Option<PathBuf>,
    /// What becomes of IP packets that no rule matches: accept or drop.
    default: Action,
    /// What becomes of frames that are not IP, such as ARP: accept or drop.
    other: Action,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { rules: vec![], file: None, default: Action::Drop, other: Action::Accept }
    }
}

/// What a rule does with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Action {
    /// Lets it pass.
    Accept,
    /// Drops it.
    Drop,
}

/// Names of drop reasons, in the order of [`Reason`].
const DROPS: [&str; 5] = ["refused", "refused_by_default", "not_ip", "malformed_ip", "tiny_fragment"];

#[derive(Clone, Copy)]
#[repr(u8)]
enum Reason {
    Refused,
    Default,
    NotIp,
    Malformed,
    TinyFragment,
}

impl Nf for Firewall {
    type Settings = Settings;
    const KIND: &'static str = "firewall";
    const ABOUT: &'static str = "Lets IPv4 and IPv6 packets pass or drops them by the first rule that matches addresses, protocol, ports, ICMP type, TCP \
         flags and fragments, behind up to four VLAN tags, and counts the packets of each rule.";
    const EXAMPLE: &'static str = "rules = [\n  \"accept proto tcp dst 192.0.2.0/24 dport 80-443\",\n  \"accept proto icmp type 8\",\n  \
         \"drop src 10.0.0.0/8\",\n]\ndefault = \"drop\"";

    fn build(settings: &Settings, cx: &BuildCx) -> Result<impl Node + 'static, Diagnostic> {
        let rules = rules::read(settings, cx)?;
        let list: Vec<_> = rules.iter().map(|r| r.matches.clone()).collect();
        let classifier = cx.common(|| {
            Classifier::new(&list).map_err(|e| Diagnostic::new(e.to_string()).key("rules").value(list.len()))
        })?;
        let place = |action| Place { count: Arc::default(), drop: action == Action::Drop };
        let misses = core::iter::repeat_n(settings.default, MISSES);
        Ok(Filter {
            classifier,
            rules: rules.len(),
            places: rules.iter().map(|r| r.action).chain(misses).map(place).collect(),
            names: rules.iter().enumerate().map(|(n, r)| format!("{} {}", n + 1, r.text)).collect(),
            by_default: Arc::default(),
            other: settings.other,
            keys4: [Key4::new(0.into(), 0.into(), 0, FragmentKind::Whole); BURST],
            keys6: vec![Key6::new(0.into(), 0.into(), 0, FragmentKind::Whole); BURST],
        })
    }
}

/// Rules up to which a burst is counted rule by rule.
const FEW: usize = 16;
/// Places for packets that no rule matches, taken in turn: an increment need not wait for the one before.
const MISSES: usize = 8;

/// What is counted together, and what becomes of it.
struct Place {
    count: Arc<Counter>,
    drop: bool,
}

struct Filter {
    classifier: Arc<Classifier>,
    /// How many rules there are.
    rules: usize,
    /// Of each rule, and behind them [`MISSES`] for the default, whose counts nobody reads.
    places: Box<[Place]>,
    names: Vec<String>,
    by_default: Arc<Counter>,
    other: Action,
    keys4: [Key4; BURST],
    keys6: Vec<Key6>,
}

/// What is known of a packet before the rules are asked.
#[derive(Clone, Copy)]
enum Class {
    V4,
    V6,
    Drop(Reason),
    Pass,
}

impl Filter {
    /// The place for a rule, or for no rule in the `at`th packet.
    #[inline(always)]
    fn place(&self, rule: u32, at: usize) -> &Place {
        let rule = rule as usize;
        &self.places[if rule < self.rules { rule } else { self.rules + at % MISSES }]
    }

    /// Counts the first `n` packets of a burst, of which each matches one of `rules`; the others match none. Whether any is
    /// to be dropped.
    #[inline(always)]
    fn count(&self, rules: &[u32; BURST], n: usize) -> bool {
        let (mut any, mut hits) = (false, 0);
        if self.rules <= FEW {
            // rule by rule, all packets at once
            for (rule, place) in (0..).zip(&self.places[..self.rules]) {
                let of: u32 = rules.iter().map(|r| u32::from(*r == rule)).sum();
                place.count.add(of.into());
                any |= place.drop & (of != 0);
                hits += of as usize;
            }
            any |= self.place(NONE, 0).drop & (hits < n);
        } else {
            for (at, &rule) in rules[..n].iter().enumerate() {
                let place = self.place(rule, at);
                place.count.add(1);
                any |= place.drop;
                hits += usize::from(rule != NONE);
            }
        }
        self.by_default.add((n - hits) as u64);
        any
    }

    /// Why a packet is dropped for which the classifier has found `rule`, if it is.
    fn verdict(&self, rule: u32) -> Option<Reason> {
        let reason = if (rule as usize) < self.rules { Reason::Refused } else { Reason::Default };
        self.place(rule, 0).drop.then_some(reason)
    }

    /// A batch of anything.
    #[inline(never)]
    fn mixed(&mut self, cx: &mut Cx<'_>, batch: &mut Batch) {
        let mut classes = [Class::Pass; BURST];
        let (mut n4, mut n6, mut at) = (0, 0, 0);
        batch.for_each(|packet| {
            let class = match key::look(packet.data()) {
                View::V4(key) => {
                    self.keys4[n4 & (BURST - 1)] = key;
                    n4 += 1;
                    Class::V4
                }
                View::V6(key) => {
                    self.keys6[n6 & (BURST - 1)] = key;
                    n6 += 1;
                    Class::V6
                }
                View::Other if self.other == Action::Accept => Class::Pass,
                View::Other => Class::Drop(Reason::NotIp),
                View::Malformed => Class::Drop(Reason::Malformed),
                View::TinyFragment => Class::Drop(Reason::TinyFragment),
            };
            classes[at & (BURST - 1)] = class;
            at += 1;
        });
        let (mut rules4, mut rules6) = ([NONE; BURST], [NONE; BURST]);
        self.classifier.classify4(&self.keys4[..n4], &mut rules4[..n4]);
        self.classifier.classify6(&self.keys6[..n6], &mut rules6[..n6]);
        self.count(&rules4, n4);
        self.count(&rules6, n6);
        let (mut rules4, mut rules6) = (rules4.iter(), rules6.iter());
        let mut classes = classes.iter();
        batch.sift(
            |_| match classes.next()? {
                Class::V4 => self.verdict(*rules4.next()?),
                Class::V6 => self.verdict(*rules6.next()?),
                Class::Drop(reason) => Some(*reason),
                Class::Pass => None,
            },
            |reason, packet| cx.drop(reason as u8, packet),
        );
    }
}

impl Node for Filter {
    fn drops(&self) -> &[&'static str] {
        &DROPS
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        let rules = self.names.iter().cloned().zip(self.places.iter().map(|p| p.count.clone()));
        rules.chain([("default".to_owned(), self.by_default.clone())]).collect()
    }

    fn process(&mut self, cx: &mut Cx<'_>, _: u8, batch: &mut Batch) {
        let mut plain = 0;
        let keys = &mut self.keys4;
        batch.for_each(
            #[inline(always)]
            |packet| {
                if let Some(key) = key::plain4(packet.data()) {
                    keys[plain & (BURST - 1)] = key;
                    plain += 1;
                }
            },
        );
        let n = batch.len();
        if plain != n {
            return self.mixed(cx, batch);
        }
        let mut rules = [NONE; BURST];
        self.classifier.classify4(&self.keys4[..n], &mut rules[..n]);
        if self.count(&rules, n) {
            let mut rules = rules.iter();
            batch.sift(|_| self.verdict(*rules.next()?), |reason, packet| cx.drop(reason as u8, packet));
        }
    }
}

#[cfg(test)]
mod tests;
