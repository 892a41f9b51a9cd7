//! Model check of `Bounded<N>`: all interleavings and reorderings that the memory model allows, with up to three
//! preemptions.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p bondstone-graph --test state_loom`
#![allow(unexpected_cfgs, reason = "`cfg(loom)` is set by hand")]
#![cfg(loom)]

use graph::Bounded;
use graph::state::{Reader, Writer};
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use std::sync::Arc;

fn check(f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(f);
}

/// Update `u`, from 1, inserts `u` at key `u % 2`, so that the state after each update is known.
fn write<const N: usize>(writer: &mut Writer<N, u64, u64>, updates: u64, completed: &AtomicU64) {
    for u in 1..=updates {
        writer.insert(u % 2, u).expect("room for two keys");
        completed.store(u, Ordering::Release);
    }
}

/// Checks that the reader has the state after its last update.
fn check_state(reader: &Reader<u64, u64>) {
    let version = reader.version();
    let last = |key: u64| (1..=version).rev().find(|u| u % 2 == key);
    for key in 0..2 {
        assert_eq!(reader.get(&key).copied(), last(key), "{key} at {version}");
    }
}

fn check_contract<const N: usize>(updates: u64, reads: usize) {
    check(move || {
        let bounded = Bounded::<N, u64, u64>::new(2);
        let mut writer = bounded.take_writer().expect("the first");
        // created before any update, like the copies of an NF
        let mut reader = bounded.reader();
        let completed = Arc::new(AtomicU64::new(0));
        let writing = {
            let completed = completed.clone();
            thread::spawn(move || {
                write(&mut writer, updates, &completed);
                writer
            })
        };
        for _ in 0..reads {
            let min = completed.load(Ordering::Acquire);
            reader.catch_up();
            assert!(reader.version() + N as u64 >= min, "{} of {min}", reader.version());
            check_state(&reader);
        }
        let mut writer = writing.join().expect("no panic");
        assert!(reader.catch_up() <= updates && reader.version() + N as u64 >= updates);
        check_state(&reader);
        writer.flush();
        reader.catch_up();
        assert_eq!(reader.version(), updates);
        check_state(&reader);
    });
}

#[test]
fn sees_every_completed_update() {
    check_contract::<0>(4, 3);
}

#[test]
fn lacks_at_most_one_update() {
    check_contract::<1>(7, 3);
}

/// With a capacity of two, a queue of two updates starts a full copy, at the third and the sixth update.
#[test]
fn a_full_copy_replaces_queued_updates() {
    check_contract::<0>(6, 2);
}

/// A reader created while the writer writes has no entries, or the state after some update.
#[test]
fn synchronises_a_late_reader() {
    check(|| {
        let bounded = Bounded::<0, u64, u64>::new(2);
        let mut writer = bounded.take_writer().expect("the first");
        let writing = thread::spawn(move || {
            write(&mut writer, 3, &AtomicU64::new(0));
            writer
        });
        let mut reader = bounded.reader();
        reader.catch_up();
        assert!(reader.is_synced() || reader.is_empty());
        check_state(&reader);
        let mut writer = writing.join().expect("no panic");
        writer.flush();
        reader.catch_up();
        assert!(reader.is_synced() && reader.version() == 3);
        check_state(&reader);
    });
}

/// The writer forgets a reader that is dropped while it writes.
#[test]
fn forgets_a_dropped_reader() {
    check(|| {
        let bounded = Bounded::<0, u64, u64>::new(2);
        let mut writer = bounded.take_writer().expect("the first");
        let reader = bounded.reader();
        let writing = thread::spawn(move || {
            write(&mut writer, 3, &AtomicU64::new(0));
            writer
        });
        drop(reader);
        let mut writer = writing.join().expect("no panic");
        writer.flush();
        assert_eq!(writer.readers(), 0);
    });
}
