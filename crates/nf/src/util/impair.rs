//! Impairing traffic: loss, duplication, delay and reordering.

use crate::random;
use diagnostics::Diagnostic;
use graph::{BuildContext, Context, HoldQueue, Named, Nf, Node};
use packet::{Batch, Packet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::Duration;

/// `impair`: drops, duplicates, delays and reorders packets at random.
pub struct Impair;

/// Settings of [`Impair`].
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Share of packets that are dropped, 0 to 1.
    loss: f64,
    /// Share of packets that are sent twice, 0 to 1.
    duplicate: f64,
    /// Share of packets that are delayed by a further `reorder_delay`, 0 to 1, so that later packets overtake them.
    reorder: f64,
    /// Delay of every packet in milliseconds, accurate to one.
    delay: u16,
    /// Additional delay of reordered packets in milliseconds, 1 or more.
    reorder_delay: u16,
    /// Seed of the random numbers: the same seed has the same effect on the same packets.
    seed: u64,
    /// Maximum number of delayed packets, 1 or more; further packets are dropped.
    queue: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { loss: 0.0, duplicate: 0.0, reorder: 0.0, delay: 0, reorder_delay: 1, seed: 1, queue: 1024 }
    }
}

graph::named_enum! {
    /// Drop reasons.
    enum DropReason {
        /// Dropped on purpose, by `loss`.
        Lost = "lost",
        /// The delay queue is full.
        QueueFull = "queue_full",
    }
}

/// A queue that delays every packet by the same time.
struct DelayQueue {
    delay: Duration,
    packets: HoldQueue,
    /// Time at which each packet is sent.
    due: VecDeque<Duration>,
}

impl DelayQueue {
    fn new(delay_ms: u16, capacity: usize) -> Self {
        DelayQueue {
            delay: Duration::from_millis(delay_ms.into()),
            packets: HoldQueue::new(capacity),
            due: VecDeque::new(),
        }
    }

    fn hold(&mut self, cx: &mut Context<'_>, packet: Packet) {
        match cx.hold(&mut self.packets, packet) {
            Ok(()) => self.due.push_back(cx.now() + self.delay),
            Err(packet) => cx.drop(DropReason::QueueFull, packet),
        }
    }

    fn release(&mut self, cx: &mut Context<'_>) {
        while self.due.front().is_some_and(|due| *due <= cx.now()) {
            self.due.pop_front();
            if let Some((path, packet)) = cx.release(&mut self.packets) {
                cx.emit_on_path(path, 0, packet);
            }
        }
    }
}

struct ImpairNode {
    /// Probabilities in units of 2⁻³².
    loss: u32,
    duplicate: u32,
    reorder: u32,
    /// Packets with the usual delay, and reordered packets.
    queues: [DelayQueue; 2],
    random: u64,
    /// Maximum number of packets in both queues.
    capacity: usize,
}

impl ImpairNode {
    /// Returns true with a probability of `share` · 2⁻³²; always if `share` is the largest number.
    fn happens(&mut self, share: u32) -> bool {
        let number = (random::next(&mut self.random) >> 32) as u32;
        number < share || share == u32::MAX
    }
}

impl Nf for Impair {
    type Settings = Settings;
    const KIND: &'static str = "impair";
    const ABOUT: &'static str = "Drops, duplicates, delays and reorders packets at random, like a bad link.";
    const EXAMPLE: &'static str = "loss = 0.01\nreorder = 0.05\nreorder_delay = 3";

    fn build(settings: &Settings, cx: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        let share = |key, value: f64| {
            if !(0.0..=1.0).contains(&value) {
                return Err(Diagnostic::new("not a share").key(key).value(value).remedy("write 0 to 1"));
            }
            Ok((value * f64::from(u32::MAX)) as u32)
        };
        let Settings { delay, reorder_delay, seed, queue, .. } = *settings;
        let not_positive =
            |key, value: u32| Diagnostic::new("must not be 0").key(key).value(value).remedy("write 1 or more");
        if reorder_delay == 0 {
            return Err(not_positive("reorder_delay", 0));
        }
        if queue == 0 {
            return Err(not_positive("queue", 0));
        }
        let delays = [delay, delay.saturating_add(reorder_delay)];
        let seed = seed.wrapping_add(cx.copy.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Ok(ImpairNode {
            loss: share("loss", settings.loss)?,
            duplicate: share("duplicate", settings.duplicate)?,
            reorder: share("reorder", settings.reorder)?,
            queues: delays.map(|delay| DelayQueue::new(delay, queue as usize)),
            capacity: queue as usize,
            random: seed,
        })
    }
}

impl Node for ImpairNode {
    fn drops(&self) -> &[&'static str] {
        DropReason::NAMES
    }

    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        for packet in batch.drain() {
            if self.happens(self.loss) {
                cx.drop(DropReason::Lost, packet);
                continue;
            }
            let copy = if self.happens(self.duplicate) { cx.copy(&packet) } else { None };
            for packet in [Some(packet), copy].into_iter().flatten() {
                let reordered = self.happens(self.reorder);
                let full = self.queues.iter().map(|queue| queue.packets.len()).sum::<usize>() >= self.capacity;
                let queue = &mut self.queues[usize::from(reordered)];
                if queue.delay.is_zero() {
                    cx.emit(0, packet);
                } else if full {
                    cx.drop(DropReason::QueueFull, packet);
                } else {
                    queue.hold(cx, packet);
                }
            }
        }
    }

    fn interval(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }

    fn on_timer(&mut self, cx: &mut Context<'_>) {
        self.queues.iter_mut().for_each(|queue| queue.release(cx));
    }
}

#[cfg(test)]
mod tests {
    use super::Impair;
    use std::time::Duration;
    use testkit::Harness;

    const FRAMES: usize = 1000;

    fn frames() -> Vec<Vec<u8>> {
        (0..FRAMES as u16).map(|n| [&n.to_be_bytes()[..], &[7; 58]].concat()).collect()
    }

    #[test]
    fn passes_packets_unchanged_by_default() {
        assert_eq!(Harness::new::<Impair>("").feed(&frames()), frames());
    }

    #[test]
    fn drops_and_duplicates_the_configured_shares() {
        let mut nf = Harness::new::<Impair>("loss = 0.2\nduplicate = 0.1");
        let out = nf.feed(&frames());
        let lost = nf.dropped("lost") as usize;
        assert!((120..280).contains(&lost), "{lost}");
        let duplicates = out.windows(2).filter(|pair| pair[0] == pair[1]).count();
        assert!((40..130).contains(&duplicates), "{duplicates}");
        assert_eq!((out.len(), nf.created() as usize), (FRAMES - lost + duplicates, duplicates));
        let mut distinct = out.clone();
        distinct.dedup();
        assert!(distinct.is_sorted(), "order is preserved");
        assert_eq!(Harness::new::<Impair>("loss = 0.2\nduplicate = 0.1").feed(&frames()), out, "repeatable");
        assert_ne!(Harness::new::<Impair>("loss = 0.2\nduplicate = 0.1\nseed = 2").feed(&frames()), out);
        assert_eq!(Harness::new::<Impair>("loss = 1").feed(&frames()), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn delays_all_packets_and_reorders_some() {
        let mut nf = Harness::new::<Impair>("delay = 5\nreorder = 0.3\nreorder_delay = 10");
        assert!(nf.feed(&frames()).is_empty());
        assert_eq!(nf.held(), FRAMES as u64);
        assert!(nf.advance(Duration::from_millis(4))[0].is_empty());
        let first = nf.advance(Duration::from_millis(2)).remove(0);
        assert!((600..800).contains(&first.len()) && first.is_sorted());
        assert!(nf.advance(Duration::from_millis(8))[0].is_empty());
        let reordered = nf.advance(Duration::from_millis(2)).remove(0);
        assert!(reordered.is_sorted());
        let mut all = [first, reordered].concat();
        all.sort();
        assert_eq!((all, nf.held()), (frames(), 0));
    }

    #[test]
    fn drops_packets_when_the_queue_is_full() {
        let mut nf = Harness::new::<Impair>("delay = 1\nreorder = 0.5\nqueue = 10");
        nf.feed(&frames());
        assert_eq!((nf.held(), nf.dropped("queue_full")), (10, FRAMES as u64 - 10));
    }

    #[test]
    fn rejects_invalid_settings() {
        for (key, settings) in [
            ("loss", "loss = 1.5"),
            ("reorder", "reorder = -0.1"),
            ("reorder_delay", "reorder_delay = 0"),
            ("queue", "queue = 0"),
        ] {
            assert_eq!(Harness::try_new::<Impair>(settings).unwrap_err().key, Some(key));
        }
    }
}
