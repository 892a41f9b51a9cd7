//! Queue of output bytes that the receiver has not acknowledged.

use crate::window::block::{BLOCK, Block};
use crate::window::memory::Memory;
use std::collections::VecDeque;

/// A byte queue in blocks allocated from the memory that all flows share.
#[derive(Default)]
pub(super) struct Buffer {
    blocks: VecDeque<Block>,
    /// Consumed bytes of the first block.
    gone: usize,
    len: usize,
}

impl Buffer {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Appends bytes; returns false and changes nothing if there is not enough memory.
    pub(super) fn push(&mut self, mut bytes: &[u8], memory: &mut Memory) -> bool {
        let used = self.gone + self.len;
        let room = self.blocks.len() * BLOCK - used;
        if !memory.has(bytes.len().saturating_sub(room).div_ceil(BLOCK) * BLOCK) {
            return false;
        }
        let mut at = used;
        self.len += bytes.len();
        while !bytes.is_empty() {
            if at == self.blocks.len() * BLOCK {
                // reserved above
                let Some(block) = memory.block() else { return false };
                self.blocks.push_back(block);
            }
            let Some(block) = self.blocks.get_mut(at / BLOCK) else { return false };
            let n = bytes.len().min(BLOCK - at % BLOCK);
            block[at % BLOCK..at % BLOCK + n].copy_from_slice(&bytes[..n]);
            (at, bytes) = (at + n, &bytes[n..]);
        }
        true
    }

    /// Removes `n` bytes from the front, or all of them.
    pub(super) fn forget(&mut self, n: usize, memory: &mut Memory) {
        let n = n.min(self.len);
        (self.gone, self.len) = (self.gone + n, self.len - n);
        while self.gone >= BLOCK {
            self.gone -= BLOCK;
            self.blocks.pop_front().into_iter().for_each(|block| memory.free_block(block));
        }
        if self.len == 0 {
            self.clear(memory);
        }
    }

    /// Copies bytes from offset `at`; returns false if there are too few.
    pub(super) fn copy(&self, at: usize, mut out: &mut [u8]) -> bool {
        if at + out.len() > self.len {
            return false;
        }
        let mut at = self.gone + at;
        while !out.is_empty() {
            let n = out.len().min(BLOCK - at % BLOCK);
            let Some(block) = self.blocks.get(at / BLOCK) else { return false };
            out[..n].copy_from_slice(&block[at % BLOCK..at % BLOCK + n]);
            (at, out) = (at + n, &mut out[n..]);
        }
        true
    }

    /// Frees all memory.
    pub(super) fn clear(&mut self, memory: &mut Memory) {
        self.blocks.drain(..).for_each(|block| memory.free_block(block));
        self.blocks.shrink_to(16);
        (self.gone, self.len) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn is_a_queue(steps in prop::collection::vec((any::<bool>(), 0..4000usize), 0..60)) {
            let mut memory = Memory::new(20 * BLOCK, 10, 0);
            let (mut buffer, mut model) = (Buffer::default(), vec![]);
            for (n, (push, len)) in steps.into_iter().enumerate() {
                if push {
                    let bytes: Vec<u8> = (0..len).map(|at| (at + n) as u8).collect();
                    let took = buffer.push(&bytes, &mut memory);
                    prop_assert!(took || model.len() + len + BLOCK > 20 * BLOCK - BLOCK);
                    if took {
                        model.extend(bytes);
                    }
                } else {
                    buffer.forget(len, &mut memory);
                    model.drain(..len.min(model.len()));
                }
                prop_assert_eq!(buffer.len(), model.len());
                prop_assert!(memory.allocated() <= model.len() + 2 * BLOCK);
                let from = model.len() / 3;
                let mut out = vec![0; model.len() - from];
                prop_assert!(buffer.copy(from, &mut out));
                prop_assert_eq!(&out[..], &model[from..]);
                prop_assert!(!buffer.copy(from, &mut vec![0; out.len() + 1]));
            }
            buffer.clear(&mut memory);
            prop_assert_eq!(memory.allocated(), 0);
        }
    }
}
