//! The interface to a generator program.

use crate::dut::DutContext;
use crate::trial::{MeasurerError, TrialInput};

/// A program that sends and receives packets.
pub(super) trait GeneratorProgram {
    /// Runs a trial with frames of `frame` bytes with FCS, at the requested load or, without a rate limit, at the
    /// highest rate.
    ///
    /// # Errors
    /// If the program fails.
    fn trial(&mut self, context: &DutContext, input: &TrialInput, frame: u16) -> Result<ProgramCounts, MeasurerError>;
}

/// Packet counts of a program, all directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ProgramCounts {
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) directions: u8,
    /// Time in which it sent, seconds.
    pub(super) elapsed_s: f64,
}
