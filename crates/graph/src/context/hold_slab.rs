//! Packets that are held in any order.

use super::LostCount;
use crate::hop::PathId;
use packet::Packet;

/// Packets that a node keeps for later and removes in any order, with a value of the node for each, such as links of its
/// queues.
///
/// Packets in it are counted as held. [`Context::hold_in`](crate::Context::hold_in) adds one and returns its number,
/// [`Context::release_from`](crate::Context::release_from) removes it. The number that was freed last is used first, as
/// its memory is in the cache. When the slab is dropped, the packets in it are freed and counted as `vanished`.
pub struct HoldSlab<T> {
    pub(super) slots: Vec<Slot<T>>,
    /// Unused numbers.
    pub(super) free: Vec<u32>,
    pub(super) owner: Option<LostCount>,
}

/// Memory of a packet.
pub(super) struct Slot<T> {
    pub(super) held: Option<(PathId, Packet)>,
    value: T,
}

impl<T> Default for HoldSlab<T> {
    fn default() -> Self {
        HoldSlab { slots: vec![], free: vec![], owner: None }
    }
}

impl<T> Drop for HoldSlab<T> {
    fn drop(&mut self) {
        if let Some(owner) = &self.owner {
            owner.add(self.len());
        }
    }
}

impl<T> HoldSlab<T> {
    /// Returns the number of packets.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns true if there are no packets.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the value of the packet with this number. Numbers of packets that were removed have old values.
    #[inline]
    pub fn value(&self, number: u32) -> Option<&T> {
        self.slots.get(number as usize).map(|slot| &slot.value)
    }

    /// As [`value`](Self::value), for changes.
    #[inline]
    pub fn value_mut(&mut self, number: u32) -> Option<&mut T> {
        self.slots.get_mut(number as usize).map(|slot| &mut slot.value)
    }

    /// Stores a packet and returns its number.
    #[inline]
    pub(super) fn insert(&mut self, path: PathId, packet: Packet, value: T) -> u32 {
        let slot = Slot { held: Some((path, packet)), value };
        let Some(number) = self.free.pop() else {
            self.slots.push(slot);
            return (self.slots.len() - 1) as u32;
        };
        // every number in `free` has a slot
        self.slots[number as usize] = slot;
        number
    }

    /// Removes a packet.
    #[inline]
    pub(super) fn remove(&mut self, number: u32) -> Option<(PathId, Packet)> {
        let held = self.slots.get_mut(number as usize)?.held.take()?;
        self.free.push(number);
        Some(held)
    }
}
