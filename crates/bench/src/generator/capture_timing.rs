//! Replay of captures with their original timing.

use crate::traffic_spec::CaptureFile;
use crate::trial::Phase;
use traffic::{Departures, FrameSequence, Pace, PaceError, Pacer, Stream};

/// Catch-up limit of the pacer: bursts of a capture may be of any length; only late packets are not sent.
const CATCH_UP: u64 = 1 << 30;

/// Common timeline of captures that are replayed together, in nanoseconds at their original speed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Timeline {
    /// Time of the first frame of each capture.
    pub(crate) starts_ns: [u64; 2],
    /// Time after which the replay starts again.
    pub(crate) period_ns: u64,
    /// Frames of the first capture in that time.
    pub(crate) frames: u64,
    /// True if the captures overlap in time, so that their offset is kept.
    pub(crate) overlaps: bool,
}

impl Timeline {
    /// Returns the timeline of one or two captures, each given by the time stamps of its first and last frame and its
    /// number of frames. Captures that do not overlap in time start together. The gap between the last and the first
    /// frame is the mean gap. None if all time stamps are equal.
    pub(crate) fn of(captures: &[(u64, u64, u64)]) -> Option<Timeline> {
        let latest_first = captures.iter().map(|(first, ..)| *first).max()?;
        let earliest_last = captures.iter().map(|(_, last, _)| *last).min()?;
        let overlaps = latest_first <= earliest_last;
        let origin = captures.iter().map(|(first, ..)| *first).min().filter(|_| overlaps);
        let (mut starts_ns, mut took) = ([0; 2], 0);
        for ((first, last, _), start) in captures.iter().zip(&mut starts_ns) {
            let origin = origin.unwrap_or(*first);
            *start = first.saturating_sub(origin);
            took = took.max(last.saturating_sub(origin));
        }
        let all: u64 = captures.iter().map(|(.., frames)| frames).sum();
        let gap = took.checked_div(all.saturating_sub(1)).unwrap_or(0).max(1);
        let frames = captures.first()?.2;
        (took != 0).then_some(Timeline { starts_ns, period_ns: took.saturating_add(gap), frames, overlaps })
    }

    /// Returns the mean rate of the first capture at its original speed, packets per second.
    pub(crate) fn mean_pps(&self) -> f64 {
        self.frames as f64 / self.period_ns as f64 * 1e9
    }
}

/// Timing of the replay of one direction.
pub(crate) struct CaptureTiming<'a> {
    trace: &'a CaptureFile,
    timeline: Timeline,
    direction: usize,
    /// Random seed, which differs in each trial.
    seed: u64,
}

impl<'a> CaptureTiming<'a> {
    pub(crate) fn new(trace: &'a CaptureFile, timeline: Timeline, direction: usize, seed: u64) -> Self {
        CaptureTiming { trace, timeline, direction, seed }
    }

    /// Returns a schedule scaled so that the mean rate of the first capture is the load. If the file is read while it
    /// is sent, the schedule has to be fed.
    pub(crate) fn pacer(&self, phase: &Phase, hz: u64) -> Result<Pacer, PaceError> {
        let speed = phase.load_pps / self.timeline.mean_pps();
        let departures = match self.trace.is_streamed() {
            true => Departures::fed(speed)?,
            false => {
                let (start_ns, period_ns) = (self.timeline.starts_ns[self.direction], self.timeline.period_ns);
                self.trace.capture().departures_from(start_ns, period_ns, speed)?
            }
        };
        let pace = Pace { catch_up: CATCH_UP, ..Pace::new(phase.load_pps, phase.duration_s, hz) };
        Pacer::follow(departures, pace, 0)
    }

    /// Opens the file from its beginning, if it does not fit into memory.
    pub(crate) fn open(&mut self) -> Option<Stream> {
        self.seed += 1;
        self.trace.stream(self.seed, self.timeline.starts_ns[self.direction], Some(self.timeline.period_ns))
    }
}

/// Returns the number of packets that are due, and skips frames that are too late, so that the others keep their
/// timing.
pub(crate) fn due(pacer: &mut Pacer, turns: &mut FrameSequence<'_>, stream: Option<&mut Stream>, now: u64) -> usize {
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
    fn overlapping_captures_keep_their_offset() {
        let one = Timeline::of(&[(1_000, 9_000, 5)]).unwrap();
        assert_eq!((one.starts_ns, one.period_ns, one.mean_pps()), ([0, 0], 10_000, 5e5));
        let two = Timeline::of(&[(2_000, 9_000, 4), (1_000, 5_000, 5)]).unwrap();
        assert_eq!((two.starts_ns, two.period_ns, two.overlaps), ([1_000, 0], 9_000, true));
        let apart = Timeline::of(&[(2_000, 9_000, 4), (100_000, 101_000, 4)]).unwrap();
        assert_eq!((apart.starts_ns, apart.period_ns, apart.overlaps), ([0, 0], 8_000, false));
    }

    #[test]
    fn captures_without_duration_have_no_timeline() {
        assert_eq!(Timeline::of(&[]), None);
        assert_eq!(Timeline::of(&[(5, 5, 1)]), None);
        assert_eq!(Timeline::of(&[(5, 5, 9), (5, 5, 1)]), None);
        assert!(Timeline::of(&[(0, u64::MAX, u64::MAX)]).unwrap().mean_pps() > 0.0);
    }
}
