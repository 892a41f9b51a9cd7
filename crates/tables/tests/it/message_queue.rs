//! Handing over: every interleaving in one thread against two lists, and two threads at once.

use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tables::message_queue::{self, Message, MessageList, Receiver, Sender};

#[derive(Clone, Copy, Debug)]
enum Step {
    Push,
    PushAll(usize),
    Replace,
    Take,
    GiveBack,
    Leave,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        40 => Just(Step::Push),
        20 => (0..5usize).prop_map(Step::PushAll),
        10 => Just(Step::Replace),
        30 => Just(Step::Take),
        20 => Just(Step::GiveBack),
        1 => Just(Step::Leave),
    ]
}

/// Counts how many of its kind there are.
struct Counted(u64, Arc<AtomicU64>);

impl Counted {
    fn new(number: u64, alive: &Arc<AtomicU64>) -> Self {
        alive.fetch_add(1, Ordering::Relaxed);
        Counted(number, Arc::clone(alive))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

proptest! {
    #[test]
    fn what_is_given_is_taken_once_in_order(steps in prop::collection::vec(step(), 0..200)) {
        let alive = Arc::new(AtomicU64::new(0));
        let (mut sender, receiver): (Sender<Counted>, Receiver<Counted>) = message_queue::pair();
        let (mut back, mut home) = message_queue::pair();
        let mut receiver = Some(receiver);
        let mut waiting: Vec<u64> = vec![];
        let mut hand = MessageList::default();
        let mut number = 0;
        let mut fresh = || { number += 1; (number, Message::new(Counted::new(number, &alive))) };
        for step in steps {
            match step {
                Step::Push => {
                    let (number, message) = fresh();
                    match sender.push(message) {
                        Ok(others) => {
                            prop_assert_eq!(others, !waiting.is_empty());
                            waiting.push(number);
                        }
                        Err(message) => prop_assert!(receiver.is_none() && message.0 == number),
                    }
                }
                Step::PushAll(n) => {
                    // the front of a list goes on top, and what is on top was given last
                    let mut list = MessageList::default();
                    let numbers: Vec<u64> = (0..n).map(|_| { let (n, message) = fresh(); list.push(message); n }).collect();
                    match sender.push_all(list) {
                        Ok(others) => {
                            prop_assert_eq!(others, !waiting.is_empty());
                            waiting.extend(numbers);
                        }
                        Err(mut list) => {
                            prop_assert!(receiver.is_none());
                            prop_assert_eq!(list.iter_mut().map(|p| p.0).collect::<Vec<_>>(), numbers.into_iter().rev().collect::<Vec<_>>());
                        }
                    }
                }
                Step::Replace => {
                    let (number, message) = fresh();
                    match sender.replace(message) {
                        Ok(old) => {
                            prop_assert_eq!(old.reversed().map(|p| p.0).collect::<Vec<_>>(), core::mem::take(&mut waiting));
                            waiting.push(number);
                        }
                        Err(message) => prop_assert!(receiver.is_none() && message.0 == number),
                    }
                }
                Step::Take => if let Some(receiver) = &mut receiver {
                    prop_assert_eq!(receiver.is_waiting(), !waiting.is_empty());
                    let mut messages = receiver.take().reversed();
                    prop_assert_eq!(messages.is_empty(), waiting.is_empty());
                    prop_assert_eq!(messages.iter_mut().map(|p| p.0).collect::<Vec<_>>(), waiting.clone());
                    waiting.clear();
                    for message in messages {
                        hand.push(message);
                    }
                    prop_assert!(!receiver.is_waiting());
                },
                Step::GiveBack => {
                    // newest first in hand, so newest on top
                    let count = hand.iter_mut().count();
                    prop_assert!(back.push_all(core::mem::take(&mut hand)).is_ok());
                    let returned: Vec<u64> = home.take().reversed().map(|p| p.0).collect();
                    prop_assert_eq!(returned.len(), count);
                    prop_assert!(returned.is_sorted());
                }
                Step::Leave => {
                    receiver = None;
                    waiting.clear();
                }
            }
            prop_assert_eq!(sender.is_open(), receiver.is_some());
            let held = hand.iter_mut().count();
            prop_assert_eq!(alive.load(Ordering::Relaxed), (waiting.len() + held) as u64);
        }
        drop((sender, receiver, back, home, hand));
        prop_assert_eq!(alive.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn two_threads_lose_nothing_and_never_see_a_gap() {
    const LAST: u64 = 200_000;
    const PILE: u64 = 64;
    let (mut sender, mut receiver) = message_queue::pair::<(u64, Vec<u64>)>();
    let (mut back, mut spent) = message_queue::pair();
    // what was given for certain, before the receiver looks
    let given = AtomicU64::new(0);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let (mut queue, mut spare) = (0, MessageList::default());
            for n in 1..=LAST {
                if spare.is_empty() {
                    spare = spent.take();
                }
                let mut message = spare.next().unwrap_or_else(|| Message::new((0, vec![])));
                message.1.clear();
                if queue >= PILE {
                    // one that says it all
                    *message = (1, vec![n; 8]);
                    let old = sender.replace(message).expect("the receiver is there");
                    assert!(old.reversed().map(|p| p.1[0]).is_sorted(), "oldest first");
                    queue = 1;
                } else {
                    message.0 = 0;
                    message.1.resize(8, n);
                    let others = sender.push(message).expect("the receiver is there");
                    queue = if others { queue + 1 } else { 1 };
                }
                given.store(n, Ordering::Release);
            }
        });
        let (mut seen, mut most) = (0, 0);
        while seen < LAST {
            let at_least = given.load(Ordering::Acquire);
            let mut messages = receiver.take().reversed();
            let mut count = 0;
            for (all, numbers) in messages.iter_mut() {
                assert!(numbers.iter().all(|&n| n == numbers[0]), "whole");
                assert!(*all == 1 && count == 0 || numbers[0] == seen + 1, "no gap: {} behind {seen}", numbers[0]);
                (seen, count) = (numbers[0], count + 1);
            }
            most = most.max(count);
            assert!(seen >= at_least, "{seen} of {at_least}");
            assert!(back.push_all(messages).is_ok());
        }
        assert!(most <= PILE, "a queue is bounded: {most}");
    });
}

#[test]
fn a_side_that_leaves_takes_the_rest_with_it() {
    let alive = Arc::new(AtomicU64::new(0));
    let message = |n| Message::new(Counted::new(n, &alive));
    let (mut sender, receiver) = message_queue::pair();
    assert_eq!(sender.push(message(1)).ok(), Some(false));
    assert_eq!(sender.push(message(2)).ok(), Some(true));
    drop(receiver);
    assert_eq!(alive.load(Ordering::Relaxed), 0);
    assert_eq!(sender.replace(message(3)).err().map(|p| p.0), Some(3));
    assert_eq!(sender.push(message(4)).err().map(|p| p.into_inner().0), Some(4));

    let (mut sender, mut receiver) = message_queue::pair();
    assert!(sender.push(message(5)).is_ok());
    drop(sender);
    assert_eq!(receiver.take().map(|p| p.0).collect::<Vec<_>>(), [5]);
    assert!(!receiver.is_waiting());
    assert_eq!(alive.load(Ordering::Relaxed), 0);
}

#[test]
fn a_million_waiting_are_dropped_without_recursion() {
    let (mut sender, receiver) = message_queue::pair();
    (0..1_000_000).for_each(|n| assert!(sender.push(Message::new(n)).is_ok()));
    drop(receiver);
    let (mut sender, _taker) = message_queue::pair();
    (0..1_000_000).for_each(|n| assert!(sender.push(Message::new(n)).is_ok()));
    drop(sender.replace(Message::new(0)));
}
