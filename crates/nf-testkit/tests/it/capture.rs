//! Captures, and the first difference between two.

use pcap::{LinkType, Writer};
use std::panic::catch_unwind;
use std::path::PathBuf;
use testkit::capture::{self, Difference, Error};

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("kit-{}-{name}", std::process::id()))
}

#[test]
fn what_was_written_is_read_also_gzipped() {
    let frames = vec![vec![1; 60], vec![], vec![2; 2000]];
    for name in ["plain.pcap", "packed.pcap.gz"] {
        let path = path(name);
        capture::write(&path, &frames).unwrap();
        assert_eq!(capture::read(&path).unwrap(), frames);
        capture::assert_same(&path, &frames);
        let heard = catch_unwind(|| capture::assert_same(&path, &frames[..2])).unwrap_err();
        let heard = heard.downcast_ref::<String>().unwrap();
        assert!(heard.contains(name) && heard.contains("3 frames were expected, and 2 came"), "{heard}");
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn what_is_no_ethernet_is_refused_and_what_is_absent_named() {
    let path = path("raw.pcap");
    let mut writer = Writer::create(&path, LinkType::RAW).unwrap();
    writer.write(0, 0, &[0x45; 20]).unwrap();
    writer.finish().unwrap();
    let e = capture::read(&path).unwrap_err();
    assert!(matches!(e, Error::Link { frame: 1, link: LinkType::RAW, .. }) && e.to_string().contains("RAW"), "{e}");
    std::fs::remove_file(path).unwrap();
    assert!(capture::read("nowhere.pcap").unwrap_err().to_string().contains("nowhere.pcap"));
}

#[test]
fn the_first_difference_is_told_by_frame_and_byte() {
    let expected = [b"first".to_vec(), b"second".to_vec()];
    assert_eq!(capture::compare(&expected, &expected), Ok(()));
    assert_eq!(capture::compare(&expected[..0], &expected[..0]), Ok(()));
    let differs = |got: &[&str]| capture::compare(&expected, got).unwrap_err();
    let of = |frame, offset, expected: &str, got: &str| Difference::Bytes {
        frame,
        offset,
        expected: expected.into(),
        got: got.into(),
    };
    assert_eq!(differs(&["first", "seCOnd"]), of(2, 2, "cond", "COnd"));
    assert_eq!(differs(&["fir", "second", "third"]), of(1, 3, "st", ""));
    assert_eq!(differs(&["first!", "second"]), of(1, 5, "", "!"));
    assert_eq!(differs(&["first"]), Difference::Missing { expected: 2, got: 1 });
    assert_eq!(differs(&["first", "second", "third"]), Difference::More { expected: 2, got: 3 });
    assert_eq!(
        differs(&["first", "sec"]).to_string(),
        "frame 2 differs from byte 3 on: expected 6f 6e 64, got its end"
    );
}
