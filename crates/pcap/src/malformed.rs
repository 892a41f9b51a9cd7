//! Malformed input: reading ends without a panic, in bounded memory, and returns the records before the error.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::testing::{Bytes, classic, every_block, read_all, records};
use crate::{Error, LinkType, MAX_FRAME, Reader, Writer};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Returns a valid file of each kind.
fn valid() -> Vec<Vec<u8>> {
    let old = classic(true, 0xa1b2_c3d4, 1, &[(1, 2, 3, 4, &[5, 6, 7]), (2, 3, 0, 0, &[]), (3, 4, 1, 1, &[8])]);
    let mut files = vec![old, every_block(false), every_block(true)];
    files.extend(files.clone().iter().map(|file| gzip(file)));
    files
}

/// Returns the largest number of records in an input: one per 12 bytes; unbounded if compressed.
fn read_hostile(file: &[u8]) -> Result<(), TestCaseError> {
    let (records, end) = read_all(file);
    if !file.starts_with(&[0x1f, 0x8b]) {
        prop_assert!(records.len() <= file.len() / 12);
    }
    if let Some(error) = end {
        prop_assert!(error.to_string().starts_with("capture: "), "{}", error);
    }
    Ok(())
}

#[test]
fn every_prefix_gives_the_records_before_the_cut_and_says_so() {
    for file in valid() {
        let (all, end) = read_all(&file);
        assert!(end.is_none(), "{end:?}");
        let mut most = 0;
        for length in 1..file.len() {
            let (records, end) = read_all(&file[..length]);
            assert_eq!(records, all[..records.len()], "{length}");
            assert!(records.len() >= most, "{length}: fewer records than in a shorter prefix");
            most = records.len();
            match end {
                Some(Error::Truncated { records_read, offset, .. }) => {
                    assert_eq!(records_read, records.len() as u64);
                    assert!(file.starts_with(&[0x1f, 0x8b]) || offset <= length as u64);
                }
                // A prefix can be whole where the format has no end mark; a gzipped one cannot.
                None => assert!(!file.starts_with(&[0x1f, 0x8b]), "{length}"),
                // Of the first bytes of gzip one can still be taken for something else.
                Some(error) => panic!("{length}: {error}"),
            }
        }
    }
}

#[test]
fn every_single_bit_flip() {
    for file in valid() {
        for bit in 0..file.len() * 8 {
            let mut flipped = file.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            read_hostile(&flipped).unwrap();
        }
    }
}

#[test]
fn empty_and_foreign_files() {
    let text = |bytes: &[u8]| Reader::new(bytes).unwrap_err().to_string();
    assert!(text(b"").starts_with("capture: empty"));
    assert!(text(&gzip(b"")).starts_with("capture: empty"));
    assert!(text(b"#!/bin/sh").contains("not a capture (starts with [23, 21, 2f, 62]); give a pcap"));
    assert!(text(&[0x28, 0xb5, 0x2f, 0xfd, 0]).contains("zstd -d"));
    assert!(text(&gzip(&gzip(&valid()[0]))).contains("gzipped twice"));
}

#[test]
fn gzip_in_several_members_is_one_capture() {
    let file = every_block(false);
    let (first, second) = file.split_at(file.len() / 2);
    let members = [gzip(first), gzip(b""), gzip(second)].concat();
    let (records, end) = read_all(&members);
    assert!(end.is_none(), "{end:?}");
    assert_eq!(records, read_all(&file).0);
}

#[test]
fn gzip_cut_between_two_records_is_truncated_not_ended() {
    let file = valid().remove(0);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&file).unwrap();
    encoder.flush().unwrap();
    let without_end = encoder.get_ref().clone();
    let (records, end) = read_all(&without_end);
    assert_eq!(records.len(), 3);
    assert!(matches!(end, Some(Error::Truncated { records_read: 3, .. })), "{end:?}");
}

#[test]
fn gzip_with_a_wrong_checksum_is_reported_after_the_records() {
    let mut file = gzip(&valid()[0]);
    let crc = file.len() - 8;
    file[crc] ^= 1;
    let (records, end) = read_all(&file);
    assert_eq!(records.len(), 3);
    assert!(matches!(end, Some(Error::Gzip { records_read: 3, .. })), "{end:?}");
}

/// Gives `head`, then `again` without end (nothing, if it is empty), by short reads; counts what was read.
struct Endless {
    head: io::Cursor<Vec<u8>>,
    again: Vec<u8>,
    given: usize,
}

impl Read for Endless {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.head.position() == self.head.get_ref().len() as u64 {
            self.head = io::Cursor::new(self.again.clone());
        }
        // Short reads, as from a pipe.
        let most = into.len().min(4093);
        let n = self.head.read(&mut into[..most])?;
        self.given += n;
        Ok(n)
    }
}

#[test]
fn frames_of_all_lengths_survive_the_moving_window_and_short_reads() {
    let mut writer = Writer::new(Vec::new(), LinkType::ETHERNET).unwrap();
    let frame = |i: usize| vec![i as u8; if i.is_multiple_of(3) { i } else { i * 7919 % (MAX_FRAME + 1) }];
    for i in 0..200 {
        writer.write(i as u64, 0, &frame(i)).unwrap();
    }
    let file = writer.finish().unwrap();
    let mut short = Endless { head: io::Cursor::new(file.clone()), again: Vec::new(), given: 0 };
    let mut reader = Reader::new(&mut short).unwrap();
    for i in 0..200 {
        let record = reader.next().unwrap().expect("200 records");
        assert!(record.timestamp_ns == i as u64 && record.frame == frame(i), "{i}");
    }
    assert!(reader.next().unwrap().is_none());
    assert_eq!(short.given, file.len());
    assert_eq!(read_all(&gzip(&file)).0, read_all(&file).0);
}

#[test]
fn interfaces_without_end_are_an_error_not_memory() {
    let mut head = Bytes::default();
    head.section();
    let mut again = Bytes::default();
    again.interface(1, 0, |_| {});
    let mut endless = Endless { head: io::Cursor::new(head.bytes), again: again.bytes, given: 0 };
    let error = Reader::new(&mut endless).unwrap().next().expect_err("no packet ever").to_string();
    assert!(error.contains("more than 65536 interfaces"), "{error}");
    assert!(endless.given < 4 << 20);
}

#[test]
fn errors_of_the_system_and_interruptions() {
    struct Failing<'a>(&'a [u8], bool);
    impl Read for Failing<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let most = into.len().min(1);
            match self.0.read(&mut into[..most])? {
                0 => Err(io::Error::from_raw_os_error(5)),
                n => Ok(n),
            }
        }
    }
    for file in valid() {
        let (all, _) = read_all(&file);
        let mut reader = Reader::new(Failing(&file, false)).unwrap();
        let mut read = 0;
        let error = loop {
            match reader.next() {
                Ok(record) => {
                    assert_eq!(record.expect("an error ends it").frame, all[read].frame);
                    read += 1;
                }
                Err(error) => break error,
            }
        };
        assert!(matches!(&error, Error::Read { reason, .. } if reason.raw_os_error() == Some(5)), "{error}");
        assert_eq!(read, all.len());
    }
}

proptest! {
    #[test]
    fn random_bytes(bytes in vec(any::<u8>(), 0..2000)) {
        read_hostile(&bytes)?;
    }

    #[test]
    fn random_bytes_behind_a_valid_start(which in 0_usize..3, keep in 0.0..1.0, bytes in vec(any::<u8>(), 0..2000)) {
        let valid = valid().swap_remove(which);
        let kept = (valid.len() as f64 * keep) as usize;
        let file = [&valid[..kept], &bytes[..]].concat();
        read_hostile(&file)?;
        read_hostile(&gzip(&file))?;
    }

    /// Returns the words of a pcapng file replaced by numbers that matter.
    #[test]
    fn words_that_matter(big in any::<bool>(), changes in vec((any::<prop::sample::Index>(), 0_usize..12), 1..6)) {
        let mut file = every_block(big);
        for (at, word) in changes {
            let words = [0, 1, 2, 3, 4, 6, 8, 12, 28, 0x0a0d_0d0a, 0x7fff_ffff, u32::MAX];
            let at = at.index(file.len() / 4) * 4;
            file[at..at + 4].copy_from_slice(&if big { words[word].to_be_bytes() } else { words[word].to_le_bytes() });
        }
        read_hostile(&file)?;
    }

    #[test]
    fn damage_in_written_files(records in records(), flips in vec((any::<prop::sample::Index>(), 0_u32..8), 0..20),
                               cut in any::<prop::sample::Index>(), compress in any::<bool>()) {
        let open = if compress { Writer::gzip } else { Writer::new };
        let mut writer = open(Vec::new(), LinkType::ETHERNET).unwrap();
        for (time, original_len, frame) in &records {
            writer.write(*time, *original_len, frame).unwrap();
        }
        let mut file = writer.finish().unwrap();
        for (at, bit) in flips {
            let at = at.index(file.len());
            file[at] ^= 1 << bit;
        }
        file.truncate(cut.index(file.len() + 1));
        read_hostile(&file)?;
    }
}
