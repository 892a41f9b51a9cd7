//! Reassembly of IP fragments.

use super::decode::Packet;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

/// Largest number of incomplete datagrams; the oldest is removed.
const MAX_DATAGRAMS: usize = 1024;
/// Largest number of fragments of a datagram; further ones are ignored.
const MAX_FRAGMENTS: usize = 64;
/// Largest length of a datagram in bytes (RFC 791).
const MAX_LEN: usize = 65_535;
/// Time after which an incomplete datagram is removed (RFC 1122 §3.3.2).
const TIMEOUT: Duration = Duration::from_secs(60);

type Key = (IpAddr, IpAddr, u32, u8);

struct Datagram {
    since: Duration,
    /// Length, once the last fragment arrived.
    len: Option<usize>,
    /// Offset and bytes of each fragment, in the order of arrival.
    fragments: Vec<(usize, Vec<u8>)>,
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
        let offset = usize::from(packet.fragment_offset) * 8;
        let end = offset + packet.payload.len();
        if end > MAX_LEN {
            return None;
        }
        while let Some((key, since)) = self.order.front().copied()
            && (self.order.len() > MAX_DATAGRAMS || now.saturating_sub(since) > TIMEOUT)
        {
            self.order.pop_front();
            if self.datagrams.get(&key).is_some_and(|datagram| datagram.since == since) {
                self.datagrams.remove(&key);
            }
        }
        let key = (packet.src, packet.dst, packet.id, packet.protocol);
        let datagram = self.datagrams.entry(key).or_insert_with(|| {
            self.order.push_back((key, now));
            Datagram { since: now, len: None, fragments: vec![] }
        });
        if datagram.fragments.len() >= MAX_FRAGMENTS {
            return None;
        }
        if packet.fragment_bits & 1 == 0 {
            datagram.len.get_or_insert(end);
        }
        datagram.fragments.push((offset, packet.payload.to_vec()));
        let len = datagram.len?;
        let (mut whole, mut known) = (vec![0; len], vec![false; len]);
        for (offset, bytes) in &datagram.fragments {
            for (at, byte) in (*offset..len).zip(bytes) {
                if !known[at] {
                    (whole[at], known[at]) = (*byte, true);
                }
            }
        }
        if known.contains(&false) {
            return None;
        }
        self.datagrams.remove(&key);
        Some(whole)
    }
}
