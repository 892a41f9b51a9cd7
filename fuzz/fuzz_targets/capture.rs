//! Captures: reading any input terminates, and the records survive writing and reading.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pcap::{LinkType, Reader, Writer};
use std::io::{Read, Result};

/// Time, original length, frame; then link type and interface.
type Record = (u64, u32, Vec<u8>, LinkType, u32);

/// Returns the records, and true if the file ended without an error.
fn read(stream: impl Read) -> (Vec<Record>, bool) {
    let mut records = vec![];
    let Ok(mut reader) = Reader::new(stream) else { return (records, false) };
    let clean = loop {
        match reader.next() {
            Ok(Some(r)) => {
                assert!(r.original_len as usize >= r.frame.len() && r.frame.len() <= pcap::MAX_FRAME);
                records.push((r.timestamp_ns, r.original_len, r.frame.to_vec(), r.link_type, r.interface));
            }
            Ok(None) => break true,
            Err(e) => {
                assert!(!e.to_string().is_empty());
                break false;
            }
        }
    };
    assert!(matches!(reader.next(), Ok(None)), "the end is final");
    assert_eq!(reader.records_read(), records.len() as u64);
    (records, clean)
}

/// A stream that yields a few bytes at a time.
struct SlowReader<'a>(&'a [u8], usize);

impl Read for SlowReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        let n = into.len().min(self.1);
        self.0.read(&mut into[..n])
    }
}

fuzz_target!(|bytes: &[u8]| {
    let (records, clean) = read(bytes);
    let gzip = bytes.starts_with(&[0x1f, 0x8b]);
    // deflate expands a byte to at most 1032
    let unpacked = bytes.len() * if gzip { 1032 } else { 1 };
    assert!(records.len() * 16 + records.iter().map(|r| r.2.len()).sum::<usize>() <= unpacked);

    if clean || !gzip {
        let slow = SlowReader(bytes, 1 + bytes.len() % 37);
        assert_eq!(read(slow), (records.clone(), clean), "independent of the chunk size");
        let (before, _) = read(&bytes[..bytes.len() / 2]);
        assert!(records.starts_with(&before), "truncation does not affect earlier records");
    }

    let link = LinkType(bytes.len() as u16);
    let mut writer = if gzip { Writer::gzip(vec![], link) } else { Writer::new(vec![], link) }.unwrap();
    let mut written = vec![];
    for (ns, original, frame, ..) in records {
        assert_eq!(writer.write(ns, original, &frame).is_ok(), ns / 1_000_000_000 <= u64::from(u32::MAX));
        if ns / 1_000_000_000 <= u64::from(u32::MAX) {
            written.push((ns, original, frame, link, 0));
        }
    }
    assert_eq!(writer.records_written(), written.len() as u64);
    assert_eq!(read(&writer.finish().unwrap()[..]), (written, true));
});
