//! Trials: their input, their output, and the measurer that executes them.

mod counts;
mod input;
mod measurer;
mod output;

pub use counts::{InconsistentCounts, Trial};
pub use input::{Disturbance, Macs, Phase, TrialInput};
pub use measurer::{Measurer, MeasurerError};
pub use output::{
    ConnectionsOutput, DelayVariationOutput, DirectionCounts, DisturbanceReport, LossTimes, SecondCounts, StreamOutput,
    TrialOutput,
};
