//! Captures built byte by byte, and reading them whole.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::{Error, LinkType, Reader};

/// A [`crate::Record`] that owns its frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owned {
    pub(crate) timestamp_ns: u64,
    pub(crate) original_len: u32,
    pub(crate) link_type: LinkType,
    pub(crate) interface: u32,
    pub(crate) frame: Vec<u8>,
}

/// Returns all records and the error that ended reading, if any. Asserts that the reader stays finished.
pub(crate) fn read_all(file: &[u8]) -> (Vec<Owned>, Option<Error>) {
    let mut reader = match Reader::new(file) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut records = Vec::new();
    let end = loop {
        match reader.next() {
            Ok(Some(r)) => records.push(Owned {
                timestamp_ns: r.timestamp_ns,
                original_len: r.original_len,
                link_type: r.link_type,
                interface: r.interface,
                frame: r.frame.to_vec(),
            }),
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    assert!(matches!(reader.next(), Ok(None)));
    assert_eq!(reader.records_read(), records.len() as u64);
    (records, end)
}

/// Fields of a classic record: seconds, fraction, captured length, original length, frame.
pub(crate) type Fields<'a> = (u32, u32, u32, u32, &'a [u8]);

/// Builds a classic pcap file with the given lengths, valid or not.
pub(crate) fn classic(big: bool, magic: u32, link: u32, records: &[Fields<'_>]) -> Vec<u8> {
    let mut b = Bytes { big, bytes: Vec::new() };
    b.u32(magic).u16(2).u16(4).u32(0).u32(0).u32(65535).u32(link);
    for (seconds, fraction, length, original_len, frame) in records {
        b.u32(*seconds).u32(*fraction).u32(*length).u32(*original_len).raw(frame);
    }
    b.bytes
}

/// Bytes in one byte order.
#[derive(Clone, Default)]
pub(crate) struct Bytes {
    pub(crate) big: bool,
    pub(crate) bytes: Vec<u8>,
}

impl Bytes {
    pub(crate) fn u16(&mut self, v: u16) -> &mut Self {
        self.bytes.extend(if self.big { v.to_be_bytes() } else { v.to_le_bytes() });
        self
    }

    pub(crate) fn u32(&mut self, v: u32) -> &mut Self {
        self.bytes.extend(if self.big { v.to_be_bytes() } else { v.to_le_bytes() });
        self
    }

    pub(crate) fn u64(&mut self, v: u64) -> &mut Self {
        self.bytes.extend(if self.big { v.to_be_bytes() } else { v.to_le_bytes() });
        self
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend(bytes);
        self
    }

    /// Builds a pcapng block with the body that `fill` writes, padded.
    pub(crate) fn block(&mut self, kind: u32, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let mut body = Self { big: self.big, bytes: Vec::new() };
        fill(&mut body);
        body.bytes.resize(body.bytes.len().next_multiple_of(4), 0);
        let total = body.bytes.len() as u32 + 12;
        self.u32(kind).u32(total).raw(&body.bytes).u32(total)
    }

    /// Builds a section header.
    pub(crate) fn section(&mut self) -> &mut Self {
        self.block(0x0a0d_0d0a, |b| {
            b.u32(0x1a2b_3c4d).u16(1).u16(0).u64(u64::MAX);
        })
    }

    /// Builds an interface description; `options` writes its options.
    pub(crate) fn interface(&mut self, link: u16, snaplen: u32, options: impl FnOnce(&mut Self)) -> &mut Self {
        self.block(1, |b| {
            b.u16(link).u16(0).u32(snaplen);
            options(b);
        })
    }

    /// Builds an enhanced packet without options.
    pub(crate) fn packet(&mut self, interface: u32, ticks: u64, original_len: u32, frame: &[u8]) -> &mut Self {
        self.block(6, |b| {
            b.u32(interface).u32((ticks >> 32) as u32).u32(ticks as u32).u32(frame.len() as u32);
            b.u32(original_len).raw(frame);
        })
    }
}

/// Returns a valid pcapng file with every block the reader knows and some it does not.
pub(crate) fn every_block(big: bool) -> Vec<u8> {
    let mut b = Bytes { big, bytes: Vec::new() };
    b.section();
    b.interface(1, 0, |b| {
        b.u16(2).u16(3).raw(b"lo\0\0").u16(9).u16(1).raw(&[9, 0, 0, 0]).u16(0).u16(0);
    });
    b.interface(101, 96, |_| {});
    b.packet(0, 1_600_000_000_000_000_001, 5, &[1, 2, 3, 4, 5]);
    // Name resolution, interface statistics, one for local use.
    b.block(4, |b| {
        b.u32(0);
    });
    b.block(5, |b| {
        b.u32(0).u64(0);
    });
    b.block(0x8000_0001, |b| {
        b.raw(&[0xee; 77]);
    });
    b.block(2, |b| {
        b.u16(1).u16(9).u32(0).u32(2_000_000).u32(3).u32(1500).raw(&[6, 7, 8, 0]).u16(1).u16(4).raw(b"note");
    });
    b.block(3, |b| {
        b.u32(2).raw(&[9, 10]);
    });
    b.big = !big;
    b.section().interface(113, 0, |_| {}).packet(0, 3_000_000, 4, &[11, 12, 13, 14]);
    b.bytes
}

/// Records as a writer takes them: time, original length, frame.
pub(crate) fn records() -> impl Strategy<Value = Vec<(u64, u32, Vec<u8>)>> {
    let time = 0..=u64::from(u32::MAX) * 1_000_000_000 + 999_999_999;
    vec((time, 0_u32..3000, vec(any::<u8>(), 0..2000)), 0..40)
}
