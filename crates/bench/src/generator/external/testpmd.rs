//! DPDK's testpmd in mode `flowgen`: sends into all ports at the highest rate and receives, in one loop. (Mode `txonly`
//! does not receive.)

use super::program::{GeneratorProgram, ProgramCounts};
use crate::dut::{CommandLine, DutContext, DutError, Program, memory_arguments};
use crate::trial::{MeasurerError, TrialInput};
use config::Device;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Heading of the counts of all ports, printed on stop.
const TOTALS_HEADING: &str = "Accumulated forward statistics for all ports";
/// Output that shows that forwarding has started.
const STARTED: &str = "packet forwarding - ports=";
/// Shortest trial, seconds; start and stop each take a millisecond or two.
const MIN_TRIAL_S: f64 = 1.0;
/// Time limit for the output of a command.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct TestpmdGenerator {
    program: Program,
    directions: u8,
    stop: Arc<AtomicBool>,
}

impl TestpmdGenerator {
    pub(super) fn start(
        context: &mut DutContext,
        devices: &[String],
        cpu: usize,
        stop: Arc<AtomicBool>,
    ) -> Result<TestpmdGenerator, DutError> {
        let mut words = vec![format!("--lcores=0@{cpu},1@{cpu}"), "--no-pci".to_owned(), "--no-shconf".to_owned()];
        words.extend(memory_arguments().iter().map(|&s| s.to_owned()));
        for (n, written) in devices.iter().enumerate() {
            let device = Device::parse(written, &format!("generator{n}"))
                .map_err(|(problem, remedy)| context.error(problem, remedy))?;
            let Device::Dpdk { name, arguments, function: None, .. } = device else {
                return Err(context.error(format!("testpmd cannot open {written}"), "use ports of DPDK"));
            };
            words.push(format!("--vdev={name},{arguments}").trim_end_matches(',').to_owned());
        }
        words.extend(
            ["--", "-i", "--forward-mode=flowgen", "--no-mlockall", "--total-num-mbufs=16384"].map(str::to_owned),
        );
        // output to a file is block-buffered by default
        let command = CommandLine::new("dpdk-testpmd").args(words).prefixed(["stdbuf", "-oL"]);
        let mut program = Program::start(context, "generator", command)?;
        program.wait_until(context, "the generator", |p| p.output_tail().ends_with("testpmd>"))?;
        Ok(TestpmdGenerator { program, directions: devices.len().clamp(1, 2) as u8, stop })
    }
}

impl GeneratorProgram for TestpmdGenerator {
    fn trial(&mut self, context: &DutContext, input: &TrialInput, frame: u16) -> Result<ProgramCounts, MeasurerError> {
        let failed = |problem: String| MeasurerError::DutFailed(format!("{}: testpmd {problem}", context.name()));
        let before = self.program.output_len();
        let send = |program: &mut Program, commands: &str| {
            program.write_stdin(commands).map_err(|e| failed(format!("closed its standard input: {e}")))
        };
        send(&mut self.program, &format!("set txpkts {frame}\nclear fwd stats all\nstart\n"))?;
        let until = Instant::now() + OUTPUT_TIMEOUT;
        while !self.program.output_since(before).contains(STARTED) && Instant::now() < until {
            self.program.check(context.name()).map_err(|e| MeasurerError::DutFailed(e.to_string()))?;
            std::thread::sleep(Duration::from_millis(1));
        }
        let start = Instant::now();
        let end = start + Duration::from_secs_f64(input.duration_s().max(MIN_TRIAL_S));
        while Instant::now() < end && !self.stop.load(Ordering::Relaxed) {
            std::thread::sleep((end - Instant::now()).min(Duration::from_millis(20)));
        }
        send(&mut self.program, "stop\n")?;
        let elapsed_s = start.elapsed().as_secs_f64();
        let until = Instant::now() + OUTPUT_TIMEOUT;
        loop {
            let output = self.program.output_since(before);
            if let Some(counts) = parse_totals(&output, self.directions, elapsed_s) {
                return if self.stop.load(Ordering::Relaxed) { Err(MeasurerError::Interrupted) } else { Ok(counts) };
            }
            self.program.check(context.name()).map_err(|e| MeasurerError::DutFailed(e.to_string()))?;
            if Instant::now() > until {
                return Err(failed(format!("did not report its counts; its output:\n{output}")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Returns the counts of all ports from the output, once they are complete.
fn parse_totals(output: &str, directions: u8, elapsed_s: f64) -> Option<ProgramCounts> {
    let (_, block) = output.rsplit_once(TOTALS_HEADING)?;
    let number = |name: &str| {
        let (_, text) = block.split_once(name)?;
        let text = text.trim_start();
        let digits = text.find(|c: char| !c.is_ascii_digit()).filter(|n| *n > 0)?;
        text[..digits].parse().ok()
    };
    Some(ProgramCounts { sent: number("TX-packets:")?, received: number("RX-packets:")?, directions, elapsed_s })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_last_complete_totals() {
        let block = |rx: u64, tx: u64| {
            format!(
                "  +++ {TOTALS_HEADING}+++\n  RX-packets: {rx}  RX-dropped: 3  RX-total: 9\n  TX-packets: {tx}  TX-dropped: 0\n  +++\n"
            )
        };
        let both = format!("{}start\n{}Done.\n", block(1, 2), block(465_248, 931_456));
        assert_eq!(
            parse_totals(&both, 2, 1.5),
            Some(ProgramCounts { sent: 931_456, received: 465_248, directions: 2, elapsed_s: 1.5 })
        );
        assert_eq!(parse_totals(&format!("  +++ {TOTALS_HEADING}+++\n  RX-packets: 46"), 2, 1.0), None);
        assert_eq!(parse_totals("testpmd> start\n", 2, 1.0), None);
    }
}
