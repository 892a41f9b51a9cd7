//! Controlled delay (CoDel, RFC 8289).

use super::fifo::Stamp;
use super::{DropReason, Fifo, Host};

/// Parameters of [`CoDel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::qos) struct Parameters {
    /// Acceptable delay in nanoseconds.
    pub(in crate::qos) target: u64,
    /// Time in nanoseconds for which the delay must be longer before packets are dropped: a worst-case round-trip time.
    pub(in crate::qos) interval: u64,
    /// True if packets capable of ECN are marked instead of dropped.
    pub(in crate::qos) ecn: bool,
}

/// State of CoDel in a queue. Names are those of RFC 8289 §5.
#[derive(Clone, Debug, Default)]
pub(in crate::qos) struct CoDel {
    /// Time from which packets are dropped, if the delay is above the target.
    first_above_time: Option<u64>,
    drop_next: u64,
    count: u32,
    last_count: u32,
    dropping: bool,
    /// Length of the longest packet so far.
    max_packet: u32,
}

impl Parameters {
    /// Returns the time of the next drop.
    fn control_law(&self, t: u64, count: u32) -> u64 {
        t.saturating_add((self.interval as f64 / f64::from(count).sqrt()) as u64)
    }
}

impl CoDel {
    /// Removes a packet; returns true with it if the delay has been too long for an interval.
    fn take<H: Host>(
        &mut self,
        host: &mut H,
        parameters: &Parameters,
        fifo: &mut Fifo,
        now: u64,
    ) -> Option<(H::Item, Stamp, bool)> {
        let Some((item, stamp)) = fifo.pop(host) else {
            self.first_above_time = None;
            return None;
        };
        self.max_packet = self.max_packet.max(stamp.bytes);
        if now.saturating_sub(stamp.since) < parameters.target || fifo.bytes() <= self.max_packet.into() {
            self.first_above_time = None;
            return Some((item, stamp, false));
        }
        let first_above_time = *self.first_above_time.get_or_insert(now.saturating_add(parameters.interval));
        Some((item, stamp, now >= first_above_time))
    }

    /// Removes the next packet to send, with its bytes; drops or marks packets while the delay is too long.
    pub(in crate::qos) fn pop<H: Host>(
        &mut self,
        host: &mut H,
        parameters: &Parameters,
        fifo: &mut Fifo,
        now: u64,
    ) -> Option<(H::Item, u32)> {
        let mut taken = self.take(host, parameters, fifo, now);
        let ok_to_drop = |taken: &Option<(H::Item, Stamp, bool)>| matches!(taken, Some((_, _, true)));
        if self.dropping {
            self.dropping = ok_to_drop(&taken);
            while self.dropping && now >= self.drop_next {
                let Some((mut item, stamp, _)) = taken else { break };
                self.count = self.count.saturating_add(1);
                if parameters.ecn && host.mark(&mut item) {
                    self.drop_next = parameters.control_law(self.drop_next, self.count);
                    return Some((item, stamp.bytes));
                }
                host.drop(DropReason::CoDel, item);
                taken = self.take(host, parameters, fifo, now);
                self.dropping = ok_to_drop(&taken);
                if self.dropping {
                    self.drop_next = parameters.control_law(self.drop_next, self.count);
                }
            }
        } else if let Some((mut item, stamp, true)) = taken {
            if parameters.ecn && host.mark(&mut item) {
                taken = Some((item, stamp, true));
            } else {
                host.drop(DropReason::CoDel, item);
                taken = self.take(host, parameters, fifo, now);
            }
            self.dropping = true;
            // if the queue was controlled until recently, continue with the rate of drops that controlled it
            let delta = self.count.saturating_sub(self.last_count);
            let recent = now.saturating_sub(self.drop_next) < 16 * parameters.interval;
            self.count = if delta > 1 && recent { delta } else { 1 };
            self.drop_next = parameters.control_law(now, self.count);
            self.last_count = self.count;
        }
        taken.map(|(item, stamp, _)| (item, stamp.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_host::{TestHost, TestPacket};
    use super::*;
    use std::collections::VecDeque;
    use testkit::proptest::prelude::*;

    /// The pseudocode of RFC 8289 §5 with its names, in nanoseconds.
    #[derive(Default)]
    struct Model {
        queue: VecDeque<(i64, u32, u32)>,
        first_above_time_: i64,
        drop_next_: i64,
        count_: i64,
        lastcount_: i64,
        dropping_: bool,
        maxpacket_: u32,
        dropped: Vec<u32>,
    }

    const TARGET: i64 = 5_000_000;
    const INTERVAL: i64 = 100_000_000;

    fn control_law(t: i64, count: i64) -> i64 {
        t + (INTERVAL as f64 / (count as f64).sqrt()) as i64
    }

    impl Model {
        fn dodequeue(&mut self, now: i64) -> (Option<u32>, bool) {
            let Some((tstamp, len, number)) = self.queue.pop_front() else {
                self.first_above_time_ = 0;
                return (None, false);
            };
            self.maxpacket_ = self.maxpacket_.max(len);
            let mut ok_to_drop = false;
            let sojourn_time = now - tstamp;
            let bytes: u32 = self.queue.iter().map(|(_, len, _)| len).sum();
            if sojourn_time < TARGET || bytes <= self.maxpacket_ {
                self.first_above_time_ = 0;
            } else if self.first_above_time_ == 0 {
                self.first_above_time_ = now + INTERVAL;
            } else if now >= self.first_above_time_ {
                ok_to_drop = true;
            }
            (Some(number), ok_to_drop)
        }

        fn dequeue(&mut self, now: i64) -> Option<u32> {
            let (mut p, mut ok_to_drop) = self.dodequeue(now);
            if self.dropping_ {
                if !ok_to_drop {
                    self.dropping_ = false;
                }
                while now >= self.drop_next_ && self.dropping_ {
                    self.dropped.extend(p);
                    self.count_ += 1;
                    (p, ok_to_drop) = self.dodequeue(now);
                    if !ok_to_drop {
                        self.dropping_ = false;
                    } else {
                        self.drop_next_ = control_law(self.drop_next_, self.count_);
                    }
                }
            } else if ok_to_drop {
                self.dropped.extend(p);
                (p, _) = self.dodequeue(now);
                self.dropping_ = true;
                let delta = self.count_ - self.lastcount_;
                self.count_ = 1;
                if delta > 1 && now - self.drop_next_ < 16 * INTERVAL {
                    self.count_ = delta;
                }
                self.drop_next_ = control_law(now, self.count_);
                self.lastcount_ = self.count_;
            }
            p
        }
    }

    const PARAMETERS: Parameters = Parameters { target: 5_000_000, interval: 100_000_000, ecn: false };

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn agrees_with_the_pseudocode(
            steps in proptest::collection::vec((1..4_000_u64, 0..4_u32, 60..1500_u32), 1..2000),
        ) {
            let (mut codel, mut fifo, mut host) = (CoDel::default(), Fifo::default(), TestHost::default());
            let (mut model, mut now, mut number) = (Model::default(), 1_000_000_000_u64, 0);
            for (after, arriving, bytes) in steps {
                now += after * 1000;
                for _ in 0..arriving {
                    number += 1;
                    fifo.push(&mut host, TestPacket::new(number), bytes, now);
                    model.queue.push_back((now as i64, bytes, number));
                }
                now += 333;
                let popped = codel.pop(&mut host, &PARAMETERS, &mut fifo, now).map(|(packet, _)| packet.number);
                prop_assert_eq!(popped, model.dequeue(now as i64));
                let dropped: Vec<_> = host.dropped.iter().map(|(_, packet)| packet.number).collect();
                prop_assert_eq!(dropped, model.dropped.clone());
            }
        }
    }

    #[test]
    fn marks_instead_of_dropping_if_possible() {
        let (mut codel, mut fifo, mut host) = (CoDel::default(), Fifo::default(), TestHost::default());
        let parameters = Parameters { ecn: true, ..PARAMETERS };
        for number in 0..1000 {
            fifo.push(&mut host, TestPacket { ecn: true, ..TestPacket::new(number) }, 1000, 0);
        }
        let sent: Vec<_> = (1..=1000)
            .filter_map(|ms| codel.pop(&mut host, &parameters, &mut fifo, ms * 1_000_000))
            .map(|(packet, _)| packet)
            .collect();
        assert_eq!((sent.len(), host.dropped.len()), (1000, 0));
        let marked = sent.iter().filter(|packet| packet.marked).count();
        assert!((20..100).contains(&marked), "{marked}");
        assert!(!sent[100].marked, "not before an interval has passed");
    }
}
