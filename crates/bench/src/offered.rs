//! One sort of frames, ready to be offered to a device.

use crate::Shape;
use crate::sent;
use crate::source::Load;
use crate::trace::{LONGEST, Trace};
use report::{Frames, Mix as MixDocument, MixPart};
use std::collections::BTreeMap;
use traffic::capture::PROBE_EVERY;
use traffic::nfpa::Direction;
use traffic::short::{Short, ShortError, ShortSettings};
use traffic::{FlowSettings, Flows, Mix, Order, Stack, Template, TemplateError, probe};

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
    Made { template: Template, back: Option<Template>, mix: Mix, shape: Shape },
    Short { short: Short, mix: Mix },
    Captured(Trace),
}

/// Why frames cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotSend {
    /// A size has no room for what has to be in it.
    #[error(transparent)]
    Small(#[from] TemplateError),
    /// Short flows that cannot be.
    #[error(transparent)]
    Short(#[from] ShortError),
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
        Offered::stacked(name, flows, None, mix, Shape::default())
    }

    /// As [`Offered::made`], with the headers and of the trace that `shape` says; `back` are the flows that are sent the other
    /// way at the same time, if any are.
    ///
    /// # Errors
    /// [`CannotSend`].
    pub fn stacked(
        name: &str,
        flows: &Flows,
        back: Option<&Flows>,
        mix: &Mix,
        shape: Shape,
    ) -> Result<Offered, CannotSend> {
        fits(mix)?;
        let template = |flows: &Flows, stack: Option<Stack>| match stack {
            Some(stack) => Template::stacked(flows, mix, true, &stack),
            None => Template::new(flows, mix, true).map_err(TemplateError::from),
        };
        let back = back.map(|back| template(back, shape.stack.map(Stack::reversed))).transpose()?;
        let template = template(flows, shape.stack)?;
        Ok(Offered { name: name.to_owned(), frames: Kind::Made { template, back, mix: mix.clone(), shape } })
    }

    /// Short connections between the addresses of `flows`.
    ///
    /// # Errors
    /// [`CannotSend`].
    pub fn short(name: &str, flows: &FlowSettings, mix: &Mix, settings: ShortSettings) -> Result<Offered, CannotSend> {
        fits(mix)?;
        let short = Short::new(flows, mix, settings)?;
        Ok(Offered { name: name.to_owned(), frames: Kind::Short { short, mix: mix.clone() } })
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
            Kind::Made { template, back, mix, .. } => {
                let made = |template| Load::made(template, mix.cycle(), Template::flows(template).picker(0, 1));
                let there = made(template);
                back.iter().map(made).fold(there, Load::and)
            }
            Kind::Short { short, mix } => Load::short(short, mix.cycle()),
            Kind::Captured(trace) => Load::replay(trace.capture(), SEED, trace.stream(SEED)),
        }
    }

    /// Directions in which they are sent at once, 1 or 2.
    pub fn directions(&self) -> u8 {
        match &self.frames {
            Kind::Made { back: Some(_), .. } => 2,
            _ => 1,
        }
    }

    /// The capture, if they are of one.
    pub fn trace(&self) -> Option<&Trace> {
        match &self.frames {
            Kind::Made { .. } | Kind::Short { .. } => None,
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
            directions: self.directions(),
            trace_sha256: None,
            seed: Some(seed),
        };
        match &self.frames {
            Kind::Made { template, mix, shape, .. } => {
                let settings = template.flows().settings();
                let stack = shape.stack.map_or_else(|| "udp".to_owned(), |stack| stack.to_string());
                let hash = shape.trace.map(|trace| trace.sha256(Direction::Forward, sent::SEED));
                let traffic = of(self.sizes(mix), settings.count.into(), &stack, settings.seed);
                report::Traffic { trace_sha256: hash, ..traffic }
            }
            Kind::Short { short, mix } => {
                of(self.sizes(mix), short.settings().concurrent.into(), "tcp", short.flows().seed)
            }
            Kind::Captured(trace) => {
                let capture = trace.capture();
                let frames = Frames::Trace(report::Trace {
                    name: self.name.clone(),
                    frames: trace.frames(),
                    mean_frame_bytes: capture.mean_size(),
                });
                let traffic = of(frames, capture.flows() as u64, "as captured", SEED);
                report::Traffic { trace_sha256: Some(trace.sha256().to_owned()), ..traffic }
            }
        }
    }

    fn sizes(&self, mix: &Mix) -> Frames {
        match mix.entries() {
            [(size, _)] => Frames::FrameBytes(size.with_fcs()),
            parts => Frames::Mix(MixDocument {
                name: self.name.clone(),
                parts: parts
                    .iter()
                    .map(|(size, weight)| MixPart { frame_bytes: size.with_fcs(), weight: *weight })
                    .collect(),
            }),
        }
    }

    /// What tells a measurement with them from others, besides the size of the frames.
    pub fn cell(&self) -> BTreeMap<String, String> {
        let mut cell = BTreeMap::new();
        match &self.frames {
            Kind::Made { template, shape, .. } => {
                let settings = template.flows().settings();
                if shape.trace.is_none() {
                    cell.insert("flows".to_owned(), settings.count.to_string());
                }
                if settings.order != Order::default() {
                    cell.insert("order".to_owned(), settings.order.to_string());
                }
                cell.extend(shape.cell());
            }
            Kind::Short { short, .. } => {
                cell.insert("short".to_owned(), short.settings().to_string());
            }
            Kind::Captured(_) => {}
        }
        cell
    }

    /// What a reader of a result has to know of them.
    pub fn remarks(&self) -> Vec<String> {
        let trace = match &self.frames {
            Kind::Made { back: None, .. } => return vec![],
            Kind::Made { back: Some(_), shape, .. } => {
                let what = if shape.trace.is_some() {
                    "the trace's reverse direction"
                } else {
                    "the same flows from their other side"
                };
                return vec![format!(
                    "packets go both ways at once, into a second port {what}: counts and latencies are those of both, loads and \
                     rates those of one direction"
                )];
            }
            Kind::Short { short, .. } => {
                let ShortSettings { packets, concurrent, data_in_syn } = short.settings();
                let numbers = if data_in_syn { "SYNs carry data" } else { "SYNs have no number and are counted" };
                return vec![format!(
                    "each flow is a connection of {packets} packets that nobody answers, {concurrent} at a time; {numbers}; a \
                     function that waits for the other side drops what follows a SYN"
                )];
            }
            Kind::Captured(trace) => trace,
        };
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

fn fits(mix: &Mix) -> Result<(), CannotSend> {
    if mix.largest().without_fcs() > LONGEST { Err(CannotSend::Long(mix.largest().with_fcs())) } else { Ok(()) }
}
