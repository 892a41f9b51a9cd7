//! What the generator stands at: a chain in this process, or another program.

use crate::bed::{Act, Ask, Bed, BedError, Seen};
use crate::dut::About;
use crate::generator::Foreign;
use crate::offered::Offered;
use crate::rig::Rig;
use crate::simulated::Simulated;
use crate::source::Load;
use crate::wired::Wired;
use report::Node;
use runtime::{Cycles, Name, Summary as Counts};
use std::collections::BTreeMap;

/// A running device under test with a generator at its ports.
pub enum Stand {
    /// A chain in this process, on wires.
    Wired(Box<Wired>),
    /// Another program.
    Rig(Box<Rig>),
    /// Another program, and yet another as the generator.
    Foreign(Box<Foreign>),
    /// Numbers, in virtual time.
    Simulated(Box<Simulated>),
}

/// A device with what it is offered.
pub struct Offering<'a> {
    stand: &'a mut Stand,
    offered: &'a Offered,
    load: Load<'a>,
}

impl Stand {
    /// What another program says of itself.
    pub fn about(&self) -> Option<&About> {
        match self {
            Stand::Rig(rig) => Some(rig.about()),
            Stand::Foreign(foreign) => Some(foreign.about()),
            Stand::Wired(_) | Stand::Simulated(_) => None,
        }
    }

    /// Offers it these frames from their beginning.
    pub fn offer<'a>(&'a mut self, offered: &'a Offered) -> Offering<'a> {
        if let Stand::Wired(wired) = self {
            // what came back has the payload of other frames
            wired.forget();
        }
        Offering { load: offered.load(), offered, stand: self }
    }
}

impl Bed for Offering<'_> {
    fn trial(&mut self, ask: &Ask) -> Result<Seen, BedError> {
        if ask.tag_s.is_some() && self.load.numbered_every() != 1 && !matches!(self.stand, Stand::Simulated(_)) {
            return Err(BedError::Cannot {
                dut: "traffic of which not every packet has a number".to_owned(),
                what: "asked for the latency of one packet",
                remedy: "the method throughput has the latencies of those that have one",
            });
        }
        if ask.phases.len() > 1 && self.load.gaps(0).is_some() {
            return Err(BedError::Cannot {
                dut: "a capture with its own gaps".to_owned(),
                what: "sent at several loads without a pause",
                remedy: "leave out --gaps, and gaps of a scenario, or measure with another method",
            });
        }
        let (dut, directions) = match self.stand {
            Stand::Wired(wired) => ("a chain in this process", wired.directions()),
            Stand::Rig(rig) => ("a device", rig.directions()),
            Stand::Simulated(_) => ("a simulated device", 1),
            Stand::Foreign(_) => ("a device under another generator", 2),
        };
        if self.load.streams.len() > directions {
            return Err(BedError::Cannot {
                dut: dut.to_owned(),
                what: "sent packets both ways",
                remedy: "give it a second port, or leave out both ways, or the second capture",
            });
        }
        match self.stand {
            Stand::Wired(_) if ask.act.is_some() => Err(BedError::Cannot {
                dut: "a chain in this process".to_owned(),
                what: match ask.act {
                    Some(Act::Reset { .. }) => "reset",
                    _ => "changed while it forwards",
                },
                remedy: "measure a device of its own: [dut] kind = \"...\" in a scenario",
            }),
            Stand::Wired(wired) => {
                let before = wired.chains().snapshot();
                let mut seen = wired.trial(&mut self.load, ask)?;
                let after = wired.chains().snapshot();
                let drops = after.drops.iter().map(|(reason, n)| (reason, n - before.drops.get(reason).unwrap_or(&0)));
                seen.drops = drops.filter(|(_, n)| *n != 0).map(|(reason, n)| (reason.to_string(), n)).collect();
                seen.nodes = nodes_between(&before, &after);
                Ok(seen)
            }
            Stand::Simulated(device) => device.trial(ask),
            Stand::Foreign(foreign) => foreign.trial(self.offered, ask),
            Stand::Rig(rig) => {
                let seen = rig.trial(&mut self.load, ask)?;
                rig.check().map_err(|e| BedError::Gone(e.to_string()))?;
                Ok(seen)
            }
        }
    }
}

/// What ports and NFs did between two looks at their counts.
fn nodes_between(from: &Counts, to: &Counts) -> Vec<Node> {
    let drops = |a: &BTreeMap<Name, u64>, b: &BTreeMap<Name, u64>| {
        let all = b.iter().map(|(reason, n)| (reason.to_string(), n - a.get(reason).unwrap_or(&0)));
        all.filter(|(_, n)| *n != 0).collect::<BTreeMap<_, _>>()
    };
    let node = |name: &str, kind: &str, packets: u64, dropped: BTreeMap<String, u64>, a: &Cycles, b: &Cycles| {
        let (cycles, timed, batches) = (b.cycles - a.cycles, b.packets - a.packets, b.batches - a.batches);
        let per = |n: u64, of: u64| (of != 0).then(|| n as f64 / of as f64);
        Node {
            name: name.to_owned(),
            kind: kind.to_owned(),
            packets,
            dropped,
            cycles_per_packet: per(cycles, timed),
            packets_per_batch: per(timed, batches),
        }
    };
    let mut nodes = vec![];
    for (a, b) in from.ports.iter().zip(&to.ports) {
        nodes.push(node(&b.name, "receive", b.received - a.received, BTreeMap::new(), &a.receive, &b.receive));
    }
    for (a, b) in from.nfs.iter().zip(&to.nfs) {
        nodes.push(node(&b.name, &b.kind, b.packets - a.packets, drops(&a.drops, &b.drops), &a.cycles, &b.cycles));
    }
    for (a, b) in from.ports.iter().zip(&to.ports) {
        nodes.push(node(&b.name, "send", b.sent - a.sent, drops(&a.drops, &b.drops), &a.send, &b.send));
    }
    nodes.retain(|n| n.packets != 0 || !n.dropped.is_empty());
    nodes
}
