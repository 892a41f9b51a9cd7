//! Batch translation of whole TCP and UDP packets without options, VLAN tags or extension headers whose sessions exist.

use super::headers::{IPV4_HEADER_LEN, IPV6_HEADER_LEN, MAX_FRAGMENTABLE_LEN, pad_to_minimum};
use super::node::Nat64Node;
use super::prefix::Prefix;
use crate::checksum_delta::ChecksumDelta;
use crate::nat::flow::{self, INSIDE, Translation};
use packet::{BURST, Batch, Packet};
use tables::flow::Tuple4;
use wire::{EtherType, IpProtocol, checksum};

/// Offsets of the IP header, and of the transport header of either version.
const ETHERNET_HEADER_LEN: usize = 14;
const IPV4_L4_OFFSET: usize = ETHERNET_HEADER_LEN + IPV4_HEADER_LEN;
const IPV6_L4_OFFSET: usize = ETHERNET_HEADER_LEN + IPV6_HEADER_LEN;
/// Difference of the header lengths.
const HEADER_GROWTH: usize = IPV6_HEADER_LEN - IPV4_HEADER_LEN;

/// An IPv6 packet that qualifies for the fast path.
#[derive(Clone, Copy)]
struct PlainIpv6 {
    host: u128,
    /// Embedded IPv4 destination.
    dst: u32,
    src_port: u16,
    dst_port: u16,
    protocol: u8,
}

impl PlainIpv6 {
    #[inline(always)]
    fn of(frame: &[u8], prefix: Prefix) -> Option<Self> {
        let h = frame.first_chunk::<{ IPV6_L4_OFFSET + 8 }>()?;
        let half = |at: usize| u16::from_be_bytes([h[at], h[at + 1]]);
        let address = |at: usize| h[at..].first_chunk().map_or(0, |b| u128::from_be_bytes(*b));
        let (len, protocol, hop_limit) = (usize::from(half(18)), h[20], h[21]);
        let min_len = match IpProtocol(protocol) {
            IpProtocol::TCP => 20,
            IpProtocol::UDP => 8,
            _ => return None,
        };
        let right = half(12) == EtherType::IPV6.0 && h[14] >> 4 == 6;
        let fits =
            len >= min_len && IPV6_L4_OFFSET + len <= frame.len() && IPV4_HEADER_LEN + len <= usize::from(u16::MAX);
        // the UDP length is valid and the checksum present (RFC 8200 §8.1)
        let valid_udp = protocol == IpProtocol::TCP.0 || half(60) != 0 && (8..=len).contains(&usize::from(half(58)));
        let dst = address(38);
        (right && fits && valid_udp && hop_limit > 1 && prefix.contains(dst)).then(|| PlainIpv6 {
            host: address(22),
            dst: prefix.extract(dst),
            src_port: half(54),
            dst_port: half(56),
            protocol,
        })
    }
}

/// Returns true if a packet whose transport header begins at `l4` does not change the state of its session.
#[inline(always)]
fn is_state_unchanged(frame: &[u8], l4: usize, protocol: u8, t: &Translation) -> bool {
    flow::is_state_unchanged(t, frame.get(l4 + 13).copied().filter(|_| protocol == IpProtocol::TCP.0))
}

/// Updates the TCP or UDP checksum.
#[inline(always)]
fn update_checksum(frame: &mut [u8], l4: usize, protocol: u8, change: ChecksumDelta) {
    let tcp = protocol == IpProtocol::TCP.0;
    if let Some([a, b]) = frame.get_mut(l4 + if tcp { 16 } else { 6 }..).and_then(|rest| rest.first_chunk_mut()) {
        let old = [*a, *b];
        [*a, *b] = if tcp { change.apply(old) } else { change.apply_udp(old) };
    }
}

/// Translates a packet to IPv4. Returns false, without a change, if it needs the slow path.
#[inline(always)]
fn to_ipv4(packet: &mut Packet, six: &PlainIpv6, t: &Translation, id: u16) -> bool {
    let frame = packet.data_mut();
    if !is_state_unchanged(frame, IPV6_L4_OFFSET, six.protocol, t) {
        return false;
    }
    let Some(h) = frame.first_chunk_mut::<{ IPV6_L4_OFFSET + 8 }>() else { return false };
    let len = usize::from(u16::from_be_bytes([h[18], h[19]]));
    let datagram_len = IPV4_HEADER_LEN + len;
    let flags = u16::from(datagram_len > MAX_FRAGMENTABLE_LEN) << 14;
    let mut header = [0; IPV4_HEADER_LEN];
    (header[0], header[1]) = (0x45, h[14] << 4 | h[15] >> 4);
    header[2..4].copy_from_slice(&(datagram_len as u16).to_be_bytes());
    header[4..6].copy_from_slice(&id.to_be_bytes());
    header[6..8].copy_from_slice(&flags.to_be_bytes());
    (header[8], header[9]) = (h[21] - 1, six.protocol);
    header[12..16].copy_from_slice(&t.address);
    header[16..20].copy_from_slice(&six.dst.to_be_bytes());
    let own = checksum::of(&header);
    header[10..12].copy_from_slice(&own.to_be_bytes());
    // addresses, followed by the source port
    let mut new = [0; 10];
    new[..8].copy_from_slice(&header[12..]);
    new[8..].copy_from_slice(&t.port);
    let change = ChecksumDelta::new(&h[22..IPV6_L4_OFFSET + 2], &new);
    h[IPV6_L4_OFFSET..IPV6_L4_OFFSET + 2].copy_from_slice(&t.port);
    let mut link = [0; ETHERNET_HEADER_LEN];
    link.copy_from_slice(&h[..ETHERNET_HEADER_LEN]);
    link[12..].copy_from_slice(&EtherType::IPV4.0.to_be_bytes());
    h[HEADER_GROWTH..HEADER_GROWTH + ETHERNET_HEADER_LEN].copy_from_slice(&link);
    h[HEADER_GROWTH + ETHERNET_HEADER_LEN..IPV6_L4_OFFSET].copy_from_slice(&header);
    update_checksum(frame, IPV6_L4_OFFSET, six.protocol, change);
    packet.truncate(IPV6_L4_OFFSET + len);
    packet.trim_front(HEADER_GROWTH);
    pad_to_minimum(packet);
    true
}

/// Translates a packet for `host` to IPv6. Returns false, without a change, if it needs the slow path. `mtu` is the
/// largest length of packets with and without "don't fragment".
#[inline(always)]
fn to_ipv6(packet: &mut Packet, host: u128, prefix: Prefix, t: &Translation, mtu: [usize; 2]) -> bool {
    let frame = packet.data();
    let Some(h) = frame.first_chunk::<{ IPV4_L4_OFFSET + 8 }>() else { return false };
    let half = |at: usize| u16::from_be_bytes([h[at], h[at + 1]]);
    let word = |at: usize| h[at..].first_chunk().map_or(0, |b| u32::from_be_bytes(*b));
    let (datagram_len, protocol, hop_limit) = (usize::from(half(16)), h[23], h[22]);
    let len = datagram_len - IPV4_HEADER_LEN;
    let may_be_cut = h[20] & 0x40 == 0;
    let valid_udp = protocol == IpProtocol::TCP.0 || half(40) != 0 && (8..=len).contains(&usize::from(half(38)));
    let fits = IPV6_HEADER_LEN + len <= mtu[usize::from(may_be_cut)];
    if !valid_udp
        || !fits
        || hop_limit <= 1
        || !checksum::verify(&h[ETHERNET_HEADER_LEN..IPV4_L4_OFFSET])
        || !is_state_unchanged(frame, IPV4_L4_OFFSET, protocol, t)
    {
        return false;
    }
    let mut header = [0; IPV6_HEADER_LEN];
    header[..4].copy_from_slice(&(6 << 28 | u32::from(h[15]) << 20).to_be_bytes());
    header[4..6].copy_from_slice(&(len as u16).to_be_bytes());
    (header[6], header[7]) = (protocol, hop_limit - 1);
    header[8..24].copy_from_slice(&prefix.embed(word(26)).to_be_bytes());
    header[24..40].copy_from_slice(&host.to_be_bytes());
    let (mut old, mut new) = ([0; 10], [0; 34]);
    old[..8].copy_from_slice(&h[26..34]);
    old[8..].copy_from_slice(&h[36..38]);
    new[..32].copy_from_slice(&header[8..]);
    new[32..].copy_from_slice(&t.port);
    let mut link = [0; ETHERNET_HEADER_LEN];
    link.copy_from_slice(&h[..ETHERNET_HEADER_LEN]);
    link[12..].copy_from_slice(&EtherType::IPV6.0.to_be_bytes());
    if packet.prepend(HEADER_GROWTH).is_none() {
        return false;
    }
    packet.truncate(IPV6_L4_OFFSET + len);
    let frame = packet.data_mut();
    frame[..ETHERNET_HEADER_LEN].copy_from_slice(&link);
    frame[ETHERNET_HEADER_LEN..IPV6_L4_OFFSET].copy_from_slice(&header);
    frame[IPV6_L4_OFFSET + 2..IPV6_L4_OFFSET + 4].copy_from_slice(&t.port);
    update_checksum(frame, IPV6_L4_OFFSET, protocol, ChecksumDelta::new(&old, &new));
    true
}

impl Nat64Node {
    /// Translates the plain packets of a batch whose sessions exist and returns a mask of them.
    #[inline(always)]
    pub(super) fn translate_fast(&mut self, input: u8, batch: &mut Batch, now: u32) -> u64 {
        let Nat64Node { sessions, hosts, config, keys, id, .. } = self;
        let (prefix, mtu) = (config.prefix, [config.mtu, config.fragment_size]);
        let (mut n, mut done) = (0, 0u64);
        if input != INSIDE {
            let table = &mut sessions.inbound;
            batch.for_each(
                #[inline(always)]
                |packet| {
                    keys[n & (BURST - 1)] = table.prepare(flow::plain_ipv4_key(packet.data()).unwrap_or_default());
                    n += 1;
                },
            );
            let packets = batch.as_mut_slice();
            table.look_up(
                &keys[..n.min(BURST)],
                now,
                #[inline(always)]
                |i, t| {
                    if let Some(packet) = packets.get_mut(i) {
                        done |=
                            u64::from(to_ipv6(packet, hosts.address(t.address()), prefix, t, mtu)) << (i & (BURST - 1));
                    }
                },
            );
            return done;
        }
        let mut known = [None; BURST];
        batch.for_each(
            #[inline(always)]
            |packet| {
                let six = PlainIpv6::of(packet.data(), prefix);
                if let Some(six) = &six {
                    hosts.prefetch(six.host);
                }
                known[n & (BURST - 1)] = six;
                n += 1;
            },
        );
        let n = n.min(BURST);
        let table = &mut sessions.outbound;
        for (key, six) in keys[..n].iter_mut().zip(&known) {
            let of = |six: PlainIpv6| {
                let host = hosts.get(six.host)?;
                Some(Tuple4::new(host, six.dst, six.src_port, six.dst_port, six.protocol))
            };
            // packets that are not plain get a key that no session has
            *key = table.prepare(six.and_then(of).unwrap_or_default());
        }
        let packets = batch.as_mut_slice();
        table.look_up(
            &keys[..n],
            now,
            #[inline(always)]
            |i, t| {
                if let (Some(packet), Some(Some(six))) = (packets.get_mut(i), known.get(i)) {
                    *id = id.wrapping_add(1);
                    done |= u64::from(to_ipv4(packet, six, t, *id)) << (i & (BURST - 1));
                }
            },
        );
        done
    }
}
