//! Network address and port translation, for a home or a carrier.
//!
//! A session has two entries, one for each direction, in two tables, each found by the addresses and ports of its packets:
//! a packet costs one look-up. What is mapped, who has which ports, and what filters is asked only when a session begins.

pub(crate) mod flow;
mod ipfix;
pub(crate) mod ledger;
mod log;
mod look;
pub(crate) mod ports;
pub(crate) mod sessions;
pub(crate) mod settings;

use crate::fragments::{Fragments, Waited, Waiting};
use diagnostics::Diagnostic;
use flow::{Flow, Translation, Way};
use graph::{StatsTable, BuildContext, Counter, Context, Lane, Nf, Node, Spread};
use ledger::{Ledger, Subscribers, TICK};
use look::{Datagram, Outer, Place, Seen, look};
use packet::{BURST, Batch};
use ports::{NoPort, Ports};
use sessions::{Refused, Sessions, clock};
use settings::{Config, Unmatched};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;
use tables::flow::{Prepared, Tuple4};
use wire::IpProtocol;

use settings::Settings;

/// `nat44`: translates addresses and ports between an inside and an outside (RFC 3022, RFC 4787, RFC 5382, RFC 5508).
pub struct Nat44;

/// Names of drop reasons, in the order of [`Reason`].
const DROPS: [&str; 15] = [
    "no_session",
    "filtered",
    "not_syn",
    "no_port",
    "too_many_sessions",
    "too_many_subscribers",
    "table_full",
    "no_hairpin",
    "malformed_ip",
    "tiny_fragment",
    "unknown_fragment",
    "other_protocol",
    "bad_icmp_error",
    "unknown_icmp_error",
    "spoofed",
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Reason {
    NoSession,
    Filtered,
    NotSyn,
    NoPort,
    Sessions,
    Subscribers,
    Full,
    NoHairpin,
    Malformed,
    Tiny,
    Fragment,
    Protocol,
    BadError,
    UnknownError,
    Spoofed,
}

impl From<Refused> for Reason {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Unknown => Reason::NoSession,
            Refused::Filtered => Reason::Filtered,
            Refused::NotSyn => Reason::NotSyn,
            Refused::Full => Reason::Full,
            Refused::NoPort(NoPort::Ports) => Reason::NoPort,
            Refused::NoPort(NoPort::Sessions) => Reason::Sessions,
            Refused::NoPort(NoPort::Subscribers) => Reason::Subscribers,
        }
    }
}

/// Inputs.
const INSIDE: u8 = 0;
const OUTSIDE: u8 = 1;
/// Subscribers are known by their addresses.
struct Addresses;

impl Subscribers for Addresses {
    fn ip(&self, number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }
}

impl Nf for Nat44 {
    type Settings = Settings;
    const KIND: &'static str = "nat44";
    const ABOUT: &'static str = "Translates IPv4 addresses and ports between subscribers (input inside) and the world (input outside): TCP, UDP, ICMP with \
         its errors, fragments, port blocks, forwards.";
    const SPREAD: Spread = Spread::Custom;
    const INPUTS: &'static [&'static str] = &["inside", "outside"];
    const EXAMPLE: &'static str =
        "external = [\"203.0.113.1\"]\ninside = [\"10.0.0.0/8\"]\nforward = [\"tcp 203.0.113.1:8080 -> 10.0.0.5:80\"]";

    fn lane(settings: &Settings, copies: usize) -> Option<Lane> {
        let config = Config::new(settings).ok()?;
        Some(Arc::new(move |input, frame| {
            let way = if input == INSIDE { Way::Out } else { Way::In };
            known_by(frame, way).map_or(0, |flow| config.lane(way == Way::Out, &flow, copies))
        }))
    }

    fn build(settings: &Settings, cx: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        let config = cx.common(|| Config::new(settings))?;
        let own = config.own(cx)?;
        let ledger = Ledger::new(&config, cx, false)?;
        let seed = foldhash::fast::RandomState::default();
        let seed = std::hash::BuildHasher::hash_one(&seed, cx.copy.0);
        let sessions = Sessions::new(&config, Ports::new(config.clone(), own, seed), ledger.tells_sessions(&config))?;
        let empty = [sessions.outwards.prepare(Tuple4::default()); BURST];
        Ok(Translating {
            fragments: Fragments::new(config.fragments),
            sessions,
            config,
            keys: empty,
            waiting: Waiting::new(),
            ledger,
        })
    }
}

/// Calls `f` with the number of each bit, from the lowest on.
#[inline(always)]
pub(crate) fn each(mut bits: u32, mut f: impl FnMut(usize)) {
    while bits != 0 {
        f(bits.trailing_zeros() as usize & (BURST - 1));
        bits &= bits - 1;
    }
}

/// The flow by which a packet is one copy's: of an error that of what it quotes, turned round.
fn known_by(frame: &[u8], way: Way) -> Option<Flow> {
    match look(frame).0 {
        Seen::Packet(_, flow, ..) => Some(flow),
        Seen::Later(_, d) => Some(Flow { src: d.src, dst: d.dst, src_port: 0, dst_port: 0, protocol: d.protocol }),
        Seen::Error(_, outer, quoted) => match way {
            Way::Out => Some(quoted.reversed()),
            Way::In => Some(Flow { dst: outer.dst, ..quoted.reversed() }),
        },
        _ => None,
    }
}

struct Translating {
    config: Arc<Config>,
    sessions: Sessions,
    /// Of the packets of a batch.
    keys: [Prepared<Tuple4>; BURST],
    fragments: Fragments<Datagram, Translation>,
    /// Fragments that came before the first.
    waiting: Waiting<Datagram>,
    ledger: Ledger,
}

/// What becomes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// It goes on.
    Pass,
    /// It goes back to where the subscribers are.
    Turn,
    /// It waits for the first of its datagram.
    Wait(Datagram),
    Drop(Reason),
    /// Nobody inside has asked for it, or it is not for an external address: this destination.
    Nobody(u32),
}

impl Translating {
    /// Any packet from inside.
    fn outwards(&mut self, (seen, ends): &(Seen, Option<Outer>), frame: &mut [u8], now: Duration) -> Verdict {
        let clock = clock(now);
        match *seen {
            Seen::Packet(_, flow, look::ANSWER, _) if flow.protocol == IpProtocol::ICMPV4.0 => {
                self.stays(flow.src).unwrap_or(Verdict::Drop(Reason::NoSession))
            }
            Seen::Packet(place, flow, flags, first) => {
                let turns = self.config.hairpin && self.config.number(flow.dst).is_some();
                let t = match self.sessions.find(&flow, Way::Out, flags, clock) {
                    Some(t) => t,
                    None => match self.stays(flow.src) {
                        Some(verdict) => return verdict,
                        None => match self.sessions.begin_out(&flow, flags, turns, clock) {
                            Ok(t) => {
                                self.ledger.counts.begun.add(1);
                                t
                            }
                            Err(refused) => return Verdict::Drop(refused.into()),
                        },
                    },
                };
                self.learn(first, Way::Out, t, now);
                look::packet(frame, &place, &t, Way::Out);
                self.turned(frame, flow.dst, now)
            }
            Seen::Later(place, datagram) => match self.fragments.get(datagram, Way::Out) {
                Some(t) => {
                    look::address(frame, &place, &t, Way::Out);
                    self.turned(frame, datagram.dst, now)
                }
                None => self.stays(datagram.src).unwrap_or(Verdict::Wait(datagram)),
            },
            Seen::Error(place, outer, quoted) => self.error(frame, &place, outer, &quoted, Way::Out, now),
            // what is no subscriber's is not ours to judge
            seen => ends.and_then(|ends| self.stays(ends.src)).unwrap_or_else(|| self.rest(seen)),
        }
    }

    /// What is no subscriber's passes as it is, or stays where it is.
    fn stays(&self, src: u32) -> Option<Verdict> {
        let own = self.config.number(src).is_some();
        if !own && self.config.is_inside(src) {
            return None;
        }
        self.ledger.counts.untranslated.add(1);
        Some(Verdict::Pass)
    }

    /// Whether a packet that was translated turns round: to a subscriber by an external address.
    fn turned(&mut self, frame: &mut [u8], dst: u32, now: Duration) -> Verdict {
        if !self.config.hairpin || self.config.number(dst).is_none() {
            return Verdict::Pass;
        }
        match self.inwards(&look(frame), frame, now) {
            Verdict::Pass => {
                self.ledger.counts.hairpinned.add(1);
                Verdict::Turn
            }
            // the one it is for is another copy's, or nobody's
            Verdict::Nobody(_) => Verdict::Drop(Reason::NoHairpin),
            // it is half translated: it cannot be looked at again
            Verdict::Wait(_) => Verdict::Drop(Reason::Fragment),
            other => other,
        }
    }

    /// Any packet from outside.
    fn inwards(&mut self, (seen, ends): &(Seen, Option<Outer>), frame: &mut [u8], now: Duration) -> Verdict {
        let clock = clock(now);
        match *seen {
            // only answers come in (RFC 5508 §3)
            Seen::Packet(_, flow, flags, _) if flow.protocol == IpProtocol::ICMPV4.0 && flags != look::ANSWER => {
                Verdict::Nobody(flow.dst)
            }
            Seen::Packet(place, flow, flags, first) => {
                let t = match self.sessions.find(&flow, Way::In, flags, clock) {
                    Some(t) => t,
                    None => match self.sessions.begin_in(&flow, flags, clock) {
                        Ok(t) => {
                            self.ledger.counts.begun.add(1);
                            t
                        }
                        Err(Refused::Unknown) => return Verdict::Nobody(flow.dst),
                        Err(refused) => return Verdict::Drop(refused.into()),
                    },
                };
                self.learn(first, Way::In, t, now);
                look::packet(frame, &place, &t, Way::In);
                Verdict::Pass
            }
            Seen::Later(place, datagram) => match self.fragments.get(datagram, Way::In) {
                Some(t) => {
                    look::address(frame, &place, &t, Way::In);
                    Verdict::Pass
                }
                None if self.config.number(datagram.dst).is_none() => Verdict::Nobody(datagram.dst),
                None => Verdict::Wait(datagram),
            },
            Seen::Error(place, outer, quoted) => self.error(frame, &place, outer, &quoted, Way::In, now),
            seen => match (ends, self.rest(seen)) {
                (Some(ends), Verdict::Drop(reason)) => match self.unmatched(ends.dst) {
                    Verdict::Pass => Verdict::Nobody(ends.dst),
                    _ => Verdict::Drop(reason),
                },
                (_, verdict) => verdict,
            },
        }
    }

    /// A packet from outside that nobody has asked for.
    fn unmatched(&self, dst: u32) -> Verdict {
        // what is for another address is not ours to judge
        if self.config.number(dst).is_none() || self.config.unmatched == Unmatched::Pass {
            return Verdict::Pass;
        }
        Verdict::Drop(Reason::NoSession)
    }

    fn learn(&mut self, first: Option<Datagram>, way: Way, t: Translation, now: Duration) {
        if let Some(datagram) = first {
            self.fragments.learn(datagram, way, t, now);
            self.waiting.come(datagram);
            self.ledger.counts.fragments.set(self.fragments.len() as u64);
        }
    }

    /// An ICMP error about a packet of a session: what it quotes is translated back (RFC 5508 §4.2, §4.3).
    fn error(
        &mut self,
        frame: &mut [u8],
        place: &Place,
        outer: Outer,
        quoted: &Flow,
        way: Way,
        now: Duration,
    ) -> Verdict {
        // packets that answer the quoted one go the way of the error
        let Some(t) = self.sessions.peek(&quoted.reversed(), way) else {
            return match way {
                Way::In => match self.unmatched(outer.dst) {
                    Verdict::Drop(_) => Verdict::Drop(Reason::UnknownError),
                    _ => Verdict::Nobody(outer.dst),
                },
                Way::Out => self.stays(outer.src).unwrap_or(Verdict::Drop(Reason::UnknownError)),
            };
        };
        look::error(frame, place, &t, way, t.address());
        match way {
            Way::Out => self.turned(frame, outer.dst, now),
            Way::In => Verdict::Pass,
        }
    }

    /// What has no session.
    fn rest(&self, seen: Seen) -> Verdict {
        match seen {
            Seen::Malformed => Verdict::Drop(Reason::Malformed),
            Seen::Tiny => Verdict::Drop(Reason::Tiny),
            Seen::Unknown => Verdict::Drop(Reason::Protocol),
            Seen::BadError => Verdict::Drop(Reason::BadError),
            _ => {
                self.ledger.counts.untranslated.add(1);
                Verdict::Pass
            }
        }
    }

    fn any(&mut self, seen: &(Seen, Option<Outer>), frame: &mut [u8], input: u8, now: Duration) -> Verdict {
        if input == INSIDE {
            return self.outwards(seen, frame, now);
        }
        // nobody outside has an inside address, or one of ours, or knows a way to one inside
        if seen.1.is_some_and(|ends| self.config.is_foreign(ends.src, ends.dst)) {
            return Verdict::Drop(Reason::Spoofed);
        }
        match self.inwards(seen, frame, now) {
            Verdict::Nobody(dst) => {
                let verdict = self.unmatched(dst);
                self.ledger.counts.untranslated.add(u64::from(verdict == Verdict::Pass));
                verdict
            }
            verdict => verdict,
        }
    }

    /// Those of a batch that are not plain, or whose session is not known, or has to hear of them.
    #[inline(never)]
    fn others(&mut self, cx: &mut Context<'_>, input: u8, batch: &mut Batch, others: u32) {
        let now = cx.now();
        let mut seen = [const { None }; BURST];
        // all are looked at first: what one asks of memory comes while the next is looked at
        each(others, |i| {
            let looked = look(batch.as_mut_slice()[i].data());
            if let Seen::Error(_, _, quoted) = &looked.0 {
                let table = if input == INSIDE { &self.sessions.outwards } else { &self.sessions.inwards };
                table.prepare(quoted.reversed().key());
            }
            seen[i] = Some(looked);
        });
        let mut verdicts = [Verdict::Pass; BURST];
        let mut part = 0u32;
        each(others, |i| {
            let Some(seen) = &seen[i] else { return };
            let verdict = self.any(seen, batch.as_mut_slice()[i].data_mut(), input, now);
            part |= u32::from(!matches!(verdict, Verdict::Pass)) << i;
            verdicts[i] = verdict;
        });
        if part != 0 {
            let (way, since) = (cx.path(), cx.now());
            batch.extract_mask(part, |i, packet| {
                self.dispose(cx, verdicts[i & (BURST - 1)], Waited { way, input, since, packet });
            });
        }
        for mut waited in self.waiting.ready(cx) {
            let verdict = self.any(&look(waited.packet.data()), waited.packet.data_mut(), waited.input, now);
            self.dispose(cx, verdict, waited);
        }
        self.ledger.tell(&mut self.sessions, &mut Addresses);
    }

    /// Does with a packet what its verdict says.
    fn dispose(&mut self, cx: &mut Context<'_>, verdict: Verdict, it: Waited) {
        match verdict {
            Verdict::Pass => cx.emit_from(it.way, 0, it.packet),
            Verdict::Turn => match cx.path_by_input(OUTSIDE) {
                Some(way) => cx.emit_from(way, 0, it.packet),
                None => cx.drop(Reason::NoHairpin as u8, it.packet),
            },
            Verdict::Wait(datagram) => {
                if let Err(packet) = self.waiting.keep(cx, it, datagram) {
                    cx.drop(Reason::Fragment as u8, packet);
                }
            }
            Verdict::Drop(reason) => cx.drop(reason as u8, it.packet),
            Verdict::Nobody(_) => cx.drop(Reason::NoSession as u8, it.packet),
        }
    }
}

impl Node for Translating {
    fn drops(&self) -> &[&'static str] {
        &DROPS
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        self.ledger.counters()
    }

    fn process(&mut self, cx: &mut Context<'_>, input: u8, batch: &mut Batch) {
        let way = if input == INSIDE { Way::Out } else { Way::In };
        let now = clock(cx.now());
        let Translating { sessions, keys, .. } = self;
        let table = if way == Way::Out { &mut sessions.outwards } else { &mut sessions.inwards };
        let mut place = 0usize;
        batch.for_each(
            #[inline(always)]
            |packet| {
                // what is not plain has a key that no session has
                let key = flow::plain(packet.data()).unwrap_or_default();
                keys[place & (BURST - 1)] = table.prepare(key);
                place += 1;
            },
        );
        let packets = batch.as_mut_slice();
        let mut done = 0u32;
        let keys = &keys[..place.min(BURST)];
        match way {
            Way::Out => table.look_up(
                keys,
                now,
                #[inline(always)]
                |i, t| {
                    if let Some(packet) = packets.get_mut(i) {
                        done |= u32::from(flow::rewrite(packet.data_mut(), t, Way::Out)) << (i & (BURST - 1));
                    }
                },
            ),
            Way::In => table.look_up(
                keys,
                now,
                #[inline(always)]
                |i, t| {
                    if let Some(packet) = packets.get_mut(i) {
                        done |= u32::from(flow::rewrite(packet.data_mut(), t, Way::In)) << (i & (BURST - 1));
                    }
                },
            ),
        }
        let others = ((1u64 << place) - 1) as u32 & !done;
        if others != 0 {
            self.others(cx, input, batch, others);
        }
    }

    fn interval(&self) -> Option<Duration> {
        Some(TICK)
    }

    fn on_timer(&mut self, cx: &mut Context<'_>) {
        let now = cx.now();
        self.ledger.age(&mut self.sessions, now);
        self.fragments.age(now);
        self.ledger.counts.fragments.set(self.fragments.len() as u64);
        self.waiting.give_up(cx, Reason::Fragment as u8);
        self.ledger.show_by_and_by(&self.sessions, &Addresses, now);
        self.ledger.tell(&mut self.sessions, &mut Addresses);
    }

    fn stats_table(&self) -> Option<Arc<StatsTable>> {
        Some(self.ledger.board())
    }

    fn finish(&mut self) {
        self.ledger.tell(&mut self.sessions, &mut Addresses);
        self.ledger.show(&self.sessions, &Addresses);
    }
}

#[cfg(test)]
mod tests;
