//! Another program as the device under test, and the generator at its ports.

use crate::bed::{Act, Ask, BedError, Seen};
use crate::dut::{About, Driver, DutError, Forward, Plan, Running, SentTo, Site};
use crate::generator::{Foreign, Generator};
use crate::offered::Offered;
use crate::source::Load;
use crate::station::{Middle, Station, Underway};
use crate::trace::MOST_CPUS;
use runtime::Outside;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long links may take to come up.
const LINKS: Duration = Duration::from_secs(10);
/// When nothing has come for so long, what is missing is lost.
const QUIET: Duration = Duration::from_millis(60);
/// In trials at least so long, seconds, nothing is given up before its time.
const LONG_S: f64 = 10.0;
/// Packets that come later than this after the last was sent are lost (RFC 2544 §23 waits two seconds).
const DRAIN: Duration = Duration::from_secs(2);
/// Packets of the conformance check, how far apart they are sent, how long they are waited for, and how often that is tried
/// while a device may still have to learn.
const CONFORM: u64 = 200;
const APART: Duration = Duration::from_micros(200);
const PATIENCE: Duration = Duration::from_millis(300);
const TRIES: u32 = 10;
/// How long that is tried while nothing comes out at all: memory that a machine never used before is slow to come by, and a
/// device with some hundred megabytes of it stands still for seconds.
const WAKES: Duration = Duration::from_secs(20);
/// Descriptors of a queue of its ports.
const DEPTH: u32 = 1024;

/// Why a rig does not stand.
#[derive(Debug, thiserror::Error)]
pub enum RigError {
    /// The device.
    #[error(transparent)]
    Dut(#[from] DutError),
    /// The generator's ports.
    #[error(transparent)]
    Ports(#[from] runtime::Error),
}

/// A device under test that runs, with the generator's ports at it.
pub struct Rig {
    // the device goes first, and what it still sends is taken
    running: Running,
    station: Station,
    outside: Outside,
    driver: Box<dyn Driver + Send>,
    site: Site,
    about: About,
    forward: Forward,
    stop: Arc<AtomicBool>,
}

impl Rig {
    /// Starts the device called `name`, that is to forward what is `sent`. The calling
    /// thread is the one that has to run the trials, and to live as long as the rig.
    ///
    /// # Errors
    /// [`RigError`].
    pub fn start(name: &str, plan: &Plan, sent: SentTo, stop: Arc<AtomicBool>) -> Result<Rig, RigError> {
        let mut site = Site::new(name, plan, sent)?;
        let mut driver = plan.driver();
        let mut running = driver.start(&mut site)?;
        let named: Vec<(String, String)> =
            running.devices().iter().enumerate().map(|(n, d)| (format!("generator{n}"), d.clone())).collect();
        let (outside, ends) = match Outside::open(&named) {
            Ok(open) => open,
            // a device that is gone says more than ports without another side
            Err(e) => return Err(running.check(&site).err().map_or(RigError::Ports(e), RigError::Dut)),
        };
        // a second direction goes into the second port
        let into: Vec<usize> = (0..ends.len().min(2)).collect();
        let mut station = Station::new(ends, &into, outside.pool().clone(), false);
        station.stop_when(stop.clone());
        let (about, forward) = (running.about().clone(), plan.forward);
        let rig = Rig { running, station, outside, driver, site, about, forward, stop };
        rig.linked()?;
        Ok(rig)
    }

    /// Waits for the links.
    fn linked(&self) -> Result<(), DutError> {
        let end = Instant::now() + LINKS;
        loop {
            let links = self.outside.links();
            let Some(down) = links.iter().position(|link| *link == Some(false)) else { return Ok(()) };
            if Instant::now() > end {
                let problem = format!("port {down} had no link within {} s", LINKS.as_secs());
                return Err(self.site.wrong(problem, "look at what the device says of its ports"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Directions that can be offered at once.
    pub fn directions(&self) -> usize {
        self.station.streams()
    }

    /// Checks that the right packets come out, those of each direction by themselves: as many as went in, and changed only
    /// as the device has to.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn conform(&mut self, offered: &Offered) -> Result<(), DutError> {
        (0..usize::from(offered.directions())).try_for_each(|stream| self.conform_stream(offered, stream))
    }

    fn conform_stream(&mut self, offered: &Offered, stream: usize) -> Result<(), DutError> {
        self.check()?;
        let (forward, site) = (self.forward, &self.site);
        let station = &mut self.station;
        if stream >= station.streams() {
            return Err(site.wrong("has only one port: packets cannot go both ways", "leave out both_ways"));
        }
        let mut load = offered.load();
        let mut outcome = (CONFORM, None);
        let (mut tries, awake) = (0, Instant::now() + WAKES);
        while tries < TRIES {
            self.running.check(site)?;
            outcome =
                station.conform(&mut load, stream, CONFORM, APART, PATIENCE, |sent, got| alike(forward, sent, got));
            if outcome == (0, None) || self.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            tries += u32::from(outcome != (CONFORM, None) || Instant::now() > awake);
        }
        let remedy = format!("look at how it was made:\n{}\n{}", self.about.configuration, self.running.said());
        match outcome {
            (_, Some(problem)) => Err(site.wrong(
                format!("does not forward as it should: {problem}"),
                "if that is right, say what it does: forward = \"route\", \"table\" or \"any\"",
            )),
            (lost, None) => Err(site.wrong(
                format!("{lost} of {CONFORM} packets did not come out, sent {} us apart", APART.as_micros()),
                remedy,
            )),
        }
    }

    /// Offers what is asked for, waits until all is through, and counts; does meanwhile to the device what is asked for.
    ///
    /// # Errors
    /// A load or a length that cannot be kept; something that cannot be done to this device.
    pub fn trial(&mut self, load: &mut Load<'_>, ask: &Ask) -> Result<Seen, BedError> {
        let Rig { running, station, outside, driver, site, .. } = self;
        let Some(act) = ask.act else { return Ok(station.trial(outside, load, ask)?) };
        if let Some(remedy) = driver.cannot(act) {
            let what = match act {
                Act::Reset { .. } => "reset",
                Act::Changes { .. } => "changed while it forwards",
            };
            return Err(BedError::Cannot { dut: site.name().to_owned(), what, remedy });
        }
        let is_here = running.about().environment.is_none();
        // the generator's is the one that this thread is on
        let own = runtime::allowed_cpus();
        let others: Vec<usize> = (0..MOST_CPUS).filter(|cpu| !own.contains(cpu)).collect();
        let course = station.course();
        course.begun.store(false, Ordering::Relaxed);
        course.over.store(false, Ordering::Relaxed);
        std::thread::scope(|scope| {
            let acting = scope.spawn(|| {
                // what disturbs the device is its own, not the generator's; on too few CPUs it is wherever it may be
                let _ = if is_here { runtime::confine(site.cpus()) } else { runtime::confine(&others) };
                while !course.begun.load(Ordering::Acquire) && !course.over.load(Ordering::Acquire) {
                    std::thread::sleep(Duration::from_micros(100));
                }
                driver.act(running, site, act, &course.over)
            });
            let seen = station.trial(outside, load, ask);
            // also where there was no trial
            course.over.store(true, Ordering::Release);
            let acted = acting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let acted = acted.map_err(|e| BedError::Gone(e.to_string()))?;
            Ok(Seen { acted: Some(acted), ..seen? })
        })
    }

    /// Whether the device still runs.
    ///
    /// # Errors
    /// How it ended.
    pub fn check(&mut self) -> Result<(), DutError> {
        self.running.check(&self.site)
    }

    /// What it says of itself.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// The generator's ports.
    pub fn outside(&self) -> &Outside {
        &self.outside
    }

    /// Leaves the device, which runs on, to another generator.
    ///
    /// # Errors
    /// When that does not start.
    pub fn hand_over(self, generator: &Generator, cpu: usize) -> Result<Foreign, DutError> {
        let Rig { running, station, outside, site, stop, .. } = self;
        // packets go before the pool that they are of
        drop(station);
        drop(outside);
        Foreign::start((site, running), generator, cpu, stop)
    }
}

/// What is wrong with a packet that came out, given the one that went in.
fn alike(forward: Forward, sent: &[u8], got: &[u8]) -> Result<(), String> {
    let differs = |from: usize| {
        let at = sent.iter().zip(got).skip(from).position(|(a, b)| a != b)? + from;
        Some(format!("byte {at} of a frame was {:#04x} and came out as {:#04x}", sent[at], got[at]))
    };
    // short frames may come out padded
    if got.len() < sent.len() {
        return Err(format!("a frame of {} bytes came out with {}", sent.len(), got.len()));
    }
    match forward {
        Forward::Table | Forward::Any => Ok(()),
        Forward::Ports | Forward::Bridge => differs(0).map_or(Ok(()), Err),
        Forward::Route => {
            let mut expected = sent.to_vec();
            let hops = match expected.get(12..14) {
                Some([0x08, 0x00]) => 14 + 8,
                Some([0x86, 0xdd]) => 14 + 7,
                _ => return Err("a frame that is not IP came out".to_owned()),
            };
            let (Some(was), Some(is)) = (sent.get(hops), got.get(hops)) else {
                return Err("a frame was cut".to_owned());
            };
            if was.checked_sub(1) != Some(*is) {
                return Err(format!("a time to live of {was} came out as {is}"));
            }
            // the header's checksum changes with it, by as much
            expected[hops] = *is;
            let skip = |at: usize| at < 12 || at == hops || (hops == 22 && (24..26).contains(&at));
            let odd = (0..sent.len()).find(|&at| !skip(at) && expected[at] != got[at]);
            odd.map_or(Ok(()), |at| {
                Err(format!("byte {at} of a frame was {:#04x} and came out as {:#04x}", sent[at], got[at]))
            })
        }
    }
}

impl Middle for Outside {
    fn created(&self) -> u64 {
        0
    }

    fn is_through(&self, way: &Underway) -> bool {
        let patience = if way.trial_s >= LONG_S { DRAIN } else { QUIET };
        way.outstanding == 0 || way.quiet > patience
    }

    fn drain(&self) -> Duration {
        DRAIN
    }

    fn gaps(&self) -> (Duration, Duration) {
        (Duration::ZERO, Duration::ZERO)
    }

    fn depth(&self) -> u32 {
        DEPTH
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::MacAddr;
    use wire::build;

    #[test]
    fn what_may_change_on_the_way() {
        let frame = build::udp4([198, 18, 0, 1], [198, 19, 0, 1], 1000, 2000).ttl(64).payload(&[7; 20]).to_vec();
        let routed = build::udp4([198, 18, 0, 1], [198, 19, 0, 1], 1000, 2000)
            .ttl(63)
            .src_mac(MacAddr([2, 0, 0, 0, 0, 9]))
            .payload(&[7; 20])
            .to_vec();
        for forward in [Forward::Ports, Forward::Bridge, Forward::Any] {
            assert_eq!(alike(forward, &frame, &frame), Ok(()));
        }
        assert_eq!(alike(Forward::Route, &frame, &routed), Ok(()));
        assert!(alike(Forward::Route, &frame, &frame).unwrap_err().contains("time to live of 64"));
        assert!(alike(Forward::Ports, &frame, &routed).is_err());
        assert_eq!(alike(Forward::Any, &frame, &routed), Ok(()));
        let mut damaged = routed.clone();
        *damaged.last_mut().unwrap() ^= 1;
        assert!(alike(Forward::Route, &frame, &damaged).unwrap_err().contains("byte"));
        assert!(alike(Forward::Any, &frame, &frame[..40]).is_err());
    }
}
