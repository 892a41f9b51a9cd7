//! A decision tree: bits of the packet choose a leaf, which is a few blocks of rules.

use super::block::{Block, LANES, NONE};

/// A table entry: where to go on. Either a leaf (`blocks` of the tree from `at`) or a cut: `width` bits of the key's word
/// `word`, from bit `shift`, choose one of the table's entries from `at`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub(super) struct Entry(pub(super) u32);

/// Bits of an entry that say where.
pub(super) const AT_BITS: u32 = 18;
/// Most entries and most blocks in a tree.
pub(super) const AT_MOST: usize = 1 << AT_BITS;

impl Entry {
    /// The top bit.
    pub(super) const LEAF: u32 = 1 << 31;
    /// Most blocks in a leaf.
    pub(super) const BLOCKS_MOST: usize = (1 << 13) - 1;

    /// The leaf without rules: block 0.
    pub(super) const EMPTY: Self = Self(Self::LEAF | 1 << AT_BITS);

    /// Hash of a leaf without its first block, added and wrapped.
    pub(super) const NEXT: u32 = 1u32.wrapping_sub(1 << AT_BITS);

    pub(super) fn leaf(at: usize, blocks: usize) -> Self {
        assert!(at < AT_MOST && blocks <= Self::BLOCKS_MOST);
        Self(Self::LEAF | (blocks as u32) << AT_BITS | at as u32)
    }

    pub(super) fn cut(word: usize, shift: u32, width: u32, at: usize) -> Self {
        assert!(word < 16 && width < 16 && shift + width <= 32 && at < AT_MOST);
        Self((word as u32) << 27 | shift << 22 | width << AT_BITS | at as u32)
    }

    #[inline(always)]
    pub(super) const fn is_leaf(self) -> bool {
        self.0 & Self::LEAF != 0
    }

    /// Returns true if a leaf has no rules.
    #[inline(always)]
    pub(super) const fn is_empty(self) -> bool {
        self.at() == 0
    }

    #[inline(always)]
    pub(super) const fn at(self) -> usize {
        self.0 as usize & (AT_MOST - 1)
    }

    /// Blocks of a leaf.
    #[inline(always)]
    pub(super) const fn blocks(self) -> usize {
        (self.0 >> AT_BITS) as usize & Self::BLOCKS_MOST
    }

    /// Returns the index in the table that the cut selects for a packet.
    #[inline(always)]
    pub(super) fn child(self, key: &[u32]) -> usize {
        self.at() + (key[self.word()] >> self.shift() & ((1 << self.width()) - 1)) as usize
    }

    #[inline(always)]
    pub(super) const fn word(self) -> usize {
        (self.0 >> 27) as usize & 15
    }

    #[inline(always)]
    pub(super) const fn shift(self) -> u32 {
        self.0 >> 22 & 31
    }

    #[inline(always)]
    pub(super) const fn width(self) -> u32 {
        self.0 >> AT_BITS & 15
    }
}

/// A tree over rules whose addresses have `A` words.
#[derive(Clone)]
pub(super) struct Tree<const A: usize> {
    pub(super) root: Entry,
    pub(super) table: Vec<Entry>,
    /// Block 0 is empty; a leaf without rules is one block from 0.
    pub(super) blocks: Vec<Block<A>>,
    /// The least index of its rules.
    pub(super) best: u32,
    /// All rules, first match first, where they are one leaf of at most two blocks; else none.
    pub(super) flat: Box<[Flat<A>]>,
}

/// A rule for many packets side by side: what is left of a packet's words matches if it is nothing.
#[derive(Clone)]
pub(super) struct Flat<const A: usize> {
    /// Each word of the addresses, and its bits that count.
    pub(super) src: [(u32, u32); A],
    pub(super) dst: [(u32, u32); A],
    /// As a [`Block`] has them.
    pub(super) first: u32,
    pub(super) span: u32,
    pub(super) meta: (u32, u32),
    pub(super) rule: u32,
}

/// Returns the rules of a block.
fn flat<const A: usize>(block: &Block<A>) -> impl Iterator<Item = Flat<A>> {
    let words = |values: &[[u32; LANES]; A], free: &[[u8; LANES]; A], lane: usize| {
        core::array::from_fn(|w| (values[w][lane], u32::MAX.checked_shl(free[w][lane].into()).unwrap_or(0)))
    };
    (0..LANES).filter(|&lane| block.rule[lane] != NONE).map(move |lane| Flat {
        src: words(&block.src, &block.src_free, lane),
        dst: words(&block.dst, &block.dst_free, lane),
        first: block.first[lane],
        span: block.span[lane],
        meta: (block.meta[lane], block.meta_mask[lane]),
        rule: block.rule[lane],
    })
}

impl<const A: usize> Tree<A> {
    /// `best` is the least index of its rules.
    pub(super) fn new(root: Entry, table: Vec<Entry>, blocks: Vec<Block<A>>, best: u32) -> Self {
        let mut tree = Self { root, table, blocks, best, flat: Box::default() };
        assert!(tree.is_sound());
        if root.is_leaf() && root.blocks() <= 2 {
            tree.flat = tree.blocks[root.at()..root.at() + root.blocks()].iter().flat_map(flat).collect();
        }
        tree
    }

    /// Returns the leaf of a packet, given as its key's words, and how many cuts lead to it.
    pub(super) fn leaf(&self, key: &[u32]) -> (Entry, usize) {
        let (mut entry, mut depth) = (self.root, 0);
        while !entry.is_leaf() {
            entry = self.table[entry.child(key)];
            depth += 1;
        }
        (entry, depth)
    }

    /// Returns the rules if there is a single flat tree.
    #[inline(always)]
    pub(super) fn only_flat(trees: &[Self]) -> Option<&[Flat<A>]> {
        match trees {
            [tree] if !tree.flat.is_empty() => Some(&tree.flat),
            _ => None,
        }
    }

    /// Returns the bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(self.table.as_slice()) + size_of_val(self.blocks.as_slice()) + size_of_val(&*self.flat)
    }

    /// Returns true if every entry refers to a word of the key, and into the table or the blocks: the precondition of
    /// the search.
    fn is_sound(&self) -> bool {
        let entry = |e: &Entry| match e.is_leaf() {
            true => e.blocks() > 0 && e.at() + e.blocks() <= self.blocks.len(),
            false => e.word() < 2 * A + 2 && e.at() + (1 << e.width()) <= self.table.len(),
        };
        entry(&self.root) && self.table.iter().all(entry)
    }
}
