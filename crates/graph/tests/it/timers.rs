//! Timers against a list that is searched, in simulated time.

use graph::{NoRoom, TimerId, Timers};
use proptest::prelude::*;
use std::collections::HashMap;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
enum Step {
    Once(u64),
    Every(u64, u64),
    Cancel(usize),
    Move(usize, u64),
    Advance(u64),
    AdvanceSome(u64, usize),
    /// Back in time.
    Back(u64),
}

/// Any length from nothing to hours, in nanoseconds; short ones as often as long ones.
fn span() -> impl Strategy<Value = u64> {
    (0..45u32, any::<u64>()).prop_map(|(bits, n)| n & ((1 << bits) - 1))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => span().prop_map(Step::Once),
        10 => (span(), span()).prop_map(|(first, period)| Step::Every(first, period)),
        10 => any::<usize>().prop_map(Step::Cancel),
        5 => (any::<usize>(), span()).prop_map(|(n, at)| Step::Move(n, at)),
        15 => span().prop_map(Step::Advance),
        15 => (span(), 0..8usize).prop_map(|(by, steps)| Step::AdvanceSome(by, steps)),
        1 => span().prop_map(Step::Back),
    ]
}

/// What a timer of the model is to do.
#[derive(Clone, Copy, Debug)]
struct Planned {
    at: u128,
    tick: u128,
    period: u128,
}

/// What to do with the timers of some values when they fire.
fn again(value: u32, at: u128) -> Option<u128> {
    match value % 7 {
        // now, which is the next tick
        0 => Some(at),
        1 => Some(at + 12_345_678),
        _ => None,
    }
}

fn run(tick: u64, capacity: usize, steps: &[Step]) -> Result<(), TestCaseError> {
    let tick = u128::from(tick);
    let mut timers: Timers<u32> = Timers::new(Duration::from_nanos(tick as u64), capacity);
    let mut model: HashMap<TimerId, (u32, Planned)> = HashMap::new();
    let (mut known, mut values, mut refused): (Vec<TimerId>, u32, u64) = (vec![], 0, 0);
    let (mut now, mut latest) = (0u128, 0u128);
    for step in steps {
        match *step {
            Step::Once(_) | Step::Every(..) => {
                values += 1;
                let (first, period, result) = match *step {
                    Step::Every(first, period) => {
                        let at = now + u128::from(first);
                        let every = Duration::from_nanos(period);
                        let period = if period == 0 { tick } else { period.into() };
                        (at, period, timers.every(Duration::from_nanos(at as u64), every, values))
                    }
                    Step::Once(after) => {
                        let at = now + u128::from(after);
                        (at, 0, timers.once(Duration::from_nanos(at as u64), values))
                    }
                    _ => unreachable!("one of the two"),
                };
                if model.len() == capacity {
                    prop_assert_eq!(result, Err(NoRoom { capacity, value: values }));
                    refused += 1;
                } else {
                    let id = result.expect("there is room");
                    prop_assert!(!known.contains(&id), "ids never come again");
                    known.push(id);
                    model.insert(id, (values, Planned { at: first, tick: first.div_ceil(tick).max(latest), period }));
                }
            }
            Step::Cancel(n) if !known.is_empty() => {
                let id = known[n % known.len()];
                prop_assert_eq!(timers.cancel(id), model.remove(&id).map(|(value, _)| value));
            }
            Step::Move(n, after) if !known.is_empty() => {
                let id = known[n % known.len()];
                let at = now + u128::from(after);
                prop_assert_eq!(timers.move_to(id, Duration::from_nanos(at as u64)), model.contains_key(&id));
                if let Some((_, planned)) = model.get_mut(&id) {
                    (planned.at, planned.tick) = (at, at.div_ceil(tick).max(latest));
                }
            }
            Step::Cancel(_) | Step::Move(..) => {}
            Step::Advance(_) | Step::AdvanceSome(..) | Step::Back(_) => {
                let most = match *step {
                    Step::Advance(by) => {
                        now += u128::from(by);
                        usize::MAX
                    }
                    Step::AdvanceSome(by, steps) => {
                        now += u128::from(by);
                        steps
                    }
                    Step::Back(by) => {
                        now = now.saturating_sub(by.into());
                        usize::MAX
                    }
                    _ => unreachable!("one of the three"),
                };
                latest = latest.max(now / tick);
                let mut fired = vec![];
                let done = timers.advance_some(Duration::from_nanos(now as u64), most, |timer| {
                    let put_off = again(*timer.value, latest * tick);
                    fired.push((timer.id, *timer.value, timer.at, timer.periods, put_off));
                    match put_off {
                        Some(at) => timer.again(Duration::from_nanos(at as u64)),
                        // some periodic ones end by themselves
                        None if timer.value.is_multiple_of(5) => timer.stop(),
                        None => {}
                    }
                });
                prop_assert!(fired.len() <= most);
                let mut last = 0;
                for (id, value, at, periods, put_off) in fired {
                    let Some((planned_value, planned)) = model.remove(&id) else {
                        return Err(TestCaseError::fail(format!("{value} fires, but there is no such timer")));
                    };
                    prop_assert_eq!((value, at.as_nanos()), (planned_value, planned.at));
                    prop_assert!(planned.tick <= latest && planned.at <= latest * tick, "early");
                    prop_assert!(planned.tick >= last, "out of order");
                    last = planned.tick;
                    let due = 1 + (latest * tick - planned.at).checked_div(planned.period).unwrap_or(0);
                    prop_assert_eq!(u128::from(periods), due);
                    let next = match put_off {
                        Some(at) => Some(at),
                        None if value.is_multiple_of(5) => None,
                        None => (planned.period != 0).then_some(planned.at + planned.period * due),
                    };
                    if let Some(at) = next {
                        let at = if at.div_ceil(tick) > latest { at } else { (latest + 1) * tick };
                        model.insert(id, (value, Planned { at, tick: at.div_ceil(tick), period: planned.period }));
                    }
                }
                let due = model.values().filter(|(_, planned)| planned.tick <= latest).count();
                if done {
                    prop_assert_eq!(due, 0, "all that is due has fired");
                } else {
                    prop_assert!(model.values().all(|(_, planned)| planned.tick >= last), "the rest is later");
                }
            }
        }
        prop_assert_eq!(timers.len(), model.len());
        prop_assert_eq!(timers.is_empty(), model.is_empty());
        prop_assert_eq!(timers.refused().get(), refused);
        for id in &known {
            let planned = model.get(id);
            prop_assert_eq!(timers.get(*id).copied(), planned.map(|(value, _)| *value));
            prop_assert_eq!(timers.at(*id).map(|at| at.as_nanos()), planned.map(|(_, planned)| planned.at));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn timers_fire_as_planned(
        tick in prop_oneof![Just(1u64), Just(7), Just(1000), Just(1_000_000), Just(1 << 30), 1..10_000_000u64],
        capacity in prop_oneof![0..3usize, 3..200usize],
        steps in prop::collection::vec(step(), 0..200),
    ) {
        run(tick, capacity, &steps)?;
    }
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_timer_fires_in_its_tick_and_not_before() {
    let mut timers = Timers::new(MS, 10);
    timers.once(Duration::from_micros(2500), "late in the third").expect("there is room");
    let mut fired = vec![];
    for micros in (0..10_000).step_by(100) {
        timers.advance(Duration::from_micros(micros), |timer| fired.push((micros, timer.at)));
    }
    assert_eq!(fired, [(3000, Duration::from_micros(2500))]);
}

#[test]
fn a_periodic_timer_does_not_drift_and_counts_what_it_missed() {
    let mut timers = Timers::new(MS, 10);
    let period = Duration::from_nanos(3_333_333);
    let id = timers.every(period, period, ()).expect("there is room");
    let (mut fired, mut periods) = (0, 0);
    for millis in 0..=10_000 {
        timers.advance(MS * millis, |timer| {
            assert_eq!(timer.at, period * (periods + 1));
            (fired, periods) = (fired + 1, periods + timer.periods as u32);
        });
    }
    assert_eq!((fired, periods), (3000, 3000));
    // an hour at once
    timers.advance(Duration::from_secs(3610), |timer| (fired, periods) = (fired + 1, periods + timer.periods as u32));
    assert_eq!((fired, periods), (3001, 1_083_000));
    assert_eq!(timers.at(id), Some(period * 1_083_001));
    assert_eq!(timers.cancel(id), Some(()));
    timers.advance(Duration::from_secs(7200), |_| panic!("it was cancelled"));
}

#[test]
fn work_is_bounded_when_asked_and_nothing_is_lost() {
    const TIMERS: u64 = 100_000;
    let mut timers = Timers::new(MS, TIMERS as usize);
    for n in 0..TIMERS {
        timers.once(MS * (n * 7919 % 50_000) as u32, n).expect("there is room");
    }
    let (mut fired, mut calls, mut last) = (vec![false; TIMERS as usize], 0, Duration::ZERO);
    loop {
        let mut now = 0;
        let done = timers.advance_some(Duration::from_secs(50), 100, |timer| {
            assert!(!std::mem::replace(&mut fired[*timer.value as usize], true), "once");
            assert!(timer.at >= last);
            (now, last) = (now + 1, timer.at);
        });
        (calls, now) = (calls + 1, now);
        assert!(now <= 100);
        if done {
            break;
        }
    }
    assert!(fired.iter().all(|fired| *fired));
    // each is brought nearer at most twice here: 50,000 ticks are three levels
    assert!((TIMERS / 100..=3 * TIMERS / 100 + 1).contains(&calls), "{calls} calls");
}

#[test]
fn a_timer_put_off_within_a_call_waits_for_the_next_tick() {
    let mut timers = Timers::new(MS, 1);
    let id = timers.once(MS, 0).expect("there is room");
    for now in 1..100 {
        for _ in 0..3 {
            timers.advance(MS * now, |timer| {
                *timer.value += 1;
                timer.again(Duration::ZERO);
            });
        }
        assert_eq!(timers.get(id), Some(&(now as i32)));
    }
    *timers.get_mut(id).expect("it goes on") = -1;
    timers.advance(MS * 200, |timer| assert_eq!((*timer.value, timer.id), (-1, id)));
    assert_eq!((timers.len(), timers.cancel(id)), (0, None));
}

#[test]
fn the_end_of_time_is_no_exception() {
    let mut timers = Timers::new(Duration::from_nanos(1), 3);
    timers.once(Duration::MAX, "never").expect("there is room");
    timers.every(Duration::ZERO, Duration::MAX, "once in all time").expect("there is room");
    timers.every(Duration::from_nanos(5), Duration::from_nanos(1), "always").expect("there is room");
    let mut fired = vec![];
    for now in [Duration::from_nanos(5), Duration::from_secs(1 << 36), Duration::MAX] {
        timers.advance(now, |timer| {
            fired.push((*timer.value, timer.periods));
            if timer.periods > 1 {
                timer.again(Duration::ZERO);
            }
        });
    }
    assert_eq!(fired, [("once in all time", 1), ("always", 1), ("always", u64::MAX - 6)]);
    assert_eq!(timers.len(), 3);
}

#[test]
fn a_panic_in_a_callback_loses_no_other_timer() {
    let mut timers = Timers::new(MS, 3);
    let ids = [1, 2, 3].map(|n| timers.once(MS * n, n).expect("there is room"));
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        timers.advance(MS * 5, |timer| assert_ne!(*timer.value, 2, "told to"));
    }));
    assert!(caught.is_err());
    let mut fired = vec![];
    timers.advance(MS * 5, |timer| fired.push(*timer.value));
    assert_eq!(fired, [3]);
    // what panicked is no longer scheduled, but still there
    assert_eq!((timers.cancel(ids[1]), timers.len()), (Some(2), 0));
}
