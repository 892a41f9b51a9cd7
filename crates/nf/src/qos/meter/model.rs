//! Meters compared with a slow model that adds every refill by itself, and with exact rates.

use super::*;
use testkit::proptest::prelude::*;

/// A bucket that is refilled step by step, as the RFCs describe.
struct Bucket {
    tokens: u64,
    size: u64,
    refill: Refill,
    next: u64,
}

impl Bucket {
    fn new(rate: u64, size: u64) -> Self {
        let refill = Refill::new(rate);
        Bucket { tokens: size, size, refill, next: refill.period }
    }

    /// Performs all refills up to `now`; returns the tokens that overflow.
    fn refill(&mut self, now: u64) -> u64 {
        let mut overflow = 0;
        while self.next <= now {
            self.tokens += self.refill.bytes;
            overflow += self.tokens.saturating_sub(self.size);
            self.tokens = self.tokens.min(self.size);
            self.next += self.refill.period;
        }
        overflow
    }

    fn take(&mut self, bytes: u64) -> bool {
        let enough = self.tokens >= bytes;
        if enough {
            self.tokens -= bytes;
        }
        enough
    }
}

fn packets() -> impl Strategy<Value = Vec<(u64, u64, u8)>> {
    proptest::collection::vec((0..20_000_u64, 0..2000_u64, 0..3_u8), 1..200)
}

fn rate() -> impl Strategy<Value = u64> {
    prop_oneof![1..1000_u64, 1000..100_000_000_u64, 100_000_000..100_000_000_000_u64]
}

/// Compares the meter with a model for packets at increasing times, coloured or colour-blind.
fn compare(
    meter: Meter,
    packets: &[(u64, u64, u8)],
    mut model: impl FnMut(u64, u64, Colour) -> Colour,
) -> Result<(), TestCaseError> {
    let (mut now, mut buckets) = (0, meter.start(0));
    for &(after, bytes, colour) in packets {
        now += after;
        let colour = Colour::from_number(colour);
        prop_assert_eq!(meter.check(&mut buckets, now, bytes, colour), model(now, bytes, colour), "at {} ns", now);
    }
    Ok(())
}

proptest! {
    #[test]
    fn single_rate_agrees(cir in rate(), cbs in 0..5000_u64, ebs in 1..5000_u64, packets in packets()) {
        let (mut c, mut te) = (Bucket::new(cir, cbs), ebs);
        compare(Meter::SingleRate(SingleRate::new(cir, cbs, ebs).unwrap()), &packets, |now, bytes, colour| {
            te = (te + c.refill(now)).min(ebs);
            match colour {
                Colour::Green if c.take(bytes) => Colour::Green,
                Colour::Green | Colour::Yellow if te >= bytes => {
                    te -= bytes;
                    Colour::Yellow
                }
                _ => Colour::Red,
            }
        })?;
    }

    #[test]
    fn two_rate_agrees(
        cir in rate(), more in rate(), cbs in 1..5000_u64, pbs in 1..5000_u64, packets in packets(),
    ) {
        let (mut c, mut p) = (Bucket::new(cir, cbs), Bucket::new(cir + more, pbs));
        compare(Meter::TwoRate(TwoRate::new(cir, cir + more, cbs, pbs).unwrap()), &packets, |now, bytes, colour| {
            c.refill(now);
            p.refill(now);
            match colour {
                Colour::Red => Colour::Red,
                _ if !p.take(bytes) => Colour::Red,
                Colour::Green if c.take(bytes) => Colour::Green,
                _ => Colour::Yellow,
            }
        })?;
    }

    #[test]
    fn committed_and_excess_agrees(
        cir in rate(), eir in prop_oneof![Just(0), rate()], cbs in 1..5000_u64, ebs in 1..5000_u64,
        packets in packets(),
    ) {
        let (mut c, mut e) = (Bucket::new(cir, cbs), Bucket::new(eir, ebs));
        let meter = CommittedAndExcess::new(cir, eir, cbs, ebs).unwrap();
        compare(Meter::CommittedAndExcess(meter), &packets, |now, bytes, colour| {
            c.refill(now);
            e.refill(now);
            match colour {
                Colour::Green if c.take(bytes) => Colour::Green,
                Colour::Green | Colour::Yellow if e.take(bytes) => Colour::Yellow,
                _ => Colour::Red,
            }
        })?;
    }

    #[test]
    fn rates_are_exact_to_one_percent(rate in 1..1_000_000_000_000_u64) {
        let Refill { period, bytes } = Refill::new(rate);
        // bytes / period compared with rate / 10⁹, as fractions
        let (actual, wanted) = (u128::from(bytes) * 1_000_000_000, u128::from(rate) * u128::from(period));
        prop_assert!(actual >= wanted, "never slower");
        prop_assert!((actual - wanted) * 99 <= wanted, "{} bytes in {} ns", bytes, period);
    }
}

#[test]
fn refills_are_those_of_rte_meter() {
    // by the arithmetic of rte_meter with a clock of 1 GHz
    for (rate, period, bytes) in
        [(0, 100, 0), (1, 1_000_000_000, 1), (9_000_000, 111, 1), (10_000_000, 100, 1), (125_000_000, 104, 13)]
    {
        assert_eq!(Refill::new(rate), Refill { period, bytes }, "{rate} bytes/s");
    }
}

#[test]
fn rejects_the_parameters_that_rte_meter_rejects() {
    assert_eq!(SingleRate::new(0, 1, 1), Err(InvalidMeter::Cir));
    assert_eq!(SingleRate::new(1, 0, 0), Err(InvalidMeter::Bursts));
    assert_eq!(TwoRate::new(0, 1, 1, 1), Err(InvalidMeter::Cir));
    assert_eq!(TwoRate::new(2, 1, 1, 1), Err(InvalidMeter::Pir));
    assert_eq!(TwoRate::new(1, 1, 0, 1), Err(InvalidMeter::Cbs));
    assert_eq!(TwoRate::new(1, 1, 1, 0), Err(InvalidMeter::Pbs));
    assert_eq!(CommittedAndExcess::new(1, 0, 0, 0), Err(InvalidMeter::Cbs));
    assert_eq!(CommittedAndExcess::new(0, 1, 0, 0), Err(InvalidMeter::Ebs));
    assert!(CommittedAndExcess::new(0, 0, 0, 0).is_ok());
}

#[test]
fn buckets_are_full_again_after_a_while() {
    let meter = Meter::TwoRate(TwoRate::new(1000, 1000, 1000, 1000).unwrap());
    let mut buckets = meter.start(0);
    assert!(meter.is_full(&buckets, 0));
    assert_eq!(meter.check(&mut buckets, 0, 500, Colour::Green), Colour::Green);
    assert!(!meter.is_full(&buckets, 499_999_999) && meter.is_full(&buckets, 500_000_000));
}
