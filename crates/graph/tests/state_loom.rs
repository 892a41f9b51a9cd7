//! `Bounded<N>` under every interleaving and every reordering that the memory model allows, up to three preemptions.
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

/// Update `u`, from 1, puts `u` at key `u % 2`, so that what stands after an update is known.
fn write<const N: usize>(writer: &mut Writer<N, u64, u64>, updates: u64, completed: &AtomicU64) {
    for u in 1..=updates {
        writer.insert(u % 2, u).expect("there is room for two keys");
        completed.store(u, Ordering::Release);
    }
}

/// The state after the update up to which the reader has come.
fn is_right(reader: &Reader<u64, u64>) {
    let version = reader.version();
    let last = |key: u64| (1..=version).rev().find(|u| u % 2 == key);
    for key in 0..2 {
        assert_eq!(reader.get(&key).copied(), last(key), "{key} at {version}");
    }
}

fn contract<const N: usize>(updates: u64, looks: usize) {
    check(move || {
        let bounded = Bounded::<N, u64, u64>::new(2);
        let mut writer = bounded.writer().expect("the first");
        // as the copies of an NF are built: before anything is written
        let mut reader = bounded.reader();
        let completed = Arc::new(AtomicU64::new(0));
        let writing = {
            let completed = completed.clone();
            thread::spawn(move || {
                write(&mut writer, updates, &completed);
                writer
            })
        };
        for _ in 0..looks {
            let least = completed.load(Ordering::Acquire);
            reader.catch_up();
            assert!(reader.version() + N as u64 >= least, "{} of {least}", reader.version());
            is_right(&reader);
        }
        let mut writer = writing.join().expect("it does not panic");
        assert!(reader.catch_up() <= updates && reader.version() + N as u64 >= updates);
        is_right(&reader);
        writer.flush();
        reader.catch_up();
        assert_eq!(reader.version(), updates);
        is_right(&reader);
    });
}

#[test]
fn every_completed_update_is_seen() {
    contract::<0>(4, 3);
}

#[test]
fn at_most_one_is_not_seen() {
    contract::<1>(7, 3);
}

/// With two keys a pile of two is high: a copy of everything takes its place at the third and the sixth update.
#[test]
fn a_copy_takes_the_place_of_the_pile() {
    contract::<0>(6, 2);
}

/// A reader that comes while the writer writes has nothing, or all up to some update.
#[test]
fn a_reader_comes_late() {
    check(|| {
        let bounded = Bounded::<0, u64, u64>::new(2);
        let mut writer = bounded.writer().expect("the first");
        let writing = thread::spawn(move || {
            write(&mut writer, 3, &AtomicU64::new(0));
            writer
        });
        let mut reader = bounded.reader();
        reader.catch_up();
        assert!(reader.joined() || reader.is_empty());
        is_right(&reader);
        let mut writer = writing.join().expect("it does not panic");
        writer.flush();
        reader.catch_up();
        assert!(reader.joined() && reader.version() == 3);
        is_right(&reader);
    });
}

/// A reader leaves while the writer writes, who forgets it.
#[test]
fn a_reader_leaves() {
    check(|| {
        let bounded = Bounded::<0, u64, u64>::new(2);
        let mut writer = bounded.writer().expect("the first");
        let reader = bounded.reader();
        let writing = thread::spawn(move || {
            write(&mut writer, 3, &AtomicU64::new(0));
            writer
        });
        drop(reader);
        let mut writer = writing.join().expect("it does not panic");
        writer.flush();
        assert_eq!(writer.readers(), 0);
    });
}
