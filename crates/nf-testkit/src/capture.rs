//! Captures in, captures out, and what differs between them.
//!
//! ```
//! use testkit::{capture, wire::build};
//!
//! let folder = std::env::temp_dir().join(format!("kit-{}", std::process::id()));
//! std::fs::create_dir_all(&folder)?;
//! let sent = [build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1000, 53).payload(b"question").to_vec()];
//! capture::write(folder.join("sent.pcap"), &sent)?;
//! assert_eq!(capture::read(folder.join("sent.pcap"))?, sent);
//!
//! let mut got = sent.clone();
//! got[0][22] = 63; // one off its time to live
//! let difference = capture::compare(&sent, &got).unwrap_err();
//! let said = "frame 1 differs from byte 22 on: expected 40 11 66 c7 0a 00 00 01, got 3f 11 66 c7 0a 00 00 01";
//! assert_eq!(difference.to_string(), said);
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::Frames;
use pcap::{LinkType, Reader, Writer};
use std::fmt;
use std::path::Path;

/// Bytes of frames that are read at most.
pub const MOST: usize = 1 << 30;

/// Why a capture could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What the file's reader or writer found.
    #[error(transparent)]
    Capture(#[from] pcap::Error),
    /// It has no Ethernet frames.
    #[error("{file}: frame {frame} is {link}, not Ethernet; an NF is fed Ethernet frames")]
    Link {
        /// The capture.
        file: String,
        /// Number of the frame, from 1.
        frame: usize,
        /// What it starts with.
        link: LinkType,
    },
    /// It is larger than what is held in memory.
    #[error("{0}: has more than {MOST} bytes of frames; cut it first: editcap -r IN OUT 1-100000")]
    Large(String),
}

/// The frames of a capture: pcap or pcapng, plain or gzipped; of a frame that was cut, what is there.
///
/// # Errors
/// When it is no capture of Ethernet frames, is damaged, or has more than [`MOST`] bytes.
pub fn read(path: impl AsRef<Path>) -> Result<Frames, Error> {
    let mut reader = Reader::open(&path)?;
    let name = || path.as_ref().display().to_string();
    let (mut frames, mut bytes) = (Frames::new(), 0);
    while let Some(record) = reader.next()? {
        if record.link_type != LinkType::ETHERNET {
            return Err(Error::Link { file: name(), frame: frames.len() + 1, link: record.link_type });
        }
        bytes += record.frame.len() + size_of::<Vec<u8>>();
        if bytes > MOST {
            return Err(Error::Large(name()));
        }
        frames.push(record.frame.to_vec());
    }
    Ok(frames)
}

/// Writes frames as a capture, a microsecond apart; gzipped when the name ends in `.gz`.
///
/// # Errors
/// When the file cannot be written, or a frame is longer than [`pcap::MAX_FRAME`].
pub fn write(path: impl AsRef<Path>, frames: &[impl AsRef<[u8]>]) -> Result<(), Error> {
    let mut writer = Writer::create(path, LinkType::ETHERNET)?;
    for (n, frame) in frames.iter().enumerate() {
        writer.write(n as u64 * 1000, 0, frame.as_ref())?;
    }
    writer.finish()?;
    Ok(())
}

/// The first difference between frames that were expected and those that came.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Difference {
    /// A frame has other bytes.
    #[error("frame {frame} differs from byte {offset} on: expected {}, got {}", Bytes(.expected), Bytes(.got))]
    Bytes {
        /// Its number, from 1.
        frame: usize,
        /// The first byte that differs, from 0; where one frame is longer, the length of the other.
        offset: usize,
        /// What was expected from there on, to the end of the frame.
        expected: Vec<u8>,
        /// What is there.
        got: Vec<u8>,
    },
    /// There are fewer frames, all like those expected.
    #[error("{expected} frames were expected, and {got} came: the last ones are missing")]
    Missing {
        /// Frames expected.
        expected: usize,
        /// Frames that came.
        got: usize,
    },
    /// There are more frames, and all that were expected.
    #[error("{expected} frames were expected, and {got} came: there are others behind them")]
    More {
        /// Frames expected.
        expected: usize,
        /// Frames that came.
        got: usize,
    },
}

/// The first bytes, in hexadecimal.
struct Bytes<'a>(&'a [u8]);

impl fmt::Display for Bytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        if self.0.is_empty() {
            return f.write_str("its end");
        }
        let bytes: Vec<_> = self.0.iter().take(SHOWN).map(|byte| format!("{byte:02x}")).collect();
        f.write_str(&bytes.join(" "))
    }
}

/// Compares frames, byte by byte and in order; times do not count.
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

/// Asserts that the frames that came are those of a capture.
///
/// # Panics
/// When they are not, with the first difference; when the capture cannot be read, with why.
#[track_caller]
pub fn assert_same(expected: impl AsRef<Path>, got: &[impl AsRef<[u8]>]) {
    let path = expected.as_ref();
    let expected = read(path).unwrap_or_else(|e| panic!("{e}"));
    if let Err(difference) = compare(&expected, got) {
        panic!("not the frames of {}: {difference}", path.display());
    }
}
