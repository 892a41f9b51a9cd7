//! Two rate three colour marker.

use super::{Buckets, Colour, InvalidMeter, Refill};

/// Two rate three colour marker (RFC 2698): a packet takes tokens of the peak bucket, and if it is green, of the
/// committed bucket as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::qos) struct TwoRate {
    committed: Refill,
    peak: Refill,
    cbs: u64,
    pbs: u64,
}

impl TwoRate {
    /// Creates a meter with committed and peak information rates in bytes per second, and their burst sizes in bytes.
    pub(in crate::qos) fn new(cir: u64, pir: u64, cbs: u64, pbs: u64) -> Result<Self, InvalidMeter> {
        if cir == 0 {
            return Err(InvalidMeter::Cir);
        }
        if pir < cir {
            return Err(InvalidMeter::Pir);
        }
        if cbs == 0 {
            return Err(InvalidMeter::Cbs);
        }
        if pbs == 0 {
            return Err(InvalidMeter::Pbs);
        }
        Ok(TwoRate { committed: Refill::new(cir), peak: Refill::new(pir), cbs, pbs })
    }

    pub(super) fn bursts(&self) -> [u64; 2] {
        [self.cbs, self.pbs]
    }

    #[inline]
    pub(super) fn check(&self, buckets: &mut Buckets, now: u64, bytes: u64, colour: Colour) -> Colour {
        let ([tc, tp], [time_tc, time_tp]) = (&mut buckets.tokens, &mut buckets.times);
        *tc = tc.saturating_add(self.committed.advance(time_tc, now)).min(self.cbs);
        *tp = tp.saturating_add(self.peak.advance(time_tp, now)).min(self.pbs);
        if colour == Colour::Red || *tp < bytes {
            Colour::Red
        } else if colour == Colour::Yellow || *tc < bytes {
            *tp -= bytes;
            Colour::Yellow
        } else {
            *tc -= bytes;
            *tp -= bytes;
            Colour::Green
        }
    }
}
