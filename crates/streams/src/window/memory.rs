//! Memory shared by the streams of a node, bounded in total.
//!
//! Three sizes: blocks for out-of-order bytes, lists of such pieces, and buffers for windows. Freed memory is kept for
//! reuse; allocated and kept memory together never exceed the bound.

use super::block::{BLOCK, Block};
use super::piece::Piece;
use std::collections::VecDeque;

/// Boxed, since few streams have one.
pub(crate) type List = Box<VecDeque<Piece>>;
/// Buffer of a window, boxed for the same reason.
pub(crate) type Buffer = Box<Vec<u8>>;

/// Freed memory of one size.
struct FreeList<T> {
    each: usize,
    kept: Vec<T>,
}

impl<T> FreeList<T> {
    fn new(each: usize) -> Self {
        FreeList { each, kept: vec![] }
    }

    fn bytes(&self) -> usize {
        self.kept.len() * self.each
    }
}

pub(crate) struct Memory {
    most: usize,
    /// Allocated bytes.
    lent: usize,
    blocks: FreeList<Block>,
    lists: FreeList<List>,
    windows: FreeList<Buffer>,
    /// Capacity of a list in pieces.
    pieces: usize,
}

impl Memory {
    /// Creates a pool of `most` bytes in blocks, lists of `pieces` pieces, and buffers of `window` bytes.
    pub(crate) fn new(most: usize, pieces: usize, window: usize) -> Self {
        Memory {
            most,
            lent: 0,
            blocks: FreeList::new(BLOCK),
            lists: FreeList::new(pieces * size_of::<Piece>()),
            windows: FreeList::new(window),
            pieces,
        }
    }

    /// Returns the number of allocated bytes.
    pub(crate) fn allocated(&self) -> usize {
        self.lent
    }

    /// Returns the bound in bytes.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Accounts `new` bytes allocated elsewhere, in place of `old`.
    pub(crate) fn charge(&mut self, old: usize, new: usize) {
        self.make_room(new.saturating_sub(old));
        self.lent = self.lent - old + new;
    }

    /// Returns the number of bytes allocated or kept.
    pub(crate) fn taken(&self) -> usize {
        self.lent + self.blocks.bytes() + self.lists.bytes() + self.windows.bytes()
    }

    /// Returns true if this many bytes can be allocated.
    #[inline(always)]
    pub(crate) fn has(&self, bytes: usize) -> bool {
        self.lent + bytes <= self.most
    }

    /// Returns true if half of the memory is free.
    pub(crate) fn has_half(&self) -> bool {
        self.has(self.most / 2)
    }

    /// Returns true if a quarter of the memory is free.
    pub(crate) fn has_quarter(&self) -> bool {
        self.has(self.most / 4)
    }

    /// Returns the memory that `bytes` contiguous out-of-order bytes take: blocks, and a list unless there is one.
    pub(crate) fn cost(&self, bytes: usize, has_list: bool) -> usize {
        bytes.div_ceil(BLOCK) * BLOCK + if has_list { 0 } else { self.lists.each }
    }

    /// Returns the size of a window's buffer in bytes.
    #[inline(always)]
    pub(crate) fn window_len(&self) -> usize {
        self.windows.each
    }

    /// Frees kept memory until `bytes` new bytes fit.
    fn make_room(&mut self, bytes: usize) {
        while self.taken() + bytes > self.most {
            let gone =
                self.blocks.kept.pop().is_some() | self.windows.kept.pop().is_some() | self.lists.kept.pop().is_some();
            if !gone {
                break;
            }
        }
    }

    pub(crate) fn block(&mut self) -> Option<Block> {
        if !self.has(BLOCK) {
            return None;
        }
        let block = self.blocks.kept.pop().unwrap_or_else(|| {
            self.make_room(BLOCK);
            Box::new([0; BLOCK])
        });
        self.lent += BLOCK;
        Some(block)
    }

    pub(crate) fn free_block(&mut self, block: Block) {
        self.lent -= BLOCK;
        self.blocks.kept.push(block);
    }

    /// Allocates an empty list with the capacity of a stream.
    pub(crate) fn list(&mut self) -> Option<List> {
        let each = self.lists.each;
        if !self.has(each) {
            return None;
        }
        let list = self.lists.kept.pop().unwrap_or_else(|| {
            self.make_room(each);
            Box::new(VecDeque::with_capacity(self.pieces))
        });
        self.lent += each;
        Some(list)
    }

    /// Frees a list with its pieces.
    pub(crate) fn free_list(&mut self, mut list: List) {
        list.drain(..).for_each(|piece| self.free_block(piece.into_block()));
        self.lent -= self.lists.each;
        self.lists.kept.push(list);
    }

    pub(crate) fn window(&mut self) -> Option<Buffer> {
        let each = self.windows.each;
        if !self.has(each) {
            return None;
        }
        let window = self.windows.kept.pop().unwrap_or_else(|| {
            self.make_room(each);
            Box::new(vec![0; each])
        });
        self.lent += each;
        Some(window)
    }

    pub(crate) fn free_window(&mut self, window: Buffer) {
        self.lent -= self.windows.each;
        self.windows.kept.push(window);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn never_exceeds_its_bound(most in 0..20_000usize, steps in prop::collection::vec(0..6u8, 0..80)) {
            let mut memory = Memory::new(most, 10, 1000);
            let (mut blocks, mut lists, mut windows) = (vec![], vec![], vec![]);
            for step in steps {
                match step {
                    0 => blocks.extend(memory.block()),
                    1 => lists.extend(memory.list()),
                    2 => windows.extend(memory.window()),
                    3 => if let Some(it) = blocks.pop() { memory.free_block(it) },
                    4 => if let Some(it) = lists.pop() { memory.free_list(it) },
                    _ => if let Some(it) = windows.pop() { memory.free_window(it) },
                }
                let lent = blocks.len() * BLOCK + lists.len() * 10 * size_of::<Piece>() + windows.len() * 1000;
                prop_assert_eq!(memory.allocated(), lent);
                prop_assert!(memory.taken() <= most, "{} of {}", memory.taken(), most);
                prop_assert_eq!(memory.has(1), lent < most, "all that is not lent can be");
            }
        }
    }
}
