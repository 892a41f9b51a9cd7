//! The lengths of the prefixes that words come from.
//!
//! A word of a level comes from a prefix that ends in that level, has one of eight lengths, and takes four bits here; or
//! from a shorter one, which is then that of all such words of its block of 256 and stored once for them.

use super::limits::{GROUP, TOP, TOP_BITS};

/// Blocks of the first level, whose numbers are below those of the groups.
pub(super) const TOP_BLOCKS: usize = TOP / GROUP;
/// Bytes of the origins of a block.
const BYTES: usize = GROUP / 2;

/// Length of a prefix and 1; 0 for no route.
pub(super) type Depth = u8;

/// Returns the depth of prefixes that cover exactly a block of a level.
pub(super) const fn block_depth(level: usize) -> Depth {
    (TOP_BITS as usize - 8 + 8 * level) as u8 + 1
}

/// Where a word comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// The prefix that covers the block and is the longest of those.
    Block,
    /// A prefix that is longer than the block's by 1 to 8.
    Longer(u8),
    /// None: it links to a group.
    Linked,
}

const LINKED: u8 = 15;

impl Origin {
    /// Returns the origin of a word of a level with a depth.
    pub(super) fn of(depth: Depth, level: usize) -> Origin {
        match depth.checked_sub(block_depth(level)) {
            None | Some(0) => Origin::Block,
            Some(by) => Origin::Longer(by),
        }
    }

    /// Returns the depth of a word of a level, in a block with that depth; `None` for a link.
    pub(super) fn depth(self, block: Depth, level: usize) -> Option<Depth> {
        match self {
            Origin::Block => Some(block),
            Origin::Longer(by) => Some(block_depth(level) + by),
            Origin::Linked => None,
        }
    }

    fn bits(self) -> u8 {
        match self {
            Origin::Block => 0,
            Origin::Longer(by) => by,
            Origin::Linked => LINKED,
        }
    }
}

/// The depths of a group.
#[derive(Clone, Copy)]
pub(super) struct BlockDepths {
    /// Depth of the words that come from a prefix which covers the block.
    pub(super) block: Depth,
    origins: Origins,
}

/// The origins of the words of a block.
pub(super) type Origins = [u8; BYTES];

impl Default for BlockDepths {
    fn default() -> Self {
        BlockDepths { block: 0, origins: [0; BYTES] }
    }
}

impl BlockDepths {
    /// Makes all words come from the same prefix, which covers the block.
    pub(super) fn reset(&mut self, depth: Depth) {
        *self = BlockDepths { block: depth, ..BlockDepths::default() };
    }

    pub(super) fn parts(&self) -> (Depth, &Origins) {
        (self.block, &self.origins)
    }

    pub(super) fn parts_mut(&mut self) -> (&mut Depth, &mut Origins) {
        (&mut self.block, &mut self.origins)
    }
}

/// Returns the origin of a word of a block.
pub(super) fn origin(origins: &Origins, word: usize) -> Origin {
    match origins[word / 2] >> (4 * (word % 2)) & 15 {
        0 => Origin::Block,
        LINKED => Origin::Linked,
        by => Origin::Longer(by),
    }
}

/// Sets the origin of a word of a block.
pub(super) fn set_origin(origins: &mut Origins, word: usize, origin: Origin) {
    let (byte, shift) = (&mut origins[word / 2], 4 * (word % 2));
    *byte = *byte & !(15 << shift) | origin.bits() << shift;
}

/// The depths of the first level.
pub(super) struct TopDepths {
    blocks: Vec<Depth>,
    /// Zeros, of which the kernel gives memory to those that are written.
    origins: Vec<u8>,
}

impl TopDepths {
    pub(super) fn new() -> Self {
        TopDepths { blocks: vec![0; TOP_BLOCKS], origins: vec![0; TOP_BLOCKS * BYTES] }
    }

    pub(super) fn parts(&self, block: usize) -> (Depth, &Origins) {
        (self.blocks[block], &self.origins.as_chunks().0[block])
    }

    pub(super) fn parts_mut(&mut self, block: usize) -> (&mut Depth, &mut Origins) {
        (&mut self.blocks[block], &mut self.origins.as_chunks_mut().0[block])
    }

    /// Returns the bytes that it takes at most.
    pub(super) fn bytes(&self) -> usize {
        self.blocks.len() + self.origins.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_depth_is_that_of_the_block_or_longer_by_at_most_8() {
        for (depth, level, origin) in [
            (0, 0, Origin::Block),
            (17, 0, Origin::Block),
            (18, 0, Origin::Longer(1)),
            (25, 0, Origin::Longer(8)),
            (25, 1, Origin::Block),
            (33, 1, Origin::Longer(8)),
            (129, 13, Origin::Longer(8)),
        ] {
            assert_eq!(Origin::of(depth, level), origin, "{depth} {level}");
            assert_eq!(origin.depth(depth, level), Some(depth));
        }
        assert_eq!(Origin::Linked.depth(9, 0), None);
    }

    #[test]
    fn words_of_a_block_have_origins_of_their_own() {
        let mut depths = BlockDepths::default();
        depths.reset(25);
        let (block, origins) = depths.parts_mut();
        assert_eq!(*block, 25);
        set_origin(origins, 6, Origin::Longer(8));
        set_origin(origins, 7, Origin::Linked);
        set_origin(origins, 8, Origin::Linked);
        set_origin(origins, 8, Origin::Block);
        let found: Vec<_> = (5..10).map(|word| origin(origins, word)).collect();
        assert_eq!(found, [Origin::Block, Origin::Longer(8), Origin::Linked, Origin::Block, Origin::Block]);
        depths.reset(9);
        assert!((0..GROUP).all(|word| origin(depths.parts().1, word) == Origin::Block));
    }
}
