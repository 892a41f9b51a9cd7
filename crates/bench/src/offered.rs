//! One sort of frames, ready to be offered to a device.

use crate::source::Load;
use crate::trace::{LONGEST, Trace};
use report::{Frames, Mix as MixDocument, MixPart};
use std::collections::BTreeMap;
use traffic::capture::PROBE_EVERY;
use traffic::{Flows, Mix, Order, Template, TooSmall, probe};

/// Packets that are sent back to back where they are late.
const BURST: u32 = 8;
/// Of what is random in the frames of a capture.
const SEED: u64 = 0;

/// Frames for a device: made, of a size or a mix of sizes, or those of a capture.
pub struct Offered {
    name: String,
    frames: Kind,
}

enum Kind {
    Made { template: Template, mix: Mix },
    Captured(Trace),
}

/// Why frames cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotSend {
    /// A size has no room for what has to be in it.
    #[error(transparent)]
    Small(#[from] TooSmall),
    /// A size does not fit into a packet buffer.
    #[error(
        "frames of {0} bytes do not fit into a packet buffer; the largest that do have {most}",
        most = LONGEST as u16 + traffic::size::FCS
    )]
    Long(u16),
}

impl Offered {
    /// Frames of a mix for flows; `name` is what was written of the mix.
    ///
    /// # Errors
    /// [`CannotSend`].
    pub fn made(name: &str, flows: &Flows, mix: &Mix) -> Result<Offered, CannotSend> {
        if mix.largest().without_fcs() > LONGEST {
            return Err(CannotSend::Long(mix.largest().with_fcs()));
        }
        let template = Template::new(flows, mix, true)?;
        Ok(Offered { name: name.to_owned(), frames: Kind::Made { template, mix: mix.clone() } })
    }

    /// The frames of a capture.
    pub fn captured(trace: Trace) -> Offered {
        Offered { name: trace.name().to_owned(), frames: Kind::Captured(trace) }
    }

    /// What was written of the mix, or the capture's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The frames from their beginning, to be sent.
    pub fn load(&self) -> Load<'_> {
        match &self.frames {
            Kind::Made { template, mix } => Load::made(template, mix.cycle(), template.flows().picker(0, 1)),
            Kind::Captured(trace) => Load::replay(trace.capture(), SEED),
        }
    }

    /// The capture, if they are of one.
    pub fn trace(&self) -> Option<&Trace> {
        match &self.frames {
            Kind::Made { .. } => None,
            Kind::Captured(trace) => Some(trace),
        }
    }

    /// What a result says of them.
    pub fn document(&self) -> report::Traffic {
        let of = |frames, flows, protocol: &str, seed| report::Traffic {
            frames,
            flows,
            protocol: protocol.to_owned(),
            burst: BURST,
            directions: 1,
            trace_sha256: None,
            seed: Some(seed),
        };
        match &self.frames {
            Kind::Made { template, mix } => {
                let frames = match mix.entries() {
                    [(size, _)] => Frames::FrameBytes(size.with_fcs()),
                    parts => Frames::Mix(MixDocument {
                        name: self.name.clone(),
                        parts: parts
                            .iter()
                            .map(|(size, weight)| MixPart { frame_bytes: size.with_fcs(), weight: *weight })
                            .collect(),
                    }),
                };
                let settings = template.flows().settings();
                of(frames, settings.count.into(), "udp", settings.seed)
            }
            Kind::Captured(trace) => {
                let capture = trace.capture();
                let frames = Frames::Trace(report::Trace {
                    name: self.name.clone(),
                    frames: capture.len() as u64,
                    mean_frame_bytes: capture.mean_size(),
                });
                let traffic = of(frames, capture.flows() as u64, "as captured", SEED);
                report::Traffic { trace_sha256: Some(trace.sha256().to_owned()), ..traffic }
            }
        }
    }

    /// What tells a measurement with them from others, besides the size of the frames.
    pub fn cell(&self) -> BTreeMap<String, String> {
        let mut cell = BTreeMap::new();
        if let Kind::Made { template, .. } = &self.frames {
            let settings = template.flows().settings();
            cell.insert("flows".to_owned(), settings.count.to_string());
            if settings.order != Order::default() {
                cell.insert("order".to_owned(), settings.order.to_string());
            }
        }
        cell
    }

    /// What a reader of a result has to know of them.
    pub fn remarks(&self) -> Vec<String> {
        let Kind::Captured(trace) = &self.frames else { return vec![] };
        let numbers = match trace.capture().first_with_room() {
            Some(_) => format!(
                "about one in {PROBE_EVERY} carries a number in the first {} bytes of its UDP or TCP payload, and latency, \
                 order and copies are those of these",
                probe::LEN
            ),
            None => "none has room for a number: latency, order and copies are not known".to_owned(),
        };
        let said = format!(
            "the frames of {} are sent over and over as they are, at the load's pace and not at their own; {numbers}; the \
             loss of the others is known from counts",
            trace.name()
        );
        [said].into_iter().chain(trace.left_out()).collect()
    }
}
