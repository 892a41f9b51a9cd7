//! What lies behind the network header.

use super::payload;
use proptest::prelude::*;
use proptest::sample::select;
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::build::{self, Frame, Ip};
use wire::options::OptionBytes;
use wire::tcp::{self, SackBlock, TcpOption};
use wire::{IpProtocol, TcpFlags, icmpv4, icmpv6};

/// A transport header and its payload.
#[derive(Clone, Debug)]
pub(super) struct Upper {
    kind: Kind,
    payload: Vec<u8>,
}

#[derive(Clone, Debug)]
enum Kind {
    Udp {
        src: u16,
        dst: u16,
        /// Whether the checksum is computed: over IPv4 it need not be (RFC 768).
        summed: bool,
    },
    Tcp(Tcp),
    /// An echo, or an error about a UDP datagram.
    Icmp {
        which: u8,
        id: u16,
        seq: u16,
    },
    Other(IpProtocol),
}

#[derive(Clone, Debug)]
struct Tcp {
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

fn of(kind: impl Strategy<Value = Kind>) -> impl Strategy<Value = Upper> {
    (kind, payload()).prop_map(|(kind, payload)| Upper { kind, payload })
}

pub(super) fn udp() -> impl Strategy<Value = Upper> {
    of((port(), port(), prop::bool::weighted(0.9)).prop_map(|(src, dst, summed)| Kind::Udp { src, dst, summed }))
}

pub(super) fn tcp() -> impl Strategy<Value = Upper> {
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
    of(header.prop_map(|(src, dst, flags, seq, ack, window, options)| {
        Kind::Tcp(Tcp { src, dst, flags, seq, ack, window, options })
    }))
}

fn options() -> impl Strategy<Value = OptionBytes> {
    let list = |list: &[TcpOption<'_>]| tcp::options(list).expect("they are short");
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

pub(super) fn icmp() -> impl Strategy<Value = Upper> {
    of((0..4u8, any::<u16>(), any::<u16>()).prop_map(|(which, id, seq)| Kind::Icmp { which, id, seq }))
}

pub(super) fn each() -> impl Strategy<Value = Upper> {
    let protocols = vec![IpProtocol::GRE, IpProtocol::ESP, IpProtocol::SCTP, IpProtocol(253)];
    prop_oneof![
        4 => udp(),
        4 => tcp(),
        2 => icmp(),
        1 => of(select(protocols).prop_map(Kind::Other)),
    ]
}

impl Upper {
    pub(super) fn protocol(&self, v6: bool) -> IpProtocol {
        match self.kind {
            Kind::Udp { .. } => IpProtocol::UDP,
            Kind::Tcp(_) => IpProtocol::TCP,
            Kind::Icmp { .. } if v6 => IpProtocol::ICMPV6,
            Kind::Icmp { .. } => IpProtocol::ICMPV4,
            Kind::Other(protocol) => protocol,
        }
    }

    /// Bytes of its header.
    pub(super) fn header(&self) -> usize {
        match &self.kind {
            Kind::Tcp(tcp) => 20 + tcp.options.len(),
            _ => 8,
        }
    }

    /// Header and payload between these hosts.
    pub(super) fn over4(&self, src: Ipv4Addr, dst: Ipv4Addr) -> Vec<u8> {
        let frame = match &self.kind {
            Kind::Udp { src: from, dst: to, .. } => build::udp4(src, dst, *from, *to).payload(&self.payload).to_vec(),
            Kind::Tcp(header) => {
                header.fill(build::tcp4(src, dst, header.src, header.dst)).payload(&self.payload).to_vec()
            }
            &Kind::Icmp { which, id, seq } => {
                let (message, payload) = match which {
                    0 => (icmpv4::Repr::EchoRequest { id, seq }, self.payload.clone()),
                    1 => (icmpv4::Repr::EchoReply { id, seq }, self.payload.clone()),
                    // what it is about: the header, and 8 bytes more (RFC 792)
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
            Kind::Other(protocol) => build::ipv4(src, dst, *protocol).payload(&self.payload).to_vec(),
        };
        let mut segment = frame[34..].to_vec();
        if let Kind::Udp { summed: false, .. } = self.kind {
            segment[6..8].fill(0);
        }
        segment
    }

    /// Header and payload between these hosts.
    pub(super) fn over6(&self, src: Ipv6Addr, dst: Ipv6Addr) -> Vec<u8> {
        let frame = match &self.kind {
            Kind::Udp { src: from, dst: to, .. } => build::udp6(src, dst, *from, *to).payload(&self.payload).to_vec(),
            Kind::Tcp(header) => {
                header.fill(build::tcp6(src, dst, header.src, header.dst)).payload(&self.payload).to_vec()
            }
            &Kind::Icmp { which, id, seq } => {
                let (message, payload) = match which {
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
            Kind::Other(protocol) => build::ipv6(src, dst, *protocol).payload(&self.payload).to_vec(),
        };
        frame[54..].to_vec()
    }
}

impl Tcp {
    fn fill<N: Ip>(&self, frame: Frame<N, tcp::Repr>) -> Frame<N, tcp::Repr> {
        let ack = if self.flags.contains(TcpFlags::ACK) { frame.ack(self.ack) } else { frame };
        ack.flags(self.flags).seq(self.seq).window(self.window).tcp_options(self.options)
    }
}
