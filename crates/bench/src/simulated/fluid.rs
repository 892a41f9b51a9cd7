//! A queue before a server as a fluid: packets come evenly, what the queue does not hold is lost.

/// A load of so many packets a second for so many seconds.
pub(super) use crate::bed::Phase;

/// A time in which nothing is forwarded.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Outage {
    pub(super) from_s: f64,
    pub(super) to_s: f64,
    /// Whether the queue is lost and does not fill meanwhile, as in a reset.
    pub(super) flush: bool,
}

/// The queue and its server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fluid {
    /// Packets a second.
    pub(super) capacity: f64,
    /// Packets.
    pub(super) buffer: f64,
    /// How long after an overload all is lost, seconds.
    pub(super) recovery_s: f64,
}

/// A time in which rates do not change.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Piece {
    pub(super) from_s: f64,
    pub(super) to_s: f64,
    /// Packets a second that come.
    pub(super) load_pps: f64,
    /// Of these, lost.
    pub(super) lost_pps: f64,
    /// Packets that were queued at the beginning and are lost.
    pub(super) flushed: f64,
    /// Packets that wait at the beginning, and at the end.
    pub(super) queue: (f64, f64),
    /// How long a packet that comes at the beginning waits for the server to be back, seconds.
    pub(super) away_s: f64,
}

impl Piece {
    /// Packets lost.
    pub(super) fn lost(&self) -> f64 {
        self.lost_pps * (self.to_s - self.from_s) + self.flushed
    }
}

impl Fluid {
    /// Goes through the loads. Outages are in the order of time and do not overlap.
    pub(super) fn run(&self, phases: &[Phase], outages: Vec<Outage>, mut told: impl FnMut(&Piece)) {
        let (mut now, mut queue) = (0.0, 0.0);
        let mut outages = outages.into_iter().peekable();
        let mut blind_until = 0.0;
        for phase in phases {
            let end = now + phase.duration_s;
            let overload = phase.load_pps > self.capacity;
            while now < end - 1e-12 {
                while outages.next_if(|outage| outage.to_s <= now + 1e-12).is_some() {}
                let blind = now < blind_until - 1e-12;
                let (mut until, mut server, mut flush, mut away) = (end, self.capacity, false, 0.0);
                match outages.peek() {
                    Some(outage) if outage.from_s <= now + 1e-12 => {
                        (until, server, flush, away) = (outage.to_s, 0.0, outage.flush, outage.to_s - now);
                    }
                    Some(outage) => until = until.min(outage.from_s),
                    None => {}
                }
                if blind {
                    (until, flush) = (until.min(blind_until), true);
                }
                queue = self.step((now, until.min(end)), phase.load_pps, queue, (server, flush, away), &mut told);
                now = until.min(end);
            }
            now = end;
            if overload && self.recovery_s > 0.0 {
                blind_until = end + self.recovery_s;
            }
        }
    }

    /// A time in which the server does not change; what waits at its end.
    fn step(
        &self,
        (from_s, to_s): (f64, f64),
        load_pps: f64,
        queue: f64,
        (server, flush, away_s): (f64, bool, f64),
        told: &mut impl FnMut(&Piece),
    ) -> f64 {
        let piece = Piece { from_s, to_s, load_pps, lost_pps: 0.0, flushed: 0.0, queue: (queue, queue), away_s };
        if flush {
            told(&Piece { lost_pps: load_pps, flushed: queue, queue: (0.0, 0.0), ..piece });
            return 0.0;
        }
        let net = load_pps - server;
        let limit = if net > 0.0 { self.buffer } else { 0.0 };
        // Until the queue is full, or empty.
        let turn = if net == 0.0 { to_s } else { (from_s + (limit - queue) / net).clamp(from_s, to_s) };
        let reached = (queue + net * (turn - from_s)).clamp(0.0, self.buffer.max(queue));
        if turn > from_s {
            told(&Piece { to_s: turn, queue: (queue, reached), ..piece });
        }
        if turn < to_s {
            let lost_pps = net.max(0.0);
            let away_s = (away_s - (turn - from_s)).max(0.0);
            told(&Piece { from_s: turn, lost_pps, queue: (reached, reached), away_s, ..piece });
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
    fn by_hand() {
        let fluid = Fluid { capacity: 1000.0, buffer: 100.0, recovery_s: 0.0 };
        assert_eq!(lost(fluid, &[(1000.0, 5.0)], vec![]).0, 0.0);
        // 500 too many a second; the first 100 wait, from 0.2 s on the rest is lost.
        assert_eq!(lost(fluid, &[(1500.0, 1.0)], vec![]), (400.0, 0.2, 1.0));
        // Half the load afterwards: the queue is worked off and nothing is lost any more.
        assert_eq!(lost(fluid, &[(1500.0, 1.0), (500.0, 1.0)], vec![]), (400.0, 0.2, 1.0));
        // Away for 1 s at 500 a second: 100 wait, 400 are lost.
        let away = Outage { from_s: 1.0, to_s: 2.0, flush: false };
        let (sum, first, last) = lost(fluid, &[(500.0, 4.0)], vec![away]);
        assert!((sum - 400.0).abs() < 1e-6 && (first - 1.2).abs() < 1e-9 && last == 2.0);
        // A reset: all that comes is lost.
        let reset = Outage { flush: true, ..away };
        assert_eq!(lost(fluid, &[(500.0, 4.0)], vec![reset]), (500.0, 1.0, 2.0));
        // Blind for a second after an overload; the queue goes with it.
        let blind = Fluid { recovery_s: 1.0, ..fluid };
        assert_eq!(lost(blind, &[(1500.0, 1.0), (500.0, 3.0)], vec![]), (400.0 + 500.0 + 100.0, 0.2, 2.0));
    }
}
