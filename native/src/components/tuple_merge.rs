//! TupleMerge (Daly et al., IEEE/ACM Transactions on Networking, 2019): hash tables of rules by prefixes of their
//! addresses, few tables because a table may use shorter prefixes than its rules have.
//!
//! As in the paper: a table uses shorter prefixes than the rule that it is created for, so that other rules fit; a rule
//! is added to the first table that it fits and where fewer than [`COLLISIONS_MAX`] rules have its hash; if there are
//! more, they are moved to a table with longer prefixes; tables are searched in order of their best rule, until no
//! better one is possible. Beyond the paper, all packets of a burst are looked up in one table before the next, with
//! prefetching.

use packet::BURST;
use std::collections::BTreeSet;

/// Maximum number of rules with one hash, as the paper recommends for look-ups.
const COLLISIONS_MAX: usize = 10;
/// Number that is neither a cell nor a rule.
pub(super) const NONE: u32 = u32::MAX;

/// Fields that a rule matches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filter {
    pub(super) src: (u32, u8),
    pub(super) dst: (u32, u8),
    pub(super) protocol: Option<u8>,
    pub(super) sport: (u16, u16),
    pub(super) dport: (u16, u16),
}

/// Fields of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) src: u32,
    pub(super) dst: u32,
    pub(super) sport: u16,
    pub(super) dport: u16,
    pub(super) protocol: u8,
}

/// A rule in half a cache line.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
struct Cell {
    src: u32,
    dst: u32,
    sport: (u16, u16),
    dport: (u16, u16),
    src_free: u8,
    dst_free: u8,
    protocol: u8,
    protocol_mask: u8,
    rank: u32,
    next: u32,
}

impl Cell {
    fn new(filter: &Filter, rank: u32) -> Self {
        let free = |len: u8| 32 - len;
        Cell {
            src: filter.src.0,
            dst: filter.dst.0,
            sport: filter.sport,
            dport: filter.dport,
            src_free: free(filter.src.1),
            dst_free: free(filter.dst.1),
            protocol: filter.protocol.unwrap_or(0),
            protocol_mask: filter.protocol.map_or(0, |_| 0xff),
            rank,
            next: NONE,
        }
    }

    #[inline(always)]
    fn matches(&self, p: &Header) -> bool {
        let address = |a: u32, b: u32, free: u8| (u64::from(a ^ b) >> free) == 0;
        let port = |port: u16, (from, to): (u16, u16)| port.wrapping_sub(from) <= to.wrapping_sub(from);
        // without branches, as they would be unpredictable
        address(self.src, p.src, self.src_free)
            & address(self.dst, p.dst, self.dst_free)
            & port(p.sport, self.sport)
            & port(p.dport, self.dport)
            & ((self.protocol ^ p.protocol) & self.protocol_mask == 0)
    }
}

fn mask(len: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)
}

/// Hash table of rules with at least these prefix lengths.
struct Table {
    lens: (u8, u8),
    masks: (u32, u32),
    /// First cell of each hash; their number is a power of two.
    heads: Vec<u32>,
    ranks: BTreeSet<u32>,
    best: u32,
}

impl Table {
    fn new(lens: (u8, u8)) -> Self {
        Table { lens, masks: (mask(lens.0), mask(lens.1)), heads: vec![NONE; 16], ranks: BTreeSet::new(), best: NONE }
    }

    fn fits(&self, filter: &Filter) -> bool {
        self.lens.0 <= filter.src.1 && self.lens.1 <= filter.dst.1
    }

    #[inline(always)]
    fn slot(&self, src: u32, dst: u32) -> usize {
        let word = u64::from(src & self.masks.0) << 32 | u64::from(dst & self.masks.1);
        let hash = (word ^ word >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 32) as usize & (self.heads.len() - 1)
    }

    /// Returns the cells of a hash by rank.
    fn chain(&self, cells: &[Cell], slot: usize) -> Vec<u32> {
        let mut all = vec![];
        let mut at = self.heads[slot];
        while at != NONE {
            all.push(at);
            at = cells[at as usize].next;
        }
        all
    }

    fn link(&mut self, cells: &mut [Cell], at: u32) {
        let cell = cells[at as usize];
        let slot = self.slot(cell.src, cell.dst);
        let (mut before, mut next) = (NONE, self.heads[slot]);
        while next != NONE && cells[next as usize].rank < cell.rank {
            (before, next) = (next, cells[next as usize].next);
        }
        cells[at as usize].next = next;
        match before {
            NONE => self.heads[slot] = at,
            before => cells[before as usize].next = at,
        }
    }

    fn put(&mut self, cells: &mut [Cell], at: u32) {
        self.ranks.insert(cells[at as usize].rank);
        self.best = self.ranks.first().copied().unwrap_or(NONE);
        if self.ranks.len() * 2 > self.heads.len() {
            let all: Vec<u32> = (0..self.heads.len()).flat_map(|slot| self.chain(cells, slot)).collect();
            self.heads = vec![NONE; self.heads.len() * 2];
            all.into_iter().for_each(|at| self.link(cells, at));
        }
        self.link(cells, at);
    }

    fn take(&mut self, cells: &mut [Cell], filter: &Filter, rank: u32) -> Option<u32> {
        let slot = self.slot(filter.src.0, filter.dst.0);
        let (mut before, mut at) = (NONE, self.heads[slot]);
        while at != NONE && cells[at as usize].rank != rank {
            (before, at) = (at, cells[at as usize].next);
        }
        let next = cells.get(at as usize)?.next;
        match before {
            NONE => self.heads[slot] = next,
            before => cells[before as usize].next = next,
        }
        self.ranks.remove(&rank);
        self.best = self.ranks.first().copied().unwrap_or(NONE);
        Some(at)
    }
}

/// Ordered rules: of those that match, the one with the lowest rank applies.
#[derive(Default)]
pub(super) struct TupleMerge {
    tables: Vec<Table>,
    cells: Vec<Cell>,
    free: Vec<u32>,
}

/// Returns the prefix lengths of a new table for a rule: shorter ones than the rule's, so that others fit, and only one
/// of them if it is much longer than the other.
fn relaxed(filter: &Filter) -> (u8, u8) {
    let shorter = |len: u8| match len {
        0..8 => 0,
        8..32 => len - len % 8,
        _ => 28,
    };
    match (filter.src.1, filter.dst.1) {
        (src, dst) if src >= dst + 16 => (shorter(src), 0),
        (src, dst) if dst >= src + 16 => (0, shorter(dst)),
        (src, dst) => (shorter(src), shorter(dst)),
    }
}

impl TupleMerge {
    pub(super) fn new(filters: &[Filter]) -> Self {
        let mut all = TupleMerge::default();
        for (rank, filter) in (0..).zip(filters) {
            all.insert(filter, rank);
        }
        all
    }

    pub(super) fn tables(&self) -> usize {
        self.tables.len()
    }

    /// Inserts a rule, whose rank no other rule has.
    pub(super) fn insert(&mut self, filter: &Filter, rank: u32) {
        let cell = Cell::new(filter, rank);
        let at = match self.free.pop() {
            Some(at) => {
                self.cells[at as usize] = cell;
                at
            }
            None => {
                self.cells.push(cell);
                self.cells.len() as u32 - 1
            }
        };
        self.place(filter, at);
        self.sort_tables();
    }

    fn place(&mut self, filter: &Filter, at: u32) {
        for n in 0..self.tables.len() {
            let table = &self.tables[n];
            if table.fits(filter) {
                let slot = table.slot(filter.src.0, filter.dst.0);
                let shared = table.chain(&self.cells, slot);
                if shared.len() < COLLISIONS_MAX {
                    return self.tables[n].put(&mut self.cells, at);
                }
                if self.split(n, &shared) {
                    return self.place(filter, at);
                }
            }
        }
        let lens = relaxed(filter);
        let known = self.tables.iter().position(|table| table.lens == lens);
        let lens = if known.is_some() { (filter.src.1, filter.dst.1) } else { lens };
        // rules that cannot be split further share the table with their own prefix lengths
        let n = self.tables.iter().position(|table| table.lens == lens).unwrap_or_else(|| {
            self.tables.push(Table::new(lens));
            self.tables.len() - 1
        });
        self.tables[n].put(&mut self.cells, at);
    }

    /// Moves rules with one hash to a table with longer prefixes; returns false if not enough of them have longer ones.
    fn split(&mut self, n: usize, shared: &[u32]) -> bool {
        let lens = self.tables[n].lens;
        let prefix_lens = |&at: &u32| {
            let cell = &self.cells[at as usize];
            (32 - cell.src_free, 32 - cell.dst_free)
        };
        let longer: Vec<u32> = shared.iter().copied().filter(|at| prefix_lens(at) != lens).collect();
        // prefix lengths that all of them have
        let least = longer.iter().map(prefix_lens).reduce(|a, b| (a.0.min(b.0), a.1.min(b.1)));
        let Some(least) = least.filter(|least| *least != lens && longer.len() * 2 > COLLISIONS_MAX) else {
            return false;
        };
        let to = self.tables.iter().position(|table| table.lens == least).unwrap_or_else(|| {
            self.tables.push(Table::new(least));
            self.tables.len() - 1
        });
        for at in longer {
            let cell = self.cells[at as usize];
            let filter =
                Filter { src: (cell.src, 0), dst: (cell.dst, 0), protocol: None, sport: (0, 0), dport: (0, 0) };
            self.tables[n].take(&mut self.cells, &filter, cell.rank);
            self.tables[to].put(&mut self.cells, at);
        }
        true
    }

    /// Removes a rule; returns false if it is not found.
    pub(super) fn remove(&mut self, filter: &Filter, rank: u32) -> bool {
        for table in self.tables.iter_mut().filter(|table| table.fits(filter)) {
            if let Some(at) = table.take(&mut self.cells, filter, rank) {
                self.free.push(at);
                self.sort_tables();
                return true;
            }
        }
        false
    }

    /// Sorts tables by their best rule and removes empty ones.
    fn sort_tables(&mut self) {
        self.tables.retain(|table| !table.ranks.is_empty());
        self.tables.sort_by_key(|table| table.best);
    }

    /// Returns the rank of each packet's rule, or [`NONE`].
    pub(super) fn classify(&self, packets: &[Header; BURST]) -> [u32; BURST] {
        let mut best = [NONE; BURST];
        let mut cells = [NONE; BURST];
        for table in &self.tables {
            let mut todo = (0..BURST).fold(0u64, |set, i| set | u64::from(best[i] > table.best) << i);
            if todo == 0 {
                // later tables have worse rules only
                break;
            }
            let all = todo;
            while todo != 0 {
                let i = todo.trailing_zeros() as usize;
                cells[i] = table.heads[table.slot(packets[i].src, packets[i].dst)];
                self.prefetch(cells[i]);
                todo &= todo - 1;
            }
            todo = all;
            while todo != 0 {
                let i = todo.trailing_zeros() as usize;
                let mut at = cells[i];
                while let Some(cell) = self.cells.get(at as usize).filter(|cell| cell.rank < best[i]) {
                    if cell.matches(&packets[i]) {
                        best[i] = cell.rank;
                        break;
                    }
                    at = cell.next;
                }
                todo &= todo - 1;
            }
        }
        best
    }

    #[inline(always)]
    fn prefetch(&self, at: u32) {
        if let Some(cell) = self.cells.get(at as usize) {
            // SAFETY: a prefetch of a valid reference.
            #[cfg(target_arch = "x86_64")]
            unsafe {
                use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
                _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(cell).cast());
            }
        }
    }
}
