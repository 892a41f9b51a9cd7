//! Strategies for transport headers and payloads.

use proptest::prelude::*;
use proptest::sample::select;
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::build::{self, Frame, Ip};
use wire::options::OptionBytes;
use wire::tcp::{self, SackBlock, TcpOption};
use wire::{IpProtocol, TcpFlags, icmpv4, icmpv6};

/// A transport header and its payload.
#[derive(Clone, Debug)]
pub(super) struct TransportPacket {
    header: TransportHeader,
    payload: Vec<u8>,
}

#[derive(Clone, Debug)]
enum TransportHeader {
    Udp {
        src: u16,
        dst: u16,
        /// True if the checksum is computed, which is optional over IPv4 (RFC 768).
        has_checksum: bool,
    },
    Tcp(TcpFields),
    /// An echo message, or an error about a UDP datagram.
    Icmp {
        message: u8,
        id: u16,
        seq: u16,
    },
    Other(IpProtocol),
}

#[derive(Clone, Debug)]
struct TcpFields {
    src: u16,
    dst: u16,
    flags: TcpFlags,
    seq: u32,
    ack: u32,
    window: u16,
    options: OptionBytes,
}

fn port() -> impl Strategy<Value = u16> {
    prop_oneof![1..=65535u16, select(vec![22u16, 53, 80, 123, 443, 4789])]
}

fn with_payload(header: impl Strategy<Value = TransportHeader>) -> impl Strategy<Value = TransportPacket> {
    (header, payload()).prop_map(|(header, payload)| TransportPacket { header, payload })
}

pub(super) fn udp() -> impl Strategy<Value = TransportPacket> {
    with_payload(
        (port(), port(), prop::bool::weighted(0.9)).prop_map(|(src, dst, has_checksum)| TransportHeader::Udp {
            src,
            dst,
            has_checksum,
        }),
    )
}

pub(super) fn tcp() -> impl Strategy<Value = TransportPacket> {
    let flags = select(vec![
        TcpFlags::SYN,
        TcpFlags::SYN_ACK,
        TcpFlags::ACK,
        TcpFlags::ACK | TcpFlags::PSH,
        TcpFlags::ACK | TcpFlags::FIN,
        TcpFlags::RST,
        TcpFlags::ACK | TcpFlags::RST,
    ]);
    let header = (port(), port(), flags, any::<u32>(), any::<u32>(), any::<u16>(), options());
    with_payload(header.prop_map(|(src, dst, flags, seq, ack, window, options)| {
        TransportHeader::Tcp(TcpFields { src, dst, flags, seq, ack, window, options })
    }))
}

fn options() -> impl Strategy<Value = OptionBytes> {
    let list = |list: &[TcpOption<'_>]| tcp::options(list).expect("short options");
    let sack = [SackBlock::new(1, 2), SackBlock::new(5, 9)];
    select(vec![
        OptionBytes::EMPTY,
        list(&[TcpOption::Mss(1460)]),
        list(&[
            TcpOption::Mss(1460),
            TcpOption::SackPermitted,
            TcpOption::Timestamps { value: 7, echo: 0 },
            TcpOption::WindowScale(7),
        ]),
        list(&[TcpOption::Timestamps { value: 7, echo: 8 }, TcpOption::Sack(&sack)]),
        list(&[TcpOption::Unknown { kind: 254, data: &[1, 2] }]),
    ])
}

pub(super) fn icmp() -> impl Strategy<Value = TransportPacket> {
    with_payload((0..4u8, any::<u16>(), any::<u16>()).prop_map(|(message, id, seq)| TransportHeader::Icmp {
        message,
        id,
        seq,
    }))
}

pub(super) fn any_protocol() -> impl Strategy<Value = TransportPacket> {
    let protocols = vec![IpProtocol::GRE, IpProtocol::ESP, IpProtocol::SCTP, IpProtocol(253)];
    prop_oneof![
        4 => udp(),
        4 => tcp(),
        2 => icmp(),
        1 => with_payload(select(protocols).prop_map(TransportHeader::Other)),
    ]
}

impl TransportPacket {
    pub(super) fn protocol(&self, v6: bool) -> IpProtocol {
        match self.header {
            TransportHeader::Udp { .. } => IpProtocol::UDP,
            TransportHeader::Tcp(_) => IpProtocol::TCP,
            TransportHeader::Icmp { .. } if v6 => IpProtocol::ICMPV6,
            TransportHeader::Icmp { .. } => IpProtocol::ICMPV4,
            TransportHeader::Other(protocol) => protocol,
        }
    }

    /// Returns the length of the header in bytes.
    pub(super) fn header_len(&self) -> usize {
        match &self.header {
            TransportHeader::Tcp(tcp) => 20 + tcp.options.len(),
            _ => 8,
        }
    }

    /// Returns header and payload, with a checksum for these IPv4 addresses.
    pub(super) fn to_bytes_over_ipv4(&self, src: Ipv4Addr, dst: Ipv4Addr) -> Vec<u8> {
        let frame = match &self.header {
            TransportHeader::Udp { src: from, dst: to, .. } => {
                build::udp4(src, dst, *from, *to).payload(&self.payload).to_vec()
            }
            TransportHeader::Tcp(header) => {
                header.fill(build::tcp4(src, dst, header.src, header.dst)).payload(&self.payload).to_vec()
            }
            &TransportHeader::Icmp { message, id, seq } => {
                let (message, payload) = match message {
                    0 => (icmpv4::Repr::EchoRequest { id, seq }, self.payload.clone()),
                    1 => (icmpv4::Repr::EchoReply { id, seq }, self.payload.clone()),
                    // quotes the IP header and 8 more bytes (RFC 792)
                    2 => {
                        (icmpv4::Repr::TimeExceeded { code: 0 }, build::udp4(dst, src, id, seq).to_vec()[14..].to_vec())
                    }
                    _ => (
                        icmpv4::Repr::DestUnreachable { code: 3 },
                        build::udp4(dst, src, id, seq).to_vec()[14..].to_vec(),
                    ),
                };
                build::icmp4(src, dst, message).payload(&payload).to_vec()
            }
            TransportHeader::Other(protocol) => build::ipv4(src, dst, *protocol).payload(&self.payload).to_vec(),
        };
        let mut segment = frame[34..].to_vec();
        if let TransportHeader::Udp { has_checksum: false, .. } = self.header {
            segment[6..8].fill(0);
        }
        segment
    }

    /// Returns header and payload, with a checksum for these IPv6 addresses.
    pub(super) fn to_bytes_over_ipv6(&self, src: Ipv6Addr, dst: Ipv6Addr) -> Vec<u8> {
        let frame = match &self.header {
            TransportHeader::Udp { src: from, dst: to, .. } => {
                build::udp6(src, dst, *from, *to).payload(&self.payload).to_vec()
            }
            TransportHeader::Tcp(header) => {
                header.fill(build::tcp6(src, dst, header.src, header.dst)).payload(&self.payload).to_vec()
            }
            &TransportHeader::Icmp { message, id, seq } => {
                let (message, payload) = match message {
                    0 => (icmpv6::Repr::EchoRequest { id, seq }, self.payload.clone()),
                    1 => (icmpv6::Repr::EchoReply { id, seq }, self.payload.clone()),
                    2 => {
                        (icmpv6::Repr::TimeExceeded { code: 0 }, build::udp6(dst, src, id, seq).to_vec()[14..].to_vec())
                    }
                    _ => (
                        icmpv6::Repr::PacketTooBig { mtu: 1280 },
                        build::udp6(dst, src, id, seq).to_vec()[14..].to_vec(),
                    ),
                };
                build::icmp6(src, dst, message).payload(&payload).to_vec()
            }
            TransportHeader::Other(protocol) => build::ipv6(src, dst, *protocol).payload(&self.payload).to_vec(),
        };
        frame[54..].to_vec()
    }
}

impl TcpFields {
    fn fill<N: Ip>(&self, frame: Frame<N, tcp::Repr>) -> Frame<N, tcp::Repr> {
        let ack = if self.flags.contains(TcpFlags::ACK) { frame.ack(self.ack) } else { frame };
        ack.flags(self.flags).seq(self.seq).window(self.window).tcp_options(self.options)
    }
}

/// Payload bytes, mostly few.
fn payload() -> impl Strategy<Value = Vec<u8>> {
    // generated from a seed, so that proptest shrinks only the length
    (prop_oneof![4 => 0..64usize, 1 => 64..1300usize], any::<u64>()).prop_map(|(length, seed)| {
        let mut state = seed | 1;
        let next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        std::iter::repeat_with(next).take(length).collect()
    })
}
