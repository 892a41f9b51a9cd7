//! Generators that are other programs, so that a cell can be measured by another one and compared.
//!
//! Ours is [`Rig`](crate::Rig)'s; it also checks that the device forwards as it should, before another takes its place at the
//! same ports.

mod external;
mod testpmd;

use crate::bed::{Ask, BedError, Seen};
use crate::dut::{DutError, Running, Site};
use crate::offered::Offered;
use crate::scenario::How;
use crate::trial::Trial;
use crate::{Sent, Shape};
use external::External;
use report::Frames;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use testpmd::Testpmd;
use traffic::Order;

/// Who sends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Generator {
    /// This program.
    #[default]
    Bondstone,
    /// DPDK's testpmd, both ways at once and as fast as it can: it knows no rate.
    Testpmd,
    /// A command of the user's.
    External(String),
}

/// A device that runs, with another program at its ports.
pub struct Foreign {
    // goes first: the device may ask its other side
    program: Box<dyn Sends + Send>,
    running: Running,
    site: Site,
    generator: Generator,
}

/// A program that sends and takes back.
trait Sends {
    /// Offers frames of that size, bytes with FCS, at the load asked for, or as fast as it can.
    ///
    /// # Errors
    /// [`BedError`].
    fn trial(&mut self, site: &Site, ask: &Ask, frame: u16) -> Result<Counted, BedError>;
}

/// What a program counted, all directions.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Counted {
    sent: u64,
    received: u64,
    directions: u8,
    /// How long it really sent, seconds.
    elapsed_s: f64,
}

/// Methods that need no more than counts.
const COUNTING: [&str; 4] = ["throughput", "load", "loss", "receive-rate"];

impl Generator {
    /// Its name in scenario files.
    pub fn name(&self) -> &'static str {
        match self {
            Generator::Bondstone => "bondstone",
            Generator::Testpmd => "testpmd",
            Generator::External(_) => "external",
        }
    }

    /// Whether it can send this, and do it so.
    ///
    /// # Errors
    /// What it cannot do, and what helps.
    pub fn fits(&self, sent: &Sent, how: &How) -> Result<(), (&'static str, &'static str)> {
        if *self == Generator::Bondstone {
            return Ok(());
        }
        let Sent::Made { shape, order, .. } = sent else {
            return Err(("sends neither captures nor profiles", "send made frames"));
        };
        if *shape != (Shape { both_ways: shape.both_ways, ..Shape::default() }) || *order != Order::default() {
            return Err(("sends flows of its own", "leave out order, trace, stack and short"));
        }
        let all = |known: &[&str]| how.methods.iter().all(|method| known.contains(&method.as_str()));
        match self {
            Generator::Testpmd if !all(&["receive-rate"]) => {
                Err(("knows no rate: it sends as fast as it can", "ask for the method receive-rate alone"))
            }
            Generator::Testpmd if !shape.both_ways => {
                Err(("sends both ways", "send both ways, by all generators that are compared"))
            }
            _ if !all(&COUNTING) => Err(("only counts packets", "ask for throughput, load, loss or receive-rate")),
            _ => Ok(()),
        }
    }

    /// What is sent by it, given what Bondstone would send.
    pub fn traffic(&self, ours: report::Traffic) -> report::Traffic {
        match self {
            Generator::Bondstone => ours,
            _ => report::Traffic { flows: 0, burst: 0, protocol: "the generator's own".to_owned(), seed: None, ..ours },
        }
    }
}

impl FromStr for Generator {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Generator, &'static str> {
        match text {
            "bondstone" => Ok(Generator::Bondstone),
            "testpmd" => Ok(Generator::Testpmd),
            "external" => Ok(Generator::External(String::new())),
            _ => Err("is no generator; there are bondstone, testpmd and external"),
        }
    }
}

impl fmt::Display for Generator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Foreign {
    /// Starts a generator on a CPU, at the ports of a device that runs, and that nobody else has open.
    ///
    /// # Errors
    /// When it is not there, or does not start.
    pub(crate) fn start(
        (mut site, running): (Site, Running),
        generator: &Generator,
        cpu: usize,
        stop: Arc<AtomicBool>,
    ) -> Result<Foreign, DutError> {
        let devices = running.devices().to_vec();
        let program: Box<dyn Sends + Send> = match generator {
            Generator::Bondstone => return Err(site.wrong("needs no other generator", "a bug in Bondstone")),
            Generator::Testpmd => Box::new(Testpmd::start(&mut site, &devices, cpu, stop)?),
            Generator::External(command) => Box::new(External::new(command, &devices, cpu, stop)),
        };
        Ok(Foreign { program, running, site, generator: generator.clone() })
    }

    /// What the device says of itself.
    pub fn about(&self) -> &crate::dut::About {
        self.running.about()
    }

    /// Who sends.
    pub fn generator(&self) -> &Generator {
        &self.generator
    }

    /// Offers frames of the size of these.
    pub(crate) fn trial(&mut self, offered: &Offered, ask: &Ask) -> Result<Seen, BedError> {
        let Ask { phases, loss_bins, variation, tag_s, act, .. } = ask;
        let cannot = |what, remedy| Err(BedError::Cannot { dut: self.site.name().to_owned(), what, remedy });
        let Frames::FrameBytes(frame) = offered.document().frames else {
            return cannot("offered several sizes by another generator", "give sizes, such as frames = \"64,512\"");
        };
        let [phase] = phases[..] else {
            return cannot("offered several loads in a trial by another generator", "use the method throughput");
        };
        if act.is_some() || *variation || *loss_bins != 0 || tag_s.is_some() || ask.profile {
            return cannot(
                "asked for more than counts under another generator",
                "use throughput, load, loss or receive-rate",
            );
        }
        let counted = self.program.trial(&self.site, ask, frame)?;
        if counted.directions != offered.directions() {
            let (said, sent) = (counted.directions, offered.directions());
            let problem = format!(
                "the generator counted {said} directions where {sent} are asked for: print \"directions\": {sent}"
            );
            return Err(BedError::Gone(format!("{}: {problem}", self.site.name())));
        }
        self.running.check(&self.site).map_err(|e| BedError::Gone(e.to_string()))?;
        Ok(Seen { trial: trial(counted, phase.load_pps, phase.duration_s), ..Seen::default() })
    }
}

/// A trial from what a program counted; what it was to send and did not is unsent.
fn trial(counted: Counted, load_pps: f64, duration_s: f64) -> Trial {
    let Counted { sent, received, directions, elapsed_s } = counted;
    // copies cannot be told from others
    let received = received.min(sent);
    let intended = ((load_pps * elapsed_s * f64::from(directions)).round() as u64).max(sent).max(1);
    Trial {
        load_pps,
        directions,
        duration_s,
        intended,
        sent,
        unsent: intended - sent,
        received,
        lost: sent - received,
        ..Trial::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_whatever_a_program_says() {
        for (sent, received) in [(0, 0), (5, 9), (90, 80), (1000, 7)] {
            let trial = trial(Counted { sent, received, directions: 2, elapsed_s: 0.5 }, 100.0, 0.5);
            assert_eq!(trial.check(), Ok(()));
            assert_eq!(trial.sent, sent);
        }
        let half = trial(Counted { sent: 100, received: 50, directions: 2, elapsed_s: 0.5 }, 100.0, 0.5);
        assert_eq!((half.forwarding_pps(), half.sent_pps()), (50.0, 100.0));
        // one that went on for longer has sent no more a second
        let long = trial(Counted { sent: 200, received: 100, directions: 2, elapsed_s: 1.0 }, 100.0, 0.5);
        assert_eq!(long.forwarding_pps(), 50.0);
    }
}
