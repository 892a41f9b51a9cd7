use proptest::prelude::*;

use super::*;

const NS: u64 = 1_000_000_000;
const LINE_RATE: f64 = 14_880_952.38;

/// Runs a schedule on a clock that `step` moves on: it is told how many packets were sent and returns ticks passed.
fn run(pace: Pace, start: u64, mut step: impl FnMut(u64, usize) -> u64) -> (Pacer, Vec<(u64, usize)>, u64) {
    let mut pacer = Pacer::new(pace, start).unwrap();
    let (mut now, mut departures) = (0, Vec::new());
    while !pacer.is_finished() {
        let due = pacer.due(now);
        assert!(due <= pace.batch);
        if due > 0 {
            pacer.sent(due, now);
            departures.push((now, due));
        }
        now += step(now, due).max(1);
    }
    let totals = pacer.totals();
    assert_eq!(totals.sent + totals.unsent, totals.intended);
    assert_eq!(totals.sent, pacer.lateness().count());
    assert_eq!(totals.sent, departures.iter().map(|(_, count)| *count as u64).sum::<u64>());
    (pacer, departures, now)
}

#[test]
fn a_steady_generator_sends_all_on_time() {
    let (pacer, departures, end) = run(Pace::new(LINE_RATE, 0.01, NS), 1_000_000, |_, _| 50);
    assert_eq!(pacer.totals(), Totals { intended: 148_809, sent: 148_809, unsent: 0 });
    assert!(pacer.lateness().max_ns() <= Some(50));
    assert!(departures.iter().all(|(_, count)| *count <= 8));
    assert!(departures[0].0 >= 1_000_000 && end <= 11_000_100);
    assert_eq!(pacer.poll_gap_max_ns(), 50);
    assert_eq!(pacer.next_due(), None);
}

#[test]
fn slow_rates_send_single_packets_on_their_tick() {
    let (pacer, departures, _) = run(Pace::new(1000.0, 0.1, NS), 0, |_, _| 1000);
    assert_eq!(pacer.totals().sent, 100);
    assert!(departures.iter().enumerate().all(|(k, departure)| *departure == (k as u64 * 1_000_000, 1)));
}

#[test]
fn nobody_leaves_more_than_a_microsecond_early() {
    for rate in [0.9e6, 1e6, 3e6, 7.3e6, 100e6] {
        let (pacer, departures, _) = run(Pace::new(rate, 0.001, NS), 0, |_, _| 7);
        assert_eq!(pacer.totals().unsent, 0, "{rate}");
        let mut k = 0;
        for (at, count) in departures {
            let last_due = (k + count as u64 - 1) as f64 / rate * 1e9;
            assert!(last_due - at as f64 <= 1002.0, "{rate}: {at} {last_due}");
            k += count as u64;
        }
    }
}

#[test]
fn a_pause_of_8_ms_is_not_made_up_for() {
    let stall = |now: u64, _: usize| if (1_000_000..1_000_100).contains(&now) { 8_000_000 } else { 100 };
    let (pacer, departures, end) = run(Pace::new(LINE_RATE, 0.02, NS), 0, stall);
    let missed = (LINE_RATE * 0.008) as u64;
    let unsent = pacer.totals().unsent;
    assert!((missed - 512 - 8..=missed - 512 + 8).contains(&unsent), "{unsent} of {missed}");
    // Packets due after the pause leave on time, behind one burst of arrears.
    let after: u64 = departures.iter().filter(|(at, _)| *at > 8_999_000).map(|(_, count)| *count as u64).sum();
    assert!(after.abs_diff((LINE_RATE * 0.011) as u64) <= 512 + 32, "{after}");
    let burst: usize = departures.iter().filter(|(at, _)| (9_000_000..9_010_000).contains(at)).map(|(_, n)| n).sum();
    assert!(burst <= 512 + 160, "{burst} packets in 10 µs");
    assert!(pacer.lateness().max_ns() <= Some(100_100));
    assert!(end < 20_100_000);
    assert!(pacer.poll_gap_max_ns() >= 8_000_000);
    assert!(pacer.poll_gap_max_ns() > pacer.gap_limit_ns());
}

#[test]
fn pauses_below_the_limit_lose_nothing() {
    let pace = Pace::new(LINE_RATE, 0.02, NS);
    let limit = Pacer::new(pace, 0).unwrap().gap_limit_ns();
    assert_eq!(limit, 34_406, "512 packets");
    let stall = |now: u64, _: usize| if now % 1_000_000 < 100 { limit - 200 } else { 100 };
    assert_eq!(run(pace, 0, stall).0.totals().unsent, 0);
    let stall = |now: u64, _: usize| if now % 1_000_000 < 100 { limit + 1_000 } else { 100 };
    assert!(run(pace, 0, stall).0.totals().unsent > 0);
    // At a low rate the time decides.
    assert_eq!(Pacer::new(Pace::new(1e6, 1.0, NS), 0).unwrap().gap_limit_ns(), 100_000);
}

#[test]
fn a_generator_that_is_too_slow_says_so_and_stops_in_time() {
    // 10 Mpps wanted, 100 ns a packet and 25 ns a poll: it manages 8 to 9.8 Mpps.
    let (pacer, _, end) = run(Pace::new(10e6, 0.01, NS), 0, |_, sent| 25 + 102 * sent as u64);
    let totals = pacer.totals();
    assert!((80_000..98_000).contains(&totals.sent), "{totals:?}");
    assert!(end < 10_110_000, "{end}");
    // All packets are late then, and none later than the limit and one batch.
    assert!(pacer.lateness().quantile_ns(0.5) > Some(30_000));
    assert!(pacer.lateness().max_ns() <= Some(104_000));
}

#[test]
fn a_full_ring_makes_packets_late_then_unsent() {
    // The port takes only 2 of every burst.
    let mut pacer = Pacer::new(Pace::new(1e6, 0.01, NS), 0).unwrap();
    let mut now = 0;
    while !pacer.is_finished() {
        let due = pacer.due(now);
        pacer.sent(due.min(2), now);
        now += 4_000;
    }
    let totals = pacer.totals();
    assert!(totals.sent.abs_diff(5_050) < 60, "{totals:?}");
    assert_eq!(totals.sent + totals.unsent, 10_000);
}

#[test]
fn stopped_by_hand() {
    let mut pacer = Pacer::new(Pace::new(1e6, 1.0, NS), 0).unwrap();
    let due = pacer.due(0);
    pacer.sent(due, 0);
    pacer.stop();
    assert!(pacer.is_finished());
    assert_eq!(pacer.totals(), Totals { intended: 1_000_000, sent: due as u64, unsent: 1_000_000 - due as u64 });
    assert_eq!((pacer.due(5_000_000), pacer.next_due()), (0, None));
    pacer.sent(5, 5_000_000);
    assert_eq!(pacer.totals().sent, due as u64);
}

#[test]
fn an_hour_does_not_drift() {
    let hz = 2_693_012_345;
    let mut pacer = Pacer::new(Pace { catch_up: u64::MAX, ..Pace::new(123_456.789, 3600.0, hz) }, 77).unwrap();
    pacer.skip(444_444_440 - 1);
    let expected = 77.0 + 444_444_439.0 / 123_456.789 * hz as f64;
    let due = pacer.next_due().unwrap() as f64;
    assert!((due - expected).abs() < 2.0, "{due} {expected}");
    assert!(pacer.due_by(due as u64 - 77).abs_diff(444_444_440) <= 1);
}

#[test]
fn refusals() {
    let bad = |change: fn(&mut Pace)| {
        let mut pace = Pace::new(1e6, 1.0, NS);
        change(&mut pace);
        Pacer::new(pace, 0).map(|_| ()).unwrap_err()
    };
    assert!(matches!(bad(|pace| pace.rate_pps = 0.0), PaceError::Rate(_)));
    assert!(matches!(bad(|pace| pace.rate_pps = f64::NAN), PaceError::Rate(_)));
    assert!(matches!(bad(|pace| pace.rate_pps = 201e6), PaceError::Rate(_)));
    assert!(matches!(bad(|pace| pace.duration_s = f64::INFINITY), PaceError::Duration { .. }));
    assert!(matches!(bad(|pace| pace.duration_s = 1e-7), PaceError::Duration { .. }));
    assert!(matches!(bad(|pace| pace.ticks_hz = 1000), PaceError::Clock { .. }));
    assert!(matches!(bad(|pace| pace.ticks_hz = 1_000_000), PaceError::Clock { .. }));
    assert!(matches!(bad(|pace| pace.burst = 0), PaceError::Burst { .. }));
    assert!(matches!(bad(|pace| pace.batch = 4), PaceError::Burst { .. }));
    assert!(matches!(bad(|pace| pace.catch_up = 7), PaceError::Burst { .. }));
}

proptest! {
    #[test]
    fn the_books_balance_whatever_the_clock_does(
        rate in 1.0..200e6_f64, micros in 1_u32..3000, steps in prop::collection::vec(1_u64..2_000_000, 1..60),
        takes in prop::collection::vec(0_usize..40, 1..20), start in 0_u64..1 << 40,
    ) {
        let pace = Pace::new(rate, f64::from(micros) * 1e-6, NS);
        prop_assume!(rate * pace.duration_s >= 1.0);
        let mut pacer = Pacer::new(pace, start).unwrap();
        let (mut now, mut round) = (start, 0);
        while !pacer.is_finished() {
            let due = pacer.due(now);
            let take = due.min(takes[round % takes.len()]);
            pacer.sent(take, now);
            let totals = pacer.totals();
            prop_assert!(totals.sent + totals.unsent <= totals.intended);
            // Never ahead of the schedule by more than a burst.
            let ideal = (now - start) as f64 / 1e9 * rate + 1.0;
            prop_assert!((totals.sent + totals.unsent) as f64 <= ideal + 8.0);
            now += steps[round % steps.len()].min(if round > 5000 { u64::MAX } else { 20_000 });
            round += 1;
            prop_assert!(round < 2_000_000);
        }
        prop_assert!(now <= start + (pace.duration_s * 1e9) as u64 + 100_000 + 2_040_000 + (1e9 / rate) as u64);
        prop_assert!(pacer.lateness().max_ns().unwrap_or(0) <= 100_200);
    }
}

/// Runs a schedule of a list on a clock with steps of `step`; returns when how many packets left.
fn follow(departures: Departures, pace: Pace, mut step: impl FnMut(u64) -> u64) -> (Pacer, Vec<(u64, usize)>) {
    let mut pacer = Pacer::follow(departures, pace, 0).unwrap();
    let (mut now, mut left) = (0, Vec::new());
    while !pacer.is_finished() {
        let due = pacer.due(now);
        assert!(due <= pace.batch);
        if due > 0 {
            pacer.sent(due, now);
            left.push((now, due));
        }
        now += step(now).max(1);
    }
    let totals = pacer.totals();
    assert_eq!(totals.sent + totals.unsent, totals.intended);
    assert_eq!(totals.sent, pacer.lateness().count());
    (pacer, left)
}

#[test]
fn a_captures_gaps_are_kept() {
    let departures = Departures::looped(&[0, 3_000, 100_000, 100_200], 250_000, 1.0).unwrap();
    let (pacer, left) = follow(departures, Pace::new(1.0, 0.001, NS), |_| 100);
    assert_eq!(pacer.totals(), Totals { intended: 16, sent: 16, unsent: 0 });
    let expected = (0..4).flat_map(|round| [(0, 1), (3_000, 1), (100_000, 2)].map(|(at, n)| (round * 250_000 + at, n)));
    assert_eq!(left, expected.collect::<Vec<_>>());
    assert_eq!(pacer.lateness().max_ns(), Some(0));
}

#[test]
fn a_capture_may_begin_later_than_another_and_all_of_it_be_put_off() {
    let departures = Departures::looped(&[40_000, 90_000], 100_000, 2.0).unwrap();
    let mut pacer = Pacer::follow(departures, Pace::new(1.0, 1e-4, NS), 0).unwrap();
    assert_eq!(pacer.totals().intended, 4);
    pacer.put_off(5_000);
    assert_eq!((pacer.next_due(), pacer.due(24_999), pacer.due(25_000)), (Some(25_000), 0, 1));
    assert!(pacer.poll_gap_max_ns() <= 20_000, "the time before the start is no gap");
    let mut even = Pacer::new(Pace::new(1e6, 1e-3, NS), 7).unwrap();
    even.put_off(100);
    assert_eq!((even.due(106), even.due(107)), (0, 2));
}

#[test]
fn what_a_pause_misses_of_a_capture_stays_unsent() {
    let at: Vec<u64> = (0..1000).map(|n| n * 1_000).collect();
    let departures = Departures::looped(&at, 1_000_000, 1.0).unwrap();
    let mut away = true;
    let (pacer, _) = follow(departures, Pace::new(1.0, 0.001, NS), |now| {
        if now > 300_000 && std::mem::take(&mut away) { 250_000 } else { 100 }
    });
    // 250 fell due meanwhile; those of the last 100 µs were sent late.
    assert!((145..=152).contains(&pacer.totals().unsent), "{:?}", pacer.totals());
    assert!(pacer.lateness().max_ns() <= Some(100_100));
}

#[test]
fn a_schedule_can_be_fed() {
    let mut pacer = Pacer::follow(Departures::fed(0.5).unwrap(), Pace::new(1.0, 0.001, NS), 1_000).unwrap();
    assert_eq!((pacer.due(5_000), pacer.next_due(), pacer.is_finished()), (0, None, false));
    assert!(pacer.feed(5_000) && pacer.feed(5_100) && pacer.feed(20_000));
    assert_eq!((pacer.totals().intended, pacer.next_due()), (3, Some(11_000)));
    assert_eq!((pacer.due(10_999), pacer.due(11_000)), (0, 2));
    pacer.sent(2, 11_000);
    assert_eq!(pacer.next_due(), Some(41_000));
    assert!(pacer.feed(30_000), "once more");
    // Told too late: 60 µs of half the speed are 120.
    assert_eq!(pacer.due(300_000), 0);
    assert_eq!(pacer.totals(), Totals { intended: 4, sent: 2, unsent: 2 });
    assert!(!pacer.feed(600_000), "behind the end");
    assert!(pacer.is_finished() && !pacer.feed(31_000));
    let mut pacer = Pacer::follow(Departures::fed(1.0).unwrap(), Pace::new(1.0, 1.0, NS), 0).unwrap();
    assert!(pacer.feed(0) && !pacer.is_finished());
    pacer.stop();
    assert_eq!((pacer.totals(), pacer.is_finished()), (Totals { intended: 1, sent: 0, unsent: 1 }, true));
    let mut full = Pacer::follow(Departures::fed(1.0).unwrap(), Pace::new(1.0, 1.0, NS), 0).unwrap();
    assert_eq!((0..2 * crate::departures::MAX_AHEAD).filter(|_| full.feed(1)).count(), crate::departures::MAX_AHEAD);
}

#[test]
fn departures_have_to_make_sense() {
    for (at, period, speed) in
        [(&[][..], 5, 1.0), (&[0, 3, 2], 5, 1.0), (&[0, 5], 5, 1.0), (&[0], 5, 0.0), (&[0], 5, f64::NAN)]
    {
        assert!(matches!(Departures::looped(at, period, speed), Err(PaceError::Departures { .. })), "{at:?}");
    }
    assert!(Departures::fed(1e13).is_err());
    let dense = Departures::looped(&[0; 300], 1_000, 1.0).unwrap();
    assert!(matches!(Pacer::follow(dense, Pace::new(1.0, 1.0, NS), 0), Err(PaceError::Rate(_))));
    let once = Departures::looped(&[0], 1_000, 1.0).unwrap();
    assert!(matches!(Pacer::follow(once, Pace::new(1.0, 0.0, NS), 0), Err(PaceError::Duration { .. })));
}

proptest! {
    #[test]
    fn a_plan_is_the_list_written_out(
        gaps in prop::collection::vec(0_u64..5_000, 1..40), rest in 1_u64..5_000, speed in 0.1_f64..10.0, steps in 1_u64..3_000,
    ) {
        let at: Vec<u64> = gaps.iter().scan(0, |at, gap| { let now = *at; *at += gap; Some(now) }).collect();
        let period = at.last().unwrap() + rest;
        let departures = Departures::looped(&at, period, speed).unwrap();
        let pace = Pace::new(1.0, 0.0005, NS);
        prop_assume!(departures.mean_pps().unwrap() < MAX_PPS);
        let (pacer, left) = follow(departures, pace, |_| steps);
        // None leaves more than a microsecond early, of those that left on time.
        let mut written: Vec<u64> = Vec::new();
        let (spaced, round) = (at.iter().map(|ns| (*ns as f64 / speed) as u64).collect::<Vec<_>>(), (period as f64 / speed) as u64);
        let round = round.max(spaced.last().unwrap() + 1);
        'all: for n in 0.. {
            for at in &spaced {
                let due = n * round + at;
                if due >= 500_000 { break 'all }
                written.push(due);
            }
        }
        prop_assert_eq!(pacer.totals().intended, written.len() as u64);
        if pacer.totals().unsent == 0 {
            let mut k = 0;
            for (now, count) in left {
                k += count;
                prop_assert!(written[k - 1] <= now + 1_000, "{} left at {}", written[k - 1], now);
            }
        }
    }
}

#[test]
fn parts_with_rates_of_their_own_follow_each_other_without_a_pause() {
    let second = |rate| Pace::new(rate, 1.0, NS);
    let mut pacer = Pacer::new(second(1000.0), 0).unwrap();
    let mut departures = vec![];
    let mut run = |pacer: &mut Pacer, now: &mut u64| {
        while !pacer.is_finished() {
            let due = pacer.due(*now);
            if due > 0 {
                pacer.sent(due, *now);
                departures.push((*now, due));
            }
            *now += 10_000;
        }
    };
    let mut now = 0;
    run(&mut pacer, &mut now);
    let first = pacer.go_on(second(2000.0), NS).unwrap();
    assert_eq!(first, Totals { intended: 1000, sent: 1000, unsent: 0 });
    assert_eq!(pacer.totals(), Totals { intended: 2000, ..Totals::default() });
    run(&mut pacer, &mut now);
    assert_eq!(departures.iter().map(|(_, due)| due).sum::<usize>(), 3000);
    assert!(departures.iter().enumerate().all(|(k, (at, due))| {
        let expected = if k < 1000 { k as u64 * 1_000_000 } else { NS + (k as u64 - 1000) * 500_000 };
        (*at, *due) == (expected, 1)
    }));
    // what is late is told of both, and a part that cannot be leaves the one before as it is
    assert_eq!(pacer.lateness().count(), 3000);
    assert_eq!(pacer.go_on(second(0.0), 2 * NS).unwrap_err(), PaceError::Rate(0.0));
    assert_eq!(pacer.totals().sent, 2000);
    let unfinished = Pacer::new(second(10.0), 0).unwrap().go_on(second(10.0), NS).unwrap();
    assert_eq!(unfinished, Totals { intended: 10, sent: 0, unsent: 10 });
}
