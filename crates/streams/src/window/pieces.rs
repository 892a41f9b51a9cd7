//! Out-of-order bytes of a stream.

use super::block::BLOCK;
use super::memory::{List, Memory};
use super::overlap::Overlap;
use super::piece::{Origin, Piece, behind};

/// Overlaps found while storing bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Overlaps {
    /// Bytes that were stored already.
    pub(crate) overlap: bool,
    /// Bytes that were stored already with other values.
    pub(crate) conflict: bool,
}

/// Reason why bytes cannot be stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Full {
    /// The stream has its largest number of pieces.
    Stream,
    /// The memory of all streams is used up.
    Total,
}

/// Runs of bytes in order of the stream, without overlap.
#[derive(Default)]
pub(crate) struct Pieces {
    list: Option<List>,
}

impl Pieces {
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.list.as_ref().is_none_or(|list| list.is_empty())
    }

    pub(crate) fn len(&self) -> usize {
        self.list.as_ref().map_or(0, |list| list.len())
    }

    #[inline(always)]
    pub(crate) fn first(&self) -> Option<&Piece> {
        self.list.as_ref()?.front()
    }

    pub(crate) fn first_mut(&mut self) -> Option<&mut Piece> {
        self.list.as_mut()?.front_mut()
    }

    /// Returns the sequence number behind the last byte.
    #[inline(always)]
    pub(crate) fn end(&self) -> Option<u32> {
        self.list.as_ref()?.back().map(Piece::end)
    }

    /// Removes the first piece. The caller frees its block and, if it was the last, calls [`clear`](Self::clear).
    pub(crate) fn pop(&mut self) -> Option<Piece> {
        self.list.as_mut()?.pop_front()
    }

    /// Removes the last piece, as [`pop`](Self::pop) does the first.
    pub(crate) fn pop_last(&mut self) -> Option<Piece> {
        self.list.as_mut()?.pop_back()
    }

    /// Removes the bytes from number `end` on; returns true if there were any.
    pub(crate) fn cut(&mut self, end: u32, memory: &mut Memory) -> bool {
        let mut some = false;
        let Some(list) = &mut self.list else { return false };
        while let Some(last) = list.back_mut().filter(|last| behind(last.end(), end)) {
            some = true;
            if behind(end, last.seq) {
                last.len = end.wrapping_sub(last.seq) as u16;
                break;
            }
            list.pop_back().into_iter().for_each(|piece| memory.free_block(piece.block));
        }
        if list.is_empty() {
            self.clear(memory);
        }
        some
    }

    /// Frees all memory.
    pub(crate) fn clear(&mut self, memory: &mut Memory) {
        if let Some(list) = self.list.take() {
            memory.free_list(list);
        }
    }

    /// Returns true if it holds memory, with or without pieces.
    #[inline(always)]
    pub(crate) fn holds(&self) -> bool {
        self.list.is_some()
    }

    /// Returns true if all of `len` bytes from `at` on can be stored.
    pub(crate) fn have_room(&self, at: u32, len: usize, most: usize, memory: &Memory) -> bool {
        let end = at.wrapping_add(len as u32);
        // a run between two pieces takes the blocks that it fills, and each piece in it ends one block
        let met = self.list.as_ref().map_or(0, |list| {
            let from = list.partition_point(|piece| !behind(piece.end(), at));
            list.partition_point(|piece| behind(end, piece.seq)).saturating_sub(from)
        });
        let blocks = len.div_ceil(BLOCK) + met;
        self.len() + blocks <= most && memory.has(memory.cost(blocks * BLOCK, self.holds()))
    }

    /// Stores `data`, which starts at `at` and came with segment `origin`, where there are no bytes yet; where there
    /// are, `policy` decides. `most` bounds the number of pieces.
    ///
    /// # Errors
    /// The position where it stopped, and the reason. Bytes before it are stored.
    #[allow(clippy::too_many_arguments, reason = "it is what a segment is, and where it goes")]
    pub(crate) fn put(
        &mut self,
        mut at: u32,
        mut data: &[u8],
        origin: Origin,
        since: u32,
        policy: Overlap,
        most: usize,
        memory: &mut Memory,
        met: &mut Overlaps,
    ) -> Result<(), (u32, Full)> {
        if self.list.is_none() {
            self.list = memory.list();
        }
        let Some(list) = &mut self.list else { return Err((at, Full::Total)) };
        // segments mostly arrive in order
        let mut i = match list.back().map(Piece::end) {
            Some(end) if !behind(end, at) => list.len(),
            _ => list.partition_point(|piece| !behind(piece.end(), at)),
        };
        while !data.is_empty() {
            let hole = match list.get(i) {
                Some(next) if behind(next.seq, at) => data.len().min(next.seq.wrapping_sub(at) as usize),
                Some(_) => 0,
                None => data.len(),
            };
            let n = if hole > 0 {
                let n = hole.min(BLOCK);
                if list.len() >= most {
                    return Err((at, Full::Stream));
                }
                let mut block = memory.block().ok_or((at, Full::Total))?;
                block[..n].copy_from_slice(&data[..n]);
                list.insert(i, Piece { seq: at, origin, since, from: 0, len: n as u16, block });
                i += 1;
                n
            } else {
                let room = list.len() < most && memory.has(BLOCK);
                let Some(old) = list.get_mut(i) else { break };
                let skip = at.wrapping_sub(old.seq) as usize;
                let n = data.len().min(old.len() - skip);
                met.overlap = true;
                met.conflict |= old.bytes().get(skip..skip + n) != data.get(..n);
                if old.is_replaced_by(origin, policy) {
                    let all = skip == 0 && n == old.len();
                    if all || policy == Overlap::Last {
                        old.bytes_mut()[skip..skip + n].copy_from_slice(&data[..n]);
                        if all {
                            old.origin = origin;
                        }
                    } else if skip == 0 && room {
                        // the bytes cut off the old piece are a hole now
                        old.trim(n);
                        continue;
                    }
                }
                if skip + n == old.len() {
                    i += 1;
                }
                n
            };
            at = at.wrapping_add(n as u32);
            data = &data[n..];
        }
        Ok(())
    }
}
