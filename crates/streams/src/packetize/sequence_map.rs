//! Mapping between sequence numbers of input and output.

use crate::window::piece::behind;
use std::collections::VecDeque;

/// Largest number of marks, 8 bytes each; beyond it every other mark is removed.
const MOST: usize = 1024;
/// Capacity in marks that an empty map keeps.
const KEPT: usize = 128;

/// A position at which input and output correspond: output before `output` was produced from input before `input`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Mark {
    input: u32,
    output: u32,
}

/// Corresponding sequence numbers of input and output, in order; they wrap.
#[derive(Default)]
pub(super) struct SequenceMap {
    /// Last mark at or before the first unacknowledged byte.
    base: Mark,
    marks: VecDeque<Mark>,
}

impl SequenceMap {
    /// Creates a map that starts at `start` on both sides.
    pub(super) fn new(start: u32) -> Self {
        SequenceMap { base: Mark { input: start, output: start }, marks: VecDeque::new() }
    }

    /// Records that input up to `input` produced output up to `output`.
    pub(super) fn push(&mut self, input: u32, output: u32) {
        if self.marks.len() >= MOST {
            let mut keep = false;
            self.marks.retain(|_| {
                keep = !keep;
                keep
            });
        }
        let last = self.marks.back_mut().unwrap_or(&mut self.base);
        if last.output == output {
            last.input = input;
        } else {
            self.marks.push_back(Mark { input, output });
        }
    }

    /// Removes marks before `output` and returns the input whose output is acknowledged completely.
    pub(super) fn acked(&mut self, output: u32) -> u32 {
        while let Some(mark) = self.marks.front().filter(|mark| !behind(mark.output, output)) {
            self.base = *mark;
            self.marks.pop_front();
        }
        if self.marks.is_empty() {
            self.marks.shrink_to(KEPT);
        }
        self.base.input
    }

    /// Returns the input whose output is acknowledged completely.
    pub(super) fn input(&self) -> u32 {
        self.base.input
    }

    /// Returns the start of the output of byte `input`, or an earlier position.
    pub(super) fn floor(&self, input: u32) -> u32 {
        let n = self.marks.partition_point(|mark| !behind(mark.input, input));
        n.checked_sub(1).and_then(|n| self.marks.get(n)).unwrap_or(&self.base).output
    }

    /// Returns the end of the output of the bytes before `input`, or a later position; `None` beyond the last mark.
    pub(super) fn ceil(&self, input: u32) -> Option<u32> {
        if !behind(input, self.base.input) {
            return Some(self.base.output);
        }
        let n = self.marks.partition_point(|mark| behind(input, mark.input));
        self.marks.get(n).map(|mark| mark.output)
    }

    /// Returns the difference between output and input; wraps.
    pub(super) fn shift(&self) -> u32 {
        let last = self.marks.back().unwrap_or(&self.base);
        last.output.wrapping_sub(last.input)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Each step consumes and produces some bytes; the model is the list of all marks.
        #[test]
        fn keeps_in_step(start: u32, (least, steps) in (0..2u32, prop::collection::vec((1..50u32, 0..50u32), 1..2000)), acks: [u16; 8]) {
            let mut trail = SequenceMap::new(start);
            let (mut input, mut output, mut all) = (0, 0, vec![(0, 0)]);
            for (used, made) in steps {
                (input, output) = (input + used, output + made.max(least));
                all.push((input, output));
                trail.push(start.wrapping_add(input), start.wrapping_add(output));
            }
            prop_assert!(trail.marks.len() <= MOST);
            prop_assert_eq!(trail.shift(), output.wrapping_sub(input));
            let exact = all.len() <= MOST;
            // steps without output merge with the step before
            let thins = all.windows(2).any(|two| two[0].1 == two[1].1);
            let mut acks = acks.map(|ack| u32::from(ack) % (output + 1));
            acks.sort_unstable();
            for ack in acks {
                let told = trail.acked(start.wrapping_add(ack)).wrapping_sub(start);
                let model = all.iter().rev().find(|mark| mark.1 <= ack).unwrap().0;
                prop_assert!(told <= model && (told == model || !exact), "{} for {}", told, model);
                for at in (told..=input).step_by(17) {
                    let floor = trail.floor(start.wrapping_add(at)).wrapping_sub(start);
                    let ceil = trail.ceil(start.wrapping_add(at)).unwrap().wrapping_sub(start);
                    prop_assert!(floor <= ceil);
                    let model = all.iter().rev().find(|m| m.0 <= at).unwrap().1;
                    prop_assert!(floor <= model && (floor == model || !exact || thins), "{} for {}", floor, at);
                    prop_assert!(ceil >= all.iter().rev().find(|m| m.0 <= at).unwrap().1);
                }
            }
            prop_assert_eq!(trail.acked(start.wrapping_add(output)), start.wrapping_add(input));
        }
    }
}
