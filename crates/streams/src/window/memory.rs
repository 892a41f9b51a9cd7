//! The memory that the streams of a node share, bounded in total.
//!
//! It is lent in three sizes: blocks for bytes that came before their turn, lists of such bytes, and buffers for windows.
//! What comes back is kept for the next to ask; what is lent and what is kept together never exceed the bound.

use super::pieces::Piece;
use std::collections::VecDeque;

/// Bytes of a block: the payload of a full Ethernet frame over IPv4 or IPv6.
pub(crate) const BLOCK: usize = 1472;

pub(crate) type Block = Box<[u8; BLOCK]>;
/// Boxed, as few streams have one.
pub(crate) type List = Box<VecDeque<Piece>>;
/// The bytes of windows. Boxed for the same reason.
pub(crate) type Buffer = Box<Vec<u8>>;

/// What has come back, all of one size.
struct Shelf<T> {
    each: usize,
    kept: Vec<T>,
}

impl<T> Shelf<T> {
    fn new(each: usize) -> Self {
        Shelf { each, kept: vec![] }
    }

    fn bytes(&self) -> usize {
        self.kept.len() * self.each
    }
}

pub(crate) struct Memory {
    most: usize,
    /// Bytes that are lent.
    lent: usize,
    blocks: Shelf<Block>,
    lists: Shelf<List>,
    windows: Shelf<Buffer>,
    /// Pieces for which a list has room.
    pieces: usize,
}

impl Memory {
    /// `most` bytes, lent in blocks, in lists of `pieces` pieces, and in buffers of `window` bytes.
    pub(crate) fn new(most: usize, pieces: usize, window: usize) -> Self {
        Memory {
            most,
            lent: 0,
            blocks: Shelf::new(BLOCK),
            lists: Shelf::new(pieces * size_of::<Piece>()),
            windows: Shelf::new(window),
            pieces,
        }
    }

    /// Bytes that are lent.
    pub(crate) fn lent(&self) -> usize {
        self.lent
    }

    /// Bytes there may be.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Counts `new` bytes that somebody else has taken from the system, in the place of `old`.
    pub(crate) fn charge(&mut self, old: usize, new: usize) {
        self.make_room(new.saturating_sub(old));
        self.lent = self.lent - old + new;
    }

    /// Bytes that are lent or kept.
    pub(crate) fn taken(&self) -> usize {
        self.lent + self.blocks.bytes() + self.lists.bytes() + self.windows.bytes()
    }

    /// Whether so many bytes can be lent.
    #[inline(always)]
    pub(crate) fn has(&self, bytes: usize) -> bool {
        self.lent + bytes <= self.most
    }

    /// Whether half of all there may be is free.
    pub(crate) fn has_half(&self) -> bool {
        self.has(self.most / 2)
    }

    /// Whether a quarter of it is.
    pub(crate) fn has_quarter(&self) -> bool {
        self.has(self.most / 4)
    }

    /// What `bytes` before their turn take, in one run: blocks, and a list where there is none.
    pub(crate) fn price(&self, bytes: usize, has_list: bool) -> usize {
        bytes.div_ceil(BLOCK) * BLOCK + if has_list { 0 } else { self.lists.each }
    }

    /// Bytes of a window's buffer.
    #[inline(always)]
    pub(crate) fn window_len(&self) -> usize {
        self.windows.each
    }

    /// Makes room for `bytes` that are new, by letting go what is kept.
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

    pub(crate) fn give_block(&mut self, block: Block) {
        self.lent -= BLOCK;
        self.blocks.kept.push(block);
    }

    /// An empty list with room for as many pieces as a stream may have.
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

    /// Takes a list back, with what is in it.
    pub(crate) fn give_list(&mut self, mut list: List) {
        list.drain(..).for_each(|piece| self.give_block(piece.into_block()));
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

    pub(crate) fn give_window(&mut self, window: Buffer) {
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
                    3 => if let Some(it) = blocks.pop() { memory.give_block(it) },
                    4 => if let Some(it) = lists.pop() { memory.give_list(it) },
                    _ => if let Some(it) = windows.pop() { memory.give_window(it) },
                }
                let lent = blocks.len() * BLOCK + lists.len() * 10 * size_of::<Piece>() + windows.len() * 1000;
                prop_assert_eq!(memory.lent(), lent);
                prop_assert!(memory.taken() <= most, "{} of {}", memory.taken(), most);
                prop_assert_eq!(memory.has(1), lent < most, "all that is not lent can be");
            }
        }
    }
}
