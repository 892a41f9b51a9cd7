//! Departure times of packets by their number.

use crate::trial::{LossTimes, Phase};

/// Departure times of the packets of a trial.
pub(crate) struct DepartureTimes {
    /// Start and length in seconds, number of the first packet and packets sent of each phase.
    phases: Vec<(f64, f64, u64, u64)>,
}

impl DepartureTimes {
    /// Returns the departure times for phases in which `sent` packets were sent.
    pub(crate) fn new(phases: &[Phase], sent: &[u64]) -> DepartureTimes {
        let (mut from, mut first) = (0.0, 0);
        let phase = |(phase, sent): (&Phase, &u64)| {
            let entry = (from, phase.duration_s, first, *sent);
            from += phase.duration_s;
            first += sent;
            entry
        };
        DepartureTimes { phases: phases.iter().zip(sent).map(phase).collect() }
    }

    /// Returns the number of packets sent.
    fn sent(&self) -> u64 {
        self.phases.last().map_or(0, |(_, _, first, sent)| first + sent)
    }

    /// Returns the length of all phases, seconds.
    fn duration_s(&self) -> f64 {
        self.phases.last().map_or(0.0, |(from, length, ..)| from + length)
    }

    /// Returns the time at which packet `number`, counted from 0, was due, seconds after the start; exact if all
    /// packets were sent.
    pub(crate) fn due(&self, number: u64) -> f64 {
        let within = |&&(_, _, first, sent): &&(f64, f64, u64, u64)| number < first + sent;
        match self.phases.iter().find(within) {
            Some(&(from, length, first, sent)) => from + length * (number - first) as f64 / sent as f64,
            None => self.duration_s(),
        }
    }

    /// Returns the loss in `bins` intervals of equal length.
    pub(crate) fn loss_times(&self, lost: &traffic::Losses, bins: usize) -> LossTimes {
        let sent = self.sent();
        let mut parts = vec![(0, 0); bins.max(1)];
        let (width, whole) = (lost.width(), self.duration_s().max(f64::MIN_POSITIVE));
        for (bin, count) in lost.lost(sent).enumerate() {
            let from = bin as u64 * width;
            let due = width.min(sent.saturating_sub(from));
            if due == 0 {
                break;
            }
            let part = (self.due(from + due / 2) / whole * parts.len() as f64) as usize;
            let part = part.min(parts.len() - 1);
            parts[part].0 += count;
            parts[part].1 += due;
        }
        LossTimes {
            bins: parts,
            first_s: lost.first_lost(sent).map(|range| self.due(range.start)),
            last_s: lost.last_lost(sent).map(|range| self.due(range.end.saturating_sub(1))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_losses_of_two_streams() {
        let of = |bins, first_s, last_s| LossTimes { bins, first_s, last_s };
        let there = of(vec![(1, 10), (0, 10)], Some(0.2), Some(0.4));
        let back = of(vec![(0, 10), (3, 9)], Some(0.6), Some(0.9));
        let none = of(vec![(0, 10), (0, 10)], None, None);
        let both = there.clone().plus(back);
        assert_eq!(both, of(vec![(1, 20), (3, 19)], Some(0.2), Some(0.9)));
        assert_eq!(there.plus(none), of(vec![(1, 20), (0, 20)], Some(0.2), Some(0.4)));
    }

    #[test]
    fn locates_loss_in_the_second_phase() {
        // 1000 packets in the first second, 500 in the next two
        let phases = [Phase { load_pps: 1000.0, duration_s: 1.0 }, Phase { load_pps: 250.0, duration_s: 2.0 }];
        let times = DepartureTimes::new(&phases, &[1000, 500]);
        assert_eq!((times.due(0), times.due(500), times.due(1000), times.due(1250)), (0.0, 0.5, 1.0, 2.0));
        let mut lost = traffic::Losses::new(7, 1500, 1 << 20);
        (0..1500).filter(|n| !(1200..1300).contains(n)).for_each(|n| lost.arrive(7 + n));
        let losses = times.loss_times(&lost, 30);
        assert_eq!(losses.bins.iter().map(|(lost, _)| lost).sum::<u64>(), 100);
        assert_eq!(losses.bins.iter().map(|(_, due)| due).sum::<u64>(), 1500);
        assert_eq!((losses.first_s, losses.last_s), (Some(1.8), Some(1.0 + 2.0 * 299.0 / 500.0)));
        assert!(losses.bins[..17].iter().all(|(lost, _)| *lost == 0) && losses.bins[18].0 > 0);
    }
}
