//! State of a trial once per second, while it runs.

use super::event::{Event, Observer, TrialSecond};
use crate::generator::packet_generator::{LiveCounts, TrialProgress};
use packet::clock;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// Interval of the events.
const INTERVAL: Duration = Duration::from_secs(1);

/// Returns the second between two readings; `first` is the first reading of the trial.
fn second_between(first: &LiveCounts, last: &LiveCounts, now: &LiveCounts) -> Option<TrialSecond> {
    let seconds = now.at.checked_sub(last.at).filter(|ticks| *ticks != 0)? as f64 / clock::hz() as f64;
    let rate = |now: u64, last: u64| now.saturating_sub(last) as f64 / seconds;
    let samples = now.latencies.saturating_sub(last.latencies);
    let sum = now.latency_sum_ns.saturating_sub(last.latency_sum_ns);
    Some(TrialSecond {
        sent_pps: rate(now.sent, last.sent),
        received_pps: rate(now.received, last.received),
        missing: (now.sent - first.sent) as i64 - (now.received - first.received) as i64,
        latency_mean_ns: (samples != 0).then(|| sum as f64 / samples as f64),
    })
}

/// Reports every second of trials that are longer, on any CPU but those of the generator, until `end` is disconnected.
pub(super) fn report_seconds(
    progress: &TrialProgress,
    observer: &Mutex<&mut dyn Observer>,
    generator_cpus: &[usize],
    end: &Receiver<()>,
) {
    // the thread was started on a CPU of the generator; fails if there is no other
    let _ = runtime::avoid_cpus(generator_cpus);
    // trial, first and last counts
    let mut readings: Option<(u64, LiveCounts, LiveCounts)> = None;
    while end.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
        let Some((trial, now)) = progress.counts() else {
            readings = None;
            continue;
        };
        readings = match readings {
            Some((same, first, last)) if same == trial => {
                if let Some(second) = second_between(&first, &last, &now)
                    && let Ok(mut observer) = observer.lock()
                {
                    observer.on_event(&Event::TrialSecond(&second));
                }
                Some((trial, first, now))
            }
            _ => Some((trial, now, now)),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_second() {
        let first = LiveCounts { sent: 100, received: 90, latencies: 5, latency_sum_ns: 500, at: 7 };
        let last = LiveCounts { sent: 200, received: 180, latencies: 10, latency_sum_ns: 1000, at: 9 };
        let at = 9 + clock::hz() / 2;
        let now = LiveCounts { sent: 1200, received: 980, latencies: 30, latency_sum_ns: 41_000, at };
        let second = second_between(&first, &last, &now).unwrap();
        assert_eq!((second.sent_pps.round(), second.received_pps.round()), (2000.0, 1600.0));
        assert_eq!((second.missing, second.latency_mean_ns), (1100 - 890, Some(2000.0)));
        assert_eq!(second_between(&first, &now, &now), None, "nothing new was published");
    }
}
