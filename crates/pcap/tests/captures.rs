//! Captures of real traffic, read by this crate and by Wireshark's tools: every record of every file must be the same.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "tests print why they are skipped")]

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;
use pcap::{Error, Reader};

/// The captures of `dpi` in the project's shared data; none, and a word about it, where the data is absent.
fn captures() -> Vec<PathBuf> {
    let data = std::env::var_os("BONDSTONE_DATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"), PathBuf::from);
    let Ok(dir) = data.join("dpi").read_dir() else {
        eprintln!("skipped: no data in {} (set BONDSTONE_DATA)", data.display());
        return Vec::new();
    };
    let mut files: Vec<_> = dir
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "pcap" || e == "pcapng"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "the directory has no captures");
    files
}

/// Returns true if a tool is installed; prints a note otherwise.
fn installed(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: no {tool} (Wireshark) on this machine");
    }
    found
}

/// Time in ns, original length, link type, frame.
type Row = (u64, u32, u32, Vec<u8>);

fn read(path: &Path) -> Result<Vec<Row>, Error> {
    let mut reader = Reader::open(path)?;
    let mut rows = Vec::new();
    while let Some(record) = reader.next()? {
        rows.push((record.timestamp_ns, record.original_len, u32::from(record.link_type.0), record.frame.to_vec()));
    }
    Ok(rows)
}

/// Returns the totals of capinfos for all files: packets, and the sum of their original lengths ("data size").
#[test]
fn counts_and_sizes_are_those_of_capinfos() {
    let files = captures();
    if files.is_empty() || !installed("capinfos") {
        return;
    }
    let output = Command::new("capinfos").args(["-T", "-r", "-M", "-c", "-d"]).args(&files).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let theirs: Vec<String> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(theirs.len(), files.len());
    for (path, theirs) in files.iter().zip(theirs) {
        let rows = read(path).unwrap();
        let bytes: u64 = rows.iter().map(|row| u64::from(row.1)).sum();
        assert_eq!(format!("{}\t{}\t{bytes}", path.display(), rows.len()), theirs);
    }
    eprintln!("compared {} files with capinfos", files.len());
}

/// editcap rewrites each file as classic pcap with nanoseconds: times, lengths, link type and bytes as Wireshark
/// understands them.
#[test]
fn every_record_is_what_editcap_reads() {
    let files = captures();
    if files.is_empty() || !installed("editcap") {
        return;
    }
    let (mut records, mut captured) = (0, 0);
    for path in &files {
        let output = Command::new("editcap").args(["-F", "nsecpcap"]).arg(path).arg("-").output().unwrap();
        assert!(output.status.success(), "{}: {}", path.display(), String::from_utf8_lossy(&output.stderr));
        let theirs = plain_records(&output.stdout);
        let ours = read(path).unwrap();
        assert_eq!(ours.len(), theirs.len(), "{}", path.display());
        for (number, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            assert_eq!(ours, theirs, "{}: record {}", path.display(), number + 1);
        }
        records += ours.len();
        captured += ours.iter().map(|row| row.3.len()).sum::<usize>();
    }
    eprintln!("compared {records} records, {captured} captured bytes, of {} files with editcap", files.len());
}

/// Little-endian classic pcap with nanoseconds, taken apart without the crate under test.
fn plain_records(file: &[u8]) -> Vec<Row> {
    assert_eq!(file[..4], [0x4d, 0x3c, 0xb2, 0xa1]);
    let link_type = u32::from_le_bytes(file[20..24].try_into().unwrap());
    let mut rest = &file[24..];
    let mut rows = Vec::new();
    while !rest.is_empty() {
        let word = |i: usize| u32::from_le_bytes(rest[4 * i..4 * i + 4].try_into().unwrap());
        let end = 16 + word(2) as usize;
        let timestamp_ns = u64::from(word(0)) * 1_000_000_000 + u64::from(word(1));
        rows.push((timestamp_ns, word(3), link_type, rest[16..end].to_vec()));
        rest = &rest[end..];
    }
    rows
}

#[test]
fn gzipped_captures_give_the_same_records() {
    let dir = std::env::temp_dir().join(format!("bondstone-pcap-gz-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    for path in captures() {
        // The name does not matter, the content does.
        let zipped = dir.join("capture");
        let mut encoder = GzEncoder::new(File::create(&zipped).unwrap(), Compression::fast());
        encoder.write_all(&std::fs::read(&path).unwrap()).unwrap();
        encoder.finish().unwrap();
        assert_eq!(read(&zipped).unwrap(), read(&path).unwrap(), "{}", path.display());
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
