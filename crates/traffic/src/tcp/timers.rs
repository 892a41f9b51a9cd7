//! Timers of connections, in a wheel (Varghese and Lauck, SOSP'87, scheme 6).

/// Slots of the wheel, and their length in nanoseconds: 8.6 s together. They are short so that connections held for the
/// same time close as evenly as they were opened.
const SLOTS: u64 = 1 << 16;
const SLOT_NS: u64 = 1 << 17;
/// End of a list.
const NONE: u32 = u32::MAX;

/// At most one timer for each connection.
#[derive(Debug)]
pub(super) struct Timers {
    /// First entry of each slot.
    heads: Box<[u32]>,
    /// By connection.
    entries: Box<[Entry]>,
    /// Number of the next slot to be looked at.
    slot: u64,
}

/// Timer of a connection, in the list of its slot.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Nanoseconds; 0 for none.
    due: u64,
    /// Number of the slot whose list it is in, if it is in one.
    slot: Option<u64>,
    next: u32,
    previous: u32,
}

impl Timers {
    pub(super) fn new(connections: usize, now: u64) -> Self {
        let none = Entry { due: 0, slot: None, next: NONE, previous: NONE };
        Self { heads: vec![NONE; SLOTS as usize].into(), entries: vec![none; connections].into(), slot: now / SLOT_NS }
    }

    /// Sets the timer of a connection.
    pub(super) fn set(&mut self, connection: u32, due: u64) {
        let entry = &mut self.entries[connection as usize];
        entry.due = due.max(1);
        // a later one is moved when its slot comes
        if entry.slot.is_none_or(|slot| due / SLOT_NS < slot) {
            self.unlink(connection);
            self.link(connection);
        }
    }

    /// Stops the timer of a connection.
    pub(super) fn stop(&mut self, connection: u32) {
        self.entries[connection as usize].due = 0;
    }

    fn link(&mut self, connection: u32) {
        let due = self.entries[connection as usize].due;
        // beyond the wheel it is looked at again when the last slot comes
        let slot = (due / SLOT_NS).clamp(self.slot, self.slot + SLOTS - 1);
        let next = std::mem::replace(&mut self.heads[(slot % SLOTS) as usize], connection);
        if next != NONE {
            self.entries[next as usize].previous = connection;
        }
        self.entries[connection as usize] = Entry { due, slot: Some(slot), next, previous: NONE };
    }

    fn unlink(&mut self, connection: u32) {
        let entry = &mut self.entries[connection as usize];
        let Some(slot) = entry.slot.take() else { return };
        let (next, previous) = (entry.next, entry.previous);
        match previous {
            NONE => self.heads[(slot % SLOTS) as usize] = next,
            _ => self.entries[previous as usize].next = next,
        }
        if next != NONE {
            self.entries[next as usize].previous = previous;
        }
    }

    /// Stops the timers whose time has come, and adds their connections to `expired`.
    pub(super) fn poll(&mut self, now: u64, expired: &mut Vec<u32>) {
        let until = now / SLOT_NS;
        // after a pause every slot is looked at once
        self.slot = self.slot.max(until.saturating_sub(SLOTS));
        while self.slot < until {
            let slot = (self.slot % SLOTS) as usize;
            self.slot += 1;
            let mut at = std::mem::replace(&mut self.heads[slot], NONE);
            while at != NONE {
                let connection = at;
                let entry = &mut self.entries[connection as usize];
                (at, entry.slot) = (entry.next, None);
                if at != NONE {
                    self.entries[at as usize].previous = NONE;
                }
                let entry = &mut self.entries[connection as usize];
                match entry.due {
                    0 => {}
                    due if due <= now => {
                        entry.due = 0;
                        expired.push(connection);
                    }
                    _ => self.link(connection),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Slots from now to the end of a timer or of a pause: few, and around the length of the wheel, so that the borders
    /// are met often.
    fn slots() -> impl Strategy<Value = u64> {
        prop_oneof![0_u64..4, 0_u64..90_000, SLOTS - 2..SLOTS + 3, 2 * SLOTS - 2..2 * SLOTS + 3]
    }

    proptest! {
        #[test]
        fn timers_fire_like_those_of_a_map(
            steps in prop::collection::vec((0_u32..20, slots(), slots(), any::<bool>()), 1..200),
        ) {
            let (mut timers, mut map, mut now) = (Timers::new(20, 0), BTreeMap::new(), 0);
            for (connection, after, pause, stops) in steps {
                if stops {
                    timers.stop(connection);
                    map.remove(&connection);
                } else {
                    timers.set(connection, now + after * SLOT_NS);
                    map.insert(connection, now + after * SLOT_NS);
                }
                now += pause * SLOT_NS;
                let mut expired = vec![];
                timers.poll(now, &mut expired);
                for connection in expired {
                    let due = map.remove(&connection);
                    prop_assert!(due.is_some_and(|due| due <= now), "{} fired at {} and not at {:?}", connection, now, due);
                }
                // a slot is looked at when it is over
                let late = map.iter().find(|(_, due)| **due + SLOT_NS <= now);
                prop_assert!(late.is_none(), "{:?} has not fired at {}", late, now);
            }
        }
    }
}
