//! Frames of the stream.

use std::fmt;

/// Longest frame, bytes, with its header.
pub const MAX_FRAME: usize = u16::MAX as usize;

/// Header of a frame (`fpm_msg_hdr_t` in FRR's fpm/fpm.h): u8 version, u8 type, u16 length with this header, big-endian.
pub(crate) const HEADER: usize = 4;
pub(crate) const VERSION: u8 = 1;
pub(crate) const NETLINK: u8 = 1;
const PROTOBUF: u8 = 2;

/// Error after which the stream cannot be read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The first byte of a frame is not version 1.
    #[error("frame version {0}: expected {VERSION}; connect zebra's module dplane_fpm_nl to this port")]
    Version(u8),
    /// The payload is not netlink.
    #[error(
        "frame type {0}{protobuf}: expected {NETLINK}, netlink; start zebra with -M dplane_fpm_nl",
        protobuf = if *.0 == PROTOBUF { ", protobuf" } else { "" }
    )]
    Type(u8),
    /// The frame is shorter than its header.
    #[error("frame length {0}: expected {HEADER} to {MAX_FRAME} bytes; close the connection, zebra connects again")]
    Length(u16),
}

/// Joins frames from the bytes of a stream, in a buffer of 128 KiB.
pub struct FrameReader {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl FrameReader {
    /// Returns a reader without bytes, for one connection.
    pub fn new() -> Self {
        FrameReader { buffer: vec![0; 2 * (MAX_FRAME + 1)].into(), start: 0, end: 0 }
    }

    /// Returns the part of the buffer for the next bytes of the stream; [`FrameReader::filled`] adds them. It is empty
    /// only while a whole frame waits for [`FrameReader::next_frame`], or after an error.
    pub fn room(&mut self) -> &mut [u8] {
        if self.start > 0 && self.buffer.len() - self.end <= MAX_FRAME {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.buffer[self.end..]
    }

    /// Adds the first `n` bytes of the last [`FrameReader::room`], or all if it is shorter.
    pub fn filled(&mut self, n: usize) {
        self.end = self.end.saturating_add(n).min(self.buffer.len());
    }

    /// Returns the payload of the next frame, or `None` if more bytes are needed.
    ///
    /// # Errors
    ///
    /// If the header of the next frame is invalid. The connection must be closed: all further calls return the same error.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let waiting = &self.buffer[self.start..self.end];
        match *waiting {
            [version, ..] if version != VERSION => Err(FrameError::Version(version)),
            [_, kind, ..] if kind != NETLINK => Err(FrameError::Type(kind)),
            [_, _, high, low, ..] => {
                let len = u16::from_be_bytes([high, low]);
                let end = usize::from(len);
                if end < HEADER {
                    return Err(FrameError::Length(len));
                }
                let payload = waiting.get(HEADER..end);
                if payload.is_some() {
                    self.start += end;
                }
                Ok(payload)
            }
            _ => Ok(None),
        }
    }
}

impl Default for FrameReader {
    fn default() -> Self {
        FrameReader::new()
    }
}

impl fmt::Debug for FrameReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameReader").field("waiting", &(self.end - self.start)).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(reader: &mut FrameReader, bytes: &[u8]) {
        reader.room()[..bytes.len()].copy_from_slice(bytes);
        reader.filled(bytes.len());
    }

    #[test]
    fn frames_are_joined() {
        let mut reader = FrameReader::new();
        for byte in [1, 1, 0] {
            assert_eq!(reader.next_frame(), Ok(None));
            feed(&mut reader, &[byte]);
        }
        feed(&mut reader, &[6, 0xa, 0xb, 1, 1, 0, 4, 1]);
        assert_eq!(reader.next_frame(), Ok(Some(&[0xa, 0xb][..])));
        assert_eq!(reader.next_frame(), Ok(Some(&[][..])));
        assert_eq!(reader.next_frame(), Ok(None));
    }

    #[test]
    fn the_longest_frame_fits_behind_others() {
        let mut reader = FrameReader::new();
        let longest = [&[1, 1, 0xff, 0xff][..], &[7; MAX_FRAME - HEADER]].concat();
        for _ in 0..5 {
            feed(&mut reader, &[1, 1, 0, 5, 9]);
            let (front, back) = longest.split_at(65_000);
            feed(&mut reader, front);
            assert_eq!(reader.next_frame(), Ok(Some(&[9][..])));
            assert_eq!(reader.next_frame(), Ok(None));
            feed(&mut reader, back);
            assert_eq!(reader.next_frame(), Ok(Some(&longest[HEADER..])));
        }
    }

    #[test]
    fn room_ends_only_when_a_frame_waits() {
        let mut reader = FrameReader::new();
        loop {
            let room = reader.room();
            if room.is_empty() {
                break;
            }
            room[0] = 1;
            reader.filled(1);
        }
        // frames of 0x0101 bytes
        assert_eq!(reader.next_frame().unwrap().unwrap().len(), 0x0101 - HEADER);
        assert!(!reader.room().is_empty());
        reader.filled(usize::MAX);
    }

    #[test]
    fn invalid_headers_are_errors_that_stay() {
        for (bytes, error, text) in [
            (&[2][..], FrameError::Version(2), "frame version 2: expected 1"),
            (&[1, 2], FrameError::Type(2), "frame type 2, protobuf: expected 1, netlink"),
            (&[1, 1, 0, 3], FrameError::Length(3), "frame length 3: expected 4 to 65535 bytes"),
        ] {
            let mut reader = FrameReader::new();
            feed(&mut reader, bytes);
            assert_eq!(reader.next_frame(), Err(error));
            feed(&mut reader, &[1, 1, 0, 4]);
            assert_eq!(reader.next_frame(), Err(error));
            assert!(error.to_string().starts_with(text), "{error}");
        }
    }
}
