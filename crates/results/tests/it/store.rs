//! The database: adding, finding, rejecting.

use crate::samples;

use proptest::prelude::*;
use report::{Document, Frames, Result};
use results::{Added, Error, Filter, Store};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn new_path() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("some/new folder/results.sqlite");
    (folder, file)
}

/// A small result, distinguished by its number.
fn small(n: u64) -> Result {
    let mut r = samples::result("bondstone", Frames::FrameBytes(64), 200.0);
    r.latency.truncate(1);
    r.latency[0].latency_hdr = None;
    r.traffic.seed = Some(n);
    r.assign_id().unwrap();
    r
}

fn ids(store: &Store, filter: &Filter) -> Vec<String> {
    store.list(filter).unwrap().into_iter().map(|e| e.id).collect()
}

#[test]
fn results_persist() {
    let (_folder, file) = new_path();
    let all: Vec<Result> = samples::sizes().into_iter().map(|f| samples::result("native", f, 250.0)).collect();
    let mut store = Store::open(&file).unwrap();
    for r in &all {
        assert_eq!(store.add(r).unwrap(), Added::New);
        assert_eq!(store.add(r).unwrap(), Added::Existing);
    }
    drop(store);
    let store = Store::open(&file).unwrap();
    for r in &all {
        assert_eq!(store.get(&r.id).unwrap().as_ref(), Some(r));
        assert_eq!(store.document(&r.id).unwrap(), Some(r.verify().unwrap()));
    }
    let entries = store.list(&Filter::default()).unwrap();
    assert_eq!(entries.len(), all.len());
    for e in entries {
        let r = all.iter().find(|r| r.id == e.id).unwrap();
        assert_eq!((e.study, e.cell, e.date), (r.study.clone(), r.cell.clone(), r.environment.date.clone()));
        assert_eq!((e.dut, e.frame, e.goal), (r.dut.label(), r.traffic.frames.label(), r.goal.name.clone()));
        let s = &r.summary;
        assert_eq!((e.lower_pps, e.upper_pps, e.conditional_pps), (s.lower_pps, s.upper_pps, s.conditional_pps));
        assert_eq!((e.frame_bytes, e.trials), (r.traffic.frames.mean_bytes(), r.trials.len() as u64));
        assert_eq!(e.limited_by, r.limited_by.name());
    }
    assert_eq!(store.get("no such id").unwrap(), None);
}

#[test]
fn a_new_file_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let (_folder, file) = new_path();
    drop(Store::open(&file).unwrap());
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn filters_select_results() {
    let (_folder, file) = new_path();
    let mut store = Store::open(&file).unwrap();
    let mut all = Vec::new();
    for (n, (study, kind, frame, date)) in [
        ("a", "bondstone", 64, "2026-01-01T00:00:00Z"),
        ("a", "native", 64, "2026-01-02T00:00:00+01:00"),
        ("b", "bondstone", 128, "2026-01-03T00:00:00Z"),
        ("%", "bond%", 1518, "2026-01-04T00:00:00.25Z"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut r = small(n as u64);
        r.study = study.to_owned();
        r.dut.kind = kind.to_owned();
        r.traffic.frames = Frames::FrameBytes(frame);
        r.environment.date = date.to_owned();
        r.assign_id().unwrap();
        store.add(&r).unwrap();
        all.push(r.id);
    }
    let find = |filter: Filter| {
        let found = ids(&store, &filter);
        found.iter().map(|id| all.iter().position(|a| a == id).unwrap()).collect::<Vec<_>>()
    };
    let text = |s: &str| Some(s.to_owned());
    let none = Filter::default;
    assert_eq!(find(none()), [3, 2, 1, 0]);
    assert_eq!(find(Filter { limit: Some(2), ..none() }), [3, 2]);
    assert_eq!(find(Filter { study: text("a"), ..none() }), [1, 0]);
    assert_eq!(find(Filter { study: text("%"), ..none() }), [3]);
    assert_eq!(find(Filter { dut: text("bondstone"), ..none() }), [2, 0]);
    assert_eq!(find(Filter { dut: text("native ttl+lpm"), ..none() }), [1]);
    assert_eq!(find(Filter { frame: text("64"), dut: text("bondstone"), ..none() }), [0]);
    assert_eq!(find(Filter { since: report::unix_seconds("2026-01-01T23:00:00Z"), ..none() }), [3, 2, 1]);
    assert_eq!(find(Filter { since: report::unix_seconds("2026-01-01T23:00:01Z"), ..none() }), [3, 2]);
    assert_eq!(find(Filter { id: text(&all[2][..12]), ..none() }), [2]);
    assert_eq!(find(Filter { id: text("%"), ..none() }), [0usize; 0]);
    assert_eq!(find(Filter { study: text("' OR 1=1 --"), ..none() }), [0usize; 0]);
}

#[test]
fn deleting_a_result_deletes_its_rows() {
    let (_folder, file) = new_path();
    let mut store = Store::open(&file).unwrap();
    let (a, b) = (small(1), small(2));
    store.add(&a).unwrap();
    store.add(&b).unwrap();
    let rows = |table| {
        let c = Connection::open(&file).unwrap();
        c.query_row(&format!("SELECT count(*) FROM {table}"), [], |r| r.get::<_, i64>(0)).unwrap() as usize
    };
    assert_eq!((rows("trial"), rows("latency")), (2 * a.trials.len(), 2));
    // views for other programs
    assert_eq!((rows("result_trial WHERE host_interference AND frame = '64'"), rows("result_latency")), (2, 2));
    assert!(store.delete(&a.id).unwrap());
    assert!(!store.delete(&a.id).unwrap());
    assert_eq!((rows("trial"), rows("latency"), rows("result")), (a.trials.len(), 1, 1));
    assert_eq!(store.add(&a).unwrap(), Added::New);
}

#[test]
fn rejects_results_that_do_not_verify() {
    let (_folder, file) = new_path();
    let mut store = Store::open(&file).unwrap();
    let mut r = small(1);
    r.summary.lower_pps -= 1.0;
    assert!(matches!(store.add(&r), Err(Error::Refused(report::Error::Id { .. }))));
    assert_eq!(store.list(&Filter::default()).unwrap(), []);
}

#[test]
fn keeps_unknown_members() {
    let (_folder, file) = new_path();
    let mut store = Store::open(&file).unwrap();
    let mut extended = serde_json::to_value(small(1)).unwrap();
    extended["weather"] = serde_json::json!("rain");
    let Err(report::Error::Id { expected, .. }) = Document::read(&extended.to_string()) else {
        panic!("the id is old")
    };
    extended["id"] = serde_json::json!(expected);
    let document = Document::read(&extended.to_string()).unwrap();
    assert_eq!(store.add_document(&document).unwrap(), Added::New);
    assert_eq!(store.document(&expected).unwrap(), Some(document));
    assert_eq!(store.get(&expected).unwrap().unwrap().id, expected);
}

#[test]
fn detects_changed_documents() {
    let (_folder, file) = new_path();
    let mut store = Store::open(&file).unwrap();
    let (a, b) = (small(1), small(2));
    store.add(&a).unwrap();
    store.add(&b).unwrap();
    let other = Connection::open(&file).unwrap();
    let sql = "UPDATE result SET document = replace(document, '\"flows\":10000', '\"flows\":10001') WHERE id = ?1";
    assert_eq!(other.execute(sql, [&a.id]).unwrap(), 1);
    assert!(matches!(store.get(&a.id), Err(Error::Changed { id, .. }) if id == a.id));
    // one document stored under the id of another
    let text = b.verify().unwrap().text().to_owned();
    other.execute("UPDATE result SET document = ?1 WHERE id = ?2", [&text, &a.id]).unwrap();
    assert!(matches!(store.get(&a.id), Err(Error::Changed { .. })));
    assert_eq!(store.get(&b.id).unwrap(), Some(b));
}

#[test]
fn concurrent_writers_lose_no_results() {
    const WRITERS: u64 = 4;
    const EACH: u64 = 12;
    let (_folder, file) = new_path();
    // all of them create the file, and add some equal results
    let start = std::sync::Barrier::new(WRITERS as usize);
    let added: usize = std::thread::scope(|scope| {
        let write = |w: u64| {
            let results: Vec<_> = (0..EACH).map(|n| small(if n < 3 { n } else { 1000 + w * EACH + n })).collect();
            start.wait();
            let mut store = Store::open(&file).unwrap();
            results.iter().filter(|r| store.add(r).unwrap() == Added::New).count()
        };
        let writers: Vec<_> = (0..WRITERS).map(|w| scope.spawn(move || write(w))).collect();
        writers.into_iter().map(|w| w.join().unwrap()).sum()
    });
    let expected = 3 + WRITERS * (EACH - 3);
    assert_eq!(added as u64, expected);
    let store = Store::open(&file).unwrap();
    let all = ids(&store, &Filter::default());
    assert_eq!(all.len() as u64, expected);
    all.iter().for_each(|id| assert!(store.get(id).unwrap().is_some()));
}

#[test]
fn readers_do_not_wait_for_a_writer() {
    let (_folder, file) = new_path();
    let mut store = Store::open(&file).unwrap();
    store.add(&small(1)).unwrap();
    let mut other = Connection::open(&file).unwrap();
    let writing = other.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
    writing.execute("DELETE FROM result", []).unwrap();
    // must not block: the writer commits afterwards
    let reader = Store::open(&file).unwrap();
    assert_eq!(reader.list(&Filter::default()).unwrap().len(), 1);
    assert_eq!(store.list(&Filter::default()).unwrap().len(), 1);
    writing.commit().unwrap();
    assert_eq!(store.list(&Filter::default()).unwrap().len(), 0);
}

fn open_error(file: &Path) -> Error {
    let before = std::fs::read(file).unwrap_or_default();
    let error = Store::open(file).unwrap_err();
    assert_eq!(std::fs::read(file).unwrap_or_default(), before, "{error}: the file was changed");
    assert!(error.to_string().starts_with(&file.display().to_string()), "{error}");
    error
}

#[test]
fn leaves_other_files_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("notes.txt");
    std::fs::write(&text, "not a database\n".repeat(100)).unwrap();
    assert!(matches!(open_error(&text), Error::NotADatabase { .. }));

    let foreign = folder.path().join("mails.sqlite");
    Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE mail (x)").unwrap();
    assert!(matches!(open_error(&foreign), Error::Foreign { .. }));
    let versioned = folder.path().join("photos.sqlite");
    let c = Connection::open(&versioned).unwrap();
    c.execute_batch("PRAGMA user_version = 1; PRAGMA application_id = 5").unwrap();
    drop(c);
    assert!(matches!(open_error(&versioned), Error::Foreign { .. }));

    assert!(matches!(open_error(folder.path()), Error::Open { .. }));
    let below = text.join("results.sqlite");
    assert!(matches!(Store::open(&below), Err(Error::Folder { .. })));
}

#[test]
fn leaves_a_newer_version_unchanged() {
    let (_folder, file) = new_path();
    drop(Store::open(&file).unwrap());
    let c = Connection::open(&file).unwrap();
    c.execute_batch("PRAGMA user_version = 7; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    drop(c);
    let error = open_error(&file);
    assert!(matches!(error, Error::Newer { found: 7, supported: 3, .. }), "{error}");
}

#[test]
fn detects_damaged_files() {
    let (_folder, file) = new_path();
    let mut store = Store::open(&file).unwrap();
    let all: Vec<_> = (0..40).map(small).collect();
    for r in &all {
        store.add(r).unwrap();
    }
    drop(store);
    let good = std::fs::read(&file).unwrap();
    let read_all = || -> std::result::Result<(), Error> {
        let store = Store::open(&file)?;
        store.list(&Filter::default())?;
        for r in &all {
            match store.get(&r.id)? {
                Some(found) => assert_eq!(&found, r, "another result than was added"),
                None => return Err(Error::NoLocation),
            }
        }
        Ok(())
    };
    read_all().unwrap();
    let mut detected = 0;
    for page in 0..good.len() / 4096 {
        let mut bad = good.clone();
        bad[page * 4096..(page + 1) * 4096].iter_mut().enumerate().for_each(|(i, b)| *b = b.wrapping_add(i as u8 | 1));
        std::fs::write(&file, &bad).unwrap();
        let _ = std::fs::remove_file(file.with_extension("sqlite-wal"));
        detected += usize::from(read_all().is_err());
    }
    // pages of trials and indexes are not read
    assert!(detected > 40, "{detected} of {}", good.len() / 4096);
    std::fs::write(&file, &good[..good.len() / 2]).unwrap();
    assert!(matches!(read_all(), Err(Error::Damaged { .. } | Error::Other { .. })));
}

#[test]
fn full_disk_loses_nothing() {
    let mount = tempfile::tempdir().unwrap();
    let tmpfs =
        std::process::Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "none"]).arg(mount.path()).output();
    if !tmpfs.is_ok_and(|o| o.status.success()) {
        println!("skipped: cannot mount a small file system");
        return;
    }
    let unmount = Unmount(mount.path());
    let full = mount.path().join("results.sqlite");
    let mut store = Store::open(&full).unwrap();
    let mut kept = Vec::new();
    let error = loop {
        let r = small(kept.len() as u64);
        match store.add(&r) {
            Ok(_) => kept.push(r),
            Err(error) => break error,
        }
        assert!(kept.len() < 1000);
    };
    assert!(matches!(error, Error::Full { .. }), "{error:?}");
    assert!(!kept.is_empty());
    kept.iter().for_each(|r| assert_eq!(store.get(&r.id).unwrap().as_ref(), Some(r)));
    assert_eq!(store.list(&Filter::default()).unwrap().len(), kept.len());
    drop(store);
    drop(unmount);
}

struct Unmount<'a>(&'a Path);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn detects_read_only_files() {
    use std::os::unix::fs::PermissionsExt;
    let (_folder, file) = new_path();
    drop(Store::open(&file).unwrap());
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o444)).unwrap();
    if std::fs::OpenOptions::new().write(true).open(&file).is_ok() {
        println!("skipped: this user can write every file");
        return;
    }
    assert!(matches!(open_error(&file), Error::ReadOnly { .. }));
}

#[test]
fn triggers_in_a_file_do_not_run() {
    let (_folder, file) = new_path();
    drop(Store::open(&file).unwrap());
    let c = Connection::open(&file).unwrap();
    c.execute_batch("CREATE TRIGGER t AFTER INSERT ON result BEGIN DELETE FROM result; END").unwrap();
    drop(c);
    let mut store = Store::open(&file).unwrap();
    store.add(&small(1)).unwrap();
    assert_eq!(store.list(&Filter::default()).unwrap().len(), 1);
}

/// A document of schema 1 keeps its text and id; its columns have the names of schema 2.
#[test]
fn stores_documents_of_schema_1() {
    let (_folder, file) = new_path();
    let mut store = Store::open(&file).unwrap();
    let document = Document::read(include_str!("../../../report/tests/data/result-1.json").trim_end()).unwrap();
    assert_eq!(store.add_document(&document).unwrap(), Added::New);
    let id = &document.result().id;
    assert_eq!(store.document(id).unwrap().as_ref(), Some(&document));
    assert_eq!(store.list(&Filter::default()).unwrap()[0].limited_by, "host_interference");
    // columns written by an earlier version are renamed
    drop(store);
    Store::downgrade(&file, 2).unwrap();
    let c = Connection::open(&file).unwrap();
    let limited_by: String = c.query_row("SELECT limited_by FROM result", [], |r| r.get(0)).unwrap();
    let marked: i64 = c.query_row("SELECT sum(machine) FROM result_trial", [], |r| r.get(0)).unwrap();
    assert_eq!((limited_by.as_str(), marked), ("machine", 1));
    drop(c);
    let store = Store::open(&file).unwrap();
    assert_eq!(store.list(&Filter::default()).unwrap()[0].limited_by, "host_interference");
    let c = Connection::open(&file).unwrap();
    let marked: i64 = c.query_row("SELECT sum(host_interference) FROM result_trial", [], |r| r.get(0)).unwrap();
    assert_eq!((marked, store.get(id).unwrap().as_ref()), (1, Some(document.result())));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Any texts and numbers are read back, and found by their columns.
    #[test]
    fn reads_back_any_result(
        study in "\\PC{0,40}", kind in "[^\u{0}]{0,20}", value in any::<String>(), pps in 0.0..1e12f64,
        count in 0u64..1 << 53,
    ) {
        let (_folder, file) = new_path();
        let mut store = Store::open(&file).unwrap();
        let mut r = small(0);
        r.study = study.clone();
        r.dut.kind = kind.clone();
        r.cell.insert("k".to_owned(), value.chars().take(200).collect());
        (r.summary.lower_pps, r.summary.upper_pps) = (pps, None);
        (r.trials[0].intended, r.trials[0].sent, r.trials[0].unsent) = (count, count, 0);
        (r.trials[0].received, r.trials[0].lost) = (count / 3, count - count / 3);
        r.assign_id().unwrap();
        prop_assert_eq!(store.add(&r).unwrap(), Added::New);
        prop_assert_eq!(store.get(&r.id).unwrap(), Some(r.clone()));
        let found = store.list(&Filter { study: Some(study), dut: Some(kind), ..Filter::default() }).unwrap();
        prop_assert_eq!(found.len(), 1);
        prop_assert_eq!(&found[0].cell, &r.cell);
        prop_assert_eq!(found[0].lower_pps, pps);
        let sql = "SELECT received + lost FROM trial WHERE number = 1";
        let sum: i64 = Connection::open(&file).unwrap().query_row(sql, [], |r| r.get(0)).unwrap();
        prop_assert_eq!(sum, count as i64);
    }
}
