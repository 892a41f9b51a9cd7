//! Fluid model of a queue and a server: packets arrive evenly, and are lost when the queue is full.

pub(super) use crate::trial::Phase;

/// Interval in which nothing is forwarded.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Outage {
    pub(super) from_s: f64,
    pub(super) to_s: f64,
    /// True if the queue is lost and does not fill, as in a reset.
    pub(super) flush: bool,
}

/// Queue and server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fluid {
    /// Packets per second.
    pub(super) capacity: f64,
    /// Packets.
    pub(super) buffer: f64,
    /// Time after an overload in which all packets are lost, seconds.
    pub(super) recovery_s: f64,
}

/// Interval with constant rates.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Piece {
    pub(super) from_s: f64,
    pub(super) to_s: f64,
    /// Arriving packets per second.
    pub(super) load_pps: f64,
    /// Lost packets per second.
    pub(super) lost_pps: f64,
    /// Packets that were in the queue at the start and are lost.
    pub(super) flushed: f64,
    /// Packets in the queue at the start and at the end.
    pub(super) queue: (f64, f64),
    /// Time until the end of an outage for a packet that arrives at the start, seconds.
    pub(super) outage_s: f64,
}

impl Piece {
    /// Returns the packets lost.
    pub(super) fn lost(&self) -> f64 {
        self.lost_pps * (self.to_s - self.from_s) + self.flushed
    }
}

impl Fluid {
    /// Simulates the phases. Outages are sorted and do not overlap.
    pub(super) fn run(&self, phases: &[Phase], outages: Vec<Outage>, mut on_piece: impl FnMut(&Piece)) {
        let (mut now, mut queue) = (0.0, 0.0);
        let mut outages = outages.into_iter().peekable();
        let mut recovering_until = 0.0;
        for phase in phases {
            let end = now + phase.duration_s;
            let overload = phase.load_pps > self.capacity;
            while now < end - 1e-12 {
                while outages.next_if(|outage| outage.to_s <= now + 1e-12).is_some() {}
                let recovering = now < recovering_until - 1e-12;
                let (mut until, mut server, mut flush, mut outage_left) = (end, self.capacity, false, 0.0);
                match outages.peek() {
                    Some(outage) if outage.from_s <= now + 1e-12 => {
                        (until, server, flush, outage_left) = (outage.to_s, 0.0, outage.flush, outage.to_s - now);
                    }
                    Some(outage) => until = until.min(outage.from_s),
                    None => {}
                }
                if recovering {
                    (until, flush) = (until.min(recovering_until), true);
                }
                queue = self.step(
                    (now, until.min(end)),
                    phase.load_pps,
                    queue,
                    (server, flush, outage_left),
                    &mut on_piece,
                );
                now = until.min(end);
            }
            now = end;
            if overload && self.recovery_s > 0.0 {
                recovering_until = end + self.recovery_s;
            }
        }
    }

    /// Simulates an interval with a constant server. Returns the queue at its end.
    fn step(
        &self,
        (from_s, to_s): (f64, f64),
        load_pps: f64,
        queue: f64,
        (server, flush, outage_s): (f64, bool, f64),
        on_piece: &mut impl FnMut(&Piece),
    ) -> f64 {
        let piece = Piece { from_s, to_s, load_pps, lost_pps: 0.0, flushed: 0.0, queue: (queue, queue), outage_s };
        if flush {
            on_piece(&Piece { lost_pps: load_pps, flushed: queue, queue: (0.0, 0.0), ..piece });
            return 0.0;
        }
        let net = load_pps - server;
        let limit = if net > 0.0 { self.buffer } else { 0.0 };
        // the time at which the queue is full or empty
        let turn = if net == 0.0 { to_s } else { (from_s + (limit - queue) / net).clamp(from_s, to_s) };
        let reached = (queue + net * (turn - from_s)).clamp(0.0, self.buffer.max(queue));
        if turn > from_s {
            on_piece(&Piece { to_s: turn, queue: (queue, reached), ..piece });
        }
        if turn < to_s {
            let lost_pps = net.max(0.0);
            let outage_s = (outage_s - (turn - from_s)).max(0.0);
            on_piece(&Piece { from_s: turn, lost_pps, queue: (reached, reached), outage_s, ..piece });
        }
        reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(fluid: Fluid, phases: &[(f64, f64)], outages: Vec<Outage>) -> (f64, f64, f64) {
        let phases: Vec<_> = phases
            .iter()
            .map(|(load_pps, duration_s)| Phase { load_pps: *load_pps, duration_s: *duration_s })
            .collect();
        let (mut sum, mut first, mut last) = (0.0, f64::NAN, f64::NAN);
        fluid.run(&phases, outages, |piece| {
            assert!(piece.to_s > piece.from_s, "{piece:?}");
            sum += piece.lost();
            if piece.lost() > 0.0 {
                first = f64::min(first, piece.from_s);
                last = piece.to_s;
            }
        });
        (sum, first, last)
    }

    #[test]
    fn matches_calculations_by_hand() {
        let fluid = Fluid { capacity: 1000.0, buffer: 100.0, recovery_s: 0.0 };
        assert_eq!(lost(fluid, &[(1000.0, 5.0)], vec![]).0, 0.0);
        // excess of 500 per second: the first 100 are queued, packets from 0.2 s on are lost
        assert_eq!(lost(fluid, &[(1500.0, 1.0)], vec![]), (400.0, 0.2, 1.0));
        // half the load afterwards: the queue drains without loss
        assert_eq!(lost(fluid, &[(1500.0, 1.0), (500.0, 1.0)], vec![]), (400.0, 0.2, 1.0));
        // outage of 1 s at 500 per second: 100 are queued, 400 lost
        let outage = Outage { from_s: 1.0, to_s: 2.0, flush: false };
        let (sum, first, last) = lost(fluid, &[(500.0, 4.0)], vec![outage]);
        assert!((sum - 400.0).abs() < 1e-6 && (first - 1.2).abs() < 1e-9 && last == 2.0);
        // reset: all arriving packets are lost
        let reset = Outage { flush: true, ..outage };
        assert_eq!(lost(fluid, &[(500.0, 4.0)], vec![reset]), (500.0, 1.0, 2.0));
        // recovery of one second after an overload; the queue is lost
        let recovering = Fluid { recovery_s: 1.0, ..fluid };
        assert_eq!(lost(recovering, &[(1500.0, 1.0), (500.0, 3.0)], vec![]), (400.0 + 500.0 + 100.0, 0.2, 2.0));
    }
}
