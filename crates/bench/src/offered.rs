//! One sort of frames, ready to be offered to a device.

use crate::Shape;
use crate::bed::StreamSeen;
use crate::profile::Timetable;
use crate::programme::Programme;
use crate::replayed::{self, Replayed};
use crate::sent;
use crate::source::Load;
use crate::trace::{LONGEST, Trace};
use report::{Frames, Mix as MixDocument, MixPart};
use std::collections::BTreeMap;
use traffic::nfpa::Direction;
use traffic::short::{Short, ShortError, ShortSettings};
use traffic::{FlowSettings, Flows, Mix, Order, Stack, Template, TemplateError};

/// Packets that are sent back to back where they are late.
const BURST: u32 = 8;

/// Frames for a device: made, of a size or a mix of sizes, or those of a capture.
pub struct Offered {
    name: String,
    frames: Kind,
}

enum Kind {
    Made { template: Template, back: Option<Template>, mix: Mix, shape: Shape },
    Short { short: Short, mix: Mix },
    Replayed(Replayed),
    Profile(Box<Programme>),
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

    /// The frames of captures.
    pub(crate) fn replayed(replayed: Replayed) -> Offered {
        Offered { name: replayed.name(), frames: Kind::Replayed(replayed) }
    }

    /// The streams of a profile.
    pub(crate) fn profile(programme: Programme) -> Offered {
        Offered { name: programme.timetable().profile().name(), frames: Kind::Profile(Box::new(programme)) }
    }

    /// What a profile says for each second, if they are of one.
    pub fn timetable(&self) -> Option<&Timetable> {
        match &self.frames {
            Kind::Profile(programme) => Some(programme.timetable()),
            _ => None,
        }
    }

    /// What was written of the mix, or the capture's or script's name.
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
            Kind::Replayed(replayed) => replayed.load(),
            Kind::Profile(programme) => programme.load(),
        }
    }

    /// Directions in which they are sent at once, 1 or 2.
    pub fn directions(&self) -> u8 {
        match &self.frames {
            Kind::Made { back: Some(_), .. } => 2,
            Kind::Replayed(replayed) => replayed.directions(),
            Kind::Profile(programme) => programme.timetable().ports(),
            _ => 1,
        }
    }

    /// The captures, if they are of such; one for each direction.
    pub fn traces(&self) -> &[Trace] {
        self.replay().map_or(&[], Replayed::traces)
    }

    fn replay(&self) -> Option<&Replayed> {
        match &self.frames {
            Kind::Made { .. } | Kind::Short { .. } | Kind::Profile(_) => None,
            Kind::Replayed(replayed) => Some(replayed),
        }
    }

    /// Packets a second that are sent where no load is asked for: a capture's own rate, if it keeps its own gaps.
    pub fn own_pps(&self) -> Option<f64> {
        self.replay()?.own_pps()
    }

    /// What of captures is rewritten, in words, and whether any frame is changed by it.
    pub fn rewritten(&self) -> Option<(String, bool)> {
        let replayed = self.replay()?;
        Some((replayed.rewritten()?, !replayed.rewrites_nothing()))
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
            back_sha256: None,
            profile: None,
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
            Kind::Replayed(replayed) => replayed.document(of(Frames::FrameBytes(0), 0, "as captured", replayed::SEED)),
            Kind::Profile(programme) => {
                let traffic = of(programme.frames(), programme.flows(), "udp", programme.seed());
                // its rates are those of all streams, whichever port they go into
                report::Traffic { directions: 1, profile: Some(programme.document()), ..traffic }
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

    /// What a result says of the streams of a profile, of which this was seen.
    pub fn streams(&self, seen: &[StreamSeen]) -> Vec<report::Stream> {
        let Some(timetable) = self.timetable() else { return vec![] };
        timetable.streams().iter().zip(seen).map(|(plan, seen)| plan.document(seen, timetable.seconds())).collect()
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
            Kind::Replayed(replayed) => cell.extend(replayed.cell()),
            Kind::Profile(_) => {}
        }
        cell
    }

    /// What a reader of a result has to know of them.
    pub fn remarks(&self) -> Vec<String> {
        match &self.frames {
            Kind::Made { back: None, .. } => vec![],
            Kind::Made { back: Some(_), shape, .. } => {
                let what = if shape.trace.is_some() {
                    "the trace's reverse direction"
                } else {
                    "the same flows from their other side"
                };
                vec![format!(
                    "packets go both ways at once, into a second port {what}: counts and latencies are those of both, loads and \
                     rates those of one direction"
                )]
            }
            Kind::Short { short, .. } => {
                let ShortSettings { packets, concurrent, data_in_syn } = short.settings();
                let numbers = if data_in_syn { "SYNs carry data" } else { "SYNs have no number and are counted" };
                vec![format!(
                    "each flow is a connection of {packets} packets that nobody answers, {concurrent} at a time; {numbers}; a \
                     function that waits for the other side drops what follows a SYN"
                )]
            }
            Kind::Replayed(replayed) => replayed.remarks(),
            Kind::Profile(programme) => programme.remarks(),
        }
    }
}

pub(crate) fn fits(mix: &Mix) -> Result<(), CannotSend> {
    if mix.largest().without_fcs() > LONGEST { Err(CannotSend::Long(mix.largest().with_fcs())) } else { Ok(()) }
}
