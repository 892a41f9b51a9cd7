//! Forwarding by MAC address.

use crate::ports;
use diagnostics::Diagnostic;
use graph::{BuildContext, Counter, Context, Nf, Node, Spread};
use packet::{BURST, Batch, Packet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tables::flow::{FlowTable, Found, Prepared, Settings as TableSettings};

/// `bridge`: learns who is at which port, and sends each frame there (IEEE 802.1D-2004 §7.7 to §7.9).
pub struct Bridge;

/// Settings of [`Bridge`].
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Its ports, called like those of the file; two to thirty.
    ports: Vec<String>,
    /// MAC addresses that it remembers at most. Frames from others still pass, and those to them go to all ports.
    addresses: usize,
    /// Seconds after which it forgets an address that sends nothing (§7.9.2), up to 4000.
    age: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { ports: vec![], addresses: 16_384, age: 300 }
    }
}

const DROPS: [&str; 3] = ["same_port", "source_group", "malformed_ethernet"];

#[repr(u8)]
enum Reason {
    SamePort,
    /// Nobody's address is one of a group.
    SourceGroup,
    Malformed,
}

/// The unit of the table's time, as a power of two of milliseconds.
const UNIT: u32 = 4;
/// How often a part of the table is looked through, and how long all of it takes.
const TICK: Duration = Duration::from_millis(1);
const ROUND: Duration = Duration::from_secs(4);
/// What other copies have learnt and this one has not heard of yet: who is further behind learns by itself.
const NEWS: usize = 4096;

/// Addresses that a bridge does not forward (§7.12.6): the first ten half bytes of all of them.
const RESERVED: u64 = 0x0180_c200_0000;

/// What is no address.
const NOBODY: u64 = u64::MAX;

/// Where an address is: with the address and when it was seen it takes 16 bytes of the table.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
struct Place {
    port: u8,
    /// The low bytes of when the other copies were told last.
    told: [u8; 3],
}

impl Place {
    fn new(port: u8, now: u32) -> Place {
        let [a, b, c, _] = now.to_le_bytes();
        Place { port, told: [a, b, c] }
    }

    /// How long ago the other copies were told.
    fn untold(self, now: u32) -> u32 {
        let [a, b, c] = self.told;
        now.wrapping_sub(u32::from_le_bytes([a, b, c, 0])) & 0x00ff_ffff
    }
}

/// What copies tell each other: each sees only some of the frames.
#[derive(Default)]
struct News {
    /// Of the last one.
    number: AtomicU64,
    last: Mutex<VecDeque<(u64, u8)>>,
}

#[derive(Default)]
struct Counts {
    addresses: Arc<Counter>,
    learnt: Arc<Counter>,
    moved: Arc<Counter>,
    forgotten: Arc<Counter>,
    table_full: Arc<Counter>,
    flooded: Arc<Counter>,
    not_copied: Arc<Counter>,
}

struct Bridging {
    ports: u8,
    /// Whether there are other copies.
    shared: bool,
    /// In units of the table.
    age: u32,
    table: FlowTable<u64, Place>,
    /// Room for those of a burst.
    sources: [Prepared<u64>; BURST],
    destinations: [Prepared<u64>; BURST],
    news: Arc<News>,
    heard: u64,
    looked: Duration,
    counts: Counts,
}

impl Nf for Bridge {
    type Settings = Settings;
    const KIND: &'static str = "bridge";
    const ABOUT: &'static str = "Learns which MAC address is at which of its ports and sends frames there; what is for nobody that it knows goes to all \
         ports, what is for bridges themselves to its output \"control\".";
    const SPREAD: Spread = Spread::Any;
    const INPUTS: &'static [&'static str] = &[];
    const OUTPUTS: &'static [&'static str] = &["control"];
    const EXAMPLE: &'static str = "ports = [\"lan\", \"wan\"]";

    fn interfaces(settings: &Settings) -> Vec<String> {
        settings.ports.clone()
    }

    fn build(settings: &Settings, cx: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        let Settings { ports, addresses, age } = settings;
        ports::check(ports, "a bridge has two to thirty ports")?;
        if !(1..=4000).contains(age) {
            let d = Diagnostic::new("is no age for addresses").key("age").value(age);
            return Err(d.remedy("write 1 to 4000 seconds"));
        }
        let table = FlowTable::new(&TableSettings::new(*addresses)).map_err(|e| {
            let d = Diagnostic::new(e.to_string()).key("addresses").value(addresses);
            d.remedy("ask for fewer addresses, as far as memory goes")
        })?;
        let news = cx.common(|| Ok(News::default()))?;
        Ok(Bridging {
            ports: ports.len() as u8,
            shared: cx.copy.1 > 1,
            age: (age * 1000) >> UNIT,
            sources: [table.prepare(0); BURST],
            destinations: [table.prepare(0); BURST],
            table,
            heard: news.number.load(Ordering::Acquire),
            news,
            looked: Duration::ZERO,
            counts: Counts::default(),
        })
    }
}

/// The time of the table.
fn clock(now: Duration) -> u32 {
    (now.as_millis() >> UNIT) as u32
}

/// Destination and source, the first byte the highest.
#[inline(always)]
fn addresses(frame: &[u8]) -> Option<(u64, u64)> {
    let header = frame.first_chunk::<14>()?;
    let (dst, src) = (header.first_chunk()?, header.last_chunk()?);
    Some((u64::from_be_bytes(*dst) >> 16, u64::from_be_bytes(*src) >> 16))
}

#[inline(always)]
fn is_group(address: u64) -> bool {
    address >> 40 & 1 != 0
}

/// What becomes of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// It goes out of this port.
    To(u8),
    /// It goes out of all ports but its own.
    All,
    /// It is for bridges.
    Control,
    /// It is for where it comes from.
    SamePort,
}

impl Bridging {
    /// Learns that so many senders are at a port.
    #[inline(always)]
    fn learn(&mut self, senders: usize, port: u8, now: u32) {
        let Bridging { table, sources, counts, news, age, shared, heard, .. } = self;
        let sources = &sources[..senders];
        let mut tell = |address: u64| {
            let mut last = news.last.lock().unwrap_or_else(PoisonError::into_inner);
            if last.len() == NEWS {
                last.pop_front();
            }
            last.push_back((address, port));
            let number = news.number.load(Ordering::Relaxed) + 1;
            news.number.store(number, Ordering::Release);
            // what it says itself it need not hear, if nobody else has spoken meanwhile
            if *heard + 1 == number {
                *heard = number;
            }
        };
        table.look_up_or_insert(
            sources,
            now,
            |_, _| {},
            |n, found| {
                let (place, new) = match found {
                    Found::Known(place) if place.port == port => (place, false),
                    Found::Known(place) => {
                        counts.moved.add(1);
                        (place, true)
                    }
                    Found::New(place) => {
                        counts.learnt.add(1);
                        (place, true)
                    }
                    Found::Refused => return counts.table_full.add(1),
                };
                place.port = port;
                if *shared && (new || place.untold(now) > *age / 2) {
                    *place = Place::new(port, now);
                    tell(sources[n].key());
                }
            },
        );
    }

    /// Hears what the other copies have learnt.
    #[cold]
    fn hear(&mut self, now: u32) {
        let (heard, number) = {
            let last = self.news.last.lock().unwrap_or_else(PoisonError::into_inner);
            let number = self.news.number.load(Ordering::Relaxed);
            let new = ((number - self.heard) as usize).min(last.len());
            (last.range(last.len() - new..).copied().collect::<Vec<_>>(), number)
        };
        self.heard = number;
        for (address, port) in heard {
            let key = [self.table.prepare(address)];
            self.table.look_up_or_insert(
                &key,
                now,
                |_, _| {},
                |_, found| {
                    if let Found::Known(place) | Found::New(place) = found {
                        *place = Place::new(port, now);
                    }
                },
            );
        }
    }

    #[inline(always)]
    fn verdict(&self, input: u8, to: &Prepared<u64>) -> Verdict {
        if is_group(to.key()) {
            return if to.key() & !0xf == RESERVED { Verdict::Control } else { Verdict::All };
        }
        match self.table.read(to) {
            Some(place) if place.port == input => Verdict::SamePort,
            Some(place) => Verdict::To(place.port),
            None => Verdict::All,
        }
    }

    /// Sends a frame out of all ports but one.
    fn flood(&self, cx: &mut Context<'_>, input: u8, packet: Packet) {
        self.counts.flooded.add(1);
        let mut to = (0..self.ports).filter(|port| *port != input);
        let Some(first) = to.next() else { return cx.drop(Reason::SamePort as u8, packet) };
        for port in to {
            match cx.copy(&packet) {
                Some(copy) => cx.emit(port + 1, copy),
                None => self.counts.not_copied.add(1),
            }
        }
        cx.emit(first + 1, packet);
    }
}

impl Node for Bridging {
    fn drops(&self) -> &[&'static str] {
        &DROPS
    }

    fn outputs(&self) -> &[&'static str] {
        Bridge::OUTPUTS
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        let c = &self.counts;
        Counter::named([
            ("addresses", &c.addresses),
            ("learnt", &c.learnt),
            ("moved", &c.moved),
            ("forgotten", &c.forgotten),
            ("table_full", &c.table_full),
            ("flooded", &c.flooded),
            ("not_copied", &c.not_copied),
        ])
    }

    fn process(&mut self, cx: &mut Context<'_>, input: u8, batch: &mut Batch) {
        let now = clock(cx.now());
        if self.shared && self.news.number.load(Ordering::Acquire) != self.heard {
            self.hear(now);
        }
        // frames of one sender, and those for one station, come in trains: each address is looked up once for a train
        let Bridging { table, sources, destinations, .. } = self;
        let (mut frames, mut trains, mut senders) = (0, 0, 0);
        let (mut begins, mut malformed, mut groups) = (0u32, 0u32, 0u32);
        let (mut to, mut from) = (NOBODY, NOBODY);
        batch.for_each(
            #[inline(always)]
            |packet| {
                let at = 1 << frames;
                frames += 1;
                match addresses(packet.data()) {
                    Some((dst, src)) if !is_group(src) => {
                        if dst != to {
                            to = dst;
                            destinations[trains & (BURST - 1)] = table.prepare(dst);
                            trains += 1;
                            begins |= at;
                        }
                        if src != from {
                            from = src;
                            sources[senders & (BURST - 1)] = table.prepare(src);
                            senders += 1;
                        }
                    }
                    Some(_) => groups |= at,
                    None => malformed |= at,
                }
            },
        );
        self.learn(senders.min(BURST), input, now);
        // most go where the first goes that goes anywhere
        let (mut most, mut others, mut rest) = (None, malformed | groups, begins);
        let mut verdicts = [Verdict::All; BURST];
        for (to, verdict) in self.destinations.iter().zip(&mut verdicts).take(trains) {
            let first = rest & rest.wrapping_neg();
            rest ^= first;
            *verdict = self.verdict(input, to);
            let goes_too = match *verdict {
                Verdict::To(port) => *most.get_or_insert(port) == port,
                _ => false,
            };
            if !goes_too {
                // from its first on, to that of the next
                others |= (rest & rest.wrapping_neg()).wrapping_sub(first);
            }
        }
        if others != 0 {
            let train = |n: usize| (begins & (u32::MAX >> (BURST - 1 - n))).count_ones() as usize;
            batch.extract_mask(others, |n, packet| match verdicts[train(n).wrapping_sub(1) & (BURST - 1)] {
                _ if malformed >> n & 1 != 0 => cx.drop(Reason::Malformed as u8, packet),
                _ if groups >> n & 1 != 0 => cx.drop(Reason::SourceGroup as u8, packet),
                Verdict::To(port) => cx.emit(port + 1, packet),
                Verdict::All => self.flood(cx, input, packet),
                Verdict::Control => cx.emit(0, packet),
                Verdict::SamePort => cx.drop(Reason::SamePort as u8, packet),
            });
        }
        cx.leave_by(most.map_or(0, |port| port + 1));
    }

    fn interval(&self) -> Option<Duration> {
        Some(TICK)
    }

    fn on_timer(&mut self, cx: &mut Context<'_>) {
        let now = cx.now();
        let since = now.saturating_sub(core::mem::replace(&mut self.looked, now)).min(ROUND);
        let buckets = self.table.buckets() as f64 * since.as_secs_f64() / ROUND.as_secs_f64();
        let age = self.age;
        let forgotten = self.table.age(clock(now), buckets.ceil() as usize, |_, _, idle| idle >= age);
        self.counts.forgotten.add(forgotten as u64);
        self.counts.addresses.set(self.table.len() as u64);
    }
}

#[cfg(test)]
mod tests;
