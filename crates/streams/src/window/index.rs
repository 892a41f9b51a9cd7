//! Lookup of flow numbers by key.

use core::hash::Hash;
use packet::BURST;
use tables::flow::{FlowKey, Settings};

/// Numbers of the flows of one IP version, looked up one batch at a time.
pub(crate) struct Index<K: FlowKey + Eq + Hash> {
    table: table::Table<K>,
    keys: [K; BURST],
    prepared: [table::Prepared<K>; BURST],
    /// For each key, the position of its packet in the batch.
    whose: [u8; BURST],
    n: usize,
    /// Unit of the table's clock: a power of two of milliseconds.
    unit: u32,
}

/// Result of a lookup.
pub(crate) enum Number<'a> {
    Known(u32),
    /// A new flow, to be filled in.
    New(&'a mut u32),
    /// The table is full.
    Refused,
}

impl<K: FlowKey + Eq + Hash> Index<K> {
    /// Creates an index for `settings.flows` flows, none of which is idle for longer than `idle` ms.
    pub(crate) fn new(settings: &Settings, idle: u64) -> Result<Self, tables::flow::Error> {
        let table = table::Table::new(settings)?;
        let prepared = [table.prepare(K::default()); BURST];
        // the table's clock covers twice the idle time
        let unit = (idle >> 20).checked_ilog2().map_or(0, |bits| bits + 1).max(4);
        Ok(Index { table, keys: [K::default(); BURST], prepared, whose: [0; BURST], n: 0, unit })
    }

    /// Requests the flow of packet number `packet` of the batch.
    #[inline(always)]
    pub(crate) fn ask(&mut self, key: K, packet: usize) {
        let n = self.n & (BURST - 1);
        (self.keys[n], self.prepared[n], self.whose[n]) = (key, self.table.prepare(key), packet as u8);
        self.n += 1;
    }

    /// Returns true if lookups are pending.
    #[inline(always)]
    pub(crate) fn is_asked(&self) -> bool {
        self.n != 0
    }

    /// Passes the number of each requested flow and of its packet to `found`, in order within a flow only; inserts
    /// missing flows. `lost` receives the number of an evicted flow.
    #[inline(always)]
    pub(crate) fn answer(&mut self, now: u64, lost: impl FnMut(u32), mut found: impl FnMut(usize, &K, Number<'_>)) {
        let n = core::mem::take(&mut self.n).min(BURST);
        let Index { table, keys, prepared, whose, unit, .. } = self;
        let (keys, whose) = (&keys[..n], &whose[..n]);
        table.look_up_or_insert(
            &prepared[..n],
            (now >> *unit) as u32,
            lost,
            #[inline(always)]
            |at, number| found(usize::from(whose[at]), &keys[at], number),
        );
    }

    /// Passes the number of each requested flow that exists, and of its packet, to `found`.
    #[inline(always)]
    pub(crate) fn look_up_all(&mut self, now: u64, mut found: impl FnMut(usize, u32)) {
        let n = core::mem::take(&mut self.n).min(BURST);
        let Index { table, prepared, whose, unit, .. } = self;
        let whose = &whose[..n];
        table.look_up(
            &prepared[..n],
            (now >> *unit) as u32,
            #[inline(always)]
            |at, number| found(usize::from(whose[at]), number),
        );
    }

    /// Returns the number of a flow, if it exists.
    pub(crate) fn get(&self, key: &K) -> Option<u32> {
        self.table.get(key)
    }

    /// Inserts a new flow; returns false if the table is full.
    pub(crate) fn insert(&mut self, key: K, number: u32, now: u64) -> bool {
        let mut entered = false;
        let prepared = [self.table.prepare(key)];
        self.table.look_up_or_insert(
            &prepared,
            (now >> self.unit) as u32,
            |_| (),
            |_, it| {
                if let Number::New(new) = it {
                    (*new, entered) = (number, true);
                }
            },
        );
        entered
    }

    /// Removes a flow.
    pub(crate) fn remove(&mut self, key: &K) {
        self.table.remove(key);
    }

    /// Visits the flows of the next of `parts` slices of the table with their idle times in milliseconds, and removes
    /// those for which `over` returns true.
    pub(crate) fn age(&mut self, now: u64, parts: usize, mut over: impl FnMut(u32, u64) -> bool) {
        let unit = self.unit;
        self.table.age((now >> unit) as u32, parts, |number, idle| over(number, u64::from(idle) << unit));
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns the number of flows that found no room.
    pub(crate) fn refused(&self) -> u64 {
        self.table.refused()
    }
}

#[cfg(not(miri))]
mod table {
    use super::Number;
    pub(crate) use tables::flow::Prepared;
    use tables::flow::{Error, FlowKey, FlowTable, Lookup, Settings};

    pub(crate) struct Table<K: FlowKey>(FlowTable<K, u32>);

    impl<K: FlowKey> Table<K> {
        pub(crate) fn new(settings: &Settings) -> Result<Self, Error> {
            FlowTable::new(settings).map(Table)
        }

        #[inline(always)]
        pub(crate) fn prepare(&self, key: K) -> Prepared<K> {
            self.0.prepare(key)
        }

        #[inline(always)]
        pub(crate) fn look_up_or_insert(
            &mut self,
            keys: &[Prepared<K>],
            now: u32,
            mut lost: impl FnMut(u32),
            mut found: impl FnMut(usize, Number<'_>),
        ) {
            self.0.look_up_or_insert(
                keys,
                now,
                |_, number| lost(*number),
                #[inline(always)]
                |at, number| match number {
                    Lookup::Known(number) => found(at, Number::Known(*number)),
                    Lookup::New(number) => found(at, Number::New(number)),
                    Lookup::Refused => found(at, Number::Refused),
                },
            );
        }

        #[inline(always)]
        pub(crate) fn look_up(&mut self, keys: &[Prepared<K>], now: u32, mut found: impl FnMut(usize, u32)) {
            self.0.look_up(
                keys,
                now,
                #[inline(always)]
                |at, number| found(at, *number),
            );
        }

        pub(crate) fn get(&self, key: &K) -> Option<u32> {
            self.0.get(key).copied()
        }

        pub(crate) fn remove(&mut self, key: &K) {
            self.0.remove(key);
        }

        pub(crate) fn age(&mut self, now: u32, parts: usize, mut over: impl FnMut(u32, u32) -> bool) {
            let buckets = self.0.buckets().div_ceil(parts);
            if !self.0.is_empty() {
                self.0.age(now, buckets, |_, number, idle| over(*number, idle));
            }
        }

        pub(crate) fn len(&self) -> usize {
            self.0.len()
        }

        pub(crate) fn refused(&self) -> u64 {
            self.0.counters().refused
        }
    }
}

/// A hash map in its place under Miri, which cannot map the memory of a flow table.
#[cfg(miri)]
mod table {
    use super::Number;
    use core::hash::Hash;
    use std::collections::HashMap;
    use tables::flow::{Error, FlowKey, Full, Settings};

    pub(crate) type Prepared<K> = K;

    pub(crate) struct Table<K> {
        map: HashMap<K, (u32, u32)>,
        settings: Settings,
        refused: u64,
    }

    impl<K: FlowKey + Eq + Hash> Table<K> {
        pub(crate) fn new(settings: &Settings) -> Result<Self, Error> {
            Ok(Table { map: HashMap::new(), settings: settings.clone(), refused: 0 })
        }

        pub(crate) fn prepare(&self, key: K) -> K {
            key
        }

        pub(crate) fn look_up_or_insert(
            &mut self,
            keys: &[K],
            now: u32,
            mut lost: impl FnMut(u32),
            mut found: impl FnMut(usize, Number<'_>),
        ) {
            for (at, key) in keys.iter().enumerate() {
                if let Some((number, seen)) = self.map.get_mut(key) {
                    *seen = now;
                    found(at, Number::Known(*number));
                    continue;
                }
                if self.map.len() >= self.settings.capacity && self.settings.full == Full::EvictOldest {
                    let idle = self.map.iter().filter(|(_, v)| v.1 != now).max_by_key(|(_, v)| now.wrapping_sub(v.1));
                    if let Some(oldest) = idle.map(|(key, _)| *key) {
                        self.map.remove(&oldest).into_iter().for_each(|(number, _)| lost(number));
                    }
                }
                if self.map.len() >= self.settings.capacity {
                    self.refused += 1;
                    found(at, Number::Refused);
                    continue;
                }
                let value = self.map.entry(*key).or_insert((0, now));
                found(at, Number::New(&mut value.0));
            }
        }

        pub(crate) fn look_up(&mut self, keys: &[K], now: u32, mut found: impl FnMut(usize, u32)) {
            for (at, key) in keys.iter().enumerate() {
                if let Some((number, seen)) = self.map.get_mut(key) {
                    *seen = now;
                    found(at, *number);
                }
            }
        }

        pub(crate) fn get(&self, key: &K) -> Option<u32> {
            self.map.get(key).map(|it| it.0)
        }

        pub(crate) fn remove(&mut self, key: &K) {
            self.map.remove(key);
        }

        pub(crate) fn age(&mut self, now: u32, _: usize, mut over: impl FnMut(u32, u32) -> bool) {
            self.map.retain(|_, v| !over(v.0, now.wrapping_sub(v.1)));
        }

        pub(crate) fn len(&self) -> usize {
            self.map.len()
        }

        pub(crate) fn refused(&self) -> u64 {
            self.refused
        }
    }
}
