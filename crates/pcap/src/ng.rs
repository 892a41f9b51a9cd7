//! pcapng: sections of blocks (draft-ietf-opsawg-pcapng §3, §4).

use std::io::Read;

use crate::error::Fault;
use crate::input::{Input, Order};
use crate::record::RecordSpan;
use crate::{LinkType, MAX_FRAME};

/// Type of the section header block, the same in both byte orders (§4.1).
pub(crate) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
pub(crate) const INTERFACE: u32 = 1;
const PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
pub(crate) const ENHANCED_PACKET: u32 = 6;

/// Byte-order magic of a section header (§4.1).
pub(crate) const ORDER_MAGIC: u32 = 0x1a2b_3c4d;
/// Type and length before a block's body, length again behind it (§3.1).
pub(crate) const AROUND_BODY: u32 = 12;

/// Options of an interface description (§4.2).
pub(crate) const OPT_END: u16 = 0;
pub(crate) const OPT_TSRESOL: u16 = 9;
const OPT_TSOFFSET: u16 = 14;

/// Interfaces described in one section; a file with more is refused.
const MAX_INTERFACES: usize = 65_536;

/// The section being read, and where in a block the input stands.
#[derive(Debug)]
pub(crate) struct Section {
    order: Order,
    interfaces: Vec<Interface>,
    /// Total length of the open block, bytes; 0 between blocks.
    total: u32,
    /// Bytes of the open block's body not read yet.
    rest: u32,
}

/// An interface description.
#[derive(Debug)]
struct Interface {
    link_type: LinkType,
    /// Most bytes captured of a frame; 0 is no limit.
    snaplen: u32,
    clock: Clock,
}

impl Section {
    /// Creates the state before the first section header.
    pub(crate) fn before_first() -> Self {
        Self { order: Order::Little, interfaces: Vec::new(), total: 0, rest: 0 }
    }

    /// Returns the next packet, or `None` at the end. Other blocks are skipped.
    #[inline]
    pub(crate) fn next<R: Read>(&mut self, input: &mut Input<R>) -> Result<Option<RecordSpan>, Fault> {
        loop {
            self.close_block(input)?;
            input.mark();
            let Some(header) = input.array::<8>()? else {
                return if input.available().is_empty() { Ok(None) } else { Err(Fault::Cut) };
            };
            let [kind, total] = self.order.words(&header);
            if kind == SECTION_HEADER {
                self.begin(input, [header[4], header[5], header[6], header[7]])?;
                continue;
            }
            self.open_block(total, AROUND_BODY)?;
            match kind {
                ENHANCED_PACKET | PACKET => return self.packet(input, kind).map(Some),
                SIMPLE_PACKET => return self.simple_packet(input).map(Some),
                INTERFACE => self.interface(input)?,
                _ => {}
            }
        }
    }

    /// Section header (§4.1): the byte order from here on; interfaces are counted anew. The section's length is not
    /// needed, as blocks are not jumped over together.
    fn begin<R: Read>(&mut self, input: &mut Input<R>, total: [u8; 4]) -> Result<(), Fault> {
        let magic: [u8; 4] = input.array()?.ok_or(Fault::Cut)?;
        self.order = [Order::Little, Order::Big]
            .into_iter()
            .find(|order| order.u32(magic) == ORDER_MAGIC)
            .ok_or_else(|| Fault::Corrupt(format!("section header with byte-order magic {magic:02x?}")))?;
        self.interfaces.clear();
        self.open_block(self.order.u32(total), 28)?;
        self.rest -= 4;
        let [major_low, major_high, minor_low, minor_high] = self.array(input)?;
        let (major, minor) = (self.order.u16([major_low, major_high]), self.order.u16([minor_low, minor_high]));
        // 1.2 is 1.0, written by mistake (§4.1).
        if (major, minor) != (1, 0) && (major, minor) != (1, 2) {
            return Err(Fault::Format {
                problem: format!("pcapng version {major}.{minor} is not supported, only 1.0 is"),
                remedy: "convert it with the program that wrote it",
            });
        }
        Ok(())
    }

    /// Parses an interface description (§4.2).
    fn interface<R: Read>(&mut self, input: &mut Input<R>) -> Result<(), Fault> {
        if self.interfaces.len() == MAX_INTERFACES {
            return Err(Fault::Corrupt(format!("more than {MAX_INTERFACES} interfaces in a section")));
        }
        let fields: [u8; 8] = self.array(input)?;
        let mut exponent = DEFAULT_EXPONENT;
        let mut offset_s = 0;
        // Lengths of blocks are multiples of 4, so `rest` is one too.
        while self.rest > 0 {
            let [code_low, code_high, len_low, len_high] = self.array(input)?;
            let length = self.order.u16([len_low, len_high]);
            match (self.order.u16([code_low, code_high]), length) {
                (OPT_END, _) => break,
                (OPT_TSRESOL, 1) => [exponent, ..] = self.array::<4, R>(input)?,
                (OPT_TSOFFSET, 8) => {
                    let bytes: [u8; 8] = self.array(input)?;
                    offset_s = match self.order {
                        Order::Little => i64::from_le_bytes(bytes),
                        Order::Big => i64::from_be_bytes(bytes),
                    };
                }
                (code @ (OPT_TSRESOL | OPT_TSOFFSET), _) => {
                    return Err(Fault::Corrupt(format!("interface option {code} of {length} bytes")));
                }
                _ => self.skip(input, u32::from(length).next_multiple_of(4))?,
            }
        }
        self.interfaces.push(Interface {
            link_type: LinkType(self.order.u16([fields[0], fields[1]])),
            snaplen: self.order.words::<2>(&fields)[1],
            clock: Clock::new(exponent, offset_s),
        });
        Ok(())
    }

    /// Enhanced packet (§4.3) or its obsolete form (appendix A), which differ in how they number the interface.
    #[inline]
    fn packet<R: Read>(&mut self, input: &mut Input<R>, kind: u32) -> Result<RecordSpan, Fault> {
        let fields: [u8; 20] = self.array(input)?;
        let [word, high, low, length, original_len] = self.order.words(&fields);
        let number = if kind == PACKET { u32::from(self.order.u16([fields[0], fields[1]])) } else { word };
        let ticks = u64::from(high) << 32 | u64::from(low);
        let at = self.frame(input, length)?;
        let interface = self.described(number)?;
        Ok(RecordSpan {
            timestamp_ns: interface.clock.ns(ticks),
            original_len,
            link_type: interface.link_type,
            interface: number,
            at,
            length: length as usize,
        })
    }

    /// Parses a simple packet (§4.4): interface 0, no time; the captured length follows from the other two.
    fn simple_packet<R: Read>(&mut self, input: &mut Input<R>) -> Result<RecordSpan, Fault> {
        let original_len = self.order.u32(self.array(input)?);
        let interface = self.described(0)?;
        let link_type = interface.link_type;
        let length = if interface.snaplen == 0 { original_len } else { original_len.min(interface.snaplen) };
        let at = self.frame(input, length)?;
        Ok(RecordSpan { timestamp_ns: 0, original_len, link_type, interface: 0, at, length: length as usize })
    }

    #[inline]
    fn described(&self, number: u32) -> Result<&Interface, Fault> {
        self.interfaces.get(number as usize).ok_or_else(|| {
            Fault::Corrupt(format!("packet of interface {number}, but the section describes {}", self.interfaces.len()))
        })
    }

    /// Takes a frame out of the open block.
    #[inline]
    fn frame<R: Read>(&mut self, input: &mut Input<R>, length: u32) -> Result<usize, Fault> {
        self.spend(length)?;
        if length as usize > MAX_FRAME {
            return Err(Fault::TooLong(length));
        }
        if !input.ensure(length as usize)? {
            return Err(Fault::Cut);
        }
        Ok(input.take(length as usize))
    }

    /// Takes `N` bytes out of the open block.
    #[inline]
    fn array<const N: usize, R: Read>(&mut self, input: &mut Input<R>) -> Result<[u8; N], Fault> {
        self.spend(N as u32)?;
        input.array()?.ok_or(Fault::Cut)
    }

    fn skip<R: Read>(&mut self, input: &mut Input<R>, n: u32) -> Result<(), Fault> {
        self.spend(n)?;
        if input.skip(n as usize)? { Ok(()) } else { Err(Fault::Cut) }
    }

    #[inline]
    fn spend(&mut self, n: u32) -> Result<(), Fault> {
        self.rest = self
            .rest
            .checked_sub(n)
            .ok_or_else(|| Fault::Corrupt(format!("block of {} bytes is too short for what it holds", self.total)))?;
        Ok(())
    }

    /// Begins a block whose type and length have been taken.
    #[inline]
    fn open_block(&mut self, total: u32, least: u32) -> Result<(), Fault> {
        if total < least || !total.is_multiple_of(4) {
            return Err(Fault::Corrupt(format!("block length {total} is below {least} or no multiple of 4")));
        }
        self.total = total;
        self.rest = total - AROUND_BODY;
        Ok(())
    }

    /// Passes over what is left of the open block, if any, and checks the length behind it.
    #[inline]
    fn close_block<R: Read>(&mut self, input: &mut Input<R>) -> Result<(), Fault> {
        if self.total == 0 {
            return Ok(());
        }
        if self.rest > 0 {
            self.skip(input, self.rest)?;
        }
        let behind = self.order.u32(input.array()?.ok_or(Fault::Cut)?);
        if behind != self.total {
            return Err(Fault::Corrupt(format!("block length is {} before the block and {behind} behind", self.total)));
        }
        self.total = 0;
        Ok(())
    }
}

/// `if_tsresol` where it is absent: microseconds.
const DEFAULT_EXPONENT: u8 = 6;

/// How an interface counts time: `if_tsresol` and `if_tsoffset` (§4.2).
#[derive(Debug)]
struct Clock {
    unit: Unit,
    offset_s: i64,
}

/// From ticks to nanoseconds.
#[derive(Debug)]
enum Unit {
    Times(u64),
    Over(u64),
    /// Ticks of 2^-n s.
    Binary(u32),
}

impl Clock {
    /// `resolution` is a power of 10, or of 2 when its top bit is set, with the sign left out.
    fn new(resolution: u8, offset_s: i64) -> Self {
        let exponent = u32::from(resolution & 0x7f);
        let unit = match exponent.checked_sub(9) {
            _ if resolution & 0x80 != 0 => Unit::Binary(exponent),
            None => Unit::Times(10_u64.pow(9 - exponent)),
            // Ticks so short that all of a u64 are less than a nanosecond: zero.
            Some(finer) => 10_u64.checked_pow(finer).map_or(Unit::Times(0), Unit::Over),
        };
        Self { unit, offset_s }
    }

    /// Returns the nanoseconds since the epoch, rounded down; the nearest u64 for times before 1970 or after 2554.
    #[inline]
    fn ns(&self, ticks: u64) -> u64 {
        let ns = match self.unit {
            Unit::Times(factor) if self.offset_s == 0 => return ticks.saturating_mul(factor),
            Unit::Times(factor) => u128::from(ticks) * u128::from(factor),
            Unit::Over(divisor) => u128::from(ticks / divisor),
            Unit::Binary(exponent) => (u128::from(ticks) * 1_000_000_000) >> exponent,
        };
        // Below 2^94 + 2^93: fits.
        let ns = ns as i128 + i128::from(self.offset_s) * 1_000_000_000;
        ns.clamp(0, i128::from(u64::MAX)) as u64
    }
}

#[cfg(test)]
mod tests;
