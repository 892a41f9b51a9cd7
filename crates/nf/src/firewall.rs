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
use tables::classifier::{FragmentKind, Key4, Key6};

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
        let place = |action| Place { count: Arc::default(), drop: if action == Action::Drop { u32::MAX } else { 0 } };
        Ok(Filter {
            classifier,
            places: rules.iter().map(|r| place(r.action)).collect(),
            names: rules.iter().enumerate().map(|(n, r)| format!("{} {}", n + 1, r.text)).collect(),
            by_default: place(settings.default),
            other: settings.other,
            keys4: [Key4::new(0.into(), 0.into(), 0, FragmentKind::Whole); BURST],
            keys6: vec![Key6::new(0.into(), 0.into(), 0, FragmentKind::Whole); BURST],
        })
    }
}

/// What is counted together, and what becomes of it: no packet of a set is dropped, or all.
struct Place {
    count: Arc<Counter>,
    drop: u32,
}

/// Packets of a burst that are dropped, and those that no rule matches.
#[derive(Clone, Copy, Default)]
struct Verdict {
    drop: u32,
    missed: u32,
}

impl Verdict {
    /// Why packet number `at` is dropped, if it is.
    #[inline(always)]
    fn reason(self, at: usize) -> Option<Reason> {
        let reason = if self.missed >> at & 1 == 0 { Reason::Refused } else { Reason::Default };
        (self.drop >> at & 1 != 0).then_some(reason)
    }
}

struct Filter {
    classifier: Arc<Classifier>,
    /// Of each rule.
    places: Box<[Place]>,
    names: Vec<String>,
    by_default: Place,
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
    /// Counts packets of which `rule` is the first that matches; those that are dropped.
    #[inline(always)]
    fn count(&self, rule: u32, packets: u32) -> u32 {
        let place = &self.places[rule as usize];
        place.count.add(packets.count_ones().into());
        packets & place.drop
    }

    /// What becomes of the packets that rules let go or drop, and of those that no rule matches.
    #[inline(always)]
    fn verdict(&self, drop: u32, missed: u32) -> Verdict {
        self.by_default.count.add(missed.count_ones().into());
        Verdict { drop: drop | missed & self.by_default.drop, missed }
    }

    /// Asks the rules.
    #[inline(always)]
    fn judge4(&self, keys: &[Key4]) -> Verdict {
        let mut drop = 0;
        let missed = self.classifier.classify4(keys, |rule, packets| drop |= self.count(rule, packets));
        self.verdict(drop, missed)
    }

    /// As [`judge4`](Self::judge4).
    fn judge6(&self, keys: &[Key6]) -> Verdict {
        let mut drop = 0;
        let missed = self.classifier.classify6(keys, |rule, packets| drop |= self.count(rule, packets));
        self.verdict(drop, missed)
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
        let (v4, v6) = (self.judge4(&self.keys4[..n4]), self.judge6(&self.keys6[..n6]));
        let (mut at4, mut at6) = (0..n4, 0..n6);
        let mut classes = classes.iter();
        batch.sift(
            |_| match classes.next()? {
                Class::V4 => v4.reason(at4.next()?),
                Class::V6 => v6.reason(at6.next()?),
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
        rules.chain([("default".to_owned(), self.by_default.count.clone())]).collect()
    }

    fn process(&mut self, cx: &mut Cx<'_>, _: u8, batch: &mut Batch) {
        let n = batch.len();
        let (mut odd, mut at) = (0u32, 0);
        let keys = &mut self.keys4;
        batch.for_each(
            #[inline(always)]
            |packet| {
                if !key::plain4(packet.data(), &mut keys[at & (BURST - 1)]) {
                    odd |= 1 << at;
                }
                at += 1;
            },
        );
        if odd != 0 {
            return self.mixed(cx, batch);
        }
        let verdict = self.judge4(&self.keys4[..n]);
        if verdict.drop != 0 {
            let mut at = 0..n;
            batch.sift(|_| verdict.reason(at.next()?), |reason, packet| cx.drop(reason as u8, packet));
        }
    }
}

#[cfg(test)]
mod tests;
