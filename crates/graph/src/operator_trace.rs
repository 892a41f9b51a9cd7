//! Results of the single operators of a chain for a traced packet.

use crate::exit::Exit;
use crate::headers::{HeaderStack, View};
use packet::clock;
use std::fmt;

/// The result of an operator for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorResult {
    /// Passed it on.
    Passed,
    /// Changed its bytes.
    Changed,
    /// Counted it.
    Counted,
    /// Chose the branch of this number.
    Branch(usize),
    /// Ended the chain: the packet skips the remaining operators.
    Skipped,
    /// Dropped it for this reason.
    Dropped(&'static str),
    /// Emitted it to this output.
    Emitted(&'static str),
}

impl fmt::Display for OperatorResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OperatorResult::Passed => f.write_str("passed"),
            OperatorResult::Changed => f.write_str("changed"),
            OperatorResult::Counted => f.write_str("counted"),
            OperatorResult::Branch(branch) => write!(f, "branch {branch}"),
            OperatorResult::Skipped => f.write_str("skips the others"),
            OperatorResult::Dropped(reason) => write!(f, "dropped: {reason}"),
            OperatorResult::Emitted(output) => write!(f, "output {output}"),
        }
    }
}

/// The step of a packet through one operator.
#[derive(Clone, Debug)]
pub struct OperatorStep {
    /// The operator, such as `filter`.
    pub operator: &'static str,
    /// The name that it was given, such as that of a drop reason, header or counter.
    pub name: Option<&'static str>,
    /// Its result.
    pub result: OperatorResult,
    /// Cycles that it took.
    pub cycles: u64,
    /// Bytes of the packet, if they changed.
    pub bytes: Option<Vec<u8>>,
}

/// The steps of a packet through a chain of operators.
#[derive(Debug)]
pub struct OperatorTrace<'a> {
    drops: &'a [&'static str],
    outputs: &'a [&'static str],
    steps: Vec<OperatorStep>,
}

impl<'a> OperatorTrace<'a> {
    /// Creates a trace of a chain with these drop reasons and outputs.
    pub(crate) fn new(drops: &'a [&'static str], outputs: &'a [&'static str]) -> Self {
        OperatorTrace { drops, outputs, steps: vec![] }
    }

    /// Records what `f`, an operator with this kind and name, does with a packet.
    ///
    /// # Errors
    /// That of `f`.
    pub fn step<'p, S: HeaderStack, T: HeaderStack>(
        &mut self,
        operator: &'static str,
        name: Option<&'static str>,
        view: View<'p, S>,
        f: impl FnOnce(View<'p, S>) -> Result<View<'p, T>, Exit>,
    ) -> Result<View<'p, T>, Exit> {
        let before = view.bytes.to_vec();
        let from = clock::cycles();
        let result = f(view);
        let cycles = clock::cycles().saturating_sub(from);
        let find = |names: &[&'static str], number: u8| names.get(usize::from(number)).copied().unwrap_or_default();
        let (done, bytes) = match &result {
            Ok(view) if view.bytes[..] == before[..] => (OperatorResult::Passed, None),
            Ok(view) => (OperatorResult::Changed, Some(view.bytes.to_vec())),
            Err(Exit::Pass) => (OperatorResult::Skipped, None),
            Err(Exit::Drop(reason)) => (OperatorResult::Dropped(find(self.drops, *reason)), None),
            Err(Exit::Emit(output)) => (OperatorResult::Emitted(find(self.outputs, *output)), None),
        };
        self.steps.push(OperatorStep { operator, name, result: done, cycles, bytes });
        result
    }

    /// Replaces the result of the last step, if the packet passed.
    pub(crate) fn passed_as(&mut self, result: OperatorResult) {
        if let Some(last) = self.steps.last_mut().filter(|last| last.result == OperatorResult::Passed) {
            last.result = result;
        }
    }

    pub(crate) fn into_steps(self) -> Vec<OperatorStep> {
        self.steps
    }
}
