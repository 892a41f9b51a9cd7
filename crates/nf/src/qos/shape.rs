//! Shaping: delaying packets so that they are sent at a rate.

use super::class::{Classes, Match};
use super::gaps::{BINS, Gaps};
use super::headers::Headers;
use super::pacer::Pacer;
use super::rates::bits_per_second;
use crate::settings::in_range;
use diagnostics::Diagnostic;
use graph::{BuildContext, Context, Counter, HoldQueue, Named, Nf, Node, Rate, Spread, StatsTable, TakeOver};
use packet::{Batch, Packet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// `shape`: delays classes of packets so that they are sent at a rate.
pub struct Shape;

/// Settings of [`Shape`].
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Classes, up to 64. A packet belongs to the first one that matches; other packets are not delayed.
    classes: Vec<ClassSettings>,
    /// Bytes that are added to the length of each frame, 0 to 64: 24 for the rate on the link, with FCS, preamble and gap.
    overhead: u8,
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
    /// Rate at which packets are sent, such as "100 Mbps".
    rate: Option<Rate>,
    /// Bytes that may be sent at once after a pause, up to 4294967295. One packet may always be sent.
    burst: u32,
    /// Maximum number of packets that wait, per core, 1 to 1048576; each of them occupies a buffer.
    packets: u32,
    /// Maximum number of bytes that wait, per core, 2048 to 4294967295.
    bytes: u32,
}

impl Default for ClassSettings {
    fn default() -> Self {
        ClassSettings { name: String::new(), matches: vec![], rate: None, burst: 0, packets: 1024, bytes: 1 << 20 }
    }
}

graph::named_enum! {
    /// Drop reasons.
    enum DropReason {
        /// The queue of the class is full.
        QueueFull = "queue_full",
        /// A reload has removed the class.
        Reload = "reload",
    }
}

/// Interval at which packets that are due are sent.
const INTERVAL: Duration = Duration::from_micros(20);
/// Interval in nanoseconds at which the histograms are published.
const PUBLISH_INTERVAL: u64 = 1_000_000_000;
/// Name of the gauge of packets that wait.
const QUEUED: &str = "queued";
/// Maximum number of packets of removed classes that are dropped at once.
const DROP_BATCH: usize = 1024;
const COLUMNS: [&str; 4] = ["class", "gap below µs", "packets", "histogram"];
/// Characters of the longest bar of a histogram.
const BAR: u64 = 30;

/// A class of a node.
struct Class {
    name: String,
    pacer: Pacer,
    /// Queue, whose length `max_packets` limits.
    queue: HoldQueue,
    max_packets: usize,
    /// Time of arrival in nanoseconds, and bytes with overhead, of each packet in the queue.
    waiting: VecDeque<(u64, u32)>,
    /// Bytes that wait.
    bytes: u64,
    max_bytes: u64,
    gaps: Gaps,
    /// Packets that were delayed.
    delayed: Arc<Counter>,
}

impl Nf for Shape {
    type Settings = Settings;
    const KIND: &'static str = "shape";
    const ABOUT: &'static str = "Delays classes of packets in bounded queues so that they are sent at a rate.";
    const SPREAD: Spread = Spread::Flow;
    const TAKES_OVER: Option<TakeOver> =
        Some(TakeOver { state: "waiting packets of classes with the same name", unless: &[], format: None });
    const EXAMPLE: &'static str = "classes = [{ name = \"all\", rate = \"100 Mbps\", burst = 3000 }]";

    fn build(settings: &Settings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        let Settings { classes, overhead } = settings;
        in_range((*overhead).into(), 0..=64, "overhead", "the overhead")?;
        let of_class = |class: &ClassSettings| {
            let Some(rate) = class.rate else {
                let d = Diagnostic::new("the class has no rate").key("classes").value(&class.name);
                return Err(d.remedy("write for example rate = \"100 Mbps\""));
            };
            let rate = bits_per_second(rate, "classes", "the rate")?;
            let packets = in_range(class.packets.into(), 1..=1 << 20, "classes", "packets")?;
            Ok(Class {
                name: class.name.clone(),
                pacer: Pacer::new(rate, class.burst.into()),
                queue: HoldQueue::new(usize::MAX),
                max_packets: packets as usize,
                waiting: VecDeque::new(),
                bytes: 0,
                max_bytes: in_range(class.bytes.into(), 2048..=u32::MAX.into(), "classes", "bytes")?,
                gaps: Gaps::default(),
                delayed: Arc::default(),
            })
        };
        let matches = Classes::new(classes.iter().map(|class| (class.name.as_str(), class.matches.as_slice())))?;
        let classes = classes.iter().map(of_class).collect::<Result<Box<[_]>, _>>()?;
        let rows = BINS * classes.len();
        Ok(ShapeNode {
            matches,
            classes,
            overhead: (*overhead).into(),
            published: 0,
            stats_table: Arc::new(StatsTable::new(&COLUMNS, rows)),
            queued: Arc::default(),
            removed: vec![],
        })
    }
}

struct ShapeNode {
    matches: Classes,
    classes: Box<[Class]>,
    overhead: u32,
    /// Time in nanoseconds at which the histograms were published.
    published: u64,
    stats_table: Arc<StatsTable>,
    /// Packets that wait.
    queued: Arc<Counter>,
    /// Queues of classes that a reload has removed.
    removed: Vec<HoldQueue>,
}

impl Class {
    /// Takes the packets of the class of this name of another node.
    fn take_over(&mut self, old: &mut Class) {
        core::mem::swap(&mut self.queue, &mut old.queue);
        core::mem::swap(&mut self.waiting, &mut old.waiting);
        core::mem::swap(&mut self.gaps, &mut old.gaps);
        self.bytes = core::mem::take(&mut old.bytes);
        self.pacer = self.pacer.resume(old.pacer.next_at());
    }

    /// Sends or queues a packet that has arrived.
    fn put(&mut self, cx: &mut Context<'_>, packet: Packet, now: u64, overhead: u32) {
        let bytes = packet.len() as u32 + overhead;
        if self.queue.is_empty() && self.pacer.next() <= now {
            self.pacer.send(now, bytes.into());
            self.gaps.add(now);
            return cx.emit(0, packet);
        }
        if self.queue.len() >= self.max_packets || self.bytes + u64::from(bytes) > self.max_bytes {
            return cx.drop(DropReason::QueueFull, packet);
        }
        match cx.hold(&mut self.queue, packet) {
            Ok(()) => {
                self.waiting.push_back((now, bytes));
                self.bytes += u64::from(bytes);
                self.delayed.add(1);
            }
            Err(packet) => cx.drop(DropReason::QueueFull, packet),
        }
    }

    /// Sends the packets that are due.
    fn release(&mut self, cx: &mut Context<'_>, now: u64) {
        while !self.queue.is_empty() && self.pacer.next() <= now {
            let Some((path, packet)) = cx.release(&mut self.queue) else { break };
            let (since, bytes) = self.waiting.pop_front().unwrap_or((now, packet.len() as u32));
            self.bytes = self.bytes.saturating_sub(bytes.into());
            self.pacer.send(since, bytes.into());
            self.gaps.add(now);
            cx.emit_on_path(path, 0, packet);
        }
    }
}

impl ShapeNode {
    /// Drops packets of classes that a reload has removed.
    #[cold]
    fn drop_removed(&mut self, cx: &mut Context<'_>) {
        let Some(queue) = self.removed.last_mut() else { return };
        for _ in 0..DROP_BATCH {
            match cx.release(queue) {
                Some((_, packet)) => cx.drop(DropReason::Reload, packet),
                None => {
                    self.removed.pop();
                    return;
                }
            }
        }
    }

    fn publish(&self) {
        let rows = |class: &Class| {
            let most = class.gaps.bins().map(|(_, packets)| packets).max().unwrap_or(1);
            let row = |(below, packets): (Option<u64>, u64)| {
                let below = below.map_or("more".to_owned(), |below| below.to_string());
                let bar = "#".repeat((u128::from(packets) * u128::from(BAR)).div_ceil(most.into()) as usize);
                vec![class.name.clone(), below, packets.to_string(), bar]
            };
            class.gaps.bins().map(row).collect::<Vec<_>>()
        };
        // rows are shown by descending key: classes in the order of the file, and gaps from the shortest on
        let keys = (0..u64::MAX).rev();
        self.stats_table.publish(keys.zip(self.classes.iter().flat_map(rows)).collect());
    }
}

impl Node for ShapeNode {
    fn drops(&self) -> &[&'static str] {
        DropReason::NAMES
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        let delayed = |class: &Class| (format!("{}_delayed", class.name), class.delayed.clone());
        let queued = (QUEUED.to_owned(), self.queued.clone());
        self.classes.iter().map(delayed).chain([queued]).collect()
    }

    fn gauges(&self) -> Vec<&'static str> {
        vec![QUEUED]
    }

    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        let now = cx.now().as_nanos() as u64;
        self.classes.iter_mut().for_each(|class| class.release(cx, now));
        for packet in batch.drain() {
            match self.matches.find(&Headers::of(&packet)).and_then(|class| self.classes.get_mut(class)) {
                Some(class) => class.put(cx, packet, now, self.overhead),
                None => cx.emit(0, packet),
            }
        }
    }

    fn interval(&self) -> Option<Duration> {
        Some(INTERVAL)
    }

    fn on_timer(&mut self, cx: &mut Context<'_>) {
        let now = cx.now().as_nanos() as u64;
        self.classes.iter_mut().for_each(|class| class.release(cx, now));
        if !self.removed.is_empty() {
            self.drop_removed(cx);
        }
        let queues = self.classes.iter().map(|class| &class.queue).chain(&self.removed);
        self.queued.set(queues.map(|queue| queue.len() as u64).sum());
        if now.saturating_sub(self.published) >= PUBLISH_INTERVAL {
            self.published = now;
            self.publish();
        }
    }

    fn stats_table(&self) -> Option<Arc<StatsTable>> {
        Some(self.stats_table.clone())
    }

    fn held_max(&self) -> usize {
        self.classes.iter().map(|class| class.max_packets).sum()
    }

    fn take_over(&mut self, old: &mut dyn Any) {
        let Some(old) = old.downcast_mut::<ShapeNode>() else { return };
        self.removed.append(&mut old.removed);
        for before in &mut old.classes {
            match self.classes.iter_mut().find(|class| class.name == before.name) {
                Some(class) => class.take_over(before),
                None => self.removed.push(core::mem::replace(&mut before.queue, HoldQueue::new(0))),
            }
        }
    }

    fn finish(&mut self) {
        self.publish();
    }
}

#[cfg(test)]
mod tests;
