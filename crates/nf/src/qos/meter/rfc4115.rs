//! Two rate three colour marker with a separate excess rate.

use super::{Buckets, Colour, InvalidMeter, Refill};

/// Two rate three colour marker for differentiated services (RFC 4115): a packet takes tokens of the committed or of
/// the excess bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::qos) struct CommittedAndExcess {
    committed: Refill,
    excess: Refill,
    cbs: u64,
    ebs: u64,
}

impl CommittedAndExcess {
    /// Creates a meter with committed and excess information rates in bytes per second, and their burst sizes in bytes.
    pub(in crate::qos) fn new(cir: u64, eir: u64, cbs: u64, ebs: u64) -> Result<Self, InvalidMeter> {
        if cir != 0 && cbs == 0 {
            return Err(InvalidMeter::Cbs);
        }
        if eir != 0 && ebs == 0 {
            return Err(InvalidMeter::Ebs);
        }
        Ok(CommittedAndExcess { committed: Refill::new(cir), excess: Refill::new(eir), cbs, ebs })
    }

    pub(super) fn bursts(&self) -> [u64; 2] {
        [self.cbs, self.ebs]
    }

    #[inline]
    pub(super) fn check(&self, buckets: &mut Buckets, now: u64, bytes: u64, colour: Colour) -> Colour {
        let ([tc, te], [time_tc, time_te]) = (&mut buckets.tokens, &mut buckets.times);
        *tc = tc.saturating_add(self.committed.advance(time_tc, now)).min(self.cbs);
        *te = te.saturating_add(self.excess.advance(time_te, now)).min(self.ebs);
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
