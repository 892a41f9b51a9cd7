//! An external device under test with the generator at its ports.

use super::QUEUE_SIZE;
use super::context::{Description, DutContext, DutError, ExpectedTraffic};
use super::driver::Device;
use super::network::sockets;
use super::process::{RunDelays, remove_leftovers};
use super::registry;
use super::spec::{DutSpec, Forward, Ports};
use super::started::StartedDevice;
use crate::generator::packet_generator::{DutStatus, InFlight, PacketGenerator, TrialProgress};
use crate::generator::packet_source::PacketSource;
use crate::traffic_spec::PreparedTraffic;
use crate::trial::{Disturbance, MeasurerError, TrialInput, TrialOutput};
use runtime::{ExternalPorts, PollTimes, PortQueues};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time limit for the links to come up.
const LINK_UP_TIMEOUT: Duration = Duration::from_secs(10);
const LINK_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Interval at which a disturbance checks that the trial has started.
const TRIAL_START_POLL_INTERVAL: Duration = Duration::from_micros(100);
/// Time without a received packet after which missing packets are lost.
const QUIET_TIMEOUT: Duration = Duration::from_millis(60);
/// Length from which a trial waits for [`DRAIN_TIMEOUT`] instead of [`QUIET_TIMEOUT`], seconds.
const LONG_TRIAL_S: f64 = 10.0;
/// Time after the last sent packet until which packets are received (RFC 2544 §23: two seconds).
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Number of packets of the forwarding check.
const CHECK_PACKETS: u64 = 200;
/// Interval between packets of the forwarding check.
const CHECK_INTERVAL: Duration = Duration::from_micros(200);
/// Time limit for receiving the packets of the forwarding check.
const CHECK_TIMEOUT: Duration = Duration::from_millis(300);
/// Rate at which a packet of each flow is sent before the trials, and largest number of these flows.
const LEARNING_PPS: f64 = 20_000.0;
const MAX_LEARNED_FLOWS: u32 = 1 << 20;
/// Rate and duration of the check of TCP connections.
const CHECK_CONNECTIONS_PER_S: f64 = 1000.0;
const CHECK_CONNECTIONS_S: f64 = 0.1;
/// Attempts of the forwarding check; a device may have to learn addresses first.
const CHECK_ATTEMPTS: u32 = 10;
/// Time limit for the first packet to be forwarded. A device that touches hundreds of megabytes of new memory takes
/// seconds.
const WARM_UP_TIMEOUT: Duration = Duration::from_secs(20);

/// An error while starting an external device or opening the ports to it.
#[derive(Debug, thiserror::Error)]
pub enum ExternalDutError {
    /// The device did not start.
    #[error(transparent)]
    Dut(#[from] DutError),
    /// A port of the generator could not be opened.
    #[error(transparent)]
    Ports(#[from] runtime::Error),
}

/// A running external device with the generator at its ports.
pub struct ExternalDut {
    // dropped first; the generator then receives the remaining packets
    started: StartedDevice,
    generator: PacketGenerator,
    ports: ExternalPorts,
    device: Box<dyn Device + Send>,
    context: DutContext,
    forward: Forward,
    /// Processes whose threads have CPUs of their own, as far as they are known.
    monitored: Vec<u32>,
    stop: Arc<AtomicBool>,
}

/// Opens devices of the generator with a pair of queues for each of its cores.
fn open(
    devices: &[String],
    cores: u16,
    longest_frame: usize,
) -> Result<(ExternalPorts, Vec<PortQueues>), runtime::Error> {
    let queues = |device: &String| match cores {
        // DPDK's driver opens one pair of queues unless more are requested
        2.. if device.starts_with("af_packet:") && !device.contains("qpairs=") => format!("{device},qpairs={cores}"),
        _ => device.clone(),
    };
    let named = devices.iter().enumerate().map(|(n, device)| (format!("generator{n}"), queues(device)));
    ExternalPorts::open(&named.collect::<Vec<_>>(), cores, longest_frame)
}

impl ExternalDut {
    /// Starts a device called `name` that has to forward `traffic`, and opens the generator's ports, with a pair of
    /// queues for the calling thread and each CPU of `further_cpus`. The calling thread has to run the trials and to
    /// outlive the device.
    ///
    /// # Errors
    /// If the device does not start, or a port cannot be opened or has too few queues.
    pub fn start(
        name: &str,
        spec: &DutSpec,
        traffic: ExpectedTraffic,
        stop: Arc<AtomicBool>,
        further_cpus: &[usize],
    ) -> Result<ExternalDut, ExternalDutError> {
        remove_leftovers();
        let mut context = DutContext::new(name, spec, traffic)?;
        let mut device = registry::device(name, spec)?;
        let cores = 1 + further_cpus.len() as u16;
        let longest_frame = context.traffic.longest_frame;
        let open = |devices: &[String]| open(devices, cores, longest_frame);
        // a front end connects when it starts
        let listening = (spec.ports == Ports::VirtioUser).then(|| {
            let devices = sockets(&context).into_iter().map(|socket| spec.ports.generator_device(&socket));
            open(&devices.collect::<Vec<_>>())
        });
        let listening = listening.transpose()?;
        let mut started = device.start(&mut context)?;
        if spec.ports == Ports::Tap {
            started.attachment().set_up_taps(&mut context)?;
        }
        let opened = listening.map_or_else(|| open(started.generator_ports()), Ok);
        // the end of the device explains more than a port without a peer
        let (ports, queues) =
            opened.map_err(|e| started.check(&context).err().map_or(ExternalDutError::Ports(e), Into::into))?;
        // the second direction enters by the second port
        let entries: Vec<usize> = (0..started.generator_ports().len().min(2)).collect();
        let mut generator = PacketGenerator::on_cores(queues, &entries, ports.pool(), false, further_cpus, ports.eal());
        generator.set_stop_flag(stop.clone());
        // sandboxes wait for the CPUs that they share with each other: that is not host interference
        let has_sandboxes = spec.chain.as_ref().is_some_and(|chain| chain.has_sandboxes);
        let monitored = if has_sandboxes { vec![] } else { started.processes() };
        let forward = spec.forward;
        let dut = ExternalDut { started, generator, ports, device, context, forward, monitored, stop };
        dut.wait_for_links()?;
        Ok(dut)
    }

    fn wait_for_links(&self) -> Result<(), DutError> {
        let end = Instant::now() + LINK_UP_TIMEOUT;
        loop {
            let links = self.ports.links();
            let Some(down) = links.iter().position(|link| *link == Some(false)) else { return Ok(()) };
            if Instant::now() > end {
                let problem = format!("the link of port {down} was not up within {} s", LINK_UP_TIMEOUT.as_secs());
                return Err(self.context.error(problem, "check the state of the device's ports"));
            }
            std::thread::sleep(LINK_POLL_INTERVAL);
        }
    }

    /// Returns the progress of trials.
    pub(crate) fn progress(&self) -> Arc<TrialProgress> {
        self.generator.progress()
    }

    /// Returns the number of ARP requests and neighbor solicitations of the device that the generator has answered.
    pub(crate) fn answers(&self) -> u64 {
        self.generator.answers()
    }

    /// Returns the number of directions that can be offered at once.
    pub fn directions(&self) -> usize {
        self.generator.stream_count()
    }

    /// Checks that the device forwards the packets of each direction, changed only as its forwarding behaviour
    /// requires.
    ///
    /// # Errors
    /// If packets are lost or changed otherwise, or if TCP connections fail.
    pub fn check_forwarding(&mut self, traffic: &PreparedTraffic) -> Result<(), DutError> {
        if traffic.tcp_settings().is_some() {
            return self.check_connections(traffic);
        }
        (0..usize::from(traffic.directions())).try_for_each(|stream| self.check_stream(traffic, stream))?;
        self.send_each_flow(traffic)
    }

    /// Sends a packet of each flow, which a device that handles the first packet of a flow differently, as Open vSwitch
    /// does, would lose at the rates of trials.
    fn send_each_flow(&mut self, traffic: &PreparedTraffic) -> Result<(), DutError> {
        let flows = traffic.flow_count().min(MAX_LEARNED_FLOWS);
        if u64::from(flows) <= CHECK_PACKETS {
            return Ok(());
        }
        let status = ProgramStatus { run_delays: RefCell::new(RunDelays::new(vec![])) };
        let input = TrialInput::constant(LEARNING_PPS, f64::from(flows) / LEARNING_PPS);
        let trial = self.generator.trial(&status, &mut traffic.packet_source(), &mut [], &input);
        trial.map(drop).map_err(|e| self.context.error(e.to_string(), "send fewer flows"))
    }

    fn check_stream(&mut self, traffic: &PreparedTraffic, stream: usize) -> Result<(), DutError> {
        self.check()?;
        let (forward, context) = (self.forward, &self.context);
        let generator = &mut self.generator;
        if stream >= generator.stream_count() {
            let problem = "has only one port, and bidirectional traffic needs two";
            return Err(context.error(problem, "remove bidirectional"));
        }
        let mut source = traffic.packet_source();
        let mut outcome = (CHECK_PACKETS, None);
        let (mut attempts, warm_up_end) = (0, Instant::now() + WARM_UP_TIMEOUT);
        while attempts < CHECK_ATTEMPTS {
            self.started.check(context)?;
            outcome = generator.check_forwarding(
                &mut source,
                stream,
                CHECK_PACKETS,
                CHECK_INTERVAL,
                CHECK_TIMEOUT,
                |sent, received| compare_frames(forward, sent, received),
            );
            if outcome == (0, None) || self.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            attempts += u32::from(outcome != (CHECK_PACKETS, None) || Instant::now() > warm_up_end);
        }
        match outcome {
            (_, Some(problem)) => Err(context.error(
                format!("does not forward as specified: {problem}"),
                "if this is intended, set forward = \"route\", \"table\" or \"any\"",
            )),
            (lost, None) => {
                let problem =
                    format!("lost {lost} of {CHECK_PACKETS} packets sent every {} us", CHECK_INTERVAL.as_micros());
                Err(context.error(problem, self.configuration_remedy("check its configuration")))
            }
        }
    }

    /// Checks that TCP connections complete at a low rate.
    fn check_connections(&mut self, traffic: &PreparedTraffic) -> Result<(), DutError> {
        let mut source = traffic.packet_source();
        let frames = traffic.tcp_settings().map_or(1, |settings| settings.client_frames());
        let input = TrialInput::constant(CHECK_CONNECTIONS_PER_S * f64::from(frames), CHECK_CONNECTIONS_S);
        let status = ProgramStatus { run_delays: RefCell::new(RunDelays::new(self.monitored.clone())) };
        let (mut failed, mut attempts, warm_up_end) = (String::new(), 0, Instant::now() + WARM_UP_TIMEOUT);
        while attempts < CHECK_ATTEMPTS {
            self.check()?;
            let output = self.generator.trial(&status, &mut source, &mut [], &input);
            let output = output.map_err(|e| self.context.error(e.to_string(), "use shorter connections"))?;
            let Some(counts) = output.trial.connections else { return Ok(()) };
            if counts.completed == counts.opened || self.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let causes = counts.failed.causes().into_iter().filter(|(_, n)| *n != 0);
            let causes: Vec<_> = causes.map(|(cause, n)| format!("{n} {cause}")).collect();
            failed =
                format!("{} of {} TCP connections failed: {}", counts.failed.sum(), counts.opened, causes.join(", "));
            attempts += u32::from(counts.completed != 0 || Instant::now() > warm_up_end);
        }
        let remedy = self.configuration_remedy("check that it forwards in both directions, and its configuration");
        Err(self.context.error(failed, remedy))
    }

    /// Returns an advice with the device's configuration and last output.
    fn configuration_remedy(&self, advice: &str) -> String {
        let (configuration, output) = (&self.started.description().configuration, self.started.output_tail());
        format!("{advice}:\n{configuration}\n{output}")
    }

    /// Returns the number of cores of the generator.
    pub(crate) fn generator_cores(&self) -> usize {
        self.generator.core_count()
    }

    /// Runs a trial with the disturbance that the input asks for, if any; `further` has the source of each further core
    /// of the generator.
    ///
    /// # Errors
    /// If the load or duration cannot be kept, or the device does not support the disturbance.
    pub(crate) fn trial(
        &mut self,
        source: &mut PacketSource<'_>,
        further: &mut [PacketSource<'_>],
        input: &TrialInput,
    ) -> Result<TrialOutput, MeasurerError> {
        let ExternalDut { started, generator, device, context, monitored, .. } = self;
        let status = &ProgramStatus { run_delays: RefCell::new(RunDelays::new(monitored.clone())) };
        let Some(disturbance) = input.disturbance else { return Ok(generator.trial(status, source, further, input)?) };
        if let Some(remedy) = device.unsupported(disturbance) {
            let action = match disturbance {
                Disturbance::Reset { .. } => "reset",
                Disturbance::Changes { .. } => "changed while it forwards",
            };
            return Err(MeasurerError::Unsupported { dut: context.name().to_owned(), what: action, remedy });
        }
        let is_local = started.description().environment.is_none();
        // this thread is pinned to the generator's CPU
        let own = runtime::allowed_cpus();
        let progress = generator.progress();
        progress.started.store(false, Ordering::Relaxed);
        progress.ended.store(false, Ordering::Relaxed);
        std::thread::scope(|scope| {
            let disturber = scope.spawn(|| {
                // keep off the generator's CPU; fails if there are too few CPUs
                let _ = if is_local { runtime::set_affinity(context.cpus()) } else { runtime::avoid_cpus(&own) };
                while !progress.started.load(Ordering::Acquire) && !progress.ended.load(Ordering::Acquire) {
                    std::thread::sleep(TRIAL_START_POLL_INTERVAL);
                }
                device.disturb(started, context, disturbance, &progress.ended)
            });
            let output = generator.trial(status, source, further, input);
            // also if the trial failed
            progress.ended.store(true, Ordering::Release);
            let report = disturber.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let report = report.map_err(|e| MeasurerError::DutFailed(e.to_string()))?;
            Ok(TrialOutput { disturbance: Some(report), ..output? })
        })
    }

    /// Checks that the device still runs.
    ///
    /// # Errors
    /// If it has ended.
    pub fn check(&mut self) -> Result<(), DutError> {
        self.started.check(&self.context)
    }

    /// Returns the description of the device for the result.
    pub fn description(&self) -> &Description {
        self.started.description()
    }

    /// Returns the generator's ports.
    pub fn ports(&self) -> &ExternalPorts {
        &self.ports
    }

    /// Closes the generator's ports and returns the running device for another generator.
    pub fn into_device(self) -> (DutContext, StartedDevice) {
        let ExternalDut { started, generator, ports, context, .. } = self;
        // packets are freed before their pool
        drop(generator);
        drop(ports);
        (context, started)
    }
}

/// Compares a received frame with the one that was sent.
///
/// # Errors
/// If it was changed in a way that the forwarding behaviour does not allow.
fn compare_frames(forward: Forward, sent: &[u8], received: &[u8]) -> Result<(), String> {
    let changed = |at: usize| format!("byte {at} of a frame changed from {:#04x} to {:#04x}", sent[at], received[at]);
    // short frames may be padded
    if received.len() < sent.len() {
        return Err(format!("a frame of {} bytes was truncated to {}", sent.len(), received.len()));
    }
    match forward {
        Forward::Table | Forward::Any => Ok(()),
        Forward::Ports | Forward::Bridge => {
            sent.iter().zip(received).position(|(a, b)| a != b).map_or(Ok(()), |at| Err(changed(at)))
        }
        Forward::Route => {
            let mut expected = sent.to_vec();
            let ttl = match expected.get(12..14) {
                Some([0x08, 0x00]) => 14 + 8,
                Some([0x86, 0xdd]) => 14 + 7,
                _ => return Err("a frame is not IP".to_owned()),
            };
            let (Some(before), Some(after)) = (sent.get(ttl), received.get(ttl)) else {
                return Err("a frame was truncated".to_owned());
            };
            if before.checked_sub(1) != Some(*after) {
                return Err(format!("a TTL of {before} became {after}"));
            }
            expected[ttl] = *after;
            // MAC addresses, TTL and the IPv4 header checksum may differ
            let may_differ = |at: usize| at < 12 || at == ttl || (ttl == 22 && (24..26).contains(&at));
            let wrong = (0..sent.len()).find(|&at| !may_differ(at) && expected[at] != received[at]);
            wrong.map_or(Ok(()), |at| Err(changed(at)))
        }
    }
}

/// What is known of a device from outside: the scheduling of its programs.
struct ProgramStatus {
    run_delays: RefCell<RunDelays>,
}

impl DutStatus for ProgramStatus {
    fn created_packets(&self) -> u64 {
        0
    }

    fn is_drained(&self, in_flight: &InFlight) -> bool {
        let timeout = if in_flight.trial_s >= LONG_TRIAL_S { DRAIN_TIMEOUT } else { QUIET_TIMEOUT };
        in_flight.outstanding == 0 || in_flight.quiet > timeout
    }

    fn drain_timeout(&self) -> Duration {
        DRAIN_TIMEOUT
    }

    fn take_poll_times(&self) -> PollTimes {
        self.run_delays.borrow_mut().take()
    }

    fn dropped_by_nfs(&self) -> u64 {
        0
    }

    fn queue_size(&self) -> u32 {
        QUEUE_SIZE
    }

    fn works_in_generator(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::MacAddr;
    use wire::build;

    #[test]
    fn compares_frames_by_forwarding_behaviour() {
        let frame = build::udp4([198, 18, 0, 1], [198, 19, 0, 1], 1000, 2000).ttl(64).payload(&[7; 20]).to_vec();
        let routed = build::udp4([198, 18, 0, 1], [198, 19, 0, 1], 1000, 2000)
            .ttl(63)
            .src_mac(MacAddr([2, 0, 0, 0, 0, 9]))
            .payload(&[7; 20])
            .to_vec();
        for forward in [Forward::Ports, Forward::Bridge, Forward::Any] {
            assert_eq!(compare_frames(forward, &frame, &frame), Ok(()));
        }
        assert_eq!(compare_frames(Forward::Route, &frame, &routed), Ok(()));
        assert!(compare_frames(Forward::Route, &frame, &frame).unwrap_err().contains("TTL of 64"));
        assert!(compare_frames(Forward::Ports, &frame, &routed).is_err());
        assert_eq!(compare_frames(Forward::Any, &frame, &routed), Ok(()));
        let mut damaged = routed.clone();
        *damaged.last_mut().unwrap() ^= 1;
        assert!(compare_frames(Forward::Route, &frame, &damaged).unwrap_err().contains("byte"));
        assert!(compare_frames(Forward::Any, &frame, &frame[..40]).is_err());
    }
}
