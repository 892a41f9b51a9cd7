//! Single rate three colour marker.

use super::{Buckets, Colour, InvalidMeter, Refill};

/// Single rate three colour marker (RFC 2697): tokens that overflow the committed bucket fill the excess bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::qos) struct SingleRate {
    refill: Refill,
    cbs: u64,
    ebs: u64,
}

impl SingleRate {
    /// Creates a meter with a committed information rate in bytes per second, and committed and excess burst sizes in
    /// bytes.
    pub(in crate::qos) fn new(cir: u64, cbs: u64, ebs: u64) -> Result<Self, InvalidMeter> {
        if cir == 0 {
            return Err(InvalidMeter::Cir);
        }
        if cbs == 0 && ebs == 0 {
            return Err(InvalidMeter::Bursts);
        }
        Ok(SingleRate { refill: Refill::new(cir), cbs, ebs })
    }

    pub(super) fn bursts(&self) -> [u64; 2] {
        [self.cbs, self.ebs]
    }

    #[inline]
    pub(super) fn check(&self, buckets: &mut Buckets, now: u64, bytes: u64, colour: Colour) -> Colour {
        let [tc, te] = &mut buckets.tokens;
        *tc = tc.saturating_add(self.refill.advance(&mut buckets.times[0], now));
        if *tc > self.cbs {
            *te = te.saturating_add(*tc - self.cbs).min(self.ebs);
            *tc = self.cbs;
        }
        if colour == Colour::Green && *tc >= bytes {
            *tc -= bytes;
            Colour::Green
        } else if colour != Colour::Red && *te >= bytes {
            *te -= bytes;
            Colour::Yellow
        } else {
            Colour::Red
        }
    }
}
