//! Bytes of a stream that came before their turn.

use super::memory::{BLOCK, Block, List, Memory};
use super::settings::Overlap;

/// Whether sequence number `a` lies behind `b` (RFC 9293 §3.4: numbers wrap).
#[inline(always)]
pub(crate) fn behind(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

/// A run of bytes in one block.
pub(crate) struct Piece {
    /// Sequence number of the first byte.
    pub(crate) seq: u32,
    /// The segment that brought the bytes: policies look at where that began and ended.
    origin: Origin,
    /// When it came, in ms; wraps.
    pub(crate) since: u32,
    from: u16,
    len: u16,
    block: Block,
}

/// First and last-but-one sequence number of a whole segment.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    pub(crate) seq: u32,
    pub(crate) end: u32,
}

impl Piece {
    pub(crate) fn end(&self) -> u32 {
        self.seq.wrapping_add(u32::from(self.len))
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.len)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        let from = usize::from(self.from);
        self.block.get(from..from + self.len()).unwrap_or_default()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let from = usize::from(self.from);
        let to = from + self.len();
        self.block.get_mut(from..to).unwrap_or_default()
    }

    /// Forgets the first `n` bytes, of at least as many.
    pub(crate) fn trim(&mut self, n: usize) {
        let n = n as u16;
        (self.seq, self.from, self.len) = (self.seq.wrapping_add(n.into()), self.from + n, self.len - n);
    }

    pub(crate) fn into_block(self) -> Block {
        self.block
    }

    /// Whether the bytes of a newer segment take the place of these where both have some.
    #[inline]
    pub(crate) fn loses_to(&self, newer: Origin, policy: Overlap) -> bool {
        match policy {
            Overlap::First => false,
            Overlap::Last => true,
            Overlap::Linux => {
                let (old, new) = (self.origin, newer);
                behind(old.seq, new.seq) || (old.seq == new.seq && behind(new.end, old.end))
            }
        }
    }
}

/// What putting bytes aside has met.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Met {
    /// Bytes that were there already.
    pub(crate) overlap: bool,
    /// And they were others.
    pub(crate) conflict: bool,
}

/// Why bytes cannot be put aside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Full {
    /// The stream has as many pieces as it may.
    Stream,
    /// All streams together have as much memory as they may.
    Total,
}

/// Runs of bytes in the order of the stream, none over another.
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

    /// Sequence number behind the last byte.
    #[inline(always)]
    pub(crate) fn end(&self) -> Option<u32> {
        self.list.as_ref()?.back().map(Piece::end)
    }

    /// Takes the first piece out. The caller gives its block back, and, when it was the last, calls [`clear`](Self::clear).
    pub(crate) fn pop(&mut self) -> Option<Piece> {
        self.list.as_mut()?.pop_front()
    }

    /// Takes the last piece out, as [`pop`](Self::pop) does the first.
    pub(crate) fn pop_last(&mut self) -> Option<Piece> {
        self.list.as_mut()?.pop_back()
    }

    /// Forgets bytes from number `end` on. Whether there were some.
    pub(crate) fn cut(&mut self, end: u32, memory: &mut Memory) -> bool {
        let mut some = false;
        let Some(list) = &mut self.list else { return false };
        while let Some(last) = list.back_mut().filter(|last| behind(last.end(), end)) {
            some = true;
            if behind(end, last.seq) {
                last.len = end.wrapping_sub(last.seq) as u16;
                break;
            }
            list.pop_back().into_iter().for_each(|piece| memory.give_block(piece.block));
        }
        if list.is_empty() {
            self.clear(memory);
        }
        some
    }

    /// Gives all memory back.
    pub(crate) fn clear(&mut self, memory: &mut Memory) {
        if let Some(list) = self.list.take() {
            memory.give_list(list);
        }
    }

    /// Whether it has memory, be there pieces in it or not.
    #[inline(always)]
    pub(crate) fn holds(&self) -> bool {
        self.list.is_some()
    }

    /// Whether all of `len` bytes from `at` on can be put in.
    pub(crate) fn have_room(&self, at: u32, len: usize, most: usize, memory: &Memory) -> bool {
        let end = at.wrapping_add(len as u32);
        // a run of bytes between two pieces takes as many blocks as it fills, and each piece that is met ends one
        let met = self.list.as_ref().map_or(0, |list| {
            let from = list.partition_point(|piece| !behind(piece.end(), at));
            list.partition_point(|piece| behind(end, piece.seq)).saturating_sub(from)
        });
        let blocks = len.div_ceil(BLOCK) + met;
        self.len() + blocks <= most && memory.has(memory.price(blocks * BLOCK, self.holds()))
    }

    /// Puts `data`, which begins at `at` and was brought by the segment `origin`, where there is nothing yet; where there
    /// is, `policy` decides. `most` is the number of pieces there may be.
    ///
    /// # Errors
    /// Where it had to stop, and why. What comes before that is in.
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
        met: &mut Met,
    ) -> Result<(), (u32, Full)> {
        if self.list.is_none() {
            self.list = memory.list();
        }
        let Some(list) = &mut self.list else { return Err((at, Full::Total)) };
        // segments mostly come one behind the other
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
                if old.loses_to(origin, policy) {
                    let all = skip == 0 && n == old.len();
                    if all || policy == Overlap::Last {
                        old.bytes_mut()[skip..skip + n].copy_from_slice(&data[..n]);
                        if all {
                            old.origin = origin;
                        }
                    } else if skip == 0 && room {
                        // what is cut off the old piece is a hole now
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
