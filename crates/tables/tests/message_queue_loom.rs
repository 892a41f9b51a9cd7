//! Handing over under every interleaving and every reordering that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p bondstone-tables --test message_queue_loom`
#![allow(unexpected_cfgs, reason = "`cfg(loom)` is set by hand")]
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use std::sync::Arc;
use tables::message_queue::{self, Message, MessageList};

/// Number of values: not loom's type, so that counting takes no part in the interleavings.
type Alive = Arc<std::sync::atomic::AtomicU64>;

/// A value whose every access loom checks for races; and that it is dropped, once.
struct Watched(UnsafeCell<u64>, Alive);

// SAFETY: the cell is reached by the owner of the value alone; that this is so is what loom checks here.
unsafe impl Send for Watched {}

impl Watched {
    fn new(value: u64, alive: &Alive) -> Message<Watched> {
        alive.fetch_add(1, Ordering::Relaxed);
        Message::new(Watched(UnsafeCell::new(value), Arc::clone(alive)))
    }

    fn get(&self) -> u64 {
        // SAFETY: as above.
        self.0.with(|value| unsafe { *value })
    }

    fn set(&mut self, to: u64) {
        // SAFETY: as above.
        self.0.with_mut(|value| unsafe { *value = to });
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.set(u64::MAX);
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

fn numbers(messages: &mut MessageList<Watched>) -> Vec<u64> {
    messages.iter_mut().map(|value| value.get()).collect()
}

#[test]
fn pushed_and_taken() {
    loom::model(|| {
        let alive = Alive::default();
        let given = Arc::new(AtomicU64::new(0));
        let (mut sender, mut receiver) = message_queue::pair();
        let writer = {
            let (alive, given) = (alive.clone(), given.clone());
            thread::spawn(move || {
                for n in 1..=3 {
                    assert!(sender.push(Watched::new(n, &alive)).is_ok());
                    given.store(n, Ordering::Release);
                }
            })
        };
        let mut seen = 0;
        for _ in 0..2 {
            let least = given.load(Ordering::Acquire);
            let mut messages = receiver.take().reversed();
            for n in numbers(&mut messages) {
                assert_eq!(n, seen + 1);
                seen = n;
            }
            assert!(seen >= least);
        }
        writer.join().unwrap();
        let rest: Vec<u64> = receiver.take().reversed().map(|p| p.get()).collect();
        assert_eq!(rest, (seen + 1..=3).collect::<Vec<_>>());
        drop(receiver);
        assert_eq!(alive.load(Ordering::Relaxed), 0);
    });
}

/// A queue of two is replaced by a message that says it all: no look may miss what was given before it.
#[test]
fn replaced_without_a_gap() {
    loom::model(|| {
        let alive = Alive::default();
        let given = Arc::new(AtomicU64::new(0));
        let (mut sender, mut receiver) = message_queue::pair();
        let writer = {
            let (alive, given) = (alive.clone(), given.clone());
            thread::spawn(move || {
                let mut queue = 0;
                for n in 1..=4 {
                    let message = Watched::new(n, &alive);
                    if queue == 2 {
                        let old = sender.replace(message).map_err(drop).expect("the receiver is there");
                        assert!(numbers(&mut old.reversed()).is_sorted());
                        queue = 1;
                    } else {
                        queue = 1 + if sender.push(message).map_err(drop).expect("the receiver is there") {
                            queue
                        } else {
                            0
                        };
                    }
                    given.store(n, Ordering::Release);
                }
            })
        };
        let mut seen = 0;
        for _ in 0..2 {
            let least = given.load(Ordering::Acquire);
            for n in numbers(&mut receiver.take().reversed()) {
                assert!(n > seen);
                seen = n;
            }
            assert!(seen >= least, "{seen} of {least}");
        }
        writer.join().unwrap();
        if let Some(last) = receiver.take().reversed().last() {
            seen = last.get();
        }
        assert_eq!(seen, 4);
        drop(receiver);
        assert_eq!(alive.load(Ordering::Relaxed), 0);
    });
}

/// MessageList go round: the sender writes again into what the receiver has read.
#[test]
fn spent_parcels_come_back() {
    loom::model(|| {
        let alive = Alive::default();
        let (mut sender, mut receiver) = message_queue::pair();
        let (mut back, mut spent) = message_queue::pair::<Watched>();
        let writer = {
            let alive = alive.clone();
            thread::spawn(move || {
                let mut spare = MessageList::default();
                for n in 1..=3 {
                    if spare.is_empty() {
                        spare = spent.take();
                    }
                    let mut message = spare.next().unwrap_or_else(|| Watched::new(0, &alive));
                    message.set(n);
                    assert!(sender.push(message).is_ok());
                }
                (sender, spent)
            })
        };
        let mut seen = 0;
        for _ in 0..2 {
            let mut messages = receiver.take().reversed();
            for n in numbers(&mut messages) {
                assert_eq!(n, seen + 1);
                seen = n;
            }
            assert!(back.push_all(messages).is_ok());
        }
        drop(writer.join().unwrap());
        drop((receiver, back));
        assert_eq!(alive.load(Ordering::Relaxed), 0);
    });
}

/// The receiver leaves while the sender gives: whatever is not given back is dropped.
#[test]
fn a_taker_that_leaves_loses_nothing() {
    loom::model(|| {
        let alive = Alive::default();
        let (mut sender, mut receiver) = message_queue::pair();
        let reader = thread::spawn(move || {
            let taken = receiver.take().count();
            drop(receiver);
            taken
        });
        let first = sender.push(Watched::new(1, &alive)).is_ok();
        let second = sender.replace(Watched::new(2, &alive)).is_ok();
        let third = sender.push(Watched::new(3, &alive)).is_ok();
        assert!(first >= second && second >= third, "a receiver that has gone does not come back");
        reader.join().unwrap();
        assert_eq!(alive.load(Ordering::Relaxed), 0);
        assert!(sender.push(Watched::new(4, &alive)).is_err());
    });
}
