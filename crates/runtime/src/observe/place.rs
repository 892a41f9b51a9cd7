//! The places at which packets are captured.

use super::names::{EndName, WorkerNames};
use bpf::Program;
use config::ChainFile;
use diagnostics::Diagnostic;

/// The packets that a capture copies.
#[derive(Clone, Debug)]
pub struct CaptureSpec {
    /// Names of ports and NFs, `NF:INPUT` and `NF.OUTPUT`; all ports if there is none.
    pub places: Vec<String>,
    /// Direction in which packets pass ports and NFs.
    pub direction: Direction,
    /// Only dropped packets, of all NFs and ports if there are no places.
    pub drops: bool,
    /// Only packets dropped for this reason.
    pub reason: Option<String>,
    /// Only packets that it accepts.
    pub filter: Option<Program>,
    /// Largest number of bytes that are copied of a packet.
    pub snaplen: u32,
}

/// Direction in which packets pass a port or an NF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Received by a port, entering an NF.
    In,
    /// Sent to a port, leaving an NF.
    Out,
    /// Both.
    #[default]
    Both,
}

/// One place. Each is an interface of the capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Received(String),
    Sent(String),
    /// With the input, if only one.
    Entered(String, Option<String>),
    /// With the output, if only one.
    Left(String, Option<String>),
    Dropped(String),
    Refused(String),
}

/// Numbers of the places of a capture in the graph of one worker.
#[derive(Debug, Default)]
pub(super) struct Selection {
    pub(super) received: Vec<Option<u16>>,
    pub(super) sent: Vec<Option<u16>>,
    pub(super) refused: Vec<Option<u16>>,
    pub(super) entered: Vec<Option<u16>>,
    /// By hop and output.
    pub(super) left: Vec<Vec<Option<u16>>>,
    pub(super) dropped: Vec<Option<u16>>,
}

impl Place {
    /// Returns the name of the interface.
    pub(super) fn name(&self) -> String {
        match self {
            Place::Received(port) => format!("{port} rx"),
            Place::Sent(port) => format!("{port} tx"),
            Place::Entered(nf, None) => format!("{nf} in"),
            Place::Entered(nf, Some(input)) => format!("{nf}:{input}"),
            Place::Left(nf, None) => format!("{nf} out"),
            Place::Left(nf, Some(output)) => format!("{nf}.{output}"),
            Place::Dropped(name) | Place::Refused(name) => format!("{name} drops"),
        }
    }
}

/// Returns the places of a capture.
///
/// # Errors
/// A name that the file does not have, or a combination that selects nothing.
pub(super) fn places(spec: &CaptureSpec, file: &ChainFile) -> Result<Vec<Place>, Diagnostic> {
    let mut names = spec.places.clone();
    if names.is_empty() {
        names.extend(file.ports.iter().map(|port| port.name.clone()));
        names.extend(file.nfs.iter().filter(|_| spec.drops).map(|nf| nf.name.clone()));
    }
    let all = names.iter().map(|name| of_name(name, spec, file)).collect::<Result<Vec<_>, _>>()?;
    let mut all = all.concat();
    let mut seen = vec![];
    all.retain(|place| {
        !seen.contains(place) && {
            seen.push(place.clone());
            true
        }
    });
    Ok(all)
}

/// Returns the places that one name stands for.
fn of_name(name: &str, spec: &CaptureSpec, file: &ChainFile) -> Result<Vec<Place>, Diagnostic> {
    let CaptureSpec { direction, drops, .. } = spec;
    let (inwards, outwards) = (*direction != Direction::Out, *direction != Direction::In);
    let both = |first: Place, second: Place| {
        let selected = [(inwards, first), (outwards, second)];
        selected.into_iter().filter_map(|(is_selected, place)| is_selected.then_some(place)).collect()
    };
    let own = || name.to_owned();
    if file.ports.iter().any(|port| port.name == name) {
        return Ok(if *drops { vec![Place::Refused(own())] } else { both(Place::Received(own()), Place::Sent(own())) });
    }
    let (nf, edge) = match name.split_once([':', '.']) {
        Some((nf, edge)) => (nf, Some((&name[nf.len()..=nf.len()], edge))),
        None => (name, None),
    };
    let Some(config) = file.nfs.iter().find(|config| config.name == nf) else {
        let names = file.ports.iter().map(|p| &p.name).chain(file.nfs.iter().map(|nf| &nf.name));
        let names = names.map(String::as_str).collect::<Vec<_>>().join(", ");
        let remedy = format!("name a port or an NF: {names}; NF:INPUT and NF.OUTPUT select one edge");
        return Err(Diagnostic::new("is no port and no NF of the chain file").value(name).remedy(remedy));
    };
    if *drops {
        return match edge {
            None => Ok(vec![Place::Dropped(own())]),
            Some(_) => {
                Err(Diagnostic::new("is an edge, which drops no packets").value(name).remedy(format!("name {nf:?}")))
            }
        };
    }
    let one_of = |names: &[String], edge: &str, what: &str| match names.iter().any(|name| name == edge) {
        true => Ok(Some(edge.to_owned())),
        false => {
            let problem = format!("NF {nf:?} has no {what} of this name");
            Err(Diagnostic::new(problem).value(edge).remedy(format!("name one of {}", names.join(", "))))
        }
    };
    let nf = nf.to_owned();
    Ok(match edge {
        None => both(Place::Entered(nf.clone(), None), Place::Left(nf, None)),
        Some((":", edge)) => vec![Place::Entered(nf.clone(), one_of(&config.inputs, edge, "input")?)],
        Some((_, edge)) => vec![Place::Left(nf.clone(), one_of(&config.outputs, edge, "output")?)],
    })
}

impl Selection {
    /// Finds the places in the graph of a worker.
    pub(super) fn new(places: &[Place], names: &WorkerNames) -> Selection {
        let first = |is_it: &dyn Fn(&Place) -> bool| places.iter().position(is_it).map(|n| n as u16);
        let hops = || names.hops.iter();
        // a link is no port, although it may have the name of one
        let end = |of: &[EndName], place: &dyn Fn(String) -> Place| {
            of.iter()
                .map(|end| {
                    if end.is_link {
                        None
                    } else {
                        let wanted = place(end.name.clone());
                        first(&|place| *place == wanted)
                    }
                })
                .collect::<Vec<_>>()
        };
        let either = |wanted: [Place; 2]| first(&|place| wanted.contains(place));
        Selection {
            received: end(&names.inputs, &Place::Received),
            sent: end(&names.outputs, &Place::Sent),
            refused: end(&names.outputs, &Place::Refused),
            entered: hops()
                .map(|hop| {
                    either([Place::Entered(hop.nf.clone(), None), Place::Entered(hop.nf.clone(), hop.input.clone())])
                })
                .collect(),
            left: hops()
                .map(|hop| {
                    let output = |name: &String| {
                        either([Place::Left(hop.nf.clone(), None), Place::Left(hop.nf.clone(), Some(name.clone()))])
                    };
                    hop.outputs.iter().map(output).collect()
                })
                .collect(),
            dropped: hops().map(|hop| first(&|place| *place == Place::Dropped(hop.nf.clone()))).collect(),
        }
    }
}
