//! What the FIB's values stand for: how to send a packet to its next hop, or why not.

use core::sync::atomic::{AtomicU64, Ordering};
use wire::MacAddr;

/// What becomes of a packet whose route has this adjacency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// There is no route.
    NoRoute,
    /// To a neighbour whose MAC address is known.
    Resolved,
    /// To a neighbour whose MAC address is not known.
    Unresolved,
    /// To a neighbour nobody has asked for yet, on the interface's network.
    Connected,
    /// To one of several adjacencies.
    Group,
    /// To the router itself.
    Local,
    /// Nowhere, and the sender is told.
    Unreachable,
    /// Nowhere.
    Blackhole,
    /// Nowhere: no packet may go to such an address (RFC 1812 §5.3.7).
    Martian,
    /// Nowhere: to all of a network from outside (RFC 2644).
    Broadcast,
}

impl Kind {
    fn of(byte: u8) -> Kind {
        const KINDS: [Kind; 10] = [
            Kind::NoRoute,
            Kind::Resolved,
            Kind::Unresolved,
            Kind::Connected,
            Kind::Group,
            Kind::Local,
            Kind::Unreachable,
            Kind::Blackhole,
            Kind::Martian,
            Kind::Broadcast,
        ];
        KINDS.get(usize::from(byte)).copied().unwrap_or(Kind::NoRoute)
    }
}

/// Sixteen bytes that a packet needs on its way out. Whoever holds the FIB's lock writes it, every worker reads it.
///
/// The first word is the first eight bytes of the frame: destination, and two bytes of the source. It means something only
/// while the second says `Resolved` or `Group`, and is written before that. Nothing else writes it: who has read `Resolved`
/// and is then overtaken finds the MAC address of then, or the one it was resolved to since, whole.
#[derive(Debug, Default)]
#[repr(align(16))]
pub(super) struct Adjacency {
    front: AtomicU64,
    /// From the lowest byte: four bytes of the source, the output, the kind, the MTU.
    rest: AtomicU64,
}

/// An adjacency as it was at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    front: u64,
    rest: u64,
}

impl Adjacency {
    /// What it says now.
    #[inline(always)]
    pub(super) fn load(&self) -> Seen {
        let rest = self.rest.load(Ordering::Acquire);
        Seen { front: self.front.load(Ordering::Relaxed), rest }
    }

    /// Says something that needs no MAC addresses. Those of before stay, for workers that have read half of it.
    pub(super) fn set(&self, kind: Kind, output: u8, mtu: u16) {
        self.rest.store(rest(kind, output, mtu, [0; 4]), Ordering::Release);
    }

    /// Says that the neighbour behind an output has been found.
    pub(super) fn resolve(&self, output: u8, mtu: u16, dst: MacAddr, src: MacAddr) {
        let (MacAddr(dst), MacAddr([first, second, src @ ..])) = (dst, src);
        let front = u64::from_le_bytes([dst[0], dst[1], dst[2], dst[3], dst[4], dst[5], first, second]);
        self.front.store(front, Ordering::Relaxed);
        self.rest.store(rest(Kind::Resolved, output, mtu, src), Ordering::Release);
    }

    /// Stands for the group of this number.
    pub(super) fn set_group(&self, group: u32) {
        self.front.store(u64::from(group), Ordering::Relaxed);
        self.rest.store(rest(Kind::Group, 0, 0, [0; 4]), Ordering::Release);
    }
}

/// The second word.
fn rest(kind: Kind, output: u8, mtu: u16, src: [u8; 4]) -> u64 {
    let [low, high] = mtu.to_le_bytes();
    u64::from_le_bytes([src[0], src[1], src[2], src[3], output, kind as u8, low, high])
}

impl Seen {
    #[inline(always)]
    pub(super) fn is_resolved(self) -> bool {
        (self.rest >> 40) as u8 == Kind::Resolved as u8
    }

    pub(super) fn kind(self) -> Kind {
        Kind::of((self.rest >> 40) as u8)
    }

    /// Output of the interface.
    #[inline(always)]
    pub(super) fn output(self) -> u8 {
        (self.rest >> 32) as u8
    }

    /// Largest IP packet, in bytes.
    #[inline(always)]
    pub(super) fn mtu(self) -> usize {
        (self.rest >> 48) as usize
    }

    /// Number of the group.
    pub(super) fn group(self) -> usize {
        self.front as usize
    }

    /// Writes both MAC addresses.
    #[inline(always)]
    pub(super) fn rewrite(self, front: &mut [u8; 12]) {
        let (dst, src) = front.split_at_mut(8);
        dst.copy_from_slice(&self.front.to_le_bytes());
        src.copy_from_slice(&(self.rest as u32).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: MacAddr = MacAddr([2, 0, 0, 0, 1, 0]);

    fn macs(seen: Seen) -> (MacAddr, MacAddr) {
        let mut front = [0; 12];
        seen.rewrite(&mut front);
        let (dst, src) = front.split_at(6);
        (MacAddr(dst.try_into().unwrap()), MacAddr(src.try_into().unwrap()))
    }

    #[test]
    fn says_what_it_was_told() {
        let a = Adjacency::default();
        assert_eq!(a.load().kind(), Kind::NoRoute);
        a.set(Kind::Connected, 3, 1400);
        assert_eq!((a.load().kind(), a.load().output(), a.load().mtu()), (Kind::Connected, 3, 1400));
        a.resolve(5, 9700, MacAddr([1, 2, 3, 4, 5, 6]), MacAddr([7, 8, 9, 10, 11, 12]));
        assert_eq!((a.load().is_resolved(), a.load().output(), a.load().mtu()), (true, 5, 9700));
        assert_eq!(macs(a.load()), (MacAddr([1, 2, 3, 4, 5, 6]), MacAddr([7, 8, 9, 10, 11, 12])));
        a.set_group(77);
        assert_eq!((a.load().kind(), a.load().group()), (Kind::Group, 77));
    }

    /// Between the two loads of a worker the neighbour is forgotten, or has moved, or both.
    #[test]
    fn who_is_overtaken_finds_a_mac_address_that_the_neighbour_had() {
        let (old, new) = (MacAddr([2, 0, 0, 0, 1, 5]), MacAddr([6, 9, 9, 9, 9, 9]));
        for (forgotten, moved) in [(true, false), (false, true), (true, true)] {
            let a = Adjacency::default();
            a.set(Kind::Unresolved, 1, 1500);
            a.resolve(1, 1500, old, OURS);
            let rest = a.rest.load(Ordering::Acquire);
            if forgotten {
                a.set(Kind::Unresolved, 1, 1500);
            }
            if moved {
                a.resolve(1, 1500, new, OURS);
            }
            let seen = Seen { front: a.front.load(Ordering::Relaxed), rest };
            assert!(seen.is_resolved());
            assert_eq!(macs(seen), (if moved { new } else { old }, OURS));
        }
    }
}
