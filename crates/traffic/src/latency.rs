//! Delays: histograms, delay variation, jitter.
//!
//! ```
//! use traffic::Delays;
//!
//! let mut delays = Delays::new();
//! (1..=1000).for_each(|microseconds| delays.record(microseconds * 1000));
//! assert_eq!(delays.quantile_ns(0.5), Some(500_223)); // three digits are kept
//! let sent = delays.to_base64()?;
//! assert_eq!(Delays::from_base64(&sent)?, delays);
//! # Ok::<(), traffic::latency::HdrError>(())
//! ```

use std::io::Read;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};

/// Longest delay told apart, nanoseconds: ten seconds; longer ones count as this.
pub const MAX_NS: u64 = 10_000_000_000;
/// Significant decimal digits that are kept.
pub const DIGITS: u8 = 3;
/// Longest text of a histogram that is read, bytes.
pub const MAX_TEXT: usize = 1 << 20;

/// First bytes of an encoded histogram, as HdrHistogram defines them: V2 with one word a counter, and deflated.
const V2: [u8; 4] = [0x1c, 0x84, 0x93, 0x13];
const V2_DEFLATE: [u8; 4] = [0x1c, 0x84, 0x93, 0x14];
/// Bytes before the counters.
const HEADER: usize = 40;
/// Longest histogram of [`MAX_NS`] and [`DIGITS`], deflation undone: nine bytes for each of its counters.
const MAX_BYTES: usize = HEADER + 9 * 32 * 1024;

/// Why a histogram could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HdrError {
    /// Too long to be one of ours.
    #[error("histogram text of {0} bytes, the limit is {MAX_TEXT}; export it with three significant digits")]
    Long(usize),
    /// Not base64, or not deflated.
    #[error("not a base64 text of an HdrHistogram V2 in its deflated form: {0}")]
    Text(String),
    /// A histogram whose range or precision this crate does not keep.
    #[error(
        "a histogram of values up to {high} with {digits} digits; only up to {MAX_NS} with {DIGITS} digits is kept"
    )]
    Shape {
        /// Largest value.
        high: u64,
        /// Significant digits.
        digits: u32,
    },
    /// The counters contradict the header.
    #[error("damaged histogram: {0}")]
    Damaged(&'static str),
    /// It could not be encoded.
    #[error("histogram not encoded: {0}")]
    Encode(String),
}

/// A histogram of delays in nanoseconds, exact to three significant digits up to ten seconds.
///
/// Shorter and longer delays are never dropped: 0 counts as 0, what is above [`MAX_NS`] counts as that.
#[derive(Clone, Debug, PartialEq)]
pub struct Delays {
    histogram: Histogram<u64>,
}

impl Default for Delays {
    fn default() -> Self {
        Self::new()
    }
}

impl Delays {
    /// No delays yet. Takes 200 KiB.
    pub fn new() -> Self {
        match Histogram::new_with_bounds(1, MAX_NS, DIGITS) {
            Ok(histogram) => Self { histogram },
            // The bounds are constants that the tests construct.
            Err(why) => unreachable!("histogram of {MAX_NS} ns: {why}"),
        }
    }

    /// Counts a delay.
    #[inline(always)]
    pub fn record(&mut self, ns: u64) {
        self.histogram.saturating_record(ns);
    }

    /// Counts the same delay `count` times.
    #[inline]
    pub fn record_n(&mut self, ns: u64, count: u64) {
        self.histogram.saturating_record_n(ns, count);
    }

    /// Adds what another has counted.
    pub fn merge(&mut self, other: &Self) {
        // Both have the same bounds, for which adding has no error.
        let _ = self.histogram.add(&other.histogram);
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.histogram.reset();
    }

    /// Delays counted.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The shortest, rounded down to what is told apart.
    pub fn min_ns(&self) -> Option<u64> {
        (!self.histogram.is_empty()).then(|| self.histogram.min())
    }

    /// The longest, rounded up to what is told apart.
    pub fn max_ns(&self) -> Option<u64> {
        (!self.histogram.is_empty()).then(|| self.histogram.max())
    }

    /// The mean, from the histogram.
    pub fn mean_ns(&self) -> Option<f64> {
        (!self.histogram.is_empty()).then(|| self.histogram.mean())
    }

    /// The delay that a share of all, 0.0 to 1.0, does not exceed.
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        (!self.histogram.is_empty()).then(|| self.histogram.value_at_quantile(share))
    }

    /// Packet delay variation at a share: `D(share) − Dmin` (RFC 5481 §4.2).
    pub fn pdv_ns(&self, share: f64) -> Option<u64> {
        Some(self.quantile_ns(share)?.saturating_sub(self.min_ns()?))
    }

    /// Latency and delay variation as RFC 8219 wants them, if there are at least 500 delays (§7.2, §7.3.1).
    pub fn rfc8219(&self) -> Option<Rfc8219> {
        if self.count() < 500 {
            return None;
        }
        Some(Rfc8219 {
            typical_ns: self.quantile_ns(0.5)?,
            worst_ns: self.quantile_ns(0.999)?,
            pdv_ns: self.pdv_ns(0.999)?,
        })
    }

    /// Delays and how often each, shortest first; a delay is the upper end of what is not told apart from it.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.histogram.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value()))
    }

    /// The histogram in the deflated V2 format of HdrHistogram, as base64: what its plotters and log readers take.
    ///
    /// # Errors
    /// [`HdrError::Encode`] if a counter is beyond what the format holds (2⁶³).
    pub fn to_base64(&self) -> Result<String, HdrError> {
        let mut bytes = Vec::new();
        match V2DeflateSerializer::new().serialize(&self.histogram, &mut bytes) {
            Ok(_) => Ok(STANDARD.encode(bytes)),
            Err(why) => Err(HdrError::Encode(why.to_string())),
        }
    }

    /// Reads what [`to_base64`](Self::to_base64) wrote, or another program with the same range and precision or less.
    ///
    /// # Errors
    /// See [`HdrError`]. Whatever the text claims, less than 2 MiB are held.
    pub fn from_base64(text: &str) -> Result<Self, HdrError> {
        if text.len() > MAX_TEXT {
            return Err(HdrError::Long(text.len()));
        }
        let bytes = STANDARD.decode(text.trim()).map_err(|why| HdrError::Text(why.to_string()))?;
        let deflated = match bytes.strip_prefix(&V2_DEFLATE) {
            Some([_, _, _, _, deflated @ ..]) => deflated,
            _ => return Err(HdrError::Text("it starts with other bytes".to_owned())),
        };
        let mut plain = Vec::new();
        let read = ZlibDecoder::new(deflated).take(MAX_BYTES as u64 + 1).read_to_end(&mut plain);
        read.map_err(|why| HdrError::Text(why.to_string()))?;
        check(&plain)?;
        let read: Histogram<u64> = Deserializer::new()
            .deserialize(&mut &plain[..])
            .map_err(|_| HdrError::Damaged("its counters do not fit"))?;
        let mut delays = Self::new();
        delays.histogram.add(&read).map_err(|_| HdrError::Damaged("its counters do not fit"))?;
        Ok(delays)
    }
}

/// Refuses what the deserialiser would allocate for without limit, or overflow on.
fn check(plain: &[u8]) -> Result<(), HdrError> {
    let word = |at: usize| plain.get(at..at + 4).and_then(|b| b.first_chunk()).map(|b| u32::from_be_bytes(*b));
    let long = |at: usize| plain.get(at..at + 8).and_then(|b| b.first_chunk()).map(|b| u64::from_be_bytes(*b));
    let (Some(payload), Some(digits), Some(low), Some(high)) = (word(4), word(12), long(16), long(24)) else {
        return Err(HdrError::Damaged("cut short"));
    };
    if plain.len() > MAX_BYTES || !plain.starts_with(&V2) || payload as usize != plain.len() - HEADER.min(plain.len()) {
        return Err(HdrError::Damaged("its length is not what it says"));
    }
    if digits > DIGITS.into() || low != 1 || high > MAX_NS {
        return Err(HdrError::Shape { high, digits });
    }
    // Counters are zigzag varints of at most nine bytes; a negative one is a run of zeros.
    let (mut at, mut place, mut total) = (HEADER, 0_u64, 0_u64);
    while at < plain.len() {
        let mut number = 0_u64;
        let mut shift = 0;
        loop {
            let Some(byte) = plain.get(at) else { return Err(HdrError::Damaged("its last counter is cut short")) };
            at += 1;
            let last = shift == 56;
            number |= u64::from(if last { *byte } else { byte & 0x7f }) << shift;
            if last || byte & 0x80 == 0 {
                break;
            }
            shift += 7;
        }
        let value = number >> 1;
        if number & 1 == 1 {
            place = place.saturating_add(value.saturating_add(1));
        } else {
            place = place.saturating_add(1);
            total = total.checked_add(value).ok_or(HdrError::Damaged("its counters add up to too much"))?;
        }
        if place > 1 << 20 {
            return Err(HdrError::Damaged("more counters than its range has"));
        }
    }
    Ok(())
}

/// Latency and delay variation by RFC 8219.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rfc8219 {
    /// Typical latency: the median (§7.2).
    pub typical_ns: u64,
    /// Worst-case latency: the 99.9th percentile (§7.2).
    pub worst_ns: u64,
    /// Packet delay variation: the 99.9th percentile over the shortest delay (§7.3.1).
    pub pdv_ns: u64,
}

/// Interarrival jitter (RFC 3550 §6.4.1): a running mean of how much delays differ from one packet to the next.
///
/// A value that follows the last few dozen packets, not a statistic of the trial; for that, see [`Delays::pdv_ns`].
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Jitter {
    last: Option<u64>,
    ns: f64,
}

impl Jitter {
    /// Takes note of the next packet's delay. The first has nothing to differ from.
    #[inline]
    pub fn record(&mut self, delay_ns: u64) {
        if let Some(last) = self.last.replace(delay_ns) {
            self.ns += (last.abs_diff(delay_ns) as f64 - self.ns) / 16.0;
        }
    }

    /// The jitter now, nanoseconds; 0.0 before the second packet.
    pub fn ns(&self) -> f64 {
        self.ns
    }
}

/// Turns ticks of a counter into nanoseconds with one multiplication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scale {
    /// Nanoseconds a tick, times 2³².
    ns: u64,
}

impl Scale {
    /// For a counter of `ticks_hz` a second; 0 counts as 1.
    pub fn new(ticks_hz: u64) -> Self {
        let ns = (1_000_000_000_u128 << 32) / u128::from(ticks_hz.max(1));
        Self { ns: u64::try_from(ns).unwrap_or(u64::MAX) }
    }

    /// Nanoseconds of `ticks`, rounded to the nearest.
    #[inline(always)]
    pub fn ns(self, ticks: u64) -> u64 {
        let ns = (u128::from(ticks) * u128::from(self.ns) + (1 << 31)) >> 32;
        if ns > u128::from(u64::MAX) { u64::MAX } else { ns as u64 }
    }
}

#[cfg(test)]
mod tests;
