//! Whole packets of TCP and UDP without options, tags or extension headers, of sessions that are known: in bursts.

use super::node::Translating;
use super::translate::{FOUR, MAY_BE_CUT, SIX, pad};
use super::{INSIDE, prefix::Prefix};
use crate::nat44::flow::{self, Change, Translation};
use packet::{BURST, Batch, Packet};
use tables::flow::{Prepared, Tuple4};
use wire::{EtherType, IpProtocol, checksum};

/// Where IP begins, and what is behind either version of it.
const IP: usize = 14;
const UPPER4: usize = IP + FOUR;
const UPPER6: usize = IP + SIX;
/// Bytes between the two.
const MORE: usize = SIX - FOUR;

/// An IPv6 packet that may be plain.
#[derive(Clone, Copy)]
struct Six {
    host: u128,
    /// As it is over IPv4.
    dst: u32,
    src_port: u16,
    dst_port: u16,
    protocol: u8,
}

impl Six {
    #[inline(always)]
    fn of(frame: &[u8], prefix: Prefix) -> Option<Self> {
        let h = frame.first_chunk::<{ UPPER6 + 8 }>()?;
        let half = |at: usize| u16::from_be_bytes([h[at], h[at + 1]]);
        let address = |at: usize| h[at..].first_chunk().map_or(0, |b| u128::from_be_bytes(*b));
        let (len, protocol, hops) = (usize::from(half(18)), h[20], h[21]);
        let least = match IpProtocol(protocol) {
            IpProtocol::TCP => 20,
            IpProtocol::UDP => 8,
            _ => return None,
        };
        let right = half(12) == EtherType::IPV6.0 && h[14] >> 4 == 6;
        let fits = len >= least && UPPER6 + len <= frame.len() && FOUR + len <= usize::from(u16::MAX);
        // a datagram of its own length, and with a checksum (RFC 8200 §8.1)
        let whole = protocol == IpProtocol::TCP.0 || half(60) != 0 && (8..=len).contains(&usize::from(half(58)));
        let dst = address(38);
        (right && fits && whole && hops > 1 && prefix.has(dst)).then(|| Six {
            host: address(22),
            dst: prefix.extract(dst),
            src_port: half(54),
            dst_port: half(56),
            protocol,
        })
    }
}

/// Whether a session hears nothing new from a packet whose upper header begins at `upper`.
#[inline(always)]
fn is_dull(frame: &[u8], upper: usize, protocol: u8, t: &Translation) -> bool {
    flow::is_dull(t, frame.get(upper + 13).copied().filter(|_| protocol == IpProtocol::TCP.0))
}

/// The checksum of a packet behind its IP header after a change.
#[inline(always)]
fn sum(frame: &mut [u8], upper: usize, protocol: u8, change: Change) {
    let tcp = protocol == IpProtocol::TCP.0;
    if let Some([a, b]) = frame.get_mut(upper + if tcp { 16 } else { 6 }..).and_then(|rest| rest.first_chunk_mut()) {
        let old = [*a, *b];
        [*a, *b] = if tcp { change.apply(old) } else { change.apply_udp(old) };
    }
}

/// Makes a packet of a session IPv4; false, and nothing done, where it needs a closer look.
#[inline(always)]
fn four(packet: &mut Packet, six: &Six, t: &Translation, id: u16) -> bool {
    let frame = packet.data_mut();
    if !is_dull(frame, UPPER6, six.protocol, t) {
        return false;
    }
    let Some(h) = frame.first_chunk_mut::<{ UPPER6 + 8 }>() else { return false };
    let len = usize::from(u16::from_be_bytes([h[18], h[19]]));
    let total = FOUR + len;
    let flags = u16::from(total > MAY_BE_CUT) << 14;
    let mut header = [0; FOUR];
    (header[0], header[1]) = (0x45, h[14] << 4 | h[15] >> 4);
    header[2..4].copy_from_slice(&(total as u16).to_be_bytes());
    header[4..6].copy_from_slice(&id.to_be_bytes());
    header[6..8].copy_from_slice(&flags.to_be_bytes());
    (header[8], header[9]) = (h[21] - 1, six.protocol);
    header[12..16].copy_from_slice(&t.address);
    header[16..20].copy_from_slice(&six.dst.to_be_bytes());
    let own = checksum::of(&header);
    header[10..12].copy_from_slice(&own.to_be_bytes());
    // addresses, and the source port behind them
    let mut new = [0; 10];
    new[..8].copy_from_slice(&header[12..]);
    new[8..].copy_from_slice(&t.port);
    let change = Change::new(&h[22..UPPER6 + 2], &new);
    h[UPPER6..UPPER6 + 2].copy_from_slice(&t.port);
    let mut link = [0; IP];
    link.copy_from_slice(&h[..IP]);
    link[12..].copy_from_slice(&EtherType::IPV4.0.to_be_bytes());
    h[MORE..MORE + IP].copy_from_slice(&link);
    h[MORE + IP..UPPER6].copy_from_slice(&header);
    sum(frame, UPPER6, six.protocol, change);
    packet.truncate(UPPER6 + len);
    packet.trim_front(MORE);
    pad(packet);
    true
}

/// Makes a packet of a session IPv6, of `host`'s; false, and nothing done, where it needs a closer look. `most` are the longest
/// that may not be cut, and that may.
#[inline(always)]
fn six(packet: &mut Packet, host: u128, prefix: Prefix, t: &Translation, most: [usize; 2]) -> bool {
    let frame = packet.data();
    let Some(h) = frame.first_chunk::<{ UPPER4 + 8 }>() else { return false };
    let half = |at: usize| u16::from_be_bytes([h[at], h[at + 1]]);
    let word = |at: usize| h[at..].first_chunk().map_or(0, |b| u32::from_be_bytes(*b));
    let (total, protocol, hops) = (usize::from(half(16)), h[23], h[22]);
    let len = total - FOUR;
    let may_be_cut = h[20] & 0x40 == 0;
    let whole = protocol == IpProtocol::TCP.0 || half(40) != 0 && (8..=len).contains(&usize::from(half(38)));
    let fits = SIX + len <= most[usize::from(may_be_cut)];
    if !whole || !fits || hops <= 1 || !checksum::verify(&h[IP..UPPER4]) || !is_dull(frame, UPPER4, protocol, t) {
        return false;
    }
    let mut header = [0; SIX];
    header[..4].copy_from_slice(&(6 << 28 | u32::from(h[15]) << 20).to_be_bytes());
    header[4..6].copy_from_slice(&(len as u16).to_be_bytes());
    (header[6], header[7]) = (protocol, hops - 1);
    header[8..24].copy_from_slice(&prefix.embed(word(26)).to_be_bytes());
    header[24..40].copy_from_slice(&host.to_be_bytes());
    let (mut old, mut new) = ([0; 10], [0; 34]);
    old[..8].copy_from_slice(&h[26..34]);
    old[8..].copy_from_slice(&h[36..38]);
    new[..32].copy_from_slice(&header[8..]);
    new[32..].copy_from_slice(&t.port);
    let mut link = [0; IP];
    link.copy_from_slice(&h[..IP]);
    link[12..].copy_from_slice(&EtherType::IPV6.0.to_be_bytes());
    if packet.prepend(MORE).is_none() {
        return false;
    }
    packet.truncate(UPPER6 + len);
    let frame = packet.data_mut();
    frame[..IP].copy_from_slice(&link);
    frame[IP..UPPER6].copy_from_slice(&header);
    frame[UPPER6 + 2..UPPER6 + 4].copy_from_slice(&t.port);
    sum(frame, UPPER6, protocol, Change::new(&old, &new));
    true
}

impl Translating {
    /// Translates the plain packets of a batch whose sessions are known: a bit for each.
    #[inline(always)]
    pub(super) fn plain(&mut self, input: u8, batch: &mut Batch, now: u32) -> u32 {
        let Translating { sessions, hosts, config, keys, id, .. } = self;
        let (prefix, most) = (config.prefix, [config.mtu, config.fragment]);
        let (mut n, mut done) = (0, 0u32);
        if input != INSIDE {
            let table = &mut sessions.inwards;
            batch.for_each(
                #[inline(always)]
                |packet| {
                    keys[n & (BURST - 1)] = table.prepare(flow::plain(packet.data()).unwrap_or_default());
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
                            u32::from(six(packet, hosts.address(t.address()), prefix, t, most)) << (i & (BURST - 1));
                    }
                },
            );
            return done;
        }
        let mut known = [None; BURST];
        batch.for_each(
            #[inline(always)]
            |packet| {
                let six = Six::of(packet.data(), prefix);
                if let Some(six) = &six {
                    hosts.fetch(six.host);
                }
                known[n & (BURST - 1)] = six;
                n += 1;
            },
        );
        let n = n.min(BURST);
        let table = &mut sessions.outwards;
        for (key, six) in keys[..n].iter_mut().zip(&known) {
            let of = |six: Six| {
                let host = hosts.get(six.host)?;
                Some(Tuple4::new(host, six.dst, six.src_port, six.dst_port, six.protocol))
            };
            // what is not plain has a key that no session has
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
                    done |= u32::from(four(packet, six, t, *id)) << (i & (BURST - 1));
                }
            },
        );
        done
    }
}

/// Keys of a batch.
pub(super) type Keys = [Prepared<Tuple4>; BURST];
