//! A bad wire.

use diagnostics::Diagnostic;
use graph::{BuildContext, Context, HoldQueue, Nf, Node};
use packet::{Batch, Packet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::Duration;

/// `impair`: loses, doubles, delays and reorders packets.
pub struct Impair;

/// Settings of [`Impair`].
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Share of the packets that is dropped, 0 to 1.
    loss: f64,
    /// Share of the packets that is sent twice.
    duplicate: f64,
    /// Share of the packets that is late by `late_by` more than the others, so that others overtake it.
    late: f64,
    /// Milliseconds by which every packet is delayed, to within one.
    delay: u16,
    /// Milliseconds by which late packets are delayed besides, 1 or more.
    late_by: u16,
    /// Where the random numbers begin: the same seed does the same to the same packets.
    seed: u64,
    /// Packets that wait at most; those that find no room are dropped.
    queue: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { loss: 0.0, duplicate: 0.0, late: 0.0, delay: 0, late_by: 1, seed: 1, queue: 1024 }
    }
}

/// Drop reasons.
const LOST: u8 = 0;
const QUEUE_FULL: u8 = 1;

/// A queue in which every packet waits for the same time.
struct Line {
    wait: Duration,
    packets: HoldQueue,
    /// When each may go.
    due: VecDeque<Duration>,
}

impl Line {
    fn new(wait: u16, most: usize) -> Self {
        Line { wait: Duration::from_millis(wait.into()), packets: HoldQueue::new(most), due: VecDeque::new() }
    }

    fn hold(&mut self, cx: &mut Context<'_>, packet: Packet) {
        match cx.hold(&mut self.packets, packet) {
            Ok(()) => self.due.push_back(cx.now() + self.wait),
            Err(packet) => cx.drop(QUEUE_FULL, packet),
        }
    }

    fn release(&mut self, cx: &mut Context<'_>) {
        while self.due.front().is_some_and(|due| *due <= cx.now()) {
            self.due.pop_front();
            if let Some((way, packet)) = cx.release(&mut self.packets) {
                cx.emit_from(way, 0, packet);
            }
        }
    }
}

struct Impairing {
    loss: u32,
    duplicate: u32,
    late: u32,
    /// Those in time and those that are late.
    lines: [Line; 2],
    random: u64,
    /// Packets that wait at most, in both lines.
    queue: usize,
}

impl Impairing {
    /// Whether something happens that does so in `share` of 2³² cases.
    fn happens(&mut self, share: u32) -> bool {
        // xorshift64* (Marsaglia 2003, Vigna 2016)
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let number = (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32;
        number < share || share == u32::MAX
    }
}

impl Nf for Impair {
    type Settings = Settings;
    const KIND: &'static str = "impair";
    const ABOUT: &'static str = "Loses, doubles, delays and reorders packets at random, to see what others make of it.";
    const EXAMPLE: &'static str = "loss = 0.01\nlate = 0.05\nlate_by = 3";

    fn build(settings: &Settings, cx: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        let share = |key, value: f64| {
            if !(0.0..=1.0).contains(&value) {
                return Err(Diagnostic::new("is no share").key(key).value(value).remedy("write 0 to 1"));
            }
            Ok((value * f64::from(u32::MAX)) as u32)
        };
        let Settings { delay, late_by, seed, queue, .. } = *settings;
        if late_by == 0 {
            return Err(Diagnostic::new("is not late").key("late_by").value(late_by).remedy("write 1 or more"));
        }
        if queue == 0 {
            return Err(Diagnostic::new("has room for no packet").key("queue").value(queue).remedy("write 1 or more"));
        }
        let late = delay.saturating_add(late_by);
        let seed = seed.wrapping_add(cx.copy.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Ok(Impairing {
            loss: share("loss", settings.loss)?,
            duplicate: share("duplicate", settings.duplicate)?,
            late: share("late", settings.late)?,
            lines: [delay, late].map(|wait| Line::new(wait, queue as usize)),
            queue: queue as usize,
            random: seed,
        })
    }
}

impl Node for Impairing {
    fn drops(&self) -> &[&'static str] {
        &["lost", "queue_full"]
    }

    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        for packet in batch.drain() {
            if self.happens(self.loss) {
                cx.drop(LOST, packet);
                continue;
            }
            let copy = if self.happens(self.duplicate) { cx.copy(&packet) } else { None };
            for packet in [Some(packet), copy].into_iter().flatten() {
                let late = self.happens(self.late);
                let full = self.lines.iter().map(|line| line.packets.len()).sum::<usize>() >= self.queue;
                let line = &mut self.lines[usize::from(late)];
                if line.wait.is_zero() {
                    cx.emit(0, packet);
                } else if full {
                    cx.drop(QUEUE_FULL, packet);
                } else {
                    line.hold(cx, packet);
                }
            }
        }
    }

    fn interval(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }

    fn on_timer(&mut self, cx: &mut Context<'_>) {
        self.lines.iter_mut().for_each(|line| line.release(cx));
    }
}

#[cfg(test)]
mod tests {
    use super::Impair;
    use std::time::Duration;
    use testkit::Bench;

    const SOME: usize = 1000;

    fn frames() -> Vec<Vec<u8>> {
        (0..SOME as u16).map(|n| [&n.to_be_bytes()[..], &[7; 58]].concat()).collect()
    }

    #[test]
    fn packets_pass_where_nothing_is_asked_for() {
        assert_eq!(Bench::of::<Impair>("").feed(&frames()), frames());
    }

    #[test]
    fn as_many_are_lost_and_doubled_as_are_asked_for() {
        let mut nf = Bench::of::<Impair>("loss = 0.2\nduplicate = 0.1");
        let out = nf.feed(&frames());
        let lost = nf.dropped("lost") as usize;
        assert!((120..280).contains(&lost), "{lost}");
        let doubled = out.windows(2).filter(|pair| pair[0] == pair[1]).count();
        assert!((40..130).contains(&doubled), "{doubled}");
        assert_eq!((out.len(), nf.created() as usize), (SOME - lost + doubled, doubled));
        let mut kept = out.clone();
        kept.dedup();
        assert!(kept.is_sorted(), "the others keep their order");
        assert_eq!(Bench::of::<Impair>("loss = 0.2\nduplicate = 0.1").feed(&frames()), out, "the same once more");
        assert_ne!(Bench::of::<Impair>("loss = 0.2\nduplicate = 0.1\nseed = 2").feed(&frames()), out);
        assert_eq!(Bench::of::<Impair>("loss = 1").feed(&frames()), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn packets_are_delayed_and_some_are_overtaken() {
        let mut nf = Bench::of::<Impair>("delay = 5\nlate = 0.3\nlate_by = 10");
        assert!(nf.feed(&frames()).is_empty());
        assert_eq!(nf.held(), SOME as u64);
        assert!(nf.advance(Duration::from_millis(4))[0].is_empty());
        let first = nf.advance(Duration::from_millis(2)).remove(0);
        assert!((600..800).contains(&first.len()) && first.is_sorted());
        assert!(nf.advance(Duration::from_millis(8))[0].is_empty());
        let rest = nf.advance(Duration::from_millis(2)).remove(0);
        assert!(rest.is_sorted());
        let mut all = [first, rest].concat();
        all.sort();
        assert_eq!((all, nf.held()), (frames(), 0));
    }

    #[test]
    fn what_finds_no_room_is_dropped() {
        let mut nf = Bench::of::<Impair>("delay = 1\nlate = 0.5\nqueue = 10");
        nf.feed(&frames());
        assert_eq!((nf.held(), nf.dropped("queue_full")), (10, SOME as u64 - 10));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (key, settings) in
            [("loss", "loss = 1.5"), ("late", "late = -0.1"), ("late_by", "late_by = 0"), ("queue", "queue = 0")]
        {
            assert_eq!(Bench::try_of::<Impair>(settings).unwrap_err().key, Some(key));
        }
    }
}
