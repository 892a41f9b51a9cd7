//! The blocks of a pcapng stream (draft-ietf-opsawg-pcapng §3.1), as an instance writes it: little endian.

use control::ResultStream;
use std::io::{ErrorKind, Read as _, Result};

/// Longest block: a frame of 256 KiB with a comment.
const MAX_BLOCK: usize = 512 << 10;

/// One block.
pub(super) enum Block {
    Packet,
    Statistics { lost: u64 },
    Other,
}

/// The blocks of a stream.
pub(super) struct Blocks {
    stream: ResultStream,
    block: Vec<u8>,
}

impl Blocks {
    pub(super) fn new(stream: ResultStream) -> Self {
        Blocks { stream, block: vec![] }
    }

    /// Reads the next block; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Block>> {
        self.block.clear();
        self.block.resize(8, 0);
        let start = self.stream.read(&mut self.block[..1])?;
        if start == 0 {
            return Ok(None);
        }
        self.stream.read_exact(&mut self.block[1..])?;
        let len = self.word(4) as usize;
        if !(12..=MAX_BLOCK).contains(&len) {
            return Err(std::io::Error::new(ErrorKind::InvalidData, format!("a block of {len} bytes is no pcapng")));
        }
        self.block.resize(len, 0);
        self.stream.read_exact(&mut self.block[8..])?;
        Ok(Some(match self.word(0) {
            6 => Block::Packet,
            5 => Block::Statistics { lost: self.lost() },
            _ => Block::Other,
        }))
    }

    /// Returns the bytes of the block that was read last.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.block
    }

    /// Returns true if nothing follows yet.
    pub(super) fn is_last_received(&self) -> bool {
        !self.stream.has_buffered()
    }

    fn word(&self, at: usize) -> u32 {
        let word = self.block.get(at..).and_then(|from| from.first_chunk()).copied();
        u32::from_le_bytes(word.unwrap_or_default())
    }

    /// Returns the option isb_ifdrop, which follows isb_ifrecv.
    fn lost(&self) -> u64 {
        const OPTION: usize = 8 + 12 + 12;
        match self.word(OPTION) {
            0x0008_0005 => u64::from(self.word(OPTION + 4)) | u64::from(self.word(OPTION + 8)) << 32,
            _ => 0,
        }
    }
}
