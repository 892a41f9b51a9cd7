//! Input: a fixed window over a plain or gzipped stream.

use std::io::{self, BufReader, Chain, Cursor, Read};

use flate2::bufread::MultiGzDecoder;

use crate::MAX_FRAME;
use crate::error::Fault;

/// Window size, bytes: the longest frame and room to read ahead. Nothing that must be held at once is longer.
const WINDOW: usize = MAX_FRAME + 64 * 1024;

/// The stream with the bytes that were read to recognise it put back.
type Restored<R> = Chain<Cursor<Vec<u8>>, R>;

enum Source<R> {
    Plain(Restored<R>),
    Gzip(Box<MultiGzDecoder<BufReader<Restored<R>>>>),
}

/// A window over the stream. Its size never changes.
pub(crate) struct Input<R> {
    source: Source<R>,
    window: Box<[u8]>,
    /// Unread bytes are `window[start..end]`.
    start: usize,
    end: usize,
    /// Offset in the stream of `window[0]`.
    base: u64,
    mark: u64,
}

impl<R: Read> Input<R> {
    /// Looks at the first bytes: gzip (RFC 1952 §2.3.1) is decompressed, anything else is taken as it is.
    pub(crate) fn new(mut stream: R) -> Result<Self, Fault> {
        let mut first = Vec::with_capacity(2);
        Read::take(&mut stream, 2).read_to_end(&mut first).map_err(Fault::Read)?;
        let gzip = first == [0x1f, 0x8b];
        let restored = Cursor::new(first).chain(stream);
        let source = if gzip {
            Source::Gzip(Box::new(MultiGzDecoder::new(BufReader::with_capacity(64 * 1024, restored))))
        } else {
            Source::Plain(restored)
        };
        Ok(Self { source, window: vec![0; WINDOW].into_boxed_slice(), start: 0, end: 0, base: 0, mark: 0 })
    }

    /// Makes `n` bytes available; false when the stream ends before. `n` is at most [`WINDOW`].
    #[inline]
    pub(crate) fn ensure(&mut self, n: usize) -> Result<bool, Fault> {
        if self.end - self.start >= n { Ok(true) } else { self.refill(n) }
    }

    #[cold]
    fn refill(&mut self, n: usize) -> Result<bool, Fault> {
        debug_assert!(n <= WINDOW);
        self.window.copy_within(self.start..self.end, 0);
        self.base += self.start as u64;
        self.end -= self.start;
        self.start = 0;
        while self.end < n {
            match self.source.read(&mut self.window[self.end..])? {
                0 => return Ok(false),
                got => self.end += got,
            }
        }
        Ok(true)
    }

    /// Takes `n` bytes that [`Self::ensure`] made available and says where in the window they are; valid until the
    /// next `ensure` or `skip`.
    #[inline]
    pub(crate) fn take(&mut self, n: usize) -> usize {
        debug_assert!(n <= self.end - self.start);
        let at = self.start;
        self.start += n;
        at
    }

    /// Takes the next `N` bytes, or `None` when the stream ends before.
    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<Option<[u8; N]>, Fault> {
        if !self.ensure(N)? {
            return Ok(None);
        }
        let at = self.take(N);
        Ok(self.window[at..].first_chunk().copied())
    }

    /// Passes over `n` bytes without holding them; false when the stream ends before.
    pub(crate) fn skip(&mut self, mut n: usize) -> Result<bool, Fault> {
        while n > self.end - self.start {
            n -= self.end - self.start;
            self.start = self.end;
            if !self.refill(1)? {
                return Ok(false);
            }
        }
        self.start += n;
        Ok(true)
    }

    /// `n` bytes of the window from a place [`Self::take`] gave.
    #[inline]
    pub(crate) fn bytes(&self, at: usize, n: usize) -> &[u8] {
        &self.window[at..at + n]
    }

    /// Returns the number of bytes available without reading.
    pub(crate) fn available(&self) -> &[u8] {
        &self.window[self.start..self.end]
    }

    /// Notes that a record or block starts here.
    #[inline]
    pub(crate) fn mark(&mut self) {
        self.mark = self.base + self.start as u64;
    }

    /// Returns the offset of the record or block begun last, bytes after decompression.
    pub(crate) fn marked(&self) -> u64 {
        self.mark
    }
}

impl<R: Read> Source<R> {
    fn read(&mut self, into: &mut [u8]) -> Result<usize, Fault> {
        loop {
            let (result, gzip) = match self {
                Self::Plain(stream) => (stream.read(into), false),
                Self::Gzip(stream) => (stream.read(into), true),
            };
            return match result {
                Ok(n) => Ok(n),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                // The decoder's own findings carry no number of the operating system.
                Err(e) if gzip && e.raw_os_error().is_none() => match e.kind() {
                    io::ErrorKind::UnexpectedEof => Err(Fault::Cut),
                    io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => Err(Fault::Gzip(e)),
                    _ => Err(Fault::Read(e)),
                },
                Err(e) => Err(Fault::Read(e)),
            };
        }
    }
}

/// Byte order of a file or section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Little,
    Big,
}

impl Order {
    #[inline]
    pub(crate) fn u16(self, bytes: [u8; 2]) -> u16 {
        if self == Self::Little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) }
    }

    #[inline]
    pub(crate) fn u32(self, bytes: [u8; 4]) -> u32 {
        if self == Self::Little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }
    }

    /// Returns the words of `bytes`, whose length is `4 * N`.
    #[inline]
    pub(crate) fn words<const N: usize>(self, bytes: &[u8]) -> [u32; N] {
        let (words, _) = bytes.as_chunks::<4>();
        std::array::from_fn(|i| self.u32(words[i]))
    }
}
