use super::Clock;
use crate::testing::{Bytes, every_block, read_all};
use crate::{Error, LinkType, MAX_FRAME};

fn file() -> Bytes {
    let mut b = Bytes::default();
    b.section();
    b
}

#[test]
fn every_block_in_both_orders() {
    for big in [false, true] {
        let (records, end) = read_all(&every_block(big));
        assert!(end.is_none(), "{end:?}");
        let seen: Vec<_> = records
            .iter()
            .map(|r| (r.timestamp_ns, r.original_len, r.link_type, r.interface, r.frame.as_slice()))
            .collect();
        let expected: [(u64, u32, LinkType, u32, &[u8]); 4] = [
            (1_600_000_000_000_000_001, 5, LinkType::ETHERNET, 0, &[1, 2, 3, 4, 5]),
            (2_000_000_000, 1500, LinkType::RAW, 1, &[6, 7, 8]),
            (0, 2, LinkType::ETHERNET, 0, &[9, 10]),
            (3_000_000_000, 4, LinkType::LINUX_SLL, 0, &[11, 12, 13, 14]),
        ];
        assert_eq!(seen, expected);
    }
}

#[test]
fn clocks() {
    let second = 1_700_000_000_u64;
    for (resolution, ticks_per_second) in [(0, 1), (3, 1000), (6, 1_000_000), (9, 1_000_000_000), (10, 10_000_000_000)]
    {
        assert_eq!(Clock::new(resolution, 0).ns(second * ticks_per_second), second * 1_000_000_000, "10^-{resolution}");
        assert_eq!(Clock::new(resolution, -second.cast_signed()).ns(second * ticks_per_second), 0);
    }
    assert_eq!(Clock::new(0x80, 0).ns(second), second * 1_000_000_000);
    assert_eq!(Clock::new(0x80 | 20, 0).ns((second << 20) | 1 << 19), second * 1_000_000_000 + 500_000_000);
    assert_eq!(Clock::new(6, 3600).ns(1), 3_600_000_001_000);
    assert_eq!(Clock::new(6, -1).ns(1), 0, "before 1970");
    assert_eq!(Clock::new(6, 0).ns(u64::MAX), u64::MAX, "after 2554");
    assert_eq!(Clock::new(0x80, i64::MAX).ns(u64::MAX), u64::MAX);
    assert_eq!(Clock::new(0x80, i64::MIN).ns(u64::MAX >> 1), 0);
    assert_eq!(Clock::new(0x7f, 0).ns(u64::MAX), 0);
    assert_eq!(Clock::new(0xff, 0).ns(u64::MAX), 0);
    assert_eq!(Clock::new(28, 0).ns(u64::MAX), 1, "10^-28 s");
}

#[test]
fn options_set_the_clock_of_their_interface_only() {
    let mut b = file();
    b.interface(1, 0, |b| {
        b.u16(14).u16(8).u64(10).u16(9).u16(1).raw(&[3, 0, 0, 0]);
    });
    b.interface(1, 0, |_| {});
    b.packet(1, 5, 0, &[]).packet(0, 5, 0, &[]);
    let (records, end) = read_all(&b.bytes);
    assert!(end.is_none(), "{end:?}");
    assert_eq!(records.iter().map(|r| r.timestamp_ns).collect::<Vec<_>>(), [5000, 10_005_000_000]);
}

#[test]
fn simple_packets_are_cut_at_the_snapshot_length() {
    let mut b = file();
    b.interface(1, 3, |_| {}).block(3, |b| {
        b.u32(100).raw(&[1, 2, 3]);
    });
    let (records, end) = read_all(&b.bytes);
    assert!(end.is_none(), "{end:?}");
    assert_eq!((records[0].original_len, records[0].frame.as_slice()), (100, &[1, 2, 3][..]));
}

#[test]
fn blocks_longer_than_the_window_are_skipped() {
    let mut b = file();
    b.interface(1, 0, |_| {});
    b.block(0x0bad, |b| {
        b.raw(&vec![0; 3 << 20]);
    });
    // A packet whose options are longer than the window.
    b.block(6, |b| {
        b.u32(0).u32(0).u32(1).u32(4).u32(4).raw(&[1, 2, 3, 4]).raw(&vec![0; 1 << 20]);
    });
    b.packet(0, 2, 1, &[5]);
    let (records, end) = read_all(&b.bytes);
    assert!(end.is_none(), "{end:?}");
    assert_eq!(records.iter().map(|r| r.frame.as_slice()).collect::<Vec<_>>(), [&[1, 2, 3, 4][..], &[5]]);
}

#[test]
fn a_frame_above_the_limit_is_reported_with_its_block() {
    let mut b = file();
    b.interface(1, 0, |_| {}).packet(0, 1, 9, &[1]);
    let at = b.bytes.len() as u64;
    b.packet(0, 2, 9, &vec![0; MAX_FRAME + 1]).packet(0, 3, 9, &[2]);
    let (records, end) = read_all(&b.bytes);
    assert_eq!(records.len(), 1);
    match end {
        Some(Error::FrameTooLong { record: 2, offset, length: 262_145, .. }) => assert_eq!(offset, at),
        other => panic!("{other:?}"),
    }
}

/// Reads `b` and expects `records` records, then damage described by `words`.
fn damaged(b: &Bytes, records: usize, words: &str) {
    let (read, end) = read_all(&b.bytes);
    assert_eq!(read.len(), records);
    match end {
        Some(error @ Error::Corrupt { .. }) => {
            let text = error.to_string();
            assert!(text.contains(words), "{text}");
        }
        other => panic!("{words}: {other:?}"),
    }
}

#[test]
fn contradictions_are_named() {
    damaged(file().packet(7, 1, 1, &[1]), 0, "packet of interface 7, but the section describes 0");
    damaged(file().interface(1, 0, |_| {}).section().packet(0, 1, 1, &[1]), 0, "the section describes 0");
    damaged(file().u32(5).u32(8).u32(8), 0, "block length 8 is below 12");
    damaged(file().u32(5).u32(14).raw(&[0; 6]), 0, "no multiple of 4");
    damaged(file().u32(5).u32(16).u32(0).u32(20), 0, "block length is 16 before the block and 20 behind");
    damaged(
        file().block(6, |b| {
            b.u64(0);
        }),
        0,
        "too short",
    );
    damaged(
        file().interface(1, 0, |b| {
            b.u16(9).u16(2).u32(0);
        }),
        0,
        "interface option 9 of 2 bytes",
    );
    damaged(
        file().interface(1, 0, |b| {
            b.u16(2).u16(99);
        }),
        0,
        "too short",
    );
    damaged(
        file().interface(1, 0, |_| {}).packet(0, 1, 1, &[1]).block(6, |b| {
            b.u32(0).u64(0).u32(9).u32(9).raw(&[0; 8]);
        }),
        1,
        "too short",
    );
    damaged(
        file().block(0x0a0d_0d0a, |b| {
            b.raw(&[0; 16]);
        }),
        0,
        "byte-order magic [00, 00, 00, 00]",
    );
}

#[test]
fn later_versions_are_refused() {
    let mut b = Bytes::default();
    b.block(0x0a0d_0d0a, |b| {
        b.u32(0x1a2b_3c4d).u16(2).u16(0).u64(u64::MAX);
    });
    let error = read_all(&b.bytes).1.expect("refused").to_string();
    assert!(error.contains("pcapng version 2.0"), "{error}");
}
