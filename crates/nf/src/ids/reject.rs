//! Replies to rejected packets: TCP resets and ICMP errors.

use super::engine::decode::{ICMP, ICMPV6, Packet, TCP, UDP, decode_frame};
use super::rule::RejectTo;
use graph::{Context, PathId};
use std::net::IpAddr;
use std::time::Duration;
use wire::{TcpFlags, build, icmpv4, icmpv6};

/// Largest number of replies per second and core.
const RATE: u32 = 1000;
/// Number of pairs of hosts whose last link headers are kept.
const PAIRS: usize = 1024;
/// Largest number of paths of which the other direction is known.
const PATHS_MAX: usize = 64;
/// Longest link header: Ethernet with two VLAN tags.
const LINK_MAX: usize = 22;
/// Largest number of quoted bytes in ICMP errors (RFC 1812 §4.3.2.3, RFC 4443 §2.4).
const QUOTED_MAX: [usize; 2] = [576 - 28, 1280 - 48];

/// Path and link header of a packet.
#[derive(Clone, Copy)]
struct Way {
    path: PathId,
    link: [u8; LINK_MAX],
    len: usize,
}

/// Two hosts and the ways of the last packets from the lower and from the higher address.
#[derive(Clone, Copy)]
struct Pair {
    hosts: (IpAddr, IpAddr),
    ways: [Option<Way>; 2],
}

/// Sends replies towards the ends of rejected packets: by the path, and with the link header, of the packets in that
/// direction between the same hosts, or else by the path of other packets in that direction.
pub(super) struct Replies {
    pairs: Vec<Option<Pair>>,
    /// Paths with those of the other direction.
    reverse: Vec<(PathId, PathId)>,
    second: u64,
    in_second: u32,
}

impl Replies {
    pub(super) fn new() -> Self {
        Replies { pairs: vec![None; PAIRS], reverse: vec![], second: 0, in_second: 0 }
    }

    /// Remembers the way of a packet.
    pub(super) fn learn(&mut self, path: PathId, frame: &[u8], packet: &Packet<'_>) {
        let Some(way) = way_of(path, frame, packet) else { return };
        let (hosts, from) = ordered(packet);
        let Some(slot) = self.pairs.get_mut(index_of(hosts)) else { return };
        let pair = match slot {
            Some(pair) if pair.hosts == hosts => pair,
            _ => slot.insert(Pair { hosts, ways: [None; 2] }),
        };
        pair.ways[from] = Some(way);
        if let [Some(one), Some(other)] = pair.ways
            && one.path != other.path
            && self.reverse.len() < PATHS_MAX
            && !self.reverse.iter().any(|(path, _)| *path == way.path)
        {
            self.reverse.push((one.path, other.path));
            self.reverse.push((other.path, one.path));
        }
    }

    /// Sends the replies to a rejected packet and returns their number.
    pub(super) fn send(&mut self, cx: &mut Context<'_>, to: RejectTo, frame: &[u8]) -> u64 {
        if self.in_second >= RATE && cx.now().as_secs() == self.second {
            return 0;
        }
        let Some(packet) = decode_frame(frame, false) else { return 0 };
        let Some(own) = way_of(cx.path(), frame, &packet) else { return 0 };
        let (hosts, from) = ordered(&packet);
        let known = self.pairs.get(index_of(hosts)).copied().flatten().filter(|pair| pair.hosts == hosts);
        let back = known.and_then(|pair| pair.ways[1 - from]).or_else(|| {
            let path = self.reverse.iter().find(|(path, _)| *path == own.path)?.1;
            let mut link = own.link;
            // the addresses change places
            link[..6].copy_from_slice(&own.link[6..12]);
            link[6..12].copy_from_slice(&own.link[..6]);
            Some(Way { path, link, len: own.len })
        });
        let mut sent = 0;
        let replies = [
            (to != RejectTo::Destination).then(|| back.zip(reply_to_source(&packet))).flatten(),
            (to != RejectTo::Source).then(|| Some(own).zip(reset_to_destination(&packet))).flatten(),
        ];
        for (way, reply) in replies.into_iter().flatten() {
            if !self.is_permitted(cx.now()) {
                break;
            }
            let bytes = [&way.link[..way.len], &reply].concat();
            if let Some(reply) = cx.alloc_from(&bytes) {
                cx.emit_on_path(way.path, 0, reply);
                sent += 1;
            }
        }
        sent
    }

    fn is_permitted(&mut self, now: Duration) -> bool {
        if now.as_secs() != self.second {
            (self.second, self.in_second) = (now.as_secs(), 0);
        }
        self.in_second = self.in_second.saturating_add(1);
        self.in_second <= RATE
    }
}

fn ordered(packet: &Packet<'_>) -> ((IpAddr, IpAddr), usize) {
    let is_higher = packet.src > packet.dst;
    (if is_higher { (packet.dst, packet.src) } else { (packet.src, packet.dst) }, usize::from(is_higher))
}

fn index_of(hosts: (IpAddr, IpAddr)) -> usize {
    let low = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => u64::from(ip.to_bits()),
        IpAddr::V6(ip) => (ip.to_bits() ^ ip.to_bits() >> 64) as u64,
    };
    let mixed = (low(hosts.0) ^ low(hosts.1).rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as usize % PAIRS
}

/// Returns the way of a packet that is not in a tunnel; `None` if its link header is too long.
fn way_of(path: PathId, frame: &[u8], packet: &Packet<'_>) -> Option<Way> {
    let kind: [u8; 2] = if packet.src.is_ipv4() { [8, 0] } else { [0x86, 0xdd] };
    // the IP header is a part of the frame
    let len = (packet.ip_header.as_ptr() as usize).checked_sub(frame.as_ptr() as usize)?;
    if !matches!(len, 14 | 18 | 22) || frame.get(len - 2..len) != Some(&kind[..]) {
        return None;
    }
    let mut link = [0; LINK_MAX];
    link.get_mut(..len)?.copy_from_slice(frame.get(..len)?);
    Some(Way { path, link, len })
}

/// Returns an IP packet to the sender: a reset (RFC 9293 §3.10.7.1), or an ICMP error for an unreachable port.
fn reply_to_source(packet: &Packet<'_>) -> Option<Vec<u8>> {
    if packet.is_fragment() || !is_host(packet.src) || !is_host(packet.dst) {
        return None;
    }
    let flags = packet.tcp_flags();
    match packet.protocol {
        TCP if packet.is_tcp() && flags & 4 == 0 => {
            let ends = u32::from(flags & 1) + u32::from(flags >> 1 & 1);
            let (seq, ack) = (packet.field32(4), packet.field32(8));
            let after = seq.wrapping_add(packet.payload.len() as u32).wrapping_add(ends);
            let (flags, seq, ack) =
                if flags & 16 != 0 { (TcpFlags::RST, ack, 0) } else { (TcpFlags::RST | TcpFlags::ACK, 0, after) };
            reset((packet.dst, packet.dst_port), (packet.src, packet.src_port), flags, seq, ack)
        }
        ICMP | ICMPV6 | TCP => None,
        protocol => {
            let is_v6 = usize::from(packet.src.is_ipv6());
            let quoted = [packet.ip_header, packet.header, packet.payload].concat();
            let quoted = &quoted[..quoted.len().min(QUOTED_MAX[is_v6])];
            // code 3 and 4: port unreachable; code 10 and 1: communication prohibited
            let is_udp = protocol == UDP;
            let bytes = match (packet.dst, packet.src) {
                (IpAddr::V4(from), IpAddr::V4(to)) => {
                    let error = icmpv4::Repr::DestUnreachable { code: if is_udp { 3 } else { 10 } };
                    build::icmp4(from, to, error).payload(quoted).ttl(64).try_to_vec()
                }
                (IpAddr::V6(from), IpAddr::V6(to)) => {
                    let error = icmpv6::Repr::DestUnreachable { code: if is_udp { 4 } else { 1 } };
                    build::icmp6(from, to, error).payload(quoted).ttl(64).try_to_vec()
                }
                _ => return None,
            };
            without_link(&bytes.ok()?)
        }
    }
}

/// Returns a reset in the name of the sender of a TCP segment.
fn reset_to_destination(packet: &Packet<'_>) -> Option<Vec<u8>> {
    let flags = packet.tcp_flags();
    if packet.is_fragment() || !packet.is_tcp() || flags & 4 != 0 || !is_host(packet.src) || !is_host(packet.dst) {
        return None;
    }
    let (seq, ack) = (packet.field32(4), packet.field32(8));
    let flags = if flags & 16 != 0 { TcpFlags::RST | TcpFlags::ACK } else { TcpFlags::RST };
    reset((packet.src, packet.src_port), (packet.dst, packet.dst_port), flags, seq, ack)
}

fn reset(from: (IpAddr, u16), to: (IpAddr, u16), flags: TcpFlags, seq: u32, ack: u32) -> Option<Vec<u8>> {
    let bytes = match (from.0, to.0) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            build::tcp4(src, dst, from.1, to.1).flags(flags).seq(seq).ack(ack).window(0).ttl(64).try_to_vec()
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            build::tcp6(src, dst, from.1, to.1).flags(flags).seq(seq).ack(ack).window(0).ttl(64).try_to_vec()
        }
        _ => return None,
    };
    without_link(&bytes.ok()?)
}

fn without_link(frame: &[u8]) -> Option<Vec<u8>> {
    frame.get(14..).map(<[u8]>::to_vec)
}

fn is_host(ip: IpAddr) -> bool {
    let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !(ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || is_broadcast)
}
