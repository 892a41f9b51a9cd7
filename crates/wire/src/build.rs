//! Whole frames for tests and tools, with right lengths and checksums.
//!
//! ```
//! use wire::{build, ethernet, ipv4, udp};
//!
//! let frame = build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1000, 53).ttl(3).payload(b"hello").pad_to(60).to_vec();
//! assert_eq!(frame.len(), 60);
//! let ethernet = ethernet::Frame::new(&frame)?;
//! let ip = ipv4::Packet::new(ethernet.payload())?;
//! assert_eq!((ip.header().ttl(), ip.checksum_ok()), (3, true));
//! let udp = udp::Datagram::new(ip.payload())?;
//! assert_eq!((udp.payload(), udp.checksum_ok(ip.pseudo())), (&b"hello"[..], true));
//! # Ok::<(), wire::Malformed>(())
//! ```

use crate::checksum::Pseudo;
use crate::options::OptionBytes;
use crate::{EtherType, IpProtocol, MacAddr, Malformed, TcpFlags};
use crate::{arp, ethernet, icmpv4, icmpv6, ipv4, ipv6, tcp, udp, vlan};
use core::net::{Ipv4Addr, Ipv6Addr};

/// Source address of built frames, locally administered.
pub const SRC_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
/// Destination address of built frames, locally administered.
pub const DST_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

/// A frame being built: network layer `N` with transport layer `T`.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "call `to_vec` for its bytes"]
pub struct Frame<N, T> {
    src: MacAddr,
    dst: MacAddr,
    tags: Vec<(EtherType, vlan::Repr)>,
    network: N,
    transport: T,
    payload: Vec<u8>,
    pad_to: usize,
}

/// The network layer of a [`Frame`]: [`ipv4::Repr`], [`V6`] or [`arp::Repr`].
pub trait Network {
    /// EtherType of the network layer.
    const ETHER_TYPE: EtherType;

    /// Returns its header bytes in front of `payload_len` bytes.
    ///
    /// # Errors
    /// [`Malformed::Range`] if a field is too large.
    fn header(&self, payload_len: usize) -> Result<Vec<u8>, Malformed>;
}

/// A network layer with addresses.
pub trait Ip: Network {
    /// Returns the pseudo header of the checksums above.
    fn pseudo(&self) -> Pseudo;
}

/// The transport layer of a [`Frame`] over `N`: `()` for none.
pub trait Transport<N> {
    /// Returns its header followed by `payload`.
    ///
    /// # Errors
    /// [`Malformed::Range`] if a field is too large.
    fn segment(&self, network: &N, payload: &[u8]) -> Result<Vec<u8>, Malformed>;
}

/// The network layer of IPv6 frames: header and extension headers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct V6 {
    /// The header; `next_header` is the upper protocol.
    repr: ipv6::Repr,
    /// Kind and the bytes behind the next header field.
    extensions: Vec<(IpProtocol, Vec<u8>)>,
}

impl Network for ipv4::Repr {
    const ETHER_TYPE: EtherType = EtherType::IPV4;

    fn header(&self, payload_len: usize) -> Result<Vec<u8>, Malformed> {
        let payload_len = u16::try_from(payload_len).map_err(|_| Malformed::Range)?;
        let mut out = vec![0; self.len()];
        Self { payload_len, ..*self }.emit(&mut out)?;
        Ok(out)
    }
}

impl Ip for ipv4::Repr {
    fn pseudo(&self) -> Pseudo {
        Self::pseudo(self)
    }
}

impl Network for V6 {
    const ETHER_TYPE: EtherType = EtherType::IPV6;

    fn header(&self, payload_len: usize) -> Result<Vec<u8>, Malformed> {
        let mut extensions = Vec::new();
        let mut next = self.repr.next_header;
        for (kind, body) in self.extensions.iter().rev() {
            extensions = [&[next.0], &body[..], &extensions].concat();
            next = *kind;
        }
        let payload_len = u16::try_from(extensions.len() + payload_len).map_err(|_| Malformed::Range)?;
        let mut out = vec![0; self.repr.len()];
        ipv6::Repr { next_header: next, payload_len, ..self.repr }.emit(&mut out)?;
        out.extend(extensions);
        Ok(out)
    }
}

impl Ip for V6 {
    fn pseudo(&self) -> Pseudo {
        self.repr.pseudo()
    }
}

impl Network for arp::Repr {
    const ETHER_TYPE: EtherType = EtherType::ARP;

    fn header(&self, _: usize) -> Result<Vec<u8>, Malformed> {
        let mut out = vec![0; self.len()];
        self.emit(&mut out)?;
        Ok(out)
    }
}

impl<N> Transport<N> for () {
    fn segment(&self, _: &N, payload: &[u8]) -> Result<Vec<u8>, Malformed> {
        Ok(payload.to_vec())
    }
}

impl<N: Ip> Transport<N> for udp::Repr {
    fn segment(&self, network: &N, payload: &[u8]) -> Result<Vec<u8>, Malformed> {
        let payload_len = u16::try_from(payload.len()).map_err(|_| Malformed::Range)?;
        let mut out = [&[0; 8], payload].concat();
        Self { payload_len, ..*self }.emit_with(network.pseudo(), &mut out)?;
        Ok(out)
    }
}

impl<N: Ip> Transport<N> for tcp::Repr {
    fn segment(&self, network: &N, payload: &[u8]) -> Result<Vec<u8>, Malformed> {
        let mut out = vec![0; self.len()];
        out.extend(payload);
        self.emit_with(network.pseudo(), &mut out)?;
        Ok(out)
    }
}

impl Transport<ipv4::Repr> for icmpv4::Repr {
    fn segment(&self, _: &ipv4::Repr, payload: &[u8]) -> Result<Vec<u8>, Malformed> {
        let mut out = [&[0; 8], payload].concat();
        self.emit(&mut out)?;
        Ok(out)
    }
}

impl Transport<V6> for icmpv6::Repr {
    fn segment(&self, network: &V6, payload: &[u8]) -> Result<Vec<u8>, Malformed> {
        let mut out = [&[0; 8], payload].concat();
        self.emit_with(network.pseudo(), &mut out)?;
        Ok(out)
    }
}

impl<N: Network, T: Transport<N>> Frame<N, T> {
    fn new(network: N, transport: T) -> Self {
        let (src, dst) = (SRC_MAC, DST_MAC);
        Self { src, dst, tags: Vec::new(), network, transport, payload: Vec::new(), pad_to: 0 }
    }

    /// Sets the source MAC address, [`SRC_MAC`] otherwise.
    pub fn src_mac(self, src: MacAddr) -> Self {
        Self { src, ..self }
    }

    /// Sets the destination MAC address, [`DST_MAC`] otherwise.
    pub fn dst_mac(self, dst: MacAddr) -> Self {
        Self { dst, ..self }
    }

    /// Adds a customer tag (0x8100) inside the tags so far.
    pub fn vlan(self, vid: u16) -> Self {
        self.tag(EtherType::VLAN, 0, false, vid)
    }

    /// Adds a service tag (0x88a8) inside the tags so far.
    pub fn qinq(self, vid: u16) -> Self {
        self.tag(EtherType::QINQ, 0, false, vid)
    }

    /// Adds a tag announced by `tpid` inside the tags so far.
    pub fn tag(mut self, tpid: EtherType, pcp: u8, dei: bool, vid: u16) -> Self {
        self.tags.push((tpid, vlan::Repr { pcp, dei, vid, ether_type: N::ETHER_TYPE }));
        self
    }

    /// Fills the frame up with zeros to `len` bytes, counted without frame check sequence.
    pub fn pad_to(self, len: usize) -> Self {
        Self { pad_to: len, ..self }
    }

    /// Returns the bytes of the frame, without frame check sequence.
    ///
    /// # Panics
    /// If [`try_to_vec`](Self::try_to_vec) returns an error.
    pub fn to_vec(&self) -> Vec<u8> {
        match self.try_to_vec() {
            Ok(frame) => frame,
            Err(why) => panic!("frame cannot be built: {why}"),
        }
    }

    /// Returns the bytes of the frame, without frame check sequence.
    ///
    /// # Errors
    /// [`Malformed::Range`] if a value does not fit in its field, such as the length of the payload.
    pub fn try_to_vec(&self) -> Result<Vec<u8>, Malformed> {
        let segment = self.transport.segment(&self.network, &self.payload)?;
        let header = self.network.header(segment.len())?;
        let types = self.tags.iter().map(|(tpid, _)| *tpid).chain([N::ETHER_TYPE]);
        let mut types = types.collect::<Vec<_>>().into_iter();
        let ethernet =
            ethernet::Repr { dst: self.dst, src: self.src, ether_type: types.next().unwrap_or(N::ETHER_TYPE) };
        let mut out = vec![0; ethernet.len()];
        ethernet.emit(&mut out)?;
        for ((_, tag), ether_type) in self.tags.iter().zip(types) {
            let mut bytes = [0; 4];
            vlan::Repr { ether_type, ..*tag }.emit(&mut bytes)?;
            out.extend(bytes);
        }
        out.extend(header);
        out.extend(segment);
        out.resize(out.len().max(self.pad_to), 0);
        Ok(out)
    }
}

impl<N: Ip, T: Transport<N>> Frame<N, T> {
    /// Sets what the innermost header carries.
    pub fn payload(mut self, payload: &[u8]) -> Self {
        self.payload = payload.to_vec();
        self
    }
}

impl<T: Transport<ipv4::Repr>> Frame<ipv4::Repr, T> {
    /// Sets the time to live, 64 otherwise.
    pub fn ttl(mut self, ttl: u8) -> Self {
        self.network.ttl = ttl;
        self
    }

    /// Sets the differentiated services code point, 0 to 63.
    pub fn dscp(mut self, dscp: u8) -> Self {
        self.network.dscp = dscp;
        self
    }

    /// Sets explicit congestion notification, 0 to 3.
    pub fn ecn(mut self, ecn: u8) -> Self {
        self.network.ecn = ecn;
        self
    }

    /// Sets the identification.
    pub fn id(mut self, id: u16) -> Self {
        self.network.id = id;
        self
    }

    /// Sets the don't-fragment flag.
    pub fn dont_fragment(mut self) -> Self {
        self.network.dont_fragment = true;
        self
    }

    /// Makes the packet a fragment at `offset` bytes; `more` sets the more-fragments flag.
    pub fn fragment(mut self, offset: u16, more: bool) -> Self {
        (self.network.fragment_offset, self.network.more_fragments) = (offset, more);
        self
    }

    /// Sets the options; see [`ipv4::options`].
    pub fn ip_options(mut self, options: OptionBytes) -> Self {
        self.network.options = options;
        self
    }
}

impl<T: Transport<V6>> Frame<V6, T> {
    /// Sets the hop limit, 64 otherwise.
    pub fn ttl(mut self, hops: u8) -> Self {
        self.network.repr.hop_limit = hops;
        self
    }

    /// Sets the traffic class.
    pub fn traffic_class(mut self, class: u8) -> Self {
        self.network.repr.traffic_class = class;
        self
    }

    /// Sets the flow label, below 2²⁰.
    pub fn flow_label(mut self, label: u32) -> Self {
        self.network.repr.flow_label = label;
        self
    }

    /// Adds an extension header behind those so far: `body` is what follows its length field, filled up with zeros to
    /// the next possible length.
    ///
    /// A body too long for its length field is cut there. For a fragment header use [`fragment`](Self::fragment).
    pub fn extension(mut self, kind: IpProtocol, body: &[u8]) -> Self {
        let mut bytes = vec![0];
        bytes.extend(body.iter().take(if kind == IpProtocol::AH { 1022 } else { 2046 }));
        bytes.resize((bytes.len() + 1).next_multiple_of(8) - 1, 0);
        let len = bytes.len() + 1;
        bytes[0] = if kind == IpProtocol::AH { len / 4 - 2 } else { len / 8 - 1 } as u8;
        self.network.extensions.push((kind, bytes));
        self
    }

    /// Adds a fragment header behind the extension headers so far; the offset is rounded down to a multiple of 8.
    pub fn fragment(mut self, offset: u16, more: bool, id: u32) -> Self {
        let body = ipv6::Fragment { offset, more, id }.body();
        self.network.extensions.push((IpProtocol::FRAGMENT, body.to_vec()));
        self
    }
}

impl<N: Ip> Frame<N, tcp::Repr> {
    /// Sets the control bits, SYN otherwise.
    pub fn flags(mut self, flags: TcpFlags) -> Self {
        self.transport.flags = flags;
        self
    }

    /// Sets the sequence number.
    pub fn seq(mut self, seq: u32) -> Self {
        self.transport.seq = seq;
        self
    }

    /// Sets the acknowledgment number and [`TcpFlags::ACK`].
    pub fn ack(mut self, ack: u32) -> Self {
        self.transport.ack = ack;
        self.transport.flags |= TcpFlags::ACK;
        self
    }

    /// Sets the receive window, 65535 otherwise.
    pub fn window(mut self, window: u16) -> Self {
        self.transport.window = window;
        self
    }

    /// Sets the urgent pointer.
    pub fn urgent(mut self, urgent: u16) -> Self {
        self.transport.urgent = urgent;
        self
    }

    /// Sets the options; see [`tcp::options`].
    pub fn tcp_options(mut self, options: OptionBytes) -> Self {
        self.transport.options = options;
        self
    }
}

fn v4<T: Transport<ipv4::Repr>>(src: Ipv4Addr, dst: Ipv4Addr, protocol: IpProtocol, t: T) -> Frame<ipv4::Repr, T> {
    Frame::new(ipv4::Repr::new(src, dst, protocol, 0), t)
}

fn v6<T: Transport<V6>>(src: Ipv6Addr, dst: Ipv6Addr, protocol: IpProtocol, t: T) -> Frame<V6, T> {
    Frame::new(V6 { repr: ipv6::Repr::new(src, dst, protocol, 0), extensions: Vec::new() }, t)
}

/// Builds an IPv4 packet with any payload.
pub fn ipv4(src: impl Into<Ipv4Addr>, dst: impl Into<Ipv4Addr>, protocol: IpProtocol) -> Frame<ipv4::Repr, ()> {
    v4(src.into(), dst.into(), protocol, ())
}

/// Builds an IPv6 packet with any payload.
pub fn ipv6(src: impl Into<Ipv6Addr>, dst: impl Into<Ipv6Addr>, protocol: IpProtocol) -> Frame<V6, ()> {
    v6(src.into(), dst.into(), protocol, ())
}

/// Builds a UDP datagram over IPv4.
pub fn udp4(
    src: impl Into<Ipv4Addr>,
    dst: impl Into<Ipv4Addr>,
    src_port: u16,
    dst_port: u16,
) -> Frame<ipv4::Repr, udp::Repr> {
    v4(src.into(), dst.into(), IpProtocol::UDP, udp::Repr { src_port, dst_port, payload_len: 0 })
}

/// Builds a UDP datagram over IPv6.
pub fn udp6(src: impl Into<Ipv6Addr>, dst: impl Into<Ipv6Addr>, src_port: u16, dst_port: u16) -> Frame<V6, udp::Repr> {
    v6(src.into(), dst.into(), IpProtocol::UDP, udp::Repr { src_port, dst_port, payload_len: 0 })
}

/// Builds a TCP segment over IPv4: a SYN unless [`flags`](Frame::flags) is called.
pub fn tcp4(
    src: impl Into<Ipv4Addr>,
    dst: impl Into<Ipv4Addr>,
    src_port: u16,
    dst_port: u16,
) -> Frame<ipv4::Repr, tcp::Repr> {
    v4(src.into(), dst.into(), IpProtocol::TCP, tcp::Repr::new(src_port, dst_port))
}

/// Builds a TCP segment over IPv6: a SYN unless [`flags`](Frame::flags) is called.
pub fn tcp6(src: impl Into<Ipv6Addr>, dst: impl Into<Ipv6Addr>, src_port: u16, dst_port: u16) -> Frame<V6, tcp::Repr> {
    v6(src.into(), dst.into(), IpProtocol::TCP, tcp::Repr::new(src_port, dst_port))
}

/// Builds an ICMP message over IPv4.
pub fn icmp4(
    src: impl Into<Ipv4Addr>,
    dst: impl Into<Ipv4Addr>,
    message: icmpv4::Repr,
) -> Frame<ipv4::Repr, icmpv4::Repr> {
    v4(src.into(), dst.into(), IpProtocol::ICMPV4, message)
}

/// Builds an ICMPv6 message.
pub fn icmp6(src: impl Into<Ipv6Addr>, dst: impl Into<Ipv6Addr>, message: icmpv6::Repr) -> Frame<V6, icmpv6::Repr> {
    v6(src.into(), dst.into(), IpProtocol::ICMPV6, message)
}

/// Builds an ICMP echo request over IPv4.
pub fn echo4(src: impl Into<Ipv4Addr>, dst: impl Into<Ipv4Addr>, id: u16, seq: u16) -> Frame<ipv4::Repr, icmpv4::Repr> {
    icmp4(src, dst, icmpv4::Repr::EchoRequest { id, seq })
}

/// Builds an ICMPv6 echo request.
pub fn echo6(src: impl Into<Ipv6Addr>, dst: impl Into<Ipv6Addr>, id: u16, seq: u16) -> Frame<V6, icmpv6::Repr> {
    icmp6(src, dst, icmpv6::Repr::EchoRequest { id, seq })
}

/// Builds an ARP request for `target`, broadcast from [`SRC_MAC`].
pub fn arp_request(sender: impl Into<Ipv4Addr>, target: impl Into<Ipv4Addr>) -> Frame<arp::Repr, ()> {
    arp(arp::Repr {
        operation: arp::Operation::Request,
        sender_mac: SRC_MAC,
        sender_ip: sender.into(),
        target_mac: MacAddr::ZERO,
        target_ip: target.into(),
    })
}

/// Builds an ARP packet from its sender to its target, or to the broadcast address if it is a request.
pub fn arp(packet: arp::Repr) -> Frame<arp::Repr, ()> {
    let dst = match packet.operation {
        arp::Operation::Request => MacAddr::BROADCAST,
        arp::Operation::Reply => packet.target_mac,
    };
    Frame::new(packet, ()).src_mac(packet.sender_mac).dst_mac(dst)
}
