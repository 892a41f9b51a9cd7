//! A capture sent with its own gaps.

use crate::bed::Phase;
use crate::trace::Trace;
use traffic::{Departures, Pace, PaceError, Pacer, Stream, Turns};

/// A burst of a capture may be as long as it was: only what leaves too late stays unsent.
const CATCH_UP: u64 = 1 << 30;

/// When the frames of captures are due that are sent at once, as they were captured: nanoseconds at their own speed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Timeline {
    /// The first frame of each, after the beginning.
    pub(crate) starts_ns: [u64; 2],
    /// All begins again after this.
    pub(crate) period_ns: u64,
    /// Frames of the first in that time.
    pub(crate) frames: u64,
    /// Whether they were captured at the same time, and so keep the time between them.
    pub(crate) together: bool,
}

impl Timeline {
    /// For each capture when its first and its last frame were captured, and how many there are; one or two. Those that were
    /// captured at different times begin together. Between the last and the first frame is the mean gap of all. None if all frames
    /// were captured at once.
    pub(crate) fn of(captures: &[(u64, u64, u64)]) -> Option<Timeline> {
        let latest_first = captures.iter().map(|(first, ..)| *first).max()?;
        let earliest_last = captures.iter().map(|(_, last, _)| *last).min()?;
        let together = latest_first <= earliest_last;
        let origin = captures.iter().map(|(first, ..)| *first).min().filter(|_| together);
        let (mut starts_ns, mut took) = ([0; 2], 0);
        for ((first, last, _), start) in captures.iter().zip(&mut starts_ns) {
            let origin = origin.unwrap_or(*first);
            *start = first.saturating_sub(origin);
            took = took.max(last.saturating_sub(origin));
        }
        let all: u64 = captures.iter().map(|(.., frames)| frames).sum();
        let gap = took.checked_div(all.saturating_sub(1)).unwrap_or(0).max(1);
        let frames = captures.first()?.2;
        (took != 0).then_some(Timeline { starts_ns, period_ns: took.saturating_add(gap), frames, together })
    }

    /// Packets a second of the first capture, at its own speed.
    pub(crate) fn mean_pps(&self) -> f64 {
        self.frames as f64 / self.period_ns as f64 * 1e9
    }
}

/// A direction's schedule and its file.
pub(crate) struct Gaps<'a> {
    trace: &'a Trace,
    line: Timeline,
    direction: usize,
    /// Of what is random, another in each trial.
    seed: u64,
}

impl<'a> Gaps<'a> {
    pub(crate) fn new(trace: &'a Trace, line: Timeline, direction: usize, seed: u64) -> Self {
        Gaps { trace, line, direction, seed }
    }

    /// From the first frame on, faster or slower, so that the first capture's mean rate is the load. Where the file is read as it
    /// is sent, the schedule has to be fed.
    pub(crate) fn pacer(&self, phase: &Phase, hz: u64) -> Result<Pacer, PaceError> {
        let speed = phase.load_pps / self.line.mean_pps();
        let departures = match self.trace.is_streamed() {
            true => Departures::fed(speed)?,
            false => {
                let (start_ns, period_ns) = (self.line.starts_ns[self.direction], self.line.period_ns);
                self.trace.capture().departures_from(start_ns, period_ns, speed)?
            }
        };
        let pace = Pace { catch_up: CATCH_UP, ..Pace::new(phase.load_pps, phase.duration_s, hz) };
        Pacer::follow(departures, pace, 0)
    }

    /// The file from its beginning, if memory does not hold it.
    pub(crate) fn stream(&mut self) -> Option<Stream> {
        self.seed += 1;
        self.trace.stream(self.seed, self.line.starts_ns[self.direction], Some(self.line.period_ns))
    }
}

/// How many packets are due; frames that are given up are left out, so that each of the others leaves at its own time.
pub(crate) fn due(pacer: &mut Pacer, turns: &mut Turns<'_>, stream: Option<&mut Stream>, now: u64) -> usize {
    let before = pacer.totals().unsent;
    match stream {
        None => {
            let due = pacer.due(now);
            turns.skip(pacer.totals().unsent - before);
            due
        }
        Some(stream) => {
            stream.feed(pacer);
            let due = pacer.due(now);
            stream.skip(pacer.totals().unsent - before);
            due
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captures_of_one_time_keep_the_time_between_them() {
        let one = Timeline::of(&[(1_000, 9_000, 5)]).unwrap();
        assert_eq!((one.starts_ns, one.period_ns, one.mean_pps()), ([0, 0], 10_000, 5e5));
        let two = Timeline::of(&[(2_000, 9_000, 4), (1_000, 5_000, 5)]).unwrap();
        assert_eq!((two.starts_ns, two.period_ns, two.together), ([1_000, 0], 9_000, true));
        let apart = Timeline::of(&[(2_000, 9_000, 4), (100_000, 101_000, 4)]).unwrap();
        assert_eq!((apart.starts_ns, apart.period_ns, apart.together), ([0, 0], 8_000, false));
    }

    #[test]
    fn without_gaps_there_is_no_schedule() {
        assert_eq!(Timeline::of(&[]), None);
        assert_eq!(Timeline::of(&[(5, 5, 1)]), None);
        assert_eq!(Timeline::of(&[(5, 5, 9), (5, 5, 1)]), None);
        assert!(Timeline::of(&[(0, u64::MAX, u64::MAX)]).unwrap().mean_pps() > 0.0);
    }
}
