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

mod genome;

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

/// Error of a size or a mix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SizeError {
    /// Outside the sizes frames can have.
    #[error("frame size {0} is outside {min}..={max} bytes including the 4-byte FCS; a buffer of 60 bytes is a frame of 64", min = FrameSize::MIN.with_fcs(), max = FrameSize::MAX.with_fcs())]
    Range(u64),
    /// Not a size, list or known name.
    #[error(
        "`{0}` is no frame size or mix; give `64`, `64:7,594:4,1518:1`, `imix`, `imix-csit`, `imix-vsperf`, `imix-384`, `dc`, \
         or a genome of RFC 6985 such as `aaaaaaaddddg`"
    )]
    Text(String),
    /// A letter of a genome that stands for nothing.
    #[error("letter `{0}` of the genome stands for no size; say which behind it, such as `aa{0},{0}=74`")]
    Letter(char),
    /// No sizes, too many, or all weights zero.
    #[error("a mix has 1 to {MAX_SIZES} sizes with weights above zero, not {0}")]
    Count(usize),
    /// The weights have no short cycle.
    #[error("the weights repeat after {0} frames only, the limit is {MAX_PERIOD}; choose smaller weights")]
    Period(u64),
}

/// The size of a frame in bytes, frame check sequence included: 64 to 16,000.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FrameSize(u16);

impl FrameSize {
    /// The smallest Ethernet frame.
    pub const MIN: Self = Self(64);
    /// The largest frame, letter `j` of RFC 6985 §4.
    pub const MAX: Self = Self(16_000);
    /// The sizes of RFC 2544 §9.1.
    pub const RFC2544: [Self; 7] = [Self(64), Self(128), Self(256), Self(512), Self(1024), Self(1280), Self(1518)];

    /// Returns a size including the frame check sequence.
    ///
    /// # Errors
    /// [`SizeError::Range`] outside 64 to 16,000.
    pub fn new(with_fcs: u16) -> Result<Self, SizeError> {
        let size = Self(with_fcs);
        if (Self::MIN..=Self::MAX).contains(&size) { Ok(size) } else { Err(SizeError::Range(with_fcs.into())) }
    }

    /// Returns the bytes including the frame check sequence.
    #[inline(always)]
    pub const fn with_fcs(self) -> u16 {
        self.0
    }

    /// Returns the bytes in a buffer: without the frame check sequence.
    #[inline(always)]
    pub const fn without_fcs(self) -> usize {
        (self.0 - FCS) as usize
    }

    /// Returns the most frames a second, one direction: `link_bps / (8·(L + 20))`.
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
/// exactly. It is interleaved evenly, or the one that a genome (RFC 6985) writes down: `aaaaaaaddddg` is seven times 64,
/// four times 512, 1518. Letters stand for `a` 64, `b` 128, `c` 256, `d` 512, `e` 1024, `f` 1280, `g` 1518, `h` 2112, `i`
/// 9000, `j` 16,000 bytes, `z` for 1518 or what `z=9018` says, capitals for what is said behind the genome: `aaAg,A=74`.
///
/// There are several "Internet mixes" and other mixes with names, in [`Mix::NAMED`]. Results with different ones do not
/// compare.
///
/// | name | bytes | weights | mean |
/// |---|---|---|---|
/// | `imix` | 64, 594, 1518 | 7:4:1 | 361.8 |
/// | `imix-csit` | 64, 570, 1518 | 28:16:4 | 353.8 |
/// | `imix-vsperf` | 64, 512, 1518 | `aaaaaaaddddg`, in this order | 334.5 |
/// | `imix-384` | 64, 594, 1518 | 11:6:2 | 384.4 |
/// | `dc` | 64, 96, 120, 128, 160, 192, 256, 512, 1518 | 36:13:16:18:10:4:1:1:1 | 124.3 |
///
/// `imix` is that of NFVbench and, 60/590/1514 without FCS, of TRex. `imix-384` is made up: the study of concurrent VNFs
/// (ICPE 2018) does not say what its mix was, but that two links of 10 Gbit/s carry 6.18 Mpps of it, which makes
/// 384.2 to 384.9 bytes; 11:6:2 are the smallest weights of `imix`'s sizes in falling order within that. `dc` is made up as
/// well: the measurement of SoftNIC (Niu et al.) offers a data centre's sizes, median about 120 bytes and most below 256, at 8.662
/// Mpps on 10 Gbit/s, which makes 124.3 bytes. Here the median is 120, 97 % are below 256, and few large frames make up
/// the mean.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mix {
    /// Sizes and weights, in the order given, without common divisor.
    entries: Vec<(FrameSize, u32)>,
    /// Which entry each frame of a cycle has.
    pattern: Vec<u8>,
}

impl Mix {
    /// Names of mixes, and what they stand for.
    pub const NAMED: [(&'static str, &'static str); 5] = [
        ("imix", "64:7,594:4,1518:1"),
        ("imix-csit", "64:28,570:16,1518:4"),
        ("imix-vsperf", "aaaaaaaddddg"),
        ("imix-384", "64:11,594:6,1518:2"),
        ("dc", "64:36,96:13,120:16,128:18,160:10,192:4,256:1,512:1,1518:1"),
    ];

    /// Creates a mix of one size.
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

    /// Creates a mix with an explicit order, the genome of RFC 6985.
    fn in_order(sizes: &[FrameSize]) -> Result<Self, SizeError> {
        let mut entries: Vec<(FrameSize, u32)> = Vec::new();
        let mut pattern = Vec::with_capacity(sizes.len());
        for size in sizes {
            let at = entries.iter().position(|(known, _)| known == size).unwrap_or_else(|| {
                entries.push((*size, 0));
                entries.len() - 1
            });
            entries[at].1 += 1;
            pattern.push(at as u8);
        }
        if entries.is_empty() || entries.len() > MAX_SIZES {
            return Err(SizeError::Count(entries.len()));
        }
        Ok(Self { entries, pattern })
    }

    /// Sizes and weights. An index of the mix is a position in this list.
    pub fn entries(&self) -> &[(FrameSize, u32)] {
        &self.entries
    }

    /// Returns the frames after which the order repeats.
    pub fn period(&self) -> usize {
        self.pattern.len()
    }

    /// Returns the mix's index for frame number `frame`, which is its place in [`entries`](Self::entries).
    pub fn index_at(&self, frame: u64) -> usize {
        self.pattern[(frame % self.pattern.len() as u64) as usize].into()
    }

    /// Returns the order from its start, without a division for each frame.
    pub fn cycle(&self) -> Cycle {
        Cycle { pattern: self.pattern.clone().into(), next: 0 }
    }

    /// Returns the smallest size.
    pub fn smallest(&self) -> FrameSize {
        self.entries.iter().map(|(size, _)| *size).min().unwrap_or(FrameSize::MIN)
    }

    /// Returns the largest size.
    pub fn largest(&self) -> FrameSize {
        self.entries.iter().map(|(size, _)| *size).max().unwrap_or(FrameSize::MIN)
    }

    /// Returns the mean size in bytes, frame check sequence included.
    pub fn mean(&self) -> f64 {
        let bytes: u64 = self.entries.iter().map(|(size, weight)| u64::from(size.0) * u64::from(*weight)).sum();
        bytes as f64 / self.pattern.len() as f64
    }

    /// Returns the most frames a second on a link of `link_bps`, one direction.
    pub fn max_pps(&self, link_bps: u64) -> f64 {
        link_bps as f64 / (8.0 * (self.mean() + f64::from(WIRE_OVERHEAD)))
    }

    /// Returns the utilisation of a link of `link_bps` by `pps` frames of this mix per second.
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
    /// Returns the index of the next frame's size in [`Mix::entries`].
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
    /// `64`, `64:7,594:4,1518:1`, or a genome where the order is its own: text that parses to the same mix.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [(size, _)] = self.entries[..] {
            return size.fmt(f);
        }
        if Self::spread(self.entries.clone()).pattern != self.pattern {
            let order = self.pattern.iter().map(|at| self.entries[usize::from(*at)].0);
            return f.write_str(&genome::write(order));
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
        let text = text.trim();
        if let Some((_, stands_for)) = Self::NAMED.iter().find(|(name, _)| *name == text) {
            return stands_for.parse();
        }
        if genome::is(text) {
            return Self::in_order(&genome::parse(text)?);
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
        let expected = [
            ("imix", 361.8, 12),
            ("imix-csit", 353.8, 12),
            ("imix-vsperf", 334.5, 12),
            ("imix-384", 384.4, 19),
            ("dc", 124.3, 100),
        ];
        for (name, mean, period) in expected {
            let mix: Mix = name.parse().unwrap();
            assert!((mix.mean() - mean).abs() < 0.05, "{name} {}", mix.mean());
            assert_eq!(mix.period(), period);
            assert_eq!(mix.to_string().parse(), Ok(mix));
        }
        assert_eq!(Mix::NAMED.map(|(name, _)| name), expected.map(|(name, ..)| name));
        assert_eq!("imix".parse(), Ok(Mix::imix()));
    }

    #[test]
    fn the_studies_mixes_make_their_rates() {
        let named = |name: &str| name.parse::<Mix>().unwrap();
        assert_eq!((named("imix-384").max_pps(20_000_000_000) / 1e4).round(), 618.0);
        assert!((named("dc").max_pps(10_000_000_000) - 8_662_000.0).abs() < 1000.0);
        let dc = named("dc");
        let below = |bytes: u16| {
            let weights = dc.entries().iter().filter(|(size, _)| size.with_fcs() < bytes).map(|(_, weight)| weight);
            weights.sum::<u32>()
        };
        assert!(below(120) < 50 && below(121) > 50 && below(256) == 97);
    }

    #[test]
    fn a_genome_is_sent_in_its_order() {
        let bytes = |text: &str| {
            let mix: Mix = text.parse().unwrap();
            let mut cycle = mix.cycle();
            let order: Vec<_> = (0..mix.period()).map(|_| mix.entries()[cycle.next_index()].0.with_fcs()).collect();
            assert_eq!(mix.to_string().parse(), Ok(mix));
            order
        };
        assert_eq!(bytes("imix-vsperf"), [64, 64, 64, 64, 64, 64, 64, 512, 512, 512, 512, 1518]);
        assert_eq!(bytes("abcdefghij"), [64, 128, 256, 512, 1024, 1280, 1518, 2112, 9000, 16_000]);
        assert_eq!(bytes("aaBAAz, A=74 ,B=1492,z=9018"), [64, 64, 1492, 74, 74, 9018]);
        assert_eq!(bytes("zz"), [1518]);
        assert_eq!(bytes("gabgabgab"), [1518, 64, 128]);
        assert_eq!("cd".parse::<Mix>().unwrap().mean(), 384.0);
        for (text, why) in [
            ("aA", SizeError::Letter('A')),
            ("aA,A=63", SizeError::Range(63)),
            ("aA,A", SizeError::Text("aA,A".into())),
            ("aA,A=64,A=65", SizeError::Text("aA,A=64,A=65".into())),
            ("aA,a=70", SizeError::Text("aA,a=70".into())),
            ("ak", SizeError::Text("ak".into())),
        ] {
            assert_eq!(text.parse::<Mix>(), Err(why), "{text}");
        }
        assert_eq!("ab".repeat(2049).parse::<Mix>(), Err(SizeError::Period(4098)));
    }

    #[test]
    fn refusals() {
        assert_eq!("63".parse::<Mix>(), Err(SizeError::Range(63)));
        assert_eq!("16001".parse::<Mix>(), Err(SizeError::Range(16_001)));
        assert_eq!("70000".parse::<FrameSize>(), Err(SizeError::Range(70_000)));
        assert_eq!("64:0".parse::<Mix>(), Err(SizeError::Count(0)));
        assert_eq!("64:4096,65:1".parse::<Mix>(), Err(SizeError::Period(4097)));
        assert!(matches!("".parse::<Mix>(), Err(SizeError::Text(_))));
        assert!(matches!("64:x".parse::<Mix>(), Err(SizeError::Text(_))));
        assert!(matches!("64,".repeat(40).parse::<Mix>(), Err(SizeError::Count(_))));
        assert!(SizeError::Range(63).to_string().contains("64..=16000"));
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
            weights in prop::collection::vec((64_u16..=16_000, 1_u32..40), 1..8), start in 0_u64..5000,
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
        fn a_genome_comes_back(word in "[abcdefghizABCDE]{1,60}") {
            let text = format!("{word},A=70,B=71,C=72,D=73,E=16000");
            let mix: Mix = text.parse().unwrap();
            prop_assert_eq!(mix.to_string().parse(), Ok(mix.clone()));
            prop_assert!(word.len() % mix.period() == 0);
            prop_assert_eq!(mix.entries().iter().map(|(_, weight)| *weight as usize).sum::<usize>(), mix.period());
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in "[0-9:,= a-zA-Z]{0,40}") {
            if let Ok(mix) = text.parse::<Mix>() {
                prop_assert_eq!(mix.to_string().parse(), Ok(mix));
            }
        }
    }
}
