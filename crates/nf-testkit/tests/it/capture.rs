//! Captures, and the first difference between two.

use pcap::{LinkType, Writer};
use std::panic::catch_unwind;
use std::path::PathBuf;
use testkit::capture::{self, Difference, Error};

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("testkit-{}-{name}", std::process::id()))
}

#[test]
fn reads_what_it_wrote() {
    let frames = vec![vec![1; 60], vec![], vec![2; 2000]];
    for name in ["plain.pcap", "packed.pcap.gz"] {
        let path = path(name);
        capture::write(&path, &frames).unwrap();
        assert_eq!(capture::read(&path).unwrap(), frames);
        capture::assert_matches(&path, &frames);
        let payload = catch_unwind(|| capture::assert_matches(&path, &frames[..2])).unwrap_err();
        let message = payload.downcast_ref::<String>().unwrap();
        assert!(message.contains(name) && message.contains("expected 3 frames, got 2"), "{message}");
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn refuses_other_link_types_and_missing_files() {
    let path = path("raw.pcap");
    let mut writer = Writer::create(&path, LinkType::RAW).unwrap();
    writer.write(0, 0, &[0x45; 20]).unwrap();
    writer.finish().unwrap();
    let e = capture::read(&path).unwrap_err();
    assert!(matches!(e, Error::Link { frame: 1, link: LinkType::RAW, .. }) && e.to_string().contains("RAW"), "{e}");
    std::fs::remove_file(path).unwrap();
    assert!(capture::read("missing.pcap").unwrap_err().to_string().contains("missing.pcap"));
}

#[test]
fn reports_the_first_difference() {
    let expected = [b"first".to_vec(), b"second".to_vec()];
    assert_eq!(capture::compare(&expected, &expected), Ok(()));
    assert_eq!(capture::compare(&expected[..0], &expected[..0]), Ok(()));
    let difference = |got: &[&str]| capture::compare(&expected, got).unwrap_err();
    let bytes = |frame, offset, expected: &str, got: &str| Difference::Bytes {
        frame,
        offset,
        expected: expected.into(),
        got: got.into(),
    };
    assert_eq!(difference(&["first", "seCOnd"]), bytes(2, 2, "cond", "COnd"));
    assert_eq!(difference(&["fir", "second", "third"]), bytes(1, 3, "st", ""));
    assert_eq!(difference(&["first!", "second"]), bytes(1, 5, "", "!"));
    assert_eq!(difference(&["first"]), Difference::Missing { expected: 2, got: 1 });
    assert_eq!(difference(&["first", "second", "third"]), Difference::More { expected: 2, got: 3 });
    assert_eq!(
        difference(&["first", "sec"]).to_string(),
        "frame 2 differs at byte 3: expected 6f 6e 64, got the end of the frame"
    );
}
