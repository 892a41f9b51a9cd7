//! A chain in this process as the device under test: wires in memory stand in the place of its ports, and the thread that
//! runs trials sends and receives at their far ends.

use crate::bed::{Ask, Seen};
use crate::source::Load;
use crate::station::{Middle, Station, Underway};
use config::{ChainFile, Start};
use diagnostics::Diagnostic;
use graph::Registry;
use runtime::Summary;
use sandbox::Walled;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use traffic::PaceError;

/// Packets that may be under way in each direction of a wire: the descriptors of a common NIC queue.
pub const DEPTH: u32 = 1024;
/// Packets that come later than this after the last was sent are lost.
const DRAIN: Duration = Duration::from_millis(500);

/// A chain on wires.
pub struct Wired {
    station: Station,
    chains: Walled,
}

impl Wired {
    /// Starts the chains of a file; packets are sent into the port that its `[traffic]` names, or the first chain's, and for
    /// both ways into a second one. The calling thread is the one that has to run the trials.
    ///
    /// # Errors
    /// As [`Walled::start`]; for both ways, when the file has only one port.
    pub fn start(file: &ChainFile, registry: &Registry, both_ways: bool) -> Result<Wired, runtime::Error> {
        let (chains, ends) = Walled::start_on_wires(file, registry, DEPTH)?;
        let file = chains.side(file);
        let into = entries(file, both_ways).map_err(|d| runtime::Error::Input(diagnostics::Diagnostics(vec![d])))?;
        let mut station = Station::new(ends, &into, chains.engine().pool().clone(), true);
        for (stream, port) in into.iter().enumerate() {
            if !file.chains.iter().any(|chain| begins(chain) == Some(*port)) {
                station.leave_untaken(stream);
            }
        }
        Ok(Wired { station, chains })
    }

    /// Has trials end when this is set.
    pub fn stop_when(&mut self, stop: Arc<AtomicBool>) {
        self.station.stop_when(stop);
    }

    /// The chains, to be asked what they count.
    pub fn chains(&self) -> &Walled {
        &self.chains
    }

    /// Offers what is asked for, waits until all is through, and counts.
    ///
    /// # Errors
    /// A load or a length that cannot be kept.
    pub fn trial(&mut self, load: &mut Load<'_>, ask: &Ask) -> Result<Seen, PaceError> {
        self.station.trial(&self.chains, load, ask)
    }

    /// Directions that can be offered at once.
    pub fn directions(&self) -> usize {
        self.station.streams()
    }

    /// Forgets the packets that have come back: their payload is that of other frames.
    pub fn forget(&mut self) {
        self.station.forget();
    }

    /// Stops the chains; what they have done.
    pub fn stop(self) -> Summary {
        drop(self.station);
        self.chains.stop()
    }
}

/// Ports of a chain file that packets are sent into; for both ways the second is where a chain from the first ends, else where another chain begins, else the next there is.
///
/// # Errors
/// For both ways, when the file has only one port.
pub(crate) fn entries(file: &ChainFile, both_ways: bool) -> Result<Vec<usize>, Diagnostic> {
    let numbered = |name: &String| file.ports.iter().position(|port| port.name == *name);
    let into = match &file.traffic.into {
        Some(name) => numbered(name).unwrap_or_default(),
        None => file.chains.iter().find_map(begins).unwrap_or(0),
    };
    if !both_ways {
        return Ok(vec![into]);
    }
    let ends = file.chains.iter().filter(|chain| begins(chain) == Some(into)).filter_map(|c| numbered(c.path.last()?));
    let others = ends.chain(file.chains.iter().filter_map(begins)).chain(0..file.ports.len());
    match others.into_iter().find(|port| *port != into && file.ports[*port].wall.is_none()) {
        Some(back) => Ok(vec![into, back]),
        None => Err(one_port(&file.ports[into].name, Some(file))),
    }
}

/// The port that a chain takes packets from.
fn begins(chain: &config::Chain) -> Option<usize> {
    match chain.from {
        Start::Port(port) => Some(port),
        Start::Link(_) => None,
    }
}

/// The fault of a device that has only this port, and is to be offered packets both ways.
pub(crate) fn one_port(port: &str, file: Option<&ChainFile>) -> Diagnostic {
    let d = Diagnostic::new("is the only port: packets cannot go both ways").value(port).remedy(
        "add a second port and a chain from it, or leave out both ways, the second capture, or port: 1 of a profile",
    );
    Diagnostic { file: file.map(|file| file.file.clone()), ..d }
}

impl Middle for Walled {
    fn created(&self) -> u64 {
        self.snapshot().totals.created
    }

    /// The chain has received what was handed to the wire, knows what has become of it, and what it has sent has come. A
    /// worker that is away shows here, and not in that nothing comes.
    fn is_through(&self, way: &Underway) -> bool {
        let did = self.fresh();
        did.balanced && did.totals.received == way.handed && did.totals.sent == way.taken
    }

    fn drain(&self) -> Duration {
        DRAIN
    }

    fn gaps(&self) -> (Duration, Duration) {
        self.engine().gaps()
    }

    fn depth(&self) -> u32 {
        DEPTH
    }
}
