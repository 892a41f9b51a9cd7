//! When packets were lost: received ones counted over the number of their departure.
//!
//! ```
//! use traffic::Losses;
//!
//! let mut losses = Losses::new(0, 1000, 100);
//! (0..1000).filter(|number| !(317..=423).contains(number)).for_each(|number| losses.arrive(number));
//! // Bins are of a power of two of numbers: of 16 here.
//! assert_eq!(losses.width(), 16);
//! assert_eq!(losses.lost(1000).sum::<u64>(), 107);
//! assert_eq!((losses.first_lost(1000), losses.last_lost(1000)), (Some(304..320), Some(416..432)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::ops::Range;

/// Most bins, in 32 MiB: 14 µs each in a trial of a minute.
pub const MAX_BINS: usize = 1 << 22;

/// Received packets of a trial in bins of equally many consecutive numbers.
///
/// A bin is a span of numbers, not of time: at a steady rate number `k` left `k / rate` after the start, unless packets
/// before it stayed unsent and took no number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Losses {
    first: u64,
    intended: u64,
    /// Numbers in a bin, as a power of two.
    shift: u32,
    received: Box<[u64]>,
}

impl Losses {
    /// For `intended` numbers from `first` on, in at most `bins` bins (1 to [`MAX_BINS`]). There are fewer where a bin
    /// has less than all the numbers that a power of two gives it, at least half as many unless bins hold one number.
    pub fn new(first: u64, intended: u64, bins: usize) -> Self {
        let bins = bins.clamp(1, MAX_BINS) as u64;
        let width = intended.div_ceil(bins).max(1).checked_next_power_of_two().unwrap_or(1 << 63);
        let shift = width.trailing_zeros();
        let used = intended.div_ceil(width).max(1) as usize;
        Self { first, intended, shift, received: vec![0; used].into() }
    }

    /// Takes note of a packet that was received for the first time; numbers outside the trial do not count.
    #[inline(always)]
    pub fn arrive(&mut self, number: u64) {
        let place = number.wrapping_sub(self.first);
        if place < self.intended
            && let Some(bin) = self.received.get_mut((place >> self.shift) as usize)
        {
            *bin += 1;
        }
    }

    /// Numbers in a bin, but perhaps the last one.
    pub fn width(&self) -> u64 {
        1 << self.shift
    }

    /// Returns the packets received of each bin, the first numbers first.
    pub fn received(&self) -> &[u64] {
        &self.received
    }

    /// Packets lost of each bin, where the first `sent` numbers were sent. Bins of which none was sent lost none.
    pub fn lost(&self, sent: u64) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator + '_ {
        self.received.iter().enumerate().map(move |(bin, received)| {
            let span = self.span(bin, sent);
            (span.end - span.start).saturating_sub(*received)
        })
    }

    /// The packets, counted from 0 for the first number, of the first bin with a loss: among them is the first lost.
    pub fn first_lost(&self, sent: u64) -> Option<Range<u64>> {
        self.lost(sent).position(|lost| lost != 0).map(|bin| self.span(bin, sent))
    }

    /// The packets, counted from 0 for the first number, of the last bin with a loss: among them is the last lost.
    pub fn last_lost(&self, sent: u64) -> Option<Range<u64>> {
        self.lost(sent).rposition(|lost| lost != 0).map(|bin| self.span(bin, sent))
    }

    /// Returns the packets of a bin, of `sent` ones.
    fn span(&self, bin: usize, sent: u64) -> Range<u64> {
        let sent = sent.min(self.intended);
        let start = ((bin as u64) << self.shift).min(sent);
        start..start.saturating_add(self.width()).min(sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bins_are_at_most_so_many() {
        for (intended, bins, width, used) in [
            (1000, 100, 16, 63),
            (1000, 1000, 1, 1000),
            (1000, 5000, 1, 1000),
            (0, 10, 1, 1),
            (1, 0, 1, 1),
            (65, 64, 2, 33),
        ] {
            let losses = Losses::new(7, intended, bins);
            assert_eq!((losses.width(), losses.received().len()), (width, used), "{intended} in {bins}");
        }
        let day = Losses::new(0, 200_000_000 * 86_400, usize::MAX);
        assert!(day.received().len() <= MAX_BINS && day.received().len() > MAX_BINS / 4);
        assert_eq!(Losses::new(0, u64::MAX, 1).width(), 1 << 63);
    }

    #[test]
    fn what_was_not_sent_is_not_lost() {
        let mut losses = Losses::new(100, 64, 8);
        (100..120).for_each(|number| losses.arrive(number));
        assert_eq!(losses.lost(20).sum::<u64>(), 0);
        assert_eq!((losses.first_lost(20), losses.last_lost(20)), (None, None));
        assert_eq!((losses.first_lost(21), losses.last_lost(64)), (Some(16..21), Some(56..64)));
    }

    proptest! {
        #[test]
        fn equals_a_list(
            first in 0_u64..1000, intended in 1_u64..500, bins in 1_usize..600, keep in prop::collection::vec(any::<bool>(), 500),
            sent in 0_u64..500,
        ) {
            let sent = sent.min(intended);
            let mut losses = Losses::new(first, intended, bins);
            let lost: Vec<u64> = (0..sent).filter(|number| !keep[*number as usize]).collect();
            (0..sent).filter(|number| keep[*number as usize]).for_each(|number| losses.arrive(first + number));
            // those of other trials
            losses.arrive(first + intended);
            losses.arrive(first.wrapping_sub(1));
            prop_assert!(losses.received().len() <= bins.max(1));
            prop_assert_eq!(losses.lost(sent).sum::<u64>(), lost.len() as u64);
            for (bin, n) in losses.lost(sent).enumerate() {
                let width = losses.width();
                prop_assert_eq!(n, lost.iter().filter(|number| **number / width == bin as u64).count() as u64);
            }
            let within = |range: Option<Range<u64>>, number: Option<&u64>| match (range, number) {
                (Some(range), Some(number)) => range.contains(number) && range.end - range.start <= losses.width(),
                (None, None) => true,
                _ => false,
            };
            prop_assert!(within(losses.first_lost(sent), lost.first()));
            prop_assert!(within(losses.last_lost(sent), lost.last()));
        }
    }
}
