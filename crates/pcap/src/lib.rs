//! Capture files in and out.
//!
//! [`Reader`] streams classic pcap (µs and ns, both byte orders) and pcapng (both byte orders, any number of sections
//! and interfaces), plain or gzipped; the first bytes decide the format, not the name. [`Writer`] writes
//! classic pcap with nanoseconds, gzipped when the path ends in `.gz`; [`NgWriter`] writes pcapng with several interfaces
//! and comments.
//!
//! Files may be larger than memory and are untrusted: a reader holds one fixed buffer (320 KiB) and at most
//! 65,536 interface descriptions, refuses frames longer than [`MAX_FRAME`], skips blocks it does not know without
//! holding them, and never panics on what it reads. A file cut short is [`Error::Truncated`], after every record
//! before the cut has been returned.
//!
//! ```
//! use pcap::{LinkType, Reader, Writer};
//!
//! let mut writer = Writer::new(Vec::new(), LinkType::ETHERNET)?;
//! writer.write(1_700_000_000_123_456_789, 60, &[0; 60])?;
//! let file: Vec<u8> = writer.finish()?;
//!
//! let mut reader = Reader::new(&file[..])?;
//! while let Some(record) = reader.next()? {
//!     assert_eq!(record.timestamp_ns, 1_700_000_000_123_456_789);
//!     assert_eq!(record.frame.len(), 60);
//! }
//! # Ok::<(), pcap::Error>(())
//! ```
//!
//! Sources: the libpcap savefile format (pcap-savefile(5), draft-ietf-opsawg-pcap) and pcapng
//! (draft-ietf-opsawg-pcapng), cited where they are used.

#![forbid(unsafe_code)]

mod classic;
mod error;
mod input;
mod link_type;
#[cfg(test)]
mod malformed;
mod ng;
mod ng_writer;
mod reader;
mod record;
#[cfg(test)]
mod testing;
mod writer;

pub use error::{Error, FileName};
pub use link_type::LinkType;
pub use ng_writer::NgWriter;
pub use reader::Reader;
pub use record::Record;
pub use writer::Writer;

/// Longest frame read or written, bytes: the largest snapshot length libpcap and Wireshark use.
pub const MAX_FRAME: usize = 262_144;
