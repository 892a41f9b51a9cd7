//! The host that measures: its description, its fitness, and the frequency of its CPUs.

mod cpu_frequency;
mod host_check;
mod record;

pub use cpu_frequency::{FixedFrequency, FrequencyError};
pub use host_check::{CpuGaps, Fitness, HostCheck};
pub use record::{Steal, environment};
