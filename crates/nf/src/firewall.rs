//! A packet filter.

mod connection;
mod control;
mod key;
mod live;
mod policy;
mod rules;
mod seen;
mod track;
mod tracking;

use diagnostics::Diagnostic;
use graph::{BuildContext, Counter, Context, Either, Nf, Node, Spread};
use key::View;
use live::{Copy as Seat, Live, Origin};
use packet::{BURST, Batch};
use policy::{Desk, Verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tables::classifier::{FragmentKind, Key4, Key6};
use track::{Track, Tracker};
use tracking::Tracking;

/// `firewall`: the first rule that a packet matches says whether it passes.
pub struct Firewall;

/// Settings of [`Firewall`].
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Rules, first match first: "accept proto tcp dst 192.0.2.0/24 dport 80-443", "drop src 10.0.0.0/8", "accept proto icmp type 8",
    /// "drop proto tcp flags syn,!ack", "drop fragment later". IPv6 extension headers (proto ah, 0, 43, 44, 60, 135) are walked over:
    /// only rules with an IPv4 address may name them. With track, rules are for packets that belong to no connection yet, unless
    /// they say otherwise: "drop state any src 10.66.0.0/16", "accept state invalid", "drop state established,related dport 23".
    rules: Vec<String>,
    /// A file of further rules, one a line, behind those of rules. It is read again whenever it changes; rules that are wrong
    /// change nothing.
    file: Option<PathBuf>,
    /// A Unix socket by which rules are added, removed and listed while packets go on, a line each: "add 3 drop src 10.0.0.0/8" in
    /// front of the third, without a number behind all; "remove 3", or "remove drop src 10.0.0.0/8"; "list". It answers each.
    control: Option<PathBuf>,
    /// What becomes of IP packets that no rule matches, with track of new ones: accept or drop.
    default: Action,
    /// What becomes of frames that are not IP, such as ARP: accept or drop.
    other: Action,
    /// Knows connections: packets of a connection whose first packet the rules let pass do so too, in either direction, if
    /// their TCP numbers are within the windows, and so do ICMP errors about them. Without it, every packet is new.
    track: Option<Track>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { rules: vec![], file: None, control: None, default: Action::Drop, other: Action::Accept, track: None }
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
const DROPS: [&str; 13] = [
    "refused",
    "refused_by_default",
    "not_ip",
    "malformed_ip",
    "tiny_fragment",
    "malformed_upper",
    "bad_checksum",
    "not_tracked",
    "out_of_window",
    "out_of_state",
    "unrelated_icmp",
    "no_first_fragment",
    "table_full",
];
/// How many of them there are without tracking.
const UNTRACKED: usize = 5;
/// How often new rules are looked for.
const LOOK: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Reason {
    Refused,
    Default,
    NotIp,
    Malformed,
    TinyFragment,
    MalformedUpper,
    BadChecksum,
    NotTracked,
    OutOfWindow,
    OutOfState,
    UnrelatedIcmp,
    NoFirstFragment,
    TableFull,
}

impl Nf for Firewall {
    type Settings = Settings;
    const KIND: &'static str = "firewall";
    const ABOUT: &'static str = "Lets IPv4 and IPv6 packets pass or drops them by the first rule that matches addresses, protocol, ports, ICMP type, TCP \
         flags and fragments, behind up to four VLAN tags, and counts the packets of each rule.";
    const SPREAD: Spread = Spread::Hosts;
    const EXAMPLE: &'static str = "rules = [\n  \"accept proto tcp dst 192.0.2.0/24 dport 80-443\",\n  \"accept proto icmp type 8\",\n  \
         \"drop src 10.0.0.0/8\",\n]\ndefault = \"drop\"";

    fn spread(settings: &Settings) -> Spread {
        if settings.track.is_some() { Spread::Hosts } else { Spread::Any }
    }

    fn build(settings: &Settings, cx: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        let origin = Origin {
            rules: settings.rules.clone(),
            file: settings.file.as_ref().map(|file| cx.path(file)),
            control: settings.control.as_ref().map(|socket| cx.path(socket)),
            tracked: settings.track.is_some(),
            by_default: settings.default,
        };
        let live = cx.common(|| Live::new(origin))?;
        Ok(match &settings.track {
            Some(track) => Either::A(Tracking::new(live, Tracker::new(track)?, settings.other)),
            None => Either::B(Filter::new(live, settings.other)),
        })
    }
}

impl Verdict {
    /// Why packet number `at` is dropped, if it is.
    #[inline(always)]
    fn reason(self, at: usize) -> Option<Reason> {
        let reason = if self.missed >> at & 1 == 0 { Reason::Refused } else { Reason::Default };
        (self.drop >> at & 1 != 0).then_some(reason)
    }
}

/// A firewall without a memory.
struct Filter {
    desk: Box<Desk>,
    seat: Arc<Seat>,
    live: Arc<Live>,
    /// Times that rules were taken, and refused.
    times: [Arc<Counter>; 2],
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
    fn new(live: Arc<Live>, other: Action) -> Self {
        let times = [Arc::<Counter>::default(), Arc::default()];
        let names = ["rules_changed", "rules_refused"];
        // what cannot change is not shown
        let own = names.into_iter().zip(&times).filter(|_| live.may_change());
        let (seat, desk) = live.join(Counter::named(own));
        Filter {
            desk,
            seat,
            live,
            times,
            other,
            keys4: [Key4::new(0.into(), 0.into(), 0, FragmentKind::Whole); BURST],
            keys6: vec![Key6::new(0.into(), 0.into(), 0, FragmentKind::Whole); BURST],
        }
    }

    /// A batch of anything.
    #[inline(never)]
    fn mixed(&mut self, cx: &mut Context<'_>, batch: &mut Batch) {
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
        let (v4, v6) = (self.desk.judge4(&self.keys4[..n4]), self.desk.judge6(&self.keys6[..n6]));
        let (mut at4, mut at6) = (0..n4, 0..n6);
        let mut classes = classes.iter();
        batch.extract_if(
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
        &DROPS[..UNTRACKED]
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        self.desk.counters.clone().unwrap_or_default()
    }

    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        self.seat.renew(&mut self.desk, cx);
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
        let verdict = self.desk.judge4(&self.keys4[..n]);
        if verdict.drop != 0 {
            let mut at = 0..n;
            batch.extract_if(|_| verdict.reason(at.next()?), |reason, packet| cx.drop(reason as u8, packet));
        }
    }

    fn interval(&self) -> Option<Duration> {
        self.live.may_change().then_some(LOOK)
    }

    fn on_timer(&mut self, cx: &mut Context<'_>) {
        self.live.runs();
        self.seat.renew(&mut self.desk, cx);
        let (changed, refused) = self.live.times();
        self.times[0].set(changed);
        self.times[1].set(refused);
    }
}

#[cfg(test)]
mod tests;
