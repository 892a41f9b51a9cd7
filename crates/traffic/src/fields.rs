//! Header fields whose values change from packet to packet.
//!
//! | text | values |
//! |---|---|
//! | `ipv4.dscp=0-63` | 0, 1, ... 63, then again; `63-0` counts down, `0-63/4` in steps of 4 |
//! | `udp.dst=random:1024-65535` | uniformly distributed, the same in every run |
//! | `ipv4.src=10.0.0.1\|10.0.7.9` | one after the other; `99*A\|B` is 99 times A, then B |
//!
//! Values are numbers, also hexadecimal (`0x1f`), addresses and MAC addresses. Checksums of IPv4, UDP and TCP are updated
//! (RFC 1624). Fields replace the values of [`Flows`](crate::Flows).
//!
//! | header | fields |
//! |---|---|
//! | `eth` | `dst`, `src` |
//! | `vlan`, `vlan2` | `id`, `pcp`, `dei` |
//! | `mpls`, `mpls2` to `mpls8` | `label`, `tc`, `ttl` |
//! | `pppoe` | `session` |
//! | `ipv4` | `src`, `dst`, `dscp`, `ecn`, `id`, `ttl` |
//! | `ipv6` | `src`, `dst`, `dscp`, `ecn`, `label`, `hops` |
//! | `udp` | `src`, `dst` |
//! | `tcp` | `src`, `dst`, `seq`, `ack`, `flags`, `window` |
//! | `vxlan`, `gtpu` | `vni`, `teid` |
//!
//! Of several headers of a kind the innermost one is meant; `outer.ipv4.src` is the one in front of a tunnel. `vlan2` is the
//! second tag, `mpls3` the third label.
//!
//! ```
//! use traffic::{FieldSpec, Fields, FlowSettings, Flows, Mix, Probe, Template};
//!
//! let mix: Mix = "64".parse()?;
//! let template = Template::new(&Flows::new(FlowSettings::v4())?, &mix, true)?;
//! let specs = ["ipv4.src=10.0.0.0-10.0.0.255".parse::<FieldSpec>()?, "ipv4.dscp=46|0".parse()?];
//! let fields = Fields::new(&specs, &template)?;
//! let mut frame = [0; 60];
//! template.fill(0, 0, Probe::default(), &mut frame);
//! fields.write(258, &mut frame);
//! assert_eq!((frame[15], &frame[26..30]), (46 << 2, &[10, 0, 0, 2][..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod layout;
mod parse;

use crate::probe::Probe;
use crate::random::scramble;
use crate::template::Template;
use layout::Section;
use wire::checksum::Delta;

pub use parse::{MAX_VALUES, NotField};

/// Most fields of a stream.
pub const MAX_FIELDS: usize = 16;
/// Checksums that fields may change: of two IPv4 headers and two transports.
const MAX_CHECKSUMS: usize = 4;

/// A field and its values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FieldSpec {
    name: String,
    values: Values,
}

/// Values in the order of the packets. Those of addresses of IPv6 are 128 bits wide, of which the lower 64 change.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Values {
    /// `count` values from `first` in steps, ascending or descending.
    Range { first: u128, step: u64, count: u64, descending: bool },
    /// Any of `count` values from `first`.
    Random { first: u128, count: u64 },
    /// One after the other; at least one.
    List(Box<[u128]>),
}

/// Error of fields in frames.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldError {
    /// The frames have no such field.
    #[error("the frames have no field `{0}`; their headers have {1}")]
    Absent(String, String),
    /// A value has more bits than the field.
    #[error("`{name}` has {bits} bits, and {value} has more")]
    Wide {
        /// Name of the field.
        name: String,
        /// Width of the field.
        bits: u32,
        /// The value.
        value: u128,
    },
    /// A field is named twice.
    #[error("`{0}` is named twice; give one list of values")]
    Twice(String),
    /// Too many fields.
    #[error("{0} fields; a stream has at most {MAX_FIELDS}")]
    Count(usize),
}

impl FieldSpec {
    /// Returns a field with a list of values, 1 to [`MAX_VALUES`].
    ///
    /// # Errors
    /// [`NotField`] for a name that is none, and for another number of values.
    pub fn list(name: &str, values: &[u64]) -> Result<Self, NotField> {
        let not = || NotField(format!("{name}=(list of {} values)", values.len()));
        if !layout::is_name(name) || !(1..=MAX_VALUES).contains(&values.len()) {
            return Err(not());
        }
        Ok(Self {
            name: name.to_owned(),
            values: Values::List(values.iter().map(|value| u128::from(*value)).collect()),
        })
    }

    /// Returns the field of packets in the reverse direction: sources and destinations change places.
    #[must_use]
    pub fn reversed(&self) -> Self {
        let name = match self.name.rsplit_once('.') {
            Some((header, "src")) => format!("{header}.dst"),
            Some((header, "dst")) => format!("{header}.src"),
            _ => self.name.clone(),
        };
        Self { name, ..self.clone() }
    }
}

impl Values {
    /// Returns the lower 64 bits of the value for packet number `n`.
    #[inline(always)]
    fn low(&self, n: u64, seed: u64) -> u64 {
        match self {
            Self::Range { first, step, count, descending } => {
                let offset = (n % count) * step;
                if *descending { (*first as u64).wrapping_sub(offset) } else { (*first as u64).wrapping_add(offset) }
            }
            Self::Random { first, count } => {
                let at = (u128::from(scramble(n ^ seed)) * u128::from(*count)) >> 64;
                (*first as u64).wrapping_add(at as u64)
            }
            Self::List(values) => values[(n % values.len() as u64) as usize] as u64,
        }
    }

    /// Returns the upper 64 bits of the value for packet number `n`.
    #[inline(always)]
    fn high(&self, n: u64) -> u64 {
        let value = match self {
            Self::Range { first, .. } | Self::Random { first, .. } => *first,
            Self::List(values) => values[(n % values.len() as u64) as usize],
        };
        (value >> 64) as u64
    }

    /// Returns the highest value.
    fn max(&self) -> u128 {
        match self {
            Self::Range { first, descending: true, .. } => *first,
            Self::Range { first, step, count, .. } => first + u128::from(count - 1) * u128::from(*step),
            Self::Random { first, count } => first + u128::from(count - 1),
            Self::List(values) => values.iter().copied().max().unwrap_or(0),
        }
    }
}

/// Fields in the frames of a template.
#[derive(Clone, Debug)]
pub struct Fields {
    writes: Box<[Write]>,
    checksums: Box<[Checksum]>,
}

/// A checksum that covers fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Checksum {
    at: usize,
    udp: bool,
}

/// A change of 2, 4 or 8 bytes that contain a field.
#[derive(Clone, Debug)]
struct Write {
    window: Window,
    at: usize,
    shift: u32,
    mask: u64,
    part: Part,
    values: Values,
    seed: u64,
    /// Bit `n` is set if checksum `n` covers the field.
    covered: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Window {
    Two,
    Four,
    Eight,
}

/// Part of a value that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Low,
    High,
}

impl Fields {
    /// Finds fields in the frames of a template.
    ///
    /// # Errors
    /// See [`FieldError`].
    pub fn new(specs: &[FieldSpec], template: &Template) -> Result<Self, FieldError> {
        if specs.len() > MAX_FIELDS {
            return Err(FieldError::Count(specs.len()));
        }
        let mut frame = vec![0; template.frame_len(0)];
        template.fill(0, 0, Probe::default(), &mut frame);
        let sections = layout::sections(&frame);
        let (mut writes, mut checksums) = (vec![], vec![]);
        for (n, spec) in specs.iter().enumerate() {
            if specs[..n].iter().any(|other| other.name == spec.name) {
                return Err(FieldError::Twice(spec.name.clone()));
            }
            let Some((section, place)) = layout::find(&sections, &spec.name) else {
                return Err(FieldError::Absent(spec.name.clone(), layout::names(&sections)));
            };
            if place.bits < 128 && spec.values.max() >> place.bits != 0 {
                let (name, bits) = (spec.name.clone(), place.bits);
                return Err(FieldError::Wide { name, bits, value: spec.values.max() });
            }
            let covered = covering(section, &frame, &place, &mut checksums);
            let write = |at, window, part| Write {
                window,
                at,
                shift: place.shift,
                mask: if place.bits >= 64 { u64::MAX } else { ((1 << place.bits) - 1) << place.shift },
                part,
                values: spec.values.clone(),
                seed: scramble(n as u64),
                covered,
            };
            match place.window {
                2 => writes.push(write(place.at, Window::Two, Part::Low)),
                4 => writes.push(write(place.at, Window::Four, Part::Low)),
                8 => writes.push(write(place.at, Window::Eight, Part::Low)),
                _ => {
                    writes.push(write(place.at, Window::Eight, Part::High));
                    writes.push(write(place.at + 8, Window::Eight, Part::Low));
                }
            }
        }
        Ok(Self { writes: writes.into(), checksums: checksums.into() })
    }

    /// Writes the values of packet number `n` to a frame of the template.
    #[inline]
    pub fn write(&self, n: u64, frame: &mut [u8]) {
        let mut deltas = [Delta::ZERO; MAX_CHECKSUMS];
        for write in &self.writes {
            let delta = write.apply(n, frame);
            for (at, sum) in deltas.iter_mut().enumerate() {
                if write.covered & (1 << at) != 0 {
                    *sum = delta(*sum);
                }
            }
        }
        for (checksum, delta) in self.checksums.iter().zip(deltas) {
            if let Some(bytes) = frame.get_mut(checksum.at..).and_then(<[u8]>::first_chunk_mut) {
                let old = u16::from_be_bytes(*bytes);
                *bytes = if checksum.udp { delta.apply_udp(old) } else { delta.apply(old) }.to_be_bytes();
            }
        }
    }
}

impl Write {
    /// Writes the field; returns a function that adds the change to a [`Delta`].
    #[inline(always)]
    fn apply(&self, n: u64, frame: &mut [u8]) -> impl Fn(Delta) -> Delta + use<> {
        let value = match self.part {
            Part::Low => self.values.low(n, self.seed),
            Part::High => self.values.high(n),
        };
        let bits = (value << self.shift) & self.mask;
        let (mut old, mut new) = (0, 0);
        macro_rules! change {
            ($kind:ty) => {
                if let Some(bytes) = frame.get_mut(self.at..).and_then(<[u8]>::first_chunk_mut) {
                    let before = <$kind>::from_be_bytes(*bytes);
                    let after = before & !(self.mask as $kind) | bits as $kind;
                    *bytes = after.to_be_bytes();
                    (old, new) = (u64::from(before), u64::from(after));
                }
            };
        }
        match self.window {
            Window::Two => change!(u16),
            Window::Four => change!(u32),
            Window::Eight => change!(u64),
        }
        move |delta| delta.u32((old >> 32) as u32, (new >> 32) as u32).u32(old as u32, new as u32)
    }
}

/// Returns a mask of the checksums over a field, and adds those that are not listed yet.
fn covering(section: &Section, frame: &[u8], place: &layout::Place, all: &mut Vec<Checksum>) -> u8 {
    let ip = place.is_ip.then(|| section.ip_checksum()).flatten().map(|at| Checksum { at, udp: false });
    let transport = place.is_summed.then(|| section.transport_checksum(frame)).flatten();
    let transport = transport.map(|(at, udp)| Checksum { at, udp });
    let mut mask = 0;
    for checksum in ip.into_iter().chain(transport) {
        let at = all.iter().position(|known| *known == checksum).unwrap_or_else(|| {
            all.push(checksum);
            all.len() - 1
        });
        mask |= 1 << at;
    }
    mask
}

#[cfg(test)]
mod tests;
