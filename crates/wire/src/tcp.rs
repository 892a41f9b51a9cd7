//! TCP (RFC 9293).

use crate::checksum::Pseudo;
use crate::options::{self, OptionBytes, Tlvs};
use crate::{Follows, Header, IpProtocol, Ipv4, Ipv6, Malformed, View, fixed, fixed_mut, ipv4, ipv6};
use core::{fmt, ops};
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    network_endian::{U16, U32},
};

/// A set of TCP control bits (RFC 9293 §3.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// No flag.
    pub const EMPTY: Self = Self(0);
    /// The sender has finished sending.
    pub const FIN: Self = Self(0x01);
    /// Synchronize sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset the connection.
    pub const RST: Self = Self(0x04);
    /// Push.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgment field is significant.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer is significant.
    pub const URG: Self = Self(0x20);
    /// ECN echo (RFC 3168).
    pub const ECE: Self = Self(0x40);
    /// Congestion window reduced (RFC 3168).
    pub const CWR: Self = Self(0x80);
    /// SYN and ACK.
    pub const SYN_ACK: Self = Self(0x12);

    /// Returns true if every flag of `other` is set.
    #[inline(always)]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns true if any flag of `other` is set.
    #[inline(always)]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the flags of either.
    #[inline(always)]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns these flags without those of `other`.
    #[inline(always)]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns true if no flag is set.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl ops::BitOr for TcpFlags {
    type Output = Self;

    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

impl ops::BitOrAssign for TcpFlags {
    #[inline(always)]
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl ops::BitAnd for TcpFlags {
    type Output = Self;

    #[inline(always)]
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl fmt::Debug for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (bit, name) in ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"].into_iter().enumerate() {
            if self.0 >> bit & 1 != 0 {
                write!(f, "{separator}{name}")?;
                separator = "|";
            }
        }
        if self.is_empty() { f.write_str("-") } else { Ok(()) }
    }
}

/// The 20 bytes that every TCP header starts with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Tcp {
    src_port: U16,
    dst_port: U16,
    seq: U32,
    ack: U32,
    offset_reserved: u8,
    flags: u8,
    window: U16,
    checksum: U16,
    urgent: U16,
}

impl Tcp {
    /// Returns the source port.
    #[inline(always)]
    pub fn src_port(&self) -> u16 {
        self.src_port.get()
    }

    /// Returns the destination port.
    #[inline(always)]
    pub fn dst_port(&self) -> u16 {
        self.dst_port.get()
    }

    /// Returns the sequence number of the first payload byte, or of the SYN.
    #[inline(always)]
    pub fn seq(&self) -> u32 {
        self.seq.get()
    }

    /// Returns the next sequence number the sender expects, if [`TcpFlags::ACK`] is set.
    #[inline(always)]
    pub fn ack(&self) -> u32 {
        self.ack.get()
    }

    /// Returns the header length in bytes, options included: 20 to 60 once checked.
    #[inline(always)]
    pub fn header_len(&self) -> usize {
        usize::from(self.offset_reserved >> 4) * 4
    }

    /// Returns the control bits.
    #[inline(always)]
    pub fn flags(&self) -> TcpFlags {
        TcpFlags(self.flags)
    }

    /// Returns the receive window as stored, before scaling.
    #[inline(always)]
    pub fn window(&self) -> u16 {
        self.window.get()
    }

    /// Returns the checksum as stored.
    #[inline(always)]
    pub fn checksum(&self) -> u16 {
        self.checksum.get()
    }

    /// Returns the urgent pointer, an offset from [`seq`](Self::seq), if [`TcpFlags::URG`] is set.
    #[inline(always)]
    pub fn urgent(&self) -> u16 {
        self.urgent.get()
    }

    /// Sets the source port; the checksum is the caller's, here and in all setters.
    #[inline(always)]
    pub fn set_src_port(&mut self, port: u16) {
        self.src_port = U16::new(port);
    }

    /// Sets the destination port.
    #[inline(always)]
    pub fn set_dst_port(&mut self, port: u16) {
        self.dst_port = U16::new(port);
    }

    /// Sets the sequence number.
    #[inline(always)]
    pub fn set_seq(&mut self, seq: u32) {
        self.seq = U32::new(seq);
    }

    /// Sets the acknowledgment number.
    #[inline(always)]
    pub fn set_ack(&mut self, ack: u32) {
        self.ack = U32::new(ack);
    }

    /// Sets the header length to `bytes`, of which only multiples of 4 below 64 can be expressed, and clears the
    /// reserved bits.
    #[inline(always)]
    pub fn set_header_len(&mut self, bytes: usize) {
        self.offset_reserved = ((bytes >> 2) as u8) << 4;
    }

    /// Sets the control bits.
    #[inline(always)]
    pub fn set_flags(&mut self, flags: TcpFlags) {
        self.flags = flags.0;
    }

    /// Sets the receive window as stored.
    #[inline(always)]
    pub fn set_window(&mut self, window: u16) {
        self.window = U16::new(window);
    }

    /// Sets the checksum.
    #[inline(always)]
    pub fn set_checksum(&mut self, checksum: u16) {
        self.checksum = U16::new(checksum);
    }

    /// Sets the urgent pointer.
    #[inline(always)]
    pub fn set_urgent(&mut self, urgent: u16) {
        self.urgent = U16::new(urgent);
    }

    /// Exchanges the ports; the checksum stays right.
    #[inline(always)]
    pub fn swap_ports(&mut self) {
        core::mem::swap(&mut self.src_port, &mut self.dst_port);
    }
}

impl Header for Tcp {
    const NAME: &'static str = "tcp";
    const NOT: &'static str = "not_tcp";
    const MALFORMED: &'static str = "malformed_tcp";

    #[inline(always)]
    fn check(bytes: &[u8]) -> Result<usize, Malformed> {
        let len = fixed::<Self>(bytes)?.header_len();
        if len < size_of::<Self>() {
            return Err(Malformed::HeaderLength);
        }
        if len > bytes.len() {
            return Err(Malformed::Short);
        }
        Ok(len)
    }
}

impl Follows<Ipv4> for Tcp {
    #[inline(always)]
    fn announced_by(below: &[u8]) -> bool {
        ipv4::announces(below, IpProtocol::TCP)
    }
}

impl Follows<Ipv6> for Tcp {
    #[inline(always)]
    fn announced_by(below: &[u8]) -> bool {
        ipv6::announces(below, IpProtocol::TCP)
    }
}

/// A checked TCP segment.
pub type Segment<'a> = View<'a, Tcp>;

impl<'a> View<'a, Tcp> {
    /// Returns the options, without "no operation", up to "end of list"; the first malformed one is the last item.
    pub fn options(&self) -> Options<'a> {
        Options(Tlvs { rest: self.variable_part() })
    }

    /// Returns true if the checksum is right.
    pub fn checksum_ok(&self, pseudo: Pseudo) -> bool {
        pseudo.sum(self.bytes()).is_valid()
    }
}

/// A block of received bytes (RFC 2018 §3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SackBlock {
    left: U32,
    right: U32,
}

impl SackBlock {
    /// Returns the block from `left` up to before `right`.
    pub fn new(left: u32, right: u32) -> Self {
        Self { left: U32::new(left), right: U32::new(right) }
    }

    /// Returns the first sequence number of the block.
    pub fn left(&self) -> u32 {
        self.left.get()
    }

    /// Returns the sequence number behind the block.
    pub fn right(&self) -> u32 {
        self.right.get()
    }
}

/// An option of a TCP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TcpOption<'a> {
    /// Maximum segment size in bytes (RFC 9293 §3.2).
    Mss(u16),
    /// Window scale in bits (RFC 7323 §2); values above 14 count as 14.
    WindowScale(u8),
    /// The sender understands [`Sack`](Self::Sack) (RFC 2018 §2).
    SackPermitted,
    /// Received blocks, one to four (RFC 2018 §3).
    Sack(&'a [SackBlock]),
    /// Timestamps (RFC 7323 §3).
    Timestamps {
        /// The sender's clock.
        value: u32,
        /// The clock value echoed.
        echo: u32,
    },
    /// Any other.
    Unknown {
        /// Kind.
        kind: u8,
        /// Bytes behind kind and length.
        data: &'a [u8],
    },
}

impl<'a> TcpOption<'a> {
    fn parse(kind: u8, data: &'a [u8]) -> Result<Self, Malformed> {
        Ok(match (kind, data) {
            (2, &[high, low]) => Self::Mss(u16::from_be_bytes([high, low])),
            (3, &[shift]) => Self::WindowScale(shift),
            (4, &[]) => Self::SackPermitted,
            (5, &[_, ..]) => Self::Sack(<[SackBlock]>::ref_from_bytes(data).map_err(|_| Malformed::Option)?),
            (8, &[a, b, c, d, e, f, g, h]) => {
                Self::Timestamps { value: u32::from_be_bytes([a, b, c, d]), echo: u32::from_be_bytes([e, f, g, h]) }
            }
            (2..=5 | 8, _) => return Err(Malformed::Option),
            _ => Self::Unknown { kind, data },
        })
    }

    fn emit(&self, out: &mut [u8]) -> Result<usize, Malformed> {
        match *self {
            Self::Mss(bytes) => options::emit(2, &bytes.to_be_bytes(), out),
            Self::WindowScale(shift) => options::emit(3, &[shift], out),
            Self::SackPermitted => options::emit(4, &[], out),
            Self::Sack(blocks) => options::emit(5, blocks.as_bytes(), out),
            Self::Timestamps { value, echo } => options::emit(8, [U32::new(value), U32::new(echo)].as_bytes(), out),
            Self::Unknown { kind, data } => options::emit(kind, data, out),
        }
    }
}

/// The options of a TCP header.
#[derive(Clone, Debug)]
pub struct Options<'a>(Tlvs<'a>);

impl<'a> Iterator for Options<'a> {
    type Item = Result<TcpOption<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let (kind, data) = match self.0.next()? {
            Ok(option) => option,
            Err(why) => return Some(Err(why)),
        };
        let option = TcpOption::parse(kind, data);
        if option.is_err() {
            self.0.rest = &[];
        }
        Some(option)
    }
}

/// Returns the options for [`Repr::options`].
///
/// # Errors
/// [`Malformed::Range`] if they take more than 40 bytes.
pub fn options(list: &[TcpOption<'_>]) -> Result<OptionBytes, Malformed> {
    OptionBytes::join(list, TcpOption::emit)
}

/// A TCP header as a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repr {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number.
    pub ack: u32,
    /// Control bits.
    pub flags: TcpFlags,
    /// Receive window as stored.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// Options as they stand in the header.
    pub options: OptionBytes,
}

impl Repr {
    /// Returns a SYN without options.
    pub fn new(src_port: u16, dst_port: u16) -> Self {
        let options = OptionBytes::EMPTY;
        Self { src_port, dst_port, seq: 0, ack: 0, flags: TcpFlags::SYN, window: 0xffff, urgent: 0, options }
    }

    /// Parses a checked header; the checksum is checked by [`View::checksum_ok`].
    ///
    /// # Errors
    /// [`Malformed::Option`] if an option is.
    pub fn parse(segment: &Segment<'_>) -> Result<Self, Malformed> {
        segment.options().try_for_each(|option| option.map(drop))?;
        let header = segment.header();
        Ok(Self {
            src_port: header.src_port(),
            dst_port: header.dst_port(),
            seq: header.seq(),
            ack: header.ack(),
            flags: header.flags(),
            window: header.window(),
            urgent: header.urgent(),
            options: OptionBytes::new(segment.variable_part())?,
        })
    }

    /// Returns the length of the header in bytes, options included.
    #[expect(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub fn len(&self) -> usize {
        size_of::<Tcp>() + self.options.len()
    }

    /// Writes the header with checksum 0 to the start of `out`.
    ///
    /// # Errors
    /// [`Malformed::Short`] if there is no room.
    pub fn emit(&self, out: &mut [u8]) -> Result<(), Malformed> {
        let len = self.len();
        let out = out.get_mut(..len).ok_or(Malformed::Short)?;
        out.get_mut(size_of::<Tcp>()..).ok_or(Malformed::Short)?.copy_from_slice(&self.options);
        let header = fixed_mut::<Tcp>(out)?;
        header.set_src_port(self.src_port);
        header.set_dst_port(self.dst_port);
        header.set_seq(self.seq);
        header.set_ack(self.ack);
        header.set_header_len(len);
        header.set_flags(self.flags);
        header.set_window(self.window);
        header.set_checksum(0);
        header.set_urgent(self.urgent);
        Ok(())
    }

    /// Writes the header to the start of `segment`, where the payload already stands behind it and ends it, with a
    /// checksum over both.
    ///
    /// # Errors
    /// As [`emit`](Self::emit).
    pub fn emit_with(&self, pseudo: Pseudo, segment: &mut [u8]) -> Result<(), Malformed> {
        self.emit(segment)?;
        let sum = pseudo.sum(segment).finish();
        fixed_mut::<Tcp>(segment)?.set_checksum(sum);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use proptest::prelude::*;

    const SYN: [u8; 40] = *b"\x30\x39\x00\x50\x00\x00\x00\x07\x00\x00\x00\x00\xa0\x02\xfa\xf0\x00\x00\x00\x00\
        \x02\x04\x05\xb4\x04\x02\x08\x0a\x00\x00\x00\x01\x00\x00\x00\x02\x01\x03\x03\x07";

    #[test]
    fn fields_and_options() {
        let segment = Segment::new(&SYN).unwrap();
        let list = [
            TcpOption::Mss(1460),
            TcpOption::SackPermitted,
            TcpOption::Timestamps { value: 1, echo: 2 },
            TcpOption::WindowScale(7),
        ];
        assert!(segment.options().eq(list.map(Ok)));
        let repr = Repr::parse(&segment).unwrap();
        let header = segment.header();
        assert_eq!((header.src_port(), header.dst_port(), header.seq(), header.window()), (12345, 80, 7, 0xfaf0));
        assert_eq!((repr.len(), repr.flags), (40, TcpFlags::SYN));
        let mut out = [0xff; 40];
        repr.emit(&mut out).unwrap();
        assert_eq!(out, SYN);
        assert_eq!(repr.emit(&mut out[..39]), Err(Malformed::Short));
    }

    #[test]
    fn sack_blocks() {
        let blocks = [SackBlock::new(1, 2), SackBlock::new(3, 0xffff_ffff)];
        let bytes = options(&[TcpOption::Sack(&blocks)]).unwrap();
        assert_eq!(bytes[..10], [5, 18, 0, 0, 0, 1, 0, 0, 0, 2]);
        let parsed = Options(Tlvs { rest: &bytes }).next().unwrap().unwrap();
        assert_eq!(parsed, TcpOption::Sack(&blocks));
        let TcpOption::Sack([_, last]) = parsed else { unreachable!() };
        assert_eq!((last.left(), last.right()), (3, 0xffff_ffff));
        assert_eq!(options(&[TcpOption::Sack(&[blocks[0]; 5])]), Err(Malformed::Range));
    }

    #[test]
    fn malformed_options_end_the_list() {
        for bad in [&[2, 3, 0][..], &[3, 2], &[4, 3, 0], &[5, 2], &[5, 9, 0, 0, 0, 0, 0, 0, 0], &[8, 4, 0, 0]] {
            let bytes = [bad, &[3, 3, 1]].concat();
            assert!(Options(Tlvs { rest: &bytes }).eq([Err(Malformed::Option)]), "{bad:?}");
        }
        let mut syn = SYN;
        syn[21] = 3;
        assert_eq!(Repr::parse(&Segment::new(&syn).unwrap()), Err(Malformed::Option));
    }

    #[test]
    fn header_lengths() {
        let with_words = |words: u8| {
            let mut bytes = SYN;
            bytes[12] = words << 4;
            Tcp::check(&bytes)
        };
        assert_eq!(with_words(4), Err(Malformed::HeaderLength));
        assert_eq!((with_words(5), with_words(10)), (Ok(20), Ok(40)));
        assert_eq!(with_words(11), Err(Malformed::Short));
        assert_eq!(Tcp::check(&SYN[..19]), Err(Malformed::Short));
    }

    #[test]
    fn flags() {
        let flags = TcpFlags::SYN | TcpFlags::ACK;
        assert_eq!(flags, TcpFlags::SYN_ACK);
        assert!(flags.contains(TcpFlags::SYN) && !flags.contains(TcpFlags::SYN | TcpFlags::FIN));
        assert!(flags.intersects(TcpFlags::SYN | TcpFlags::FIN) && !flags.intersects(TcpFlags::FIN));
        assert_eq!((flags & TcpFlags::ACK, flags.without(TcpFlags::ACK)), (TcpFlags::ACK, TcpFlags::SYN));
        assert_eq!((format!("{flags:?}"), format!("{:?}", TcpFlags::EMPTY)), ("SYN|ACK".into(), "-".into()));
    }

    proptest! {
        #[test]
        fn value_round_trip(ports: (u16, u16), seq: u32, ack: u32, flags: u8, window: u16, urgent: u16,
            data in prop::collection::vec(any::<u8>(), 0..34), payload: [u8; 7]) {
            let options = options(&[TcpOption::Mss(9), TcpOption::Unknown { kind: 254, data: &data }]).unwrap();
            let (src_port, dst_port) = ports;
            let repr = Repr { src_port, dst_port, seq, ack, flags: TcpFlags(flags), window, urgent, options };
            let pseudo = Pseudo::v4(Ipv4Addr::LOCALHOST, Ipv4Addr::BROADCAST, IpProtocol::TCP);
            let mut bytes = vec![0xff; repr.len()];
            bytes.extend(payload);
            repr.emit_with(pseudo, &mut bytes).unwrap();
            let segment = Segment::new(&bytes).unwrap();
            prop_assert_eq!(Repr::parse(&segment), Ok(repr));
            prop_assert_eq!(segment.payload(), payload);
            prop_assert!(segment.checksum_ok(pseudo));
        }
    }
}
