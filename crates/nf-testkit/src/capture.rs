//! Reading, writing and comparing captures.
//!
//! ```
//! use testkit::{capture, wire::build};
//!
//! let dir = std::env::temp_dir().join(format!("testkit-{}", std::process::id()));
//! std::fs::create_dir_all(&dir)?;
//! let sent = [build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1000, 53).payload(b"question").to_vec()];
//! capture::write(dir.join("sent.pcap"), &sent)?;
//! assert_eq!(capture::read(dir.join("sent.pcap"))?, sent);
//!
//! let mut got = sent.clone();
//! got[0][22] = 63; // time to live decremented
//! let difference = capture::compare(&sent, &got).unwrap_err();
//! let message = "frame 1 differs at byte 22: expected 40 11 66 c7 0a 00 00 01, got 3f 11 66 c7 0a 00 00 01";
//! assert_eq!(difference.to_string(), message);
//! # std::fs::remove_dir_all(&dir)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::Frames;
use pcap::{LinkType, Reader, Writer};
use std::fmt;
use std::path::Path;

/// Maximum number of bytes of frames that are read.
pub const MAX_BYTES: usize = 1 << 30;

/// An error of reading or writing a capture.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be read or written.
    #[error(transparent)]
    Capture(#[from] pcap::Error),
    /// A frame is not an Ethernet frame.
    #[error("{file}: frame {frame} has link type {link}, not Ethernet")]
    Link {
        /// File name of the capture.
        file: String,
        /// Number of the frame, from 1.
        frame: usize,
        /// Link type of the frame.
        link: LinkType,
    },
    /// The capture has more than [`MAX_BYTES`] bytes.
    #[error("{0}: more than {MAX_BYTES} bytes of frames; shorten it with editcap -r IN OUT 1-100000")]
    TooLarge(String),
}

/// Reads the frames of a capture: pcap or pcapng, plain or gzipped. Truncated frames are returned as captured.
///
/// # Errors
/// If the file is not a capture of Ethernet frames, is damaged, or has more than [`MAX_BYTES`] bytes.
pub fn read(path: impl AsRef<Path>) -> Result<Frames, Error> {
    let mut reader = Reader::open(&path)?;
    let name = || path.as_ref().display().to_string();
    let (mut frames, mut bytes) = (Frames::new(), 0);
    while let Some(record) = reader.next()? {
        if record.link_type != LinkType::ETHERNET {
            return Err(Error::Link { file: name(), frame: frames.len() + 1, link: record.link_type });
        }
        bytes += record.frame.len() + size_of::<Vec<u8>>();
        if bytes > MAX_BYTES {
            return Err(Error::TooLarge(name()));
        }
        frames.push(record.frame.to_vec());
    }
    Ok(frames)
}

/// Writes frames to a pcap file, with time stamps 1 µs apart; gzipped if the name ends in `.gz`.
///
/// # Errors
/// If the file cannot be written, or a frame is longer than [`pcap::MAX_FRAME`].
pub fn write(path: impl AsRef<Path>, frames: &[impl AsRef<[u8]>]) -> Result<(), Error> {
    let mut writer = Writer::create(path, LinkType::ETHERNET)?;
    for (n, frame) in frames.iter().enumerate() {
        writer.write(n as u64 * 1000, 0, frame.as_ref())?;
    }
    writer.finish()?;
    Ok(())
}

/// The first difference between expected and received frames.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Difference {
    /// The bytes of a frame differ.
    #[error("frame {frame} differs at byte {offset}: expected {}, got {}", Bytes(.expected), Bytes(.got))]
    Bytes {
        /// Number of the frame, from 1.
        frame: usize,
        /// Offset of the first byte that differs, from 0; the length of the shorter frame if it is a prefix of the
        /// other.
        offset: usize,
        /// Expected bytes from this offset to the end of the frame.
        expected: Vec<u8>,
        /// Received bytes from this offset.
        got: Vec<u8>,
    },
    /// The last frames are missing.
    #[error("expected {expected} frames, got {got}: the last ones are missing")]
    Missing {
        /// Number of expected frames.
        expected: usize,
        /// Number of received frames.
        got: usize,
    },
    /// There are frames after the expected ones.
    #[error("expected {expected} frames, got {got}: there are more after them")]
    More {
        /// Number of expected frames.
        expected: usize,
        /// Number of received frames.
        got: usize,
    },
}

/// Displays the first bytes in hexadecimal.
struct Bytes<'a>(&'a [u8]);

impl fmt::Display for Bytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MAX_SHOWN: usize = 8;
        if self.0.is_empty() {
            return f.write_str("the end of the frame");
        }
        let bytes: Vec<_> = self.0.iter().take(MAX_SHOWN).map(|byte| format!("{byte:02x}")).collect();
        f.write_str(&bytes.join(" "))
    }
}

/// Compares frames in order and byte by byte; time stamps are ignored.
///
/// # Errors
/// The first difference.
pub fn compare(expected: &[impl AsRef<[u8]>], got: &[impl AsRef<[u8]>]) -> Result<(), Difference> {
    for (n, (expected, got)) in expected.iter().zip(got).enumerate() {
        let (expected, got) = (expected.as_ref(), got.as_ref());
        if expected != got {
            let offset = expected.iter().zip(got).take_while(|(e, g)| e == g).count();
            let (expected, got) = (expected[offset..].to_vec(), got[offset..].to_vec());
            return Err(Difference::Bytes { frame: n + 1, offset, expected, got });
        }
    }
    let (expected, got) = (expected.len(), got.len());
    match got.cmp(&expected) {
        std::cmp::Ordering::Less => Err(Difference::Missing { expected, got }),
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Greater => Err(Difference::More { expected, got }),
    }
}

/// Asserts that the received frames are those of a capture.
///
/// # Panics
/// If they differ, with the first difference, or if the capture cannot be read.
#[track_caller]
pub fn assert_matches(expected: impl AsRef<Path>, got: &[impl AsRef<[u8]>]) {
    let path = expected.as_ref();
    let expected = read(path).unwrap_or_else(|e| panic!("{e}"));
    if let Err(difference) = compare(&expected, got) {
        panic!("frames differ from {}: {difference}", path.display());
    }
}
