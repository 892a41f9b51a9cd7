//! Frame sizes, mixes of them, and what a link carries.
//!
//! A frame size here always includes the 4-byte frame check sequence, as in RFC 2544; buffers do not hold it, so they
//! are [`FrameSize::without_fcs`] bytes long. On the wire each frame also costs 20 bytes: preamble (7), start of
//! frame (1) and the smallest gap (12), IEEE 802.3 §3.1 and §4.4.2.
//!
//! ```
//! use traffic::size::{FrameSize, Mix};
//!
//! let small = FrameSize::new(64)?;
//! assert_eq!(small.max_pps(10_000_000_000).floor(), 14_880_952.0);
//! let imix: Mix = "imix".parse()?;
//! assert_eq!(imix, "64:7,594:4,1518:1".parse()?);
//! assert_eq!((imix.period(), imix.mean().round()), (12, 362.0));
//! # Ok::<(), traffic::size::SizeError>(())
//! ```

use std::fmt;
use std::str::FromStr;

/// Bytes of the frame check sequence.
pub const FCS: u16 = 4;
/// Bytes a frame costs on the wire beside itself.
pub const WIRE_OVERHEAD: u16 = 20;
/// Most sizes in a mix.
pub const MAX_SIZES: usize = 32;
/// Longest cycle of a mix, frames: the sum of its weights, shortened.
pub const MAX_PERIOD: usize = 4096;

/// Why a size or a mix is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SizeError {
    /// Outside the sizes frames can have.
    #[error("frame size {0} is outside {min}..={max} bytes including the 4-byte FCS; a buffer of 60 bytes is a frame of 64", min = FrameSize::MIN.with_fcs(), max = FrameSize::MAX.with_fcs())]
    Range(u64),
    /// Not a size, list or known name.
    #[error("`{0}` is no frame size or mix; give `64`, `64:7,594:4,1518:1`, `imix`, `imix-csit` or `imix-vsperf`")]
    Text(String),
    /// No sizes, too many, or all weights zero.
    #[error("a mix has 1 to {MAX_SIZES} sizes with weights above zero, not {0}")]
    Count(usize),
    /// The weights have no short cycle.
    #[error("the weights repeat after {0} frames only, the limit is {MAX_PERIOD}; choose smaller weights")]
    Period(u64),
}

/// The size of a frame in bytes, frame check sequence included: 64 to 9216.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FrameSize(u16);

impl FrameSize {
    /// The smallest Ethernet frame.
    pub const MIN: Self = Self(64);
    /// The largest jumbo frame that most switches pass.
    pub const MAX: Self = Self(9216);
    /// The sizes of RFC 2544 §9.1.
    pub const RFC2544: [Self; 7] = [Self(64), Self(128), Self(256), Self(512), Self(1024), Self(1280), Self(1518)];

    /// A size including the frame check sequence.
    ///
    /// # Errors
    /// [`SizeError::Range`] outside 64 to 9216.
    pub fn new(with_fcs: u16) -> Result<Self, SizeError> {
        let size = Self(with_fcs);
        if (Self::MIN..=Self::MAX).contains(&size) { Ok(size) } else { Err(SizeError::Range(with_fcs.into())) }
    }

    /// Bytes including the frame check sequence.
    #[inline(always)]
    pub const fn with_fcs(self) -> u16 {
        self.0
    }

    /// Bytes in a buffer: without the frame check sequence.
    #[inline(always)]
    pub const fn without_fcs(self) -> usize {
        (self.0 - FCS) as usize
    }

    /// Most frames a second, one direction: `link_bps / (8·(L + 20))`.
    pub fn max_pps(self, link_bps: u64) -> f64 {
        link_bps as f64 / (8.0 * f64::from(self.0 + WIRE_OVERHEAD))
    }
}

impl fmt::Display for FrameSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for FrameSize {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let number: u64 = text.trim().parse().map_err(|_| SizeError::Text(text.to_owned()))?;
        u16::try_from(number).map_err(|_| SizeError::Range(number)).and_then(Self::new)
    }
}

/// Sizes in fixed proportions and a fixed, even order.
///
/// The order is a cycle of [`period`](Self::period) frames, so any that many frames in a row hold the proportions
/// exactly. There are several "Internet mixes"; `imix` here is 64, 594 and 1518 bytes at 7:4:1, mean 361.8, as in
/// NFVbench and (60/590/1514 without FCS) TRex. `imix-csit` is 64, 570 and 1518 at 28:16:4, mean 353.8, `imix-vsperf`
/// 64, 512 and 1518 at 7:4:1, mean 334.5. Results with different ones do not compare.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mix {
    /// Sizes and weights, in the order given, without common divisor.
    entries: Vec<(FrameSize, u32)>,
    /// Which entry each frame of a cycle has.
    pattern: Vec<u8>,
}

impl Mix {
    /// All frames of one size.
    pub fn fixed(size: FrameSize) -> Self {
        Self { entries: vec![(size, 1)], pattern: vec![0] }
    }

    /// 64, 594 and 1518 bytes at 7:4:1.
    pub fn imix() -> Self {
        Self::spread(vec![(FrameSize(64), 7), (FrameSize(594), 4), (FrameSize(1518), 1)])
    }

    /// Sizes with weights. Entries of weight 0 are left out, entries of the same size joined.
    ///
    /// # Errors
    /// [`SizeError::Count`] for none or more than [`MAX_SIZES`], [`SizeError::Period`] if the cycle is too long.
    pub fn weighted(sizes: &[(FrameSize, u32)]) -> Result<Self, SizeError> {
        let mut entries: Vec<(FrameSize, u64)> = Vec::new();
        for &(size, weight) in sizes.iter().filter(|(_, weight)| *weight > 0) {
            match entries.iter_mut().find(|(known, _)| *known == size) {
                Some((_, sum)) => *sum += u64::from(weight),
                None => entries.push((size, weight.into())),
            }
            if entries.len() > MAX_SIZES {
                return Err(SizeError::Count(sizes.len()));
            }
        }
        let Some(divisor) = entries.iter().map(|(_, weight)| *weight).reduce(gcd) else {
            return Err(SizeError::Count(0));
        };
        let period = entries.iter().fold(0_u64, |sum, (_, weight)| sum.saturating_add(weight / divisor));
        if period > MAX_PERIOD as u64 {
            return Err(SizeError::Period(period));
        }
        Ok(Self::spread(entries.into_iter().map(|(size, weight)| (size, (weight / divisor) as u32)).collect()))
    }

    /// Interleaves by smooth weighted round robin: the entry that is furthest behind its share comes next.
    fn spread(entries: Vec<(FrameSize, u32)>) -> Self {
        let period: i64 = entries.iter().map(|(_, weight)| i64::from(*weight)).sum();
        let mut credit = vec![0_i64; entries.len()];
        let pattern = (0..period)
            .map(|_| {
                for (credit, (_, weight)) in credit.iter_mut().zip(&entries) {
                    *credit += i64::from(*weight);
                }
                let richest = (0..entries.len()).rev().max_by_key(|i| credit[*i]).unwrap_or(0);
                credit[richest] -= period;
                richest as u8
            })
            .collect();
        Self { entries, pattern }
    }

    /// Sizes and weights. An index of the mix is a position in this list.
    pub fn entries(&self) -> &[(FrameSize, u32)] {
        &self.entries
    }

    /// Frames after which the order repeats.
    pub fn period(&self) -> usize {
        self.pattern.len()
    }

    /// The mix's index for frame number `frame`, which is its place in [`entries`](Self::entries).
    pub fn index_at(&self, frame: u64) -> usize {
        self.pattern[(frame % self.pattern.len() as u64) as usize].into()
    }

    /// The order from its start, without a division for each frame.
    pub fn cycle(&self) -> Cycle {
        Cycle { pattern: self.pattern.clone().into(), next: 0 }
    }

    /// The smallest size.
    pub fn smallest(&self) -> FrameSize {
        self.entries.iter().map(|(size, _)| *size).min().unwrap_or(FrameSize::MIN)
    }

    /// The largest size.
    pub fn largest(&self) -> FrameSize {
        self.entries.iter().map(|(size, _)| *size).max().unwrap_or(FrameSize::MIN)
    }

    /// Mean size in bytes, frame check sequence included.
    pub fn mean(&self) -> f64 {
        let bytes: u64 = self.entries.iter().map(|(size, weight)| u64::from(size.0) * u64::from(*weight)).sum();
        bytes as f64 / self.pattern.len() as f64
    }

    /// Most frames a second on a link of `link_bps`, one direction.
    pub fn max_pps(&self, link_bps: u64) -> f64 {
        link_bps as f64 / (8.0 * (self.mean() + f64::from(WIRE_OVERHEAD)))
    }

    /// What `pps` frames a second of this mix are on a link of `link_bps`.
    pub fn rates(&self, pps: f64, link_bps: u64) -> Rates {
        let l2_bps = 8.0 * self.mean() * pps;
        let l1_bps = 8.0 * (self.mean() + f64::from(WIRE_OVERHEAD)) * pps;
        Rates { pps, l2_bps, l1_bps, line_share: l1_bps / link_bps as f64 }
    }
}

/// A packet rate in the units people ask for, one direction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rates {
    /// Frames a second.
    pub pps: f64,
    /// Bits a second of frames with their check sequence.
    pub l2_bps: f64,
    /// Bits a second on the wire: frames, preambles and smallest gaps.
    pub l1_bps: f64,
    /// Share of the link, 1.0 for line rate.
    pub line_share: f64,
}

/// The order of a [`Mix`], one frame after the other.
#[derive(Clone, Debug)]
pub struct Cycle {
    pattern: Box<[u8]>,
    next: usize,
}

impl Cycle {
    /// The index of the next frame's size in [`Mix::entries`].
    #[inline(always)]
    pub fn next_index(&mut self) -> usize {
        let index = self.pattern[self.next];
        self.next = if self.next + 1 < self.pattern.len() { self.next + 1 } else { 0 };
        index.into()
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl fmt::Display for Mix {
    /// `64` or `64:7,594:4,1518:1`: text that parses to the same mix.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [(size, _)] = self.entries[..] {
            return size.fmt(f);
        }
        for (i, (size, weight)) in self.entries.iter().enumerate() {
            write!(f, "{}{size}:{weight}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for Mix {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        match text.trim() {
            "imix" => return Ok(Self::imix()),
            "imix-csit" => return "64:28,570:16,1518:4".parse(),
            "imix-vsperf" => return "64:7,512:4,1518:1".parse(),
            _ => {}
        }
        let parts: Vec<&str> = text.split(',').take(MAX_SIZES + 1).collect();
        if parts.len() > MAX_SIZES {
            return Err(SizeError::Count(parts.len()));
        }
        let unknown = || SizeError::Text(text.chars().take(80).collect());
        let entry = |part: &str| {
            let (size, weight) = part.split_once(':').unwrap_or((part, "1"));
            let size = size.parse().map_err(|why| if let SizeError::Text(_) = why { unknown() } else { why })?;
            Ok((size, weight.trim().parse().map_err(|_| unknown())?))
        };
        Self::weighted(&parts.into_iter().map(entry).collect::<Result<Vec<_>, SizeError>>()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn size(bytes: u16) -> FrameSize {
        FrameSize::new(bytes).unwrap()
    }

    #[test]
    fn line_rates_of_the_standards() {
        // RFC 2544 sizes on 10 GbE, rounded down: the figures every tester's manual prints.
        let expected = [14_880_952, 8_445_945, 4_528_985, 2_349_624, 1_197_318, 961_538, 812_743];
        for (size, pps) in FrameSize::RFC2544.into_iter().zip(expected) {
            assert_eq!(size.max_pps(10_000_000_000) as u64, pps, "{size}");
            assert!((Mix::fixed(size).max_pps(10_000_000_000) - size.max_pps(10_000_000_000)).abs() < 1e-6);
        }
        let rates = Mix::fixed(size(64)).rates(14_880_952.0, 10_000_000_000);
        assert_eq!((rates.l1_bps / 1e6).round(), 10_000.0);
        assert_eq!((rates.l2_bps / 1e6).round(), 7_619.0);
        assert!((rates.line_share - 1.0).abs() < 1e-6);
    }

    #[test]
    fn means_of_the_internet_mixes() {
        for (name, mean, period) in [("imix", 361.8, 12), ("imix-csit", 353.8, 12), ("imix-vsperf", 334.5, 12)] {
            let mix: Mix = name.parse().unwrap();
            assert!((mix.mean() - mean).abs() < 0.05, "{name} {}", mix.mean());
            assert_eq!(mix.period(), period);
        }
    }

    #[test]
    fn refusals() {
        assert_eq!("63".parse::<Mix>(), Err(SizeError::Range(63)));
        assert_eq!("9217".parse::<Mix>(), Err(SizeError::Range(9217)));
        assert_eq!("70000".parse::<FrameSize>(), Err(SizeError::Range(70_000)));
        assert_eq!("64:0".parse::<Mix>(), Err(SizeError::Count(0)));
        assert_eq!("64:4096,65:1".parse::<Mix>(), Err(SizeError::Period(4097)));
        assert!(matches!("".parse::<Mix>(), Err(SizeError::Text(_))));
        assert!(matches!("64:x".parse::<Mix>(), Err(SizeError::Text(_))));
        assert!(matches!("64,".repeat(40).parse::<Mix>(), Err(SizeError::Count(_))));
        assert!(SizeError::Range(63).to_string().contains("64..=9216"));
    }

    #[test]
    fn small_frames_do_not_bunch() {
        let mut cycle = Mix::imix().cycle();
        let order: Vec<usize> = (0..12).map(|_| cycle.next_index()).collect();
        // Never three of the same in a row where 7:4:1 allows better.
        assert!(order.windows(3).all(|w| w != [0, 0, 0]), "{order:?}");
        assert_eq!(cycle.next_index(), order[0]);
    }

    proptest! {
        #[test]
        fn every_window_holds_the_proportions(
            weights in prop::collection::vec((64_u16..=9216, 1_u32..40), 1..8), start in 0_u64..5000,
        ) {
            let sizes: Vec<_> = weights.iter().map(|(bytes, weight)| (size(*bytes), *weight)).collect();
            let mix = Mix::weighted(&sizes).unwrap();
            let mut counts = vec![0_u32; mix.entries().len()];
            for frame in start..start + mix.period() as u64 {
                counts[mix.index_at(frame)] += 1;
            }
            let wanted: Vec<u32> = mix.entries().iter().map(|(_, weight)| *weight).collect();
            prop_assert_eq!(counts, wanted);
            prop_assert_eq!(mix.to_string().parse::<Mix>(), Ok(mix.clone()));
            let mut cycle = mix.cycle();
            prop_assert!((0..start).all(|frame| cycle.next_index() == mix.index_at(frame)));
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in "[0-9:, a-z]{0,40}") {
            let _ = text.parse::<Mix>();
        }
    }
}
