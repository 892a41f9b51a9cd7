//! Random early detection (RFC 2309; Floyd and Jacobson 1993).

/// Parameters of [`Red`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::qos) struct Parameters {
    /// Average number of packets up to which none is dropped.
    pub(in crate::qos) min: u32,
    /// Average number of packets at which the probability is `probability`; from twice as many on all are dropped.
    pub(in crate::qos) max: u32,
    /// Probability at `max`, 0 to 1.
    pub(in crate::qos) probability: f64,
    /// Weight of the present length in the average: 2 to the power of minus this.
    pub(in crate::qos) weight: u8,
    /// Typical time to send a packet, in nanoseconds: the average decays in these steps while the queue is empty.
    pub(in crate::qos) packet_time: u64,
    /// True if packets capable of ECN are marked instead of dropped.
    pub(in crate::qos) ecn: bool,
}

/// Treatment of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::qos) enum Verdict {
    Accept,
    /// To be marked, or dropped if that is impossible.
    Mark,
    Drop,
}

/// State of random early detection in a queue, "gentle": between `max` and twice `max` the probability grows from
/// `probability` to 1.
#[derive(Clone, Debug, Default)]
pub(in crate::qos) struct Red {
    /// Average number of packets.
    average: f64,
    /// Packets since the last one that was marked or dropped.
    count: u32,
    /// Time at which the queue became empty, in nanoseconds.
    idle_since: Option<u64>,
}

impl Red {
    /// Decides on a packet that arrives when `len` packets are in the queue. `random` is uniform.
    pub(in crate::qos) fn arrive(&mut self, parameters: &Parameters, len: usize, now: u64, random: u32) -> Verdict {
        let verdict = self.decide(parameters, len, now, random);
        // the queue stays empty without this packet
        if len == 0 && verdict != Verdict::Accept {
            self.idle_since = Some(now);
        }
        verdict
    }

    fn decide(&mut self, parameters: &Parameters, len: usize, now: u64, random: u32) -> Verdict {
        let Parameters { min, max, probability, weight, packet_time, .. } = *parameters;
        let weight = (-f64::from(weight)).exp2();
        match self.idle_since.take() {
            Some(since) => {
                let packets = now.saturating_sub(since) / packet_time.max(1);
                self.average *= (1.0 - weight).powf(packets as f64);
            }
            None => self.average += weight * (len as f64 - self.average),
        }
        let (min, max) = (f64::from(min), f64::from(max));
        if self.average < min {
            self.count = 0;
            return Verdict::Accept;
        }
        if self.average >= 2.0 * max {
            self.count = 0;
            return Verdict::Drop;
        }
        let probability = if self.average < max {
            probability * (self.average - min) / (max - min)
        } else {
            probability + (1.0 - probability) * (self.average - max) / max
        };
        // the distance between two packets that are dropped is uniform, not geometric
        self.count = self.count.saturating_add(1);
        let left = 1.0 - f64::from(self.count) * probability;
        let now = if left > 0.0 { probability / left } else { 1.0 };
        if f64::from(random) / 4_294_967_296.0 >= now {
            return Verdict::Accept;
        }
        self.count = 0;
        Verdict::Mark
    }

    /// Starts the decay of the average: the queue is empty.
    pub(in crate::qos) fn idle(&mut self, now: u64) {
        self.idle_since = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMETERS: Parameters =
        Parameters { min: 10, max: 30, probability: 0.1, weight: 0, packet_time: 1000, ecn: false };

    fn random(state: &mut u64) -> u32 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 32) as u32
    }

    /// Returns the share of packets that are dropped when the average is `len`.
    fn share(len: usize) -> f64 {
        let (mut red, mut state, mut dropped) = (Red::default(), 7, 0);
        for _ in 0..100_000 {
            let verdict = red.arrive(&PARAMETERS, len, 0, random(&mut state));
            dropped += usize::from(verdict != Verdict::Accept);
        }
        dropped as f64 / 100_000.0
    }

    #[test]
    fn probabilities_are_those_of_the_average() {
        assert_eq!((share(0), share(9), share(60), share(1000)), (0.0, 0.0, 1.0, 1.0));
        // the distance between drops is uniform in 1 to 1/p, so that its mean is about (1/p + 1) / 2
        for (len, p) in [(20, 0.05), (30, 0.1), (29, 0.095), (45, 0.55)] {
            let distance: f64 = {
                // sum over n of the probability that the distance is at least n
                let (mut sum, mut alive, mut n) = (0.0, 1.0, 1.0_f64);
                while alive > 0.0 {
                    sum += alive;
                    let left: f64 = 1.0 - n * p;
                    alive *= 1.0 - if left > 0.0 { (p / left).min(1.0) } else { 1.0 };
                    n += 1.0;
                }
                sum
            };
            assert!((share(len) * distance - 1.0).abs() < 0.03, "{len}: {} {}", share(len), 1.0 / distance);
        }
    }

    #[test]
    fn the_average_follows_slowly_and_decays_while_idle() {
        let slow = Parameters { weight: 2, ..PARAMETERS };
        let mut red = Red::default();
        for expected in [8.0, 14.0, 18.5] {
            red.arrive(&slow, 32, 0, u32::MAX);
            assert_eq!(red.average, expected);
        }
        red.idle(10_000);
        red.arrive(&slow, 0, 12_500, u32::MAX);
        assert_eq!(red.average, 18.5 * 0.75 * 0.75);
    }
}
