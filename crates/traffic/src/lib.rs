//! Traffic: frames, size mixes, flows, schedules, probes, and what of it came back.
//!
//! Nothing here sends, waits or looks at a clock: times come in as ticks or nanoseconds, frames are written into the
//! caller's buffers. The loop that owns ports and clock asks [`Pacer`] how many frames are due, lets a [`Template`]
//! or a [`Capture`] write them, and hands what comes back to a [`Receiver`].
//!
//! ```
//! use traffic::{FlowSettings, Flows, Mix, Pace, Pacer, Probe, Receiver, Template};
//!
//! let mix: Mix = "imix".parse()?;
//! let flows = Flows::new(FlowSettings { count: 1000, ..FlowSettings::v4() })?;
//! let template = Template::new(&flows, &mix, true)?;
//! let (mut sizes, mut picker) = (mix.cycle(), flows.picker(0, 1));
//!
//! // One millisecond at 1 Mpps on a clock of nanoseconds.
//! let mut pacer = Pacer::new(Pace::new(1e6, 1e-3, 1_000_000_000), 0)?;
//! let mut receiver = Receiver::new(template.probe_at(), 0, pacer.totals().intended, 1_000_000_000);
//! let (mut now, mut sequence, mut frame) = (0, 0, [0; 9212]);
//! while !pacer.is_finished() {
//!     for _ in 0..pacer.due(now) {
//!         let probe = Probe { stream: 0, sequence, stamp: now };
//!         let len = template.fill(sizes.next_index(), picker.next_flow(), probe, &mut frame);
//!         receiver.take(&frame[..len], now + 5_000);
//!         pacer.sent(1, now);
//!         sequence += 1;
//!     }
//!     now += 100;
//! }
//! assert_eq!(pacer.totals().sent, 1000);
//! assert_eq!(receiver.totals(1000).lost, 0);
//! assert_eq!(receiver.latency().min_ns(), Some(5_000));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod address;
pub mod capture;
pub mod density;
pub mod departures;
pub mod fields;
pub mod flows;
pub mod latency;
pub mod losses;
pub mod neighbors;
pub mod nfpa;
pub mod order;
pub mod pace;
pub mod pacer;
pub mod probe;
pub mod random;
pub mod receiver;
pub mod rewrite;
pub mod sequence;
pub mod short_connections;
pub mod size;
pub mod stack;
pub mod stream;
pub mod tcp;
pub mod template;
pub mod variation;

pub use address::{AddressError, AddressRange};
pub use capture::{Capture, CaptureError, CaptureSettings, FrameSequence};
pub use density::{Density, Displacements};
pub use departures::Departures;
pub use fields::{FieldError, FieldSpec, Fields, NotField};
pub use flows::{Flow, FlowError, FlowSettings, Flows, Transport};
pub use latency::Delays;
pub use losses::Losses;
pub use order::{NotOrder, Order, Picker};
pub use pace::{Pace, PaceError};
pub use pacer::{Pacer, PollGap};
pub use probe::Probe;
pub use receiver::Receiver;
pub use rewrite::{PrefixMap, Rewrite, Tagging};
pub use sequence::Sequence;
pub use short_connections::{Short, ShortError, ShortSettings};
pub use size::{FrameSize, Mix, SizeError};
pub use stack::Stack;
pub use stream::{Stream, StreamSettings};
pub use template::{Template, TemplateError, TooSmall};
pub use variation::Variation;
