//! Policing: limiting rates by dropping or marking packets.

use super::class::{Classes, Match};
use super::headers::Headers;
use super::meter::{Buckets, Colour, CommittedAndExcess, InvalidMeter, Meter, SingleRate, TwoRate};
use super::rates::bits_per_second;
use super::subscriber::{Grouping, Per, SubscriberKey};
use crate::Classification;
use crate::bits::for_each_bit;
use crate::settings::Dscp;
use crate::settings::in_range;
use diagnostics::Diagnostic;
use graph::{BoundedTable, BuildContext, Context, Counter, Named, Nf, Node, Rate, Spread};
use packet::{BURST, Batch};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tables::flow::{CAPACITY_MOST, FlowTable, Lookup, Prepared, Settings as TableSettings};

/// `police`: meters classes of packets and drops or marks those above their rates.
pub struct Police;

/// Settings of [`Police`].
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Classes, up to 64. A packet belongs to the first one that matches; other packets pass without being metered.
    classes: Vec<ClassSettings>,
    /// Maximum number of subscribers per core, of all classes with `per`, 128 bytes each; 1 to 1073741824.
    subscribers: u32,
    /// Action for packets of new subscribers if the table is full.
    full: FullAction,
    /// Bytes that are added to the length of each frame, 0 to 64: 24 for the rate on the link, with FCS, preamble and gap.
    overhead: u8,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { classes: vec![], subscribers: 65_536, full: FullAction::Drop, overhead: 0 }
    }
}

/// Action for new subscribers if the table is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum FullAction {
    /// Drops their packets.
    Drop,
    /// Passes their packets without metering them.
    Pass,
}

/// Kind of a meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
enum MeterKind {
    /// Single rate three colour marker: `cir`, `cbs`, `ebs`.
    #[serde(rename = "rfc2697")]
    SingleRate,
    /// Two rate three colour marker: `cir`, `pir`, `cbs`, `pbs`.
    #[serde(rename = "rfc2698")]
    TwoRate,
    /// Two rate three colour marker for differentiated services: `cir`, `eir`, `cbs`, `ebs`.
    #[serde(rename = "rfc4115")]
    CommittedAndExcess,
}

/// Action for packets of a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Action {
    /// Passes the packet.
    Pass,
    /// Drops the packet.
    Drop,
    /// Sets the DSCP and passes the packet.
    Dscp(Dscp),
}

/// A class.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct ClassSettings {
    /// Name: up to 32 letters, digits, - and _.
    name: String,
    /// Matches, one of which a packet meets. Without matches the class receives all other packets.
    #[serde(rename = "match")]
    matches: Vec<Match>,
    /// Meter: `rfc2697`, `rfc2698` or `rfc4115`.
    meter: MeterKind,
    /// Committed information rate, such as "10 Mbps".
    cir: Option<Rate>,
    /// Peak information rate of `rfc2698`.
    pir: Option<Rate>,
    /// Excess information rate of `rfc4115`.
    eir: Option<Rate>,
    /// Committed burst size in bytes, up to 4294967295.
    cbs: u32,
    /// Excess burst size of `rfc2697` and `rfc4115` in bytes.
    ebs: u32,
    /// Peak burst size of `rfc2698` in bytes.
    pbs: u32,
    /// True if the meter takes the colour of an earlier meter into account.
    colour_aware: bool,
    /// Packets that share a meter: all of the class, or those of a subscriber.
    per: Per,
    /// Prefix length of subscribers with IPv4 addresses, 0 to 32.
    prefix4: u8,
    /// Prefix length of subscribers with IPv6 addresses, 0 to 128.
    prefix6: u8,
    /// Action for green packets.
    green: Action,
    /// Action for yellow packets.
    yellow: Action,
    /// Action for red packets.
    red: Action,
}

impl Default for ClassSettings {
    fn default() -> Self {
        ClassSettings {
            name: String::new(),
            matches: vec![],
            meter: MeterKind::SingleRate,
            cir: None,
            pir: None,
            eir: None,
            cbs: 0,
            ebs: 0,
            pbs: 0,
            colour_aware: false,
            per: Per::All,
            prefix4: 32,
            prefix6: 64,
            green: Action::Pass,
            yellow: Action::Pass,
            red: Action::Drop,
        }
    }
}

graph::named_enum! {
    /// Drop reasons.
    enum DropReason {
        /// The action for the colour of the packet is to drop it.
        Policed = "policed",
        /// The subscriber is new and the table has no room.
        SubscribersFull = "subscribers_full",
    }
}

/// Interval at which a part of the table is searched for meters with full buckets.
const AGEING_INTERVAL: Duration = Duration::from_millis(1);
/// Number of parts: the whole table is searched in a second.
const AGEING_PARTS: usize = 1000;

impl ClassSettings {
    fn meter(&self) -> Result<Meter, Diagnostic> {
        let rate = |rate: Option<Rate>, name| -> Result<u64, Diagnostic> {
            let Some(rate) = rate else { return Ok(0) };
            Ok(bits_per_second(rate, "classes", name)?.div_ceil(8))
        };
        let (cir, pir, eir) = (rate(self.cir, "cir")?, rate(self.pir, "pir")?, rate(self.eir, "eir")?);
        let (cbs, ebs, pbs) = (self.cbs.into(), self.ebs.into(), self.pbs.into());
        let unused = match self.meter {
            MeterKind::SingleRate => [("pir", pir), ("eir", eir), ("pbs", pbs)],
            MeterKind::TwoRate => [("eir", eir), ("ebs", ebs), ("eir", eir)],
            MeterKind::CommittedAndExcess => [("pir", pir), ("pbs", pbs), ("pir", pir)],
        };
        if let Some((name, _)) = unused.into_iter().find(|(_, value)| *value != 0) {
            let d =
                Diagnostic::new(format!("the meter of class {} has no {name}", self.name)).key("classes").value(name);
            return Err(d.remedy("rfc2697 has cir, cbs, ebs; rfc2698 cir, pir, cbs, pbs; rfc4115 cir, eir, cbs, ebs"));
        }
        // such a bucket is never full again, and its subscriber would never be removed
        let burst_without_rate = [("cir", cir, cbs), ("eir", eir, ebs)]
            .into_iter()
            .find(|(_, rate, burst)| self.meter == MeterKind::CommittedAndExcess && *rate == 0 && *burst != 0);
        if let Some((name, ..)) = burst_without_rate {
            let d = Diagnostic::new(format!("the meter of class {} has a burst size without {name}", self.name));
            return Err(d.key("classes").value(name).remedy("write the rate, or a burst size of 0"));
        }
        match self.meter {
            MeterKind::SingleRate => SingleRate::new(cir, cbs, ebs).map(Meter::SingleRate),
            MeterKind::TwoRate => TwoRate::new(cir, pir, cbs, pbs).map(Meter::TwoRate),
            MeterKind::CommittedAndExcess => CommittedAndExcess::new(cir, eir, cbs, ebs).map(Meter::CommittedAndExcess),
        }
        .map_err(|e: InvalidMeter| {
            let d = Diagnostic::new(format!("invalid meter: {e}")).key("classes").value(&self.name);
            d.remedy("write for example cir = \"10 Mbps\", cbs = 20000, ebs = 0")
        })
    }
}

/// A class of a node.
struct Class {
    meter: Meter,
    colour_aware: bool,
    grouping: Grouping,
    actions: [Action; 3],
    /// Packets by colour.
    counters: [Arc<Counter>; 3],
    /// Meter of the class if it has no subscribers.
    buckets: Buckets,
}

impl Nf for Police {
    type Settings = Settings;
    const KIND: &'static str = "police";
    const ABOUT: &'static str = "Meters classes of packets or single subscribers by three-colour markers (RFC 2697, \
        RFC 2698, RFC 4115) and drops or marks packets by colour.";
    const SPREAD: Spread = Spread::Flow;
    const EXAMPLE: &'static str =
        "classes = [{ name = \"all\", per = \"source\", cir = \"10 Mbps\", cbs = 20000, ebs = 20000 }]";

    fn build(settings: &Settings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        let Settings { classes, subscribers, full, overhead } = settings;
        let of_class = |class: &ClassSettings| -> Result<Class, Diagnostic> {
            let prefix = |length: u8, most, name| in_range(length.into(), 0..=most, "classes", name).map(|_| length);
            let grouping = Grouping {
                per: class.per,
                prefix4: prefix(class.prefix4, 32, "prefix4")?,
                prefix6: prefix(class.prefix6, 128, "prefix6")?,
            };
            let meter = class.meter()?;
            Ok(Class {
                meter,
                colour_aware: class.colour_aware,
                grouping,
                actions: [class.green, class.yellow, class.red],
                counters: Default::default(),
                buckets: meter.start(0),
            })
        };
        let matches = Classes::new(classes.iter().map(|class| (class.name.as_str(), class.matches.as_slice())))?;
        let states = classes.iter().map(of_class).collect::<Result<Box<[_]>, _>>()?;
        in_range((*overhead).into(), 0..=64, "overhead", "the overhead")?;
        let has_subscribers = classes.iter().any(|class| class.per != Per::All);
        let capacity = if has_subscribers { *subscribers } else { 1 };
        let table = FlowTable::new(&TableSettings::new(capacity as usize)).map_err(|e: tables::flow::Error| {
            let remedy = format!("write 1 to {CAPACITY_MOST}, as memory permits");
            Diagnostic::new(e.to_string()).key("subscribers").value(subscribers).remedy(remedy)
        })?;
        Ok(PoliceNode {
            names: classes.iter().map(|class| class.name.clone()).collect(),
            matches,
            classes: states,
            has_subscribers,
            keys: [table.prepare(SubscriberKey::default()); BURST],
            table,
            full: *full,
            overhead: (*overhead).into(),
            bounded: BoundedTable::new("subscribers", capacity.into()),
        })
    }
}

struct PoliceNode {
    names: Box<[String]>,
    matches: Classes,
    classes: Box<[Class]>,
    has_subscribers: bool,
    table: FlowTable<SubscriberKey, Buckets>,
    /// Subscribers of packets of the present batch.
    keys: [Prepared<SubscriberKey>; BURST],
    full: FullAction,
    overhead: u64,
    bounded: BoundedTable,
}

/// A packet that is metered.
#[derive(Clone, Copy, Default)]
struct Metered {
    bytes: u32,
    class: u8,
    /// Number of the colour that the packet had before.
    before: u8,
    /// Number of the colour.
    colour: u8,
}

impl Class {
    /// Meters a packet. Returns true if it is to be changed or dropped.
    #[inline(always)]
    fn meter(&self, buckets: &mut Buckets, packet: &mut Metered, now: u64) -> bool {
        let seen = if self.colour_aware { Colour::from_number(packet.before) } else { Colour::Green };
        let colour = self.meter.check(buckets, now, packet.bytes.into(), seen);
        self.counters[colour as usize].add(1);
        packet.colour = colour as u8;
        packet.before != colour as u8 || self.actions[colour as usize] != Action::Pass
    }
}

impl PoliceNode {
    /// Performs the actions for some packets of a batch. Returns the set of those to be dropped.
    fn act(&self, batch: &mut Batch, packets: &[Metered; BURST], changed: u64) -> u64 {
        let mut dropped = 0;
        for_each_bit(changed, |at| {
            let Metered { class, before, colour, .. } = packets[at];
            let (Some(class), Some(packet)) = (self.classes.get(usize::from(class)), batch.as_mut_slice().get_mut(at))
            else {
                return;
            };
            match class.actions[usize::from(colour)] {
                Action::Drop => {
                    dropped |= 1 << at;
                    return;
                }
                Action::Pass => {}
                Action::Dscp(dscp) => Headers::of(packet).set_dscp(packet.data_mut(), dscp.number()),
            }
            if before != colour {
                let mut classification: Classification = packet.meta().metadata().unwrap_or_default();
                classification.colour = colour;
                packet.meta_mut().set_metadata(classification);
            }
        });
        dropped
    }
}

impl Node for PoliceNode {
    fn drops(&self) -> &[&'static str] {
        DropReason::NAMES
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        let of_class = |(name, class): (&String, &Class)| {
            let named = |(colour, counter): (&str, &Arc<Counter>)| (format!("{name}_{colour}"), counter.clone());
            Colour::NAMES.into_iter().zip(&class.counters).map(named).collect::<Vec<_>>()
        };
        self.names.iter().zip(&self.classes).flat_map(of_class).collect()
    }

    fn bounded_tables(&self) -> Vec<BoundedTable> {
        if self.has_subscribers { vec![self.bounded.clone()] } else { vec![] }
    }

    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        let now = cx.now().as_nanos() as u64;
        let PoliceNode { matches, classes, table, keys, overhead, full, .. } = self;
        let mut packets = [Metered::default(); BURST];
        // packets that are to be changed or dropped, and those of subscribers without room
        let (mut changed, mut refused) = (0_u64, 0_u64);
        // position of the packet of each key
        let (mut positions, mut n, mut at) = ([0_u8; BURST], 0, 0);
        // the entries of all subscribers are prefetched before the first one is read
        batch.for_each(
            #[inline(always)]
            |packet| {
                let (position, headers) = (at & (BURST - 1), Headers::of(packet));
                at += 1;
                let Some(number) = matches.find(&headers) else { return };
                let Some(class) = classes.get_mut(number) else { return };
                let bytes = packet.len() as u32 + *overhead as u32;
                let before = headers.classification.colour;
                packets[position] = Metered { bytes, class: number as u8, before, colour: before };
                if class.grouping.per == Per::All {
                    let mut buckets = class.buckets;
                    changed |= u64::from(class.meter(&mut buckets, &mut packets[position], now)) << position;
                    class.buckets = buckets;
                } else {
                    keys[n & (BURST - 1)] = table.prepare(class.grouping.key(number as u8, headers.tuple.as_ref()));
                    positions[n & (BURST - 1)] = position as u8;
                    n += 1;
                }
            },
        );
        // the flow table has a clock of its own; removal depends on the buckets only
        table.look_up_or_insert(
            &keys[..n.min(BURST)],
            (now / 1_000_000) as u32,
            |_, _| {},
            #[inline(always)]
            |key, found| {
                let position = usize::from(positions[key & (BURST - 1)]) & (BURST - 1);
                let packet = &mut packets[position];
                let Some(class) = classes.get(usize::from(packet.class)) else { return };
                let buckets = match found {
                    Lookup::Known(buckets) => buckets,
                    Lookup::New(buckets) => {
                        *buckets = class.meter.start(now);
                        buckets
                    }
                    Lookup::Refused => return refused |= u64::from(*full == FullAction::Drop) << position,
                };
                changed |= u64::from(class.meter(buckets, packet, now)) << position;
            },
        );
        let dropped = refused | self.act(batch, &packets, changed);
        if dropped != 0 {
            batch.extract_mask(dropped, |at, packet| {
                let is_refused = refused >> at & 1 != 0;
                cx.drop(if is_refused { DropReason::SubscribersFull } else { DropReason::Policed }, packet);
            });
        }
    }

    fn interval(&self) -> Option<Duration> {
        self.has_subscribers.then_some(AGEING_INTERVAL)
    }

    fn on_timer(&mut self, cx: &mut Context<'_>) {
        let now = cx.now().as_nanos() as u64;
        let (classes, buckets) = (&self.classes, self.table.buckets().div_ceil(AGEING_PARTS));
        // a subscriber with full buckets is like a new one
        let is_full = |key: &SubscriberKey, buckets: &Buckets| {
            classes.get(usize::from(key.class())).is_none_or(|class| class.meter.is_full(buckets, now))
        };
        self.table.age((now / 1_000_000) as u32, buckets, |key, buckets, _| is_full(key, buckets));
        self.bounded.entries.set(self.table.len() as u64);
    }
}

#[cfg(test)]
mod tests;
