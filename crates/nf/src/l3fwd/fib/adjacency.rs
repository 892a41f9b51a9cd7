//! Adjacencies: the results of FIB look-ups.

use core::sync::atomic::{AtomicU64, Ordering};
use std::net::IpAddr;
use wire::MacAddr;

/// Interface and address of a neighbour.
pub(in crate::l3fwd) type NeighbourKey = (usize, IpAddr);

/// Kind of an adjacency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum AdjacencyKind {
    /// No route.
    NoRoute,
    /// A neighbour with a known MAC address.
    Resolved,
    /// A neighbour whose MAC address is not known.
    Unresolved,
    /// The network of an interface: any of its hosts without an adjacency of its own.
    Connected,
    /// A group of adjacencies, of which each flow uses one.
    Group,
    /// The router itself.
    Local,
    /// Dropped, with an ICMP error to the sender.
    Unreachable,
    /// Dropped silently.
    Blackhole,
    /// Dropped: an address that must not be forwarded to (RFC 1812 §5.3.7).
    Martian,
    /// Dropped: the broadcast address of a network of the router (RFC 2644).
    Broadcast,
    /// Dropped, with an ICMP error that says that it is prohibited.
    Prohibited,
}

impl AdjacencyKind {
    fn of(byte: u8) -> AdjacencyKind {
        const KINDS: [AdjacencyKind; 11] = [
            AdjacencyKind::NoRoute,
            AdjacencyKind::Resolved,
            AdjacencyKind::Unresolved,
            AdjacencyKind::Connected,
            AdjacencyKind::Group,
            AdjacencyKind::Local,
            AdjacencyKind::Unreachable,
            AdjacencyKind::Blackhole,
            AdjacencyKind::Martian,
            AdjacencyKind::Broadcast,
            AdjacencyKind::Prohibited,
        ];
        KINDS.get(usize::from(byte)).copied().unwrap_or(AdjacencyKind::NoRoute)
    }
}

/// Adjacency in two words. Holders of the FIB's lock write it; workers read it.
///
/// The first word has the first eight bytes of the frame, the destination and two bytes of the source, or the number of
/// a group. It is valid only while the second word has the kind `Resolved` or `Group`, and is written before it. Only
/// `resolve` and `set_group` write it: a reader that has read `Resolved` finds the MAC address of that time or a later
/// one, never a mixture.
#[derive(Debug, Default)]
#[repr(align(16))]
pub(crate) struct Adjacency {
    first: AtomicU64,
    /// From the lowest byte: four bytes of the source, the output, the kind, the MTU.
    second: AtomicU64,
}

/// Adjacency as read by a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdjacencyValue {
    first: u64,
    second: u64,
}

impl Adjacency {
    /// Reads the adjacency.
    #[inline(always)]
    pub(crate) fn load(&self) -> AdjacencyValue {
        let second = self.second.load(Ordering::Acquire);
        AdjacencyValue { first: self.first.load(Ordering::Relaxed), second }
    }

    /// Sets a kind without MAC addresses. The previous addresses remain for workers that have read the second word
    /// only.
    pub(super) fn set(&self, kind: AdjacencyKind, output: u8, mtu: u16) {
        self.second.store(second_word(kind, output, mtu, [0; 4]), Ordering::Release);
    }

    /// Sets the MAC addresses of a neighbour and of the interface of an output.
    pub(super) fn resolve(&self, output: u8, mtu: u16, dst: MacAddr, src: MacAddr) {
        let (MacAddr(dst), MacAddr([src0, src1, src @ ..])) = (dst, src);
        let first = u64::from_le_bytes([dst[0], dst[1], dst[2], dst[3], dst[4], dst[5], src0, src1]);
        self.first.store(first, Ordering::Relaxed);
        self.second.store(second_word(AdjacencyKind::Resolved, output, mtu, src), Ordering::Release);
    }

    /// Sets the number of a group.
    pub(super) fn set_group(&self, group: u32) {
        self.first.store(u64::from(group), Ordering::Relaxed);
        self.second.store(second_word(AdjacencyKind::Group, 0, 0, [0; 4]), Ordering::Release);
    }
}

fn second_word(kind: AdjacencyKind, output: u8, mtu: u16, src: [u8; 4]) -> u64 {
    let [low, high] = mtu.to_le_bytes();
    u64::from_le_bytes([src[0], src[1], src[2], src[3], output, kind as u8, low, high])
}

impl AdjacencyValue {
    #[inline(always)]
    pub(crate) fn is_resolved(self) -> bool {
        (self.second >> 40) as u8 == AdjacencyKind::Resolved as u8
    }

    pub(crate) fn kind(self) -> AdjacencyKind {
        AdjacencyKind::of((self.second >> 40) as u8)
    }

    /// Returns the output of the interface.
    #[inline(always)]
    pub(crate) fn output(self) -> u8 {
        (self.second >> 32) as u8
    }

    /// Returns the length of the largest IP packet in bytes.
    #[inline(always)]
    pub(crate) fn mtu(self) -> usize {
        (self.second >> 48) as usize
    }

    /// Returns the number of the group.
    pub(crate) fn group(self) -> usize {
        self.first as usize
    }

    /// Writes both MAC addresses to the start of a frame.
    #[inline(always)]
    pub(crate) fn rewrite(self, addresses: &mut [u8; 12]) {
        let (low, high) = addresses.split_at_mut(8);
        low.copy_from_slice(&self.first.to_le_bytes());
        high.copy_from_slice(&(self.second as u32).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: MacAddr = MacAddr([2, 0, 0, 0, 1, 0]);

    fn macs(adjacency: AdjacencyValue) -> (MacAddr, MacAddr) {
        let mut addresses = [0; 12];
        adjacency.rewrite(&mut addresses);
        let (dst, src) = addresses.split_at(6);
        (MacAddr(dst.try_into().unwrap()), MacAddr(src.try_into().unwrap()))
    }

    #[test]
    fn loads_what_was_stored() {
        let a = Adjacency::default();
        assert_eq!(a.load().kind(), AdjacencyKind::NoRoute);
        a.set(AdjacencyKind::Connected, 3, 1400);
        assert_eq!((a.load().kind(), a.load().output(), a.load().mtu()), (AdjacencyKind::Connected, 3, 1400));
        a.resolve(5, 9700, MacAddr([1, 2, 3, 4, 5, 6]), MacAddr([7, 8, 9, 10, 11, 12]));
        assert_eq!((a.load().is_resolved(), a.load().output(), a.load().mtu()), (true, 5, 9700));
        assert_eq!(macs(a.load()), (MacAddr([1, 2, 3, 4, 5, 6]), MacAddr([7, 8, 9, 10, 11, 12])));
        a.set_group(77);
        assert_eq!((a.load().kind(), a.load().group()), (AdjacencyKind::Group, 77));
    }

    /// Between the two loads of a worker the neighbour expires, or changes its MAC address, or both.
    #[test]
    fn concurrent_readers_find_a_complete_mac_address() {
        let (old, new) = (MacAddr([2, 0, 0, 0, 1, 5]), MacAddr([6, 9, 9, 9, 9, 9]));
        for (expired, moved) in [(true, false), (false, true), (true, true)] {
            let a = Adjacency::default();
            a.set(AdjacencyKind::Unresolved, 1, 1500);
            a.resolve(1, 1500, old, OWN);
            let second = a.second.load(Ordering::Acquire);
            if expired {
                a.set(AdjacencyKind::Unresolved, 1, 1500);
            }
            if moved {
                a.resolve(1, 1500, new, OWN);
            }
            let adjacency = AdjacencyValue { first: a.first.load(Ordering::Relaxed), second };
            assert!(adjacency.is_resolved());
            assert_eq!(macs(adjacency), (if moved { new } else { old }, OWN));
        }
    }
}
