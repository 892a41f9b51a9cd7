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
/// The first word is the first eight bytes of the frame: destination, and two bytes of the source. Once an adjacency is
/// resolved only they change, in one store.
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

    /// Says something else; `macs` are destination and source.
    pub(super) fn set(&self, kind: Kind, output: u8, mtu: u16, macs: (MacAddr, MacAddr)) {
        let (dst, src) = (macs.0.0, macs.1.0);
        let front = u64::from_le_bytes([dst[0], dst[1], dst[2], dst[3], dst[4], dst[5], src[0], src[1]]);
        let [low, high] = mtu.to_le_bytes();
        let rest = u64::from_le_bytes([src[2], src[3], src[4], src[5], output, kind as u8, low, high]);
        self.front.store(front, Ordering::Relaxed);
        self.rest.store(rest, Ordering::Release);
    }

    /// Stands for the group of this number.
    pub(super) fn set_group(&self, group: u32) {
        self.front.store(u64::from(group), Ordering::Relaxed);
        self.rest.store(u64::from_le_bytes([0, 0, 0, 0, 0, Kind::Group as u8, 0, 0]), Ordering::Release);
    }
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
