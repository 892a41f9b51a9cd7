//! Reassembly of IP fragments.

use super::decode::Packet;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

/// Largest number of incomplete datagrams; the oldest is removed.
const MAX_DATAGRAMS: usize = 1024;
/// Unit of fragment offsets in bytes (RFC 791).
const UNIT: usize = 8;
/// Largest length of a datagram in bytes (RFC 791).
const MAX_LEN: usize = 65_535;
/// Time after which an incomplete datagram is removed (RFC 1122 §3.3.2).
const TIMEOUT: Duration = Duration::from_secs(60);

/// Addresses, identification, protocol, VLAN identifiers and number of tunnels.
type Key = (IpAddr, IpAddr, u32, u8, u32, u8);

struct Datagram {
    since: Duration,
    /// Length, once the last fragment arrived.
    len: Option<usize>,
    bytes: Vec<u8>,
    /// Units of 8 bytes that have arrived.
    known: Vec<bool>,
    /// Number of them.
    units: usize,
}

/// Incomplete datagrams.
#[derive(Default)]
pub(super) struct Fragments {
    datagrams: HashMap<Key, Datagram>,
    order: VecDeque<(Key, Duration)>,
}

impl Fragments {
    /// Adds a fragment and returns the payload of its datagram if that is complete now. Of overlapping bytes those that
    /// arrived first are used.
    pub(super) fn add(&mut self, now: Duration, packet: &Packet<'_>) -> Option<Vec<u8>> {
        let offset = usize::from(packet.fragment_offset) * UNIT;
        let is_last = packet.fragment_bits & 1 == 0;
        // only the last fragment may end within a unit
        let len = if is_last { packet.payload.len() } else { packet.payload.len() / UNIT * UNIT };
        let payload = packet.payload.get(..len)?;
        let end = offset + len;
        if end > MAX_LEN {
            return None;
        }
        // those that were completed are in the order until they are its first
        while let Some((key, since)) = self.order.front().copied() {
            let waits = self.datagrams.get(&key).is_some_and(|datagram| datagram.since == since);
            let has_room = self.datagrams.len() < MAX_DATAGRAMS && self.order.len() < 16 * MAX_DATAGRAMS;
            if waits && has_room && now.saturating_sub(since) <= TIMEOUT {
                break;
            }
            self.order.pop_front();
            if waits {
                self.datagrams.remove(&key);
            }
        }
        let key = (packet.src, packet.dst, packet.id, packet.protocol, packet.vlans, packet.tunnels);
        let datagram = self.datagrams.entry(key).or_insert_with(|| {
            self.order.push_back((key, now));
            Datagram { since: now, len: None, bytes: vec![], known: vec![], units: 0 }
        });
        if is_last {
            datagram.len.get_or_insert(end);
        }
        let units = end.div_ceil(UNIT);
        if datagram.known.len() < units {
            datagram.known.resize(units, false);
            datagram.bytes.resize(units * UNIT, 0);
        }
        let (known, bytes) = (&mut datagram.known, &mut datagram.bytes);
        for ((known, to), from) in
            known.iter_mut().zip(bytes.chunks_mut(UNIT)).skip(offset / UNIT).zip(payload.chunks(UNIT))
        {
            if !std::mem::replace(known, true) {
                to[..from.len()].copy_from_slice(from);
                datagram.units += 1;
            }
        }
        let len = datagram.len.filter(|len| {
            let units = len.div_ceil(UNIT);
            datagram.units >= units && datagram.known.iter().take(units).all(|known| *known)
        })?;
        let mut whole = self.datagrams.remove(&key)?.bytes;
        whole.truncate(len);
        Some(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::engine::decode::decode_frame;
    use proptest::prelude::*;
    use testkit::wire::build;

    proptest! {
        /// Fragments of a datagram in any order, twice, against its payload.
        #[test]
        fn fragments_in_any_order_are_the_datagram(
            len in 1usize..3000,
            order in Just((0..400usize).collect::<Vec<_>>()).prop_shuffle(),
            units in 1usize..40,
        ) {
            let payload: Vec<u8> = (0..len).map(|n| (n * 7 % 251) as u8).collect();
            let frame = build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2).to_vec();
            let whole = decode_frame(&frame, false).unwrap();
            let pieces: Vec<_> = payload.chunks(units * UNIT).collect();
            let mut fragments = Fragments::default();
            let order: Vec<_> = order.into_iter().filter(|n| *n < pieces.len()).collect();
            for (n, at) in order.iter().enumerate() {
                let fragment = Packet {
                    payload: pieces[*at],
                    fragment_offset: (at * units) as u16,
                    fragment_bits: u8::from(*at + 1 < pieces.len()),
                    ..whole
                };
                let complete = fragments.add(Duration::ZERO, &fragment);
                prop_assert_eq!(complete.as_deref(), (n + 1 == order.len()).then_some(&payload[..]));
                if n + 1 < order.len() {
                    prop_assert_eq!(fragments.add(Duration::ZERO, &fragment), None);
                }
            }
        }
    }
}
