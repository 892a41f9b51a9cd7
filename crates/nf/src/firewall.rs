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
    /// "drop proto tcp flags syn,!ack", "drop fragment later".
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
        Ok(Filter {
            classifier,
            accept: rules.iter().map(|r| r.action == Action::Accept).collect(),
            counts: rules.iter().map(|_| Arc::default()).collect(),
            names: rules.iter().enumerate().map(|(n, r)| format!("{} {}", n + 1, r.text)).collect(),
            by_default: Arc::default(),
            default: settings.default,
            other: settings.other,
            keys6: vec![Key6::new(0.into(), 0.into(), 0, FragmentKind::Whole); BURST],
        })
    }
}

struct Filter {
    classifier: Arc<Classifier>,
    accept: Vec<bool>,
    counts: Vec<Arc<Counter>>,
    names: Vec<String>,
    by_default: Arc<Counter>,
    default: Action,
    other: Action,
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
    /// What becomes of a packet for which the classifier has found `rule`.
    #[inline(always)]
    fn verdict(&self, rule: u32) -> Option<Reason> {
        match self.accept.get(rule as usize) {
            Some(accept) => {
                self.counts[rule as usize].add(1);
                if *accept { None } else { Some(Reason::Refused) }
            }
            None => {
                self.by_default.add(1);
                if self.default == Action::Accept { None } else { Some(Reason::Default) }
            }
        }
    }

    /// A batch of anything.
    #[inline(never)]
    fn mixed(&mut self, cx: &mut Cx<'_>, batch: &mut Batch) {
        let mut keys4 = [Key4::new(0.into(), 0.into(), 0, FragmentKind::Whole); BURST];
        let mut classes = [Class::Pass; BURST];
        let (mut n4, mut n6, mut at) = (0, 0, 0);
        batch.for_each(|packet| {
            let class = match key::look(packet.data()) {
                View::V4(key) => {
                    keys4[n4 & (BURST - 1)] = key;
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
        let (mut rules4, mut rules6) = ([0; BURST], [0; BURST]);
        self.classifier.classify4(&keys4[..n4], &mut rules4[..n4]);
        self.classifier.classify6(&self.keys6[..n6], &mut rules6[..n6]);
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
        let rules = self.names.iter().cloned().zip(self.counts.iter().cloned());
        rules.chain([("default".to_owned(), self.by_default.clone())]).collect()
    }

    fn process(&mut self, cx: &mut Cx<'_>, _: u8, batch: &mut Batch) {
        let mut keys = [Key4::new(0.into(), 0.into(), 0, FragmentKind::Whole); BURST];
        let (mut at, mut odd) = (0, false);
        batch.for_each(
            #[inline(always)]
            |packet| {
                match key::plain4(packet.data()) {
                    Some(key) => keys[at & (BURST - 1)] = key,
                    None => odd = true,
                }
                at += 1;
            },
        );
        if odd {
            return self.mixed(cx, batch);
        }
        let n = batch.len();
        let mut rules = [0; BURST];
        self.classifier.classify4(&keys[..n], &mut rules[..n]);
        let mut at = 0;
        batch.sift(
            #[inline(always)]
            |_| {
                let rule = rules[at & (BURST - 1)];
                at += 1;
                self.verdict(rule)
            },
            #[inline(always)]
            |reason, packet| cx.drop(reason as u8, packet),
        );
    }
}

#[cfg(test)]
mod tests;
