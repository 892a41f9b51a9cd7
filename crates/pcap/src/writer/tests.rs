use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use proptest::prelude::*;

use super::Writer;
use crate::testing::{Owned, read_all, records};
use crate::{Error, LinkType, MAX_FRAME};

proptest! {
    #[test]
    fn what_is_written_is_read(records in records(), link in any::<u16>(), gzip in any::<bool>()) {
        let open = if gzip { Writer::gzip } else { Writer::new };
        let mut writer = open(Vec::new(), LinkType(link)).unwrap();
        for (time, original_len, frame) in &records {
            writer.write(*time, *original_len, frame).unwrap();
        }
        prop_assert_eq!(writer.records_written(), records.len() as u64);
        let (read, end) = read_all(&writer.finish().unwrap());
        prop_assert!(end.is_none(), "{:?}", end);
        let expected: Vec<_> = records
            .into_iter()
            .map(|(timestamp_ns, original_len, frame)| Owned {
                timestamp_ns,
                original_len: original_len.max(frame.len() as u32),
                link_type: LinkType(link),
                interface: 0,
                frame,
            })
            .collect();
        prop_assert_eq!(read, expected);
    }
}

#[test]
fn what_pcap_cannot_hold_is_refused_and_the_writer_goes_on() {
    let mut writer = Writer::new(Vec::new(), LinkType::ETHERNET).unwrap();
    writer.write(1, 1, &[1]).unwrap();
    let late = writer.write(4_294_967_296_000_000_000, 1, &[2]).unwrap_err();
    assert!(matches!(late, Error::Refused { record: 2, .. }), "{late:?}");
    let long = writer.write(2, 1, &vec![0; MAX_FRAME + 1]).unwrap_err();
    assert!(long.to_string().contains("record 2 not written: its frame has 262145 bytes"), "{long}");
    writer.write(3, 1, &[3]).unwrap();
    let (records, end) = read_all(&writer.finish().unwrap());
    assert!(end.is_none(), "{end:?}");
    assert_eq!(records.iter().map(|r| r.timestamp_ns).collect::<Vec<_>>(), [1, 3]);
}

#[test]
fn a_full_disk_is_reported_with_path_and_record() {
    let full = Path::new("/dev/full");
    if !full.exists() {
        eprintln!("skipped: no /dev/full");
        return;
    }
    let mut writer = Writer::create(full, LinkType::ETHERNET).unwrap();
    writer.write(1, 60, &[0; 60]).unwrap();
    let error = writer.finish().unwrap_err();
    assert!(matches!(&error, Error::Write { record: 1, reason, .. } if reason.kind() == io::ErrorKind::StorageFull));
    assert!(error.to_string().starts_with("/dev/full: cannot write, at record 1: "), "{error}");

    let mut writer = Writer::create(full, LinkType::ETHERNET).unwrap();
    let failed = (1..=10_000).find_map(|_| writer.write(1, 60, &[0; 60]).err()).expect("the buffer is 256 KiB");
    assert!(matches!(failed, Error::Write { record: 3449, .. }), "{failed:?}");
    let again = writer.write(1, 60, &[0; 60]).unwrap_err();
    assert!(again.to_string().contains("an earlier write failed"), "{again}");
    assert!(writer.flush().is_err());
    assert!(writer.finish().is_err());

    // a file that ends within the third of four records, and one within its header
    for (room, lost) in [(24 + 2 * 76 + 20, (2, 120)), (24 + 4 * 76, (0, 0)), (10, (4, 240))] {
        let mut buffer = vec![0; room];
        let mut writer = Writer::new(&mut buffer[..], LinkType::ETHERNET).unwrap();
        (0..4).for_each(|_| writer.write(1, 60, &[7; 60]).unwrap());
        assert_eq!((writer.flush().is_err(), writer.lost()), (lost.0 != 0, lost));
        drop(writer);
        assert_eq!(read_all(&buffer).0.len() as u64, if room < 24 { 0 } else { 4 - lost.0 });
    }

    let mut gzip = Writer::gzip(File::create(full).unwrap(), LinkType::ETHERNET).unwrap();
    gzip.write(1, 60, &[0; 60]).unwrap();
    assert!(gzip.flush().is_err());
    assert_eq!(gzip.lost(), (1, 60));
    assert!(gzip.finish().is_err());
}

#[test]
fn names_decide_about_gzip_and_dropping_writes() {
    let dir = std::env::temp_dir().join(format!("bondstone-pcap-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    for (name, gzip) in [("a.pcap", false), ("a.pcap.gz", true), ("b.GZ", true)] {
        let path = dir.join(name);
        let mut writer = Writer::create(&path, LinkType::RAW).unwrap();
        writer.write(7, 2, &[0x45, 0]).unwrap();
        drop(writer);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.starts_with(&[0x1f, 0x8b]), gzip, "{name}");
        let mut reader = crate::Reader::open(&path).unwrap();
        assert_eq!(reader.next().unwrap().unwrap().frame, [0x45, 0]);
        assert!(reader.next().unwrap().is_none());
    }
    let missing = crate::Reader::open(dir.join("none.pcap")).unwrap_err();
    assert!(matches!(&missing, Error::Open { .. }) && missing.to_string().contains("none.pcap: cannot open"));
    assert_eq!(missing.file().path(), Some(dir.join("none.pcap").as_path()));
    assert!(matches!(Writer::create(dir.join("no/where"), LinkType::RAW), Err(Error::Create { .. })));
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn flushed_records_can_be_read_while_writing_goes_on() {
    struct Shared<'a>(&'a std::cell::RefCell<Vec<u8>>);
    impl Write for Shared<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let out = std::cell::RefCell::new(Vec::new());
    for open in [Writer::new, Writer::gzip] {
        out.borrow_mut().clear();
        let mut writer = open(Shared(&out), LinkType::ETHERNET).unwrap();
        writer.write(1, 1, &[1]).unwrap();
        writer.flush().unwrap();
        assert_eq!(read_all(&out.borrow()).0.len(), 1);
        writer.finish().unwrap();
    }
}
