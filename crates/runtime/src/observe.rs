//! Captures and traces: copies of the packets of a running graph, and times of probes, without stopping it.
//!
//! A worker that is observed times every batch, and its graph shows packets to the [`TapSet`], which writes copies or
//! times to bounded queues. While there is no tap, workers run the code that they run without this module.

mod capture;
mod names;
mod place;
mod probes;
mod tap_set;
mod trace;
mod traced_packet;

pub(crate) use capture::start as start_capture;
pub use capture::{Capture, CaptureCounts, Captured};
pub(crate) use names::{EndName, HopNames, WorkerNames};
pub use place::{CaptureSpec, Direction};
pub(crate) use probes::start as start_probe_trace;
pub use probes::{MAX_PROBE_RECORDS, ProbePoint, ProbeRecord, ProbeTrace};
pub(crate) use tap_set::{Tap, TapSet};
pub use trace::Trace;
pub(crate) use trace::start as start_trace;
pub use traced_packet::{Step, StepKind, TraceEnd, TracedPacket};
