//! Timers compared with a simple model, in simulated time.

use graph::{TimerId, Timers, TimersFull};
use proptest::prelude::*;
use std::collections::HashMap;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
enum Step {
    Once(u64),
    Periodic(u64, u64),
    Cancel(usize),
    Reschedule(usize, u64),
    Advance(u64),
    AdvanceBounded(u64, usize),
    GoBack(u64),
}

/// A duration from 0 to hours in nanoseconds, uniform in its logarithm.
fn span() -> impl Strategy<Value = u64> {
    (0..45u32, any::<u64>()).prop_map(|(bits, n)| n & ((1 << bits) - 1))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => span().prop_map(Step::Once),
        10 => (span(), span()).prop_map(|(first, period)| Step::Periodic(first, period)),
        10 => any::<usize>().prop_map(Step::Cancel),
        5 => (any::<usize>(), span()).prop_map(|(n, at)| Step::Reschedule(n, at)),
        15 => span().prop_map(Step::Advance),
        15 => (span(), 0..8usize).prop_map(|(by, steps)| Step::AdvanceBounded(by, steps)),
        1 => span().prop_map(Step::GoBack),
    ]
}

/// A timer of the model.
#[derive(Clone, Copy, Debug)]
struct Planned {
    at: u128,
    tick: u128,
    period: u128,
}

/// New deadline of the timers of some values when they fire.
fn rescheduled(value: u32, at: u128) -> Option<u128> {
    match value % 7 {
        // now, which means the next tick
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
            Step::Once(_) | Step::Periodic(..) => {
                values += 1;
                let (first, period, result) = match *step {
                    Step::Periodic(first, period) => {
                        let at = now + u128::from(first);
                        let every = Duration::from_nanos(period);
                        let period = if period == 0 { tick } else { period.into() };
                        (at, period, timers.schedule_periodic(Duration::from_nanos(at as u64), every, values))
                    }
                    Step::Once(after) => {
                        let at = now + u128::from(after);
                        (at, 0, timers.schedule_once(Duration::from_nanos(at as u64), values))
                    }
                    _ => unreachable!("one of the two"),
                };
                if model.len() == capacity {
                    prop_assert_eq!(result, Err(TimersFull { capacity, value: values }));
                    refused += 1;
                } else {
                    let id = result.expect("not full");
                    prop_assert!(!known.contains(&id), "ids are never reused");
                    known.push(id);
                    model.insert(id, (values, Planned { at: first, tick: first.div_ceil(tick).max(latest), period }));
                }
            }
            Step::Cancel(n) if !known.is_empty() => {
                let id = known[n % known.len()];
                prop_assert_eq!(timers.cancel(id), model.remove(&id).map(|(value, _)| value));
            }
            Step::Reschedule(n, after) if !known.is_empty() => {
                let id = known[n % known.len()];
                let at = now + u128::from(after);
                prop_assert_eq!(timers.reschedule(id, Duration::from_nanos(at as u64)), model.contains_key(&id));
                if let Some((_, planned)) = model.get_mut(&id) {
                    (planned.at, planned.tick) = (at, at.div_ceil(tick).max(latest));
                }
            }
            Step::Cancel(_) | Step::Reschedule(..) => {}
            Step::Advance(_) | Step::AdvanceBounded(..) | Step::GoBack(_) => {
                let max_steps = match *step {
                    Step::Advance(by) => {
                        now += u128::from(by);
                        usize::MAX
                    }
                    Step::AdvanceBounded(by, steps) => {
                        now += u128::from(by);
                        steps
                    }
                    Step::GoBack(by) => {
                        now = now.saturating_sub(by.into());
                        usize::MAX
                    }
                    _ => unreachable!("one of the three"),
                };
                latest = latest.max(now / tick);
                let mut fired = vec![];
                let done = timers.advance_bounded(Duration::from_nanos(now as u64), max_steps, |timer| {
                    let new_deadline = rescheduled(*timer.value, latest * tick);
                    fired.push((timer.id, *timer.value, timer.deadline, timer.periods, new_deadline));
                    match new_deadline {
                        Some(at) => timer.reschedule(Duration::from_nanos(at as u64)),
                        // some periodic timers are cancelled
                        None if timer.value.is_multiple_of(5) => timer.cancel(),
                        None => {}
                    }
                });
                prop_assert!(fired.len() <= max_steps);
                let mut last = 0;
                for (id, value, at, periods, new_deadline) in fired {
                    let Some((planned_value, planned)) = model.remove(&id) else {
                        return Err(TestCaseError::fail(format!("{value} fired without a timer")));
                    };
                    prop_assert_eq!((value, at.as_nanos()), (planned_value, planned.at));
                    prop_assert!(planned.tick <= latest && planned.at <= latest * tick, "early");
                    prop_assert!(planned.tick >= last, "out of order");
                    last = planned.tick;
                    let due = 1 + (latest * tick - planned.at).checked_div(planned.period).unwrap_or(0);
                    prop_assert_eq!(u128::from(periods), due);
                    let next = match new_deadline {
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
                    prop_assert_eq!(due, 0, "all due timers have fired");
                } else {
                    prop_assert!(model.values().all(|(_, planned)| planned.tick >= last), "the others are later");
                }
            }
        }
        prop_assert_eq!(timers.len(), model.len());
        prop_assert_eq!(timers.is_empty(), model.is_empty());
        prop_assert_eq!(timers.refused().get(), refused);
        for id in &known {
            let planned = model.get(id);
            prop_assert_eq!(timers.get(*id).copied(), planned.map(|(value, _)| *value));
            prop_assert_eq!(timers.deadline(*id).map(|at| at.as_nanos()), planned.map(|(_, planned)| planned.at));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn timers_match_model(
        tick in prop_oneof![Just(1u64), Just(7), Just(1000), Just(1_000_000), Just(1 << 30), 1..10_000_000u64],
        capacity in prop_oneof![0..3usize, 3..200usize],
        steps in prop::collection::vec(step(), 0..200),
    ) {
        run(tick, capacity, &steps)?;
    }
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn fires_at_the_end_of_the_tick() {
    let mut timers = Timers::new(MS, 10);
    timers.schedule_once(Duration::from_micros(2500), "in the third tick").expect("not full");
    let mut fired = vec![];
    for micros in (0..10_000).step_by(100) {
        timers.advance(Duration::from_micros(micros), |timer| fired.push((micros, timer.deadline)));
    }
    assert_eq!(fired, [(3000, Duration::from_micros(2500))]);
}

#[test]
fn periodic_timers_do_not_drift_and_count_missed_periods() {
    let mut timers = Timers::new(MS, 10);
    let period = Duration::from_nanos(3_333_333);
    let id = timers.schedule_periodic(period, period, ()).expect("not full");
    let (mut fired, mut periods) = (0, 0);
    for millis in 0..=10_000 {
        timers.advance(MS * millis, |timer| {
            assert_eq!(timer.deadline, period * (periods + 1));
            (fired, periods) = (fired + 1, periods + timer.periods as u32);
        });
    }
    assert_eq!((fired, periods), (3000, 3000));
    // a jump of an hour
    timers.advance(Duration::from_secs(3610), |timer| (fired, periods) = (fired + 1, periods + timer.periods as u32));
    assert_eq!((fired, periods), (3001, 1_083_000));
    assert_eq!(timers.deadline(id), Some(period * 1_083_001));
    assert_eq!(timers.cancel(id), Some(()));
    timers.advance(Duration::from_secs(7200), |_| panic!("cancelled"));
}

#[test]
fn advance_bounded_limits_the_steps_and_loses_no_timer() {
    const TIMERS: u64 = 100_000;
    let mut timers = Timers::new(MS, TIMERS as usize);
    for n in 0..TIMERS {
        timers.schedule_once(MS * (n * 7919 % 50_000) as u32, n).expect("not full");
    }
    let (mut fired, mut calls, mut last) = (vec![false; TIMERS as usize], 0, Duration::ZERO);
    loop {
        let mut now = 0;
        let done = timers.advance_bounded(Duration::from_secs(50), 100, |timer| {
            assert!(!std::mem::replace(&mut fired[*timer.value as usize], true), "once");
            assert!(timer.deadline >= last);
            (now, last) = (now + 1, timer.deadline);
        });
        (calls, now) = (calls + 1, now);
        assert!(now <= 100);
        if done {
            break;
        }
    }
    assert!(fired.iter().all(|fired| *fired));
    // each cascades at max_steps twice: 50,000 ticks take three levels
    assert!((TIMERS / 100..=3 * TIMERS / 100 + 1).contains(&calls), "{calls} calls");
}

#[test]
fn a_rescheduled_timer_fires_in_the_next_tick_at_the_earliest() {
    let mut timers = Timers::new(MS, 1);
    let id = timers.schedule_once(MS, 0).expect("not full");
    for now in 1..100 {
        for _ in 0..3 {
            timers.advance(MS * now, |timer| {
                *timer.value += 1;
                timer.reschedule(Duration::ZERO);
            });
        }
        assert_eq!(timers.get(id), Some(&(now as i32)));
    }
    *timers.get_mut(id).expect("still scheduled") = -1;
    timers.advance(MS * 200, |timer| assert_eq!((*timer.value, timer.id), (-1, id)));
    assert_eq!((timers.len(), timers.cancel(id)), (0, None));
}

#[test]
fn works_at_the_end_of_the_time_range() {
    let mut timers = Timers::new(Duration::from_nanos(1), 3);
    timers.schedule_once(Duration::MAX, "never").expect("not full");
    timers.schedule_periodic(Duration::ZERO, Duration::MAX, "once").expect("not full");
    timers.schedule_periodic(Duration::from_nanos(5), Duration::from_nanos(1), "always").expect("not full");
    let mut fired = vec![];
    for now in [Duration::from_nanos(5), Duration::from_secs(1 << 36), Duration::MAX] {
        timers.advance(now, |timer| {
            fired.push((*timer.value, timer.periods));
            if timer.periods > 1 {
                timer.reschedule(Duration::ZERO);
            }
        });
    }
    assert_eq!(fired, [("once", 1), ("always", 1), ("always", u64::MAX - 6)]);
    assert_eq!(timers.len(), 3);
}

#[test]
fn a_panic_in_a_callback_keeps_the_other_timers() {
    let mut timers = Timers::new(MS, 3);
    let ids = [1, 2, 3].map(|n| timers.schedule_once(MS * n, n).expect("not full"));
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        timers.advance(MS * 5, |timer| assert_ne!(*timer.value, 2, "on purpose"));
    }));
    assert!(caught.is_err());
    let mut fired = vec![];
    timers.advance(MS * 5, |timer| fired.push(*timer.value));
    assert_eq!(fired, [3]);
    // the timer of the panic is no longer scheduled but exists
    assert_eq!((timers.cancel(ids[1]), timers.len()), (Some(2), 0));
}
