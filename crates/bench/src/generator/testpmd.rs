//! DPDK's testpmd in its mode `flowgen`: sends as fast as it can into all ports and takes back what comes, in one loop. (In
//! `txonly` it takes nothing back, and nobody would count what comes out.)

use super::{Counted, Sends};
use crate::bed::{Ask, BedError};
use crate::dut::{DutError, Line, Program, Site, memory};
use config::Device;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What stands in front of the counts of all ports when it has stopped.
const SUMS: &str = "Accumulated forward statistics for all ports";
/// What it says when it begins.
const BEGUN: &str = "packet forwarding - ports=";
/// Shortest trial, seconds.
const SHORTEST_S: f64 = 1.0;
/// How long it may take to say something.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Testpmd {
    program: Program,
    directions: u8,
    stop: Arc<AtomicBool>,
}

impl Testpmd {
    pub(super) fn start(
        site: &mut Site,
        devices: &[String],
        cpu: usize,
        stop: Arc<AtomicBool>,
    ) -> Result<Testpmd, DutError> {
        let mut words = vec![format!("--lcores=0@{cpu},1@{cpu}"), "--no-pci".to_owned(), "--no-shconf".to_owned()];
        words.extend(memory().iter().map(|&s| s.to_owned()));
        for (n, written) in devices.iter().enumerate() {
            let device = Device::parse(written, &format!("generator{n}"))
                .map_err(|(problem, remedy)| site.wrong(problem, remedy))?;
            let Device::Dpdk { name, arguments, function: None, .. } = device else {
                return Err(site.wrong(format!("testpmd cannot send into {written}"), "use ports of DPDK's"));
            };
            words.push(format!("--vdev={name},{arguments}").trim_end_matches(',').to_owned());
        }
        words.extend(
            ["--", "-i", "--forward-mode=flowgen", "--no-mlockall", "--total-num-mbufs=16384"].map(str::to_owned),
        );
        // to a file it would say nothing before its end
        let line = Line::new("dpdk-testpmd").args(words).behind(["stdbuf", "-oL"]);
        let mut program = Program::start(site, "generator", line)?;
        program.wait(site, "the generator", |p| p.said().ends_with("testpmd>"))?;
        Ok(Testpmd { program, directions: devices.len().clamp(1, 2) as u8, stop })
    }
}

impl Sends for Testpmd {
    fn trial(&mut self, site: &Site, ask: &Ask, frame: u16) -> Result<Counted, BedError> {
        let gone = |problem: String| BedError::Gone(format!("{}: testpmd {problem}", site.name()));
        let before = self.program.length();
        let tell = |program: &mut Program, words: &str| {
            program.tell(words).map_err(|e| gone(format!("takes no command any more: {e}")))
        };
        tell(&mut self.program, &format!("set txpkts {frame}\nclear fwd stats all\nstart\n"))?;
        let until = Instant::now() + PATIENCE;
        while !self.program.said_since(before).contains(BEGUN) && Instant::now() < until {
            self.program.check(site.name()).map_err(|e| BedError::Gone(e.to_string()))?;
            std::thread::sleep(Duration::from_millis(1));
        }
        let began = Instant::now();
        // it is told by hand, which takes a millisecond or two
        let end = began + Duration::from_secs_f64(ask.duration_s().max(SHORTEST_S));
        while Instant::now() < end && !self.stop.load(Ordering::Relaxed) {
            std::thread::sleep((end - Instant::now()).min(Duration::from_millis(20)));
        }
        tell(&mut self.program, "stop\n")?;
        let elapsed_s = began.elapsed().as_secs_f64();
        let until = Instant::now() + PATIENCE;
        loop {
            let said = self.program.said_since(before);
            if let Some(counted) = sums(&said, self.directions, elapsed_s) {
                return if self.stop.load(Ordering::Relaxed) { Err(BedError::Interrupted) } else { Ok(counted) };
            }
            self.program.check(site.name()).map_err(|e| BedError::Gone(e.to_string()))?;
            if Instant::now() > until {
                return Err(gone(format!("did not say what it counted; it said:\n{said}")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The counts of all ports, once they are there.
fn sums(said: &str, directions: u8, elapsed_s: f64) -> Option<Counted> {
    let (_, block) = said.rsplit_once(SUMS)?;
    let number = |name: &str| {
        let (_, rest) = block.split_once(name)?;
        let rest = rest.trim_start();
        let digits = rest.find(|c: char| !c.is_ascii_digit()).filter(|n| *n > 0)?;
        rest[..digits].parse().ok()
    };
    Some(Counted { sent: number("TX-packets:")?, received: number("RX-packets:")?, directions, elapsed_s })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sums_are_those_said_last_and_whole() {
        let block = |rx: u64, tx: u64| {
            format!(
                "  +++ {SUMS}+++\n  RX-packets: {rx}  RX-dropped: 3  RX-total: 9\n  TX-packets: {tx}  TX-dropped: 0\n  +++\n"
            )
        };
        let both = format!("{}start\n{}Done.\n", block(1, 2), block(465_248, 931_456));
        assert_eq!(
            sums(&both, 2, 1.5),
            Some(Counted { sent: 931_456, received: 465_248, directions: 2, elapsed_s: 1.5 })
        );
        assert_eq!(sums(&format!("  +++ {SUMS}+++\n  RX-packets: 46"), 2, 1.0), None);
        assert_eq!(sums("testpmd> start\n", 2, 1.0), None);
    }
}
