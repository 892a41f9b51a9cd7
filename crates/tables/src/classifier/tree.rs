//! A decision tree: bits of the packet choose a leaf, which is a few blocks of rules.

use super::block::Block;

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

    /// What makes a leaf the same without its first block, added and wrapped.
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

    /// Whether a leaf has no rules.
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

    /// Where in the table the cut leads a packet.
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
}

impl<const A: usize> Tree<A> {
    /// `best` is the least index of its rules.
    pub(super) fn new(root: Entry, table: Vec<Entry>, blocks: Vec<Block<A>>, best: u32) -> Self {
        let tree = Self { root, table, blocks, best };
        assert!(tree.is_sound());
        tree
    }

    /// The leaf of a packet, given as its key's words, and how many cuts lead to it.
    pub(super) fn leaf(&self, key: &[u32]) -> (Entry, usize) {
        let (mut entry, mut depth) = (self.root, 0);
        while !entry.is_leaf() {
            entry = self.table[entry.child(key)];
            depth += 1;
        }
        (entry, depth)
    }

    /// Blocks of a leaf.
    #[inline(always)]
    pub(super) fn blocks(&self, leaf: Entry) -> &[Block<A>] {
        &self.blocks[leaf.at()..leaf.at() + leaf.blocks()]
    }

    /// Whether it is one leaf of at most two blocks.
    #[inline(always)]
    pub(super) fn is_flat(&self) -> bool {
        self.root.is_leaf() && self.root.blocks() <= 2
    }

    /// Bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(self.table.as_slice()) + size_of_val(self.blocks.as_slice())
    }

    /// Whether every entry leads to a word of the key, and into the table or the blocks: what the search relies on.
    fn is_sound(&self) -> bool {
        let entry = |e: &Entry| match e.is_leaf() {
            true => e.blocks() > 0 && e.at() + e.blocks() <= self.blocks.len(),
            false => e.word() < 2 * A + 2 && e.at() + (1 << e.width()) <= self.table.len(),
        };
        entry(&self.root) && self.table.iter().all(entry)
    }
}
