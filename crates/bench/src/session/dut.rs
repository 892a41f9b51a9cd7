//! The running DUT of a session, its CPUs, and its description in results.

use super::{Event, Observer, Run, Session, SessionError, Target};
use crate::dut::{DutSpec, ExpectedTraffic, ExternalDut, ExternalDutError, InProcessDut, Ports, RunningDut};
use crate::environment::HostCheck;
use crate::generator::{ExternalGenerator, Generator};
use crate::traffic_spec::{PreparedTraffic, TrafficSpec, flow_settings};
use config::ChainFile;
use diagnostics::Diagnostic;
use report::{Dut, Environment, NfInstance, Port};
use std::collections::BTreeSet;

/// Highest number of generator cores: each has up to two streams, and stream numbers are bytes.
const MAX_GENERATOR_CORES: usize = 64;

/// A running DUT, with the calling thread as the generator.
pub(super) struct SessionDut {
    pub(super) dut: RunningDut,
    /// CPUs of the generator, the first that of the calling thread; empty if the DUT is simulated.
    pub(super) generator_cpus: Vec<usize>,
    /// CPUs of the DUT.
    pub(super) dut_cpus: Vec<usize>,
    /// CPUs of this host that generator and DUT use.
    pub(super) cpus: Vec<usize>,
    pub(super) memory: runtime::Name,
    /// MeasurementSettings the DUT was started, if it is another program.
    pub(super) spec: Option<DutSpec>,
    pub(super) host_check: Option<HostCheck>,
    _lcore: Option<dpdk::LcoreGuard>,
}

impl Session {
    /// Starts the DUT of a run.
    pub(super) fn start_dut(
        &self,
        run: &Run<'_>,
        traffic: &[PreparedTraffic],
        observer: &mut dyn Observer,
    ) -> Result<SessionDut, SessionError> {
        let longest_frame = longest_frame(traffic);
        let dut = match run.target {
            Target::InProcess(file) if longest_frame > file.max_frame => {
                let mut file = file.clone();
                file.max_frame = longest_frame;
                self.start_in_process(&file, run.traffic.is_bidirectional(), observer)?
            }
            Target::InProcess(file) => self.start_in_process(file, run.traffic.is_bidirectional(), observer)?,
            Target::External { name, spec, file } => self.start_external(name, spec, file, run, traffic)?,
            // a simulated device rejects profiles when a trial starts
            Target::Simulated { device, .. }
                if run.traffic.is_bidirectional() && !matches!(run.traffic, TrafficSpec::Profile(_)) =>
            {
                let problem = "--bidirectional: a simulated device has one direction";
                let remedy = "leave out both directions, or the second capture";
                return Err(Diagnostic::new(problem).value(device).remedy(remedy).into());
            }
            Target::Simulated { device, .. } => {
                observer.on_event(&Event::DutStarted { in_process: false, cpus: None });
                return Ok(SessionDut {
                    dut: RunningDut::Simulated(Box::new(device.clone())),
                    generator_cpus: vec![],
                    dut_cpus: vec![],
                    cpus: vec![],
                    memory: "none".into(),
                    spec: None,
                    host_check: None,
                    _lcore: None,
                });
            }
        };
        let in_process = matches!(run.target, Target::InProcess(_));
        observer.on_event(&Event::DutStarted { in_process, cpus: Some((&dut.dut_cpus, &dut.generator_cpus)) });
        Ok(dut)
    }

    fn start_in_process(
        &self,
        file: &ChainFile,
        bidirectional: bool,
        observer: &mut dyn Observer,
    ) -> Result<SessionDut, SessionError> {
        self.check_generator_cpus()?;
        let further = self.generator_cpus.get(1..).unwrap_or_default();
        let mut dut = InProcessDut::start_with_cores(file, &self.registry, bidirectional, further)?;
        dut.set_stop_flag(self.cancel.flag());
        for note in dut.chains().notes() {
            observer.on_event(&Event::Note(&note.to_string()));
        }
        let started = dut.chains().snapshot();
        let dut_cpus: Vec<usize> = started.workers.keys().copied().collect();
        let is_chain =
            |name: &String| !started.sandboxes.iter().any(|sandbox| *name == format!("sandbox {}", sandbox.name));
        let chain_workers = started.workers.iter().filter(|(_, worker)| worker.chains.iter().any(is_chain));
        let chain_cpus: Vec<usize> = chain_workers.map(|(cpu, _)| *cpu).collect();
        // with too few CPUs the generator shares one with a sandbox rather than with a chain
        let generator_cpus = self.choose_generator_cpus(&dut_cpus).or_else(|e| match started.sandboxes.is_empty() {
            true => Err(e),
            false => self.choose_generator_cpus(&chain_cpus).inspect(|cpus| {
                let note = format!(
                    "the generator shares CPU {} with a sandbox, and each gets half of it; with more CPUs rates are higher",
                    list(cpus)
                );
                observer.on_event(&Event::Note(&note));
            }),
        })?;
        pin_generator(&generator_cpus)?;
        let lcore = dut.chains().engine().eal().register_thread().ok();
        let cpus: BTreeSet<usize> = dut_cpus.iter().copied().chain(generator_cpus.iter().copied()).collect();
        Ok(SessionDut {
            dut: RunningDut::InProcess(Box::new(dut)),
            generator_cpus,
            dut_cpus,
            cpus: cpus.into_iter().collect(),
            memory: started.memory,
            spec: None,
            host_check: None,
            _lcore: lcore,
        })
    }

    fn start_external(
        &self,
        name: &str,
        spec: &DutSpec,
        file: &ChainFile,
        run: &Run<'_>,
        traffic: &[PreparedTraffic],
    ) -> Result<SessionDut, SessionError> {
        let allowed = runtime::allowed_cpus();
        let mut spec = spec.clone();
        let is_local = spec.remote.is_none();
        self.check_generator_cpus()?;
        if let ([_, _, ..], false) = (&self.generator_cpus[..], run.generator == Generator::Bondstone) {
            let d = Diagnostic::new("--core: another generator than Bondstone has one core")
                .value(list(&self.generator_cpus))
                .remedy("name one CPU");
            return Err(d.into());
        }
        let generator_cpus = self.choose_generator_cpus(if is_local { &spec.cpus } else { &[] })?;
        if spec.cpus.is_empty() && is_local {
            spec.cpus = allowed.iter().copied().filter(|cpu| !generator_cpus.contains(cpu)).collect();
        }
        if let Some(cpu) = spec.cpus.iter().find(|cpu| is_local && !allowed.contains(cpu)) {
            let problem =
                format!("{name}: CPU {cpu} is not available to this process, which may use {}", list(&allowed));
            let remedy = "set other CPUs: cpus = [0]".to_owned();
            return Err(runtime::Error::Environment { problem, remedy }.into());
        }
        pin_generator(&generator_cpus)?;
        let destinations = match &file.traffic.dst[..] {
            [] => vec!["198.19.0.0/16".to_owned()],
            all => all.to_vec(),
        };
        let expected = ExpectedTraffic {
            dst_mac: flow_settings(file, 1)?.dst_mac,
            destinations,
            trace: run.traffic.trace(),
            longest_frame: longest_frame(traffic),
        };
        let mut dut = ExternalDut::start(name, &spec, expected, self.cancel.flag(), &generator_cpus[1..])?;
        let lcore = dut.ports().eal().register_thread().ok();
        let memory = dut.ports().memory().into();
        let (dut_cpus, cpus) = match &dut.description().environment {
            Some(remote) => (remote.cpus_used.iter().map(|cpu| *cpu as usize).collect(), generator_cpus.clone()),
            None => (spec.cpus.clone(), spec.cpus.iter().copied().chain(generator_cpus.iter().copied()).collect()),
        };
        let dut = if run.generator == Generator::Bondstone {
            RunningDut::External(Box::new(dut))
        } else {
            for traffic in traffic {
                dut.check_forwarding(traffic).map_err(ExternalDutError::from)?;
            }
            let external =
                ExternalGenerator::start(dut.into_device(), &run.generator, generator_cpus[0], self.cancel.flag())
                    .map_err(ExternalDutError::from)?;
            RunningDut::ExternalGenerator(Box::new(external))
        };
        Ok(SessionDut {
            dut,
            generator_cpus,
            dut_cpus,
            cpus,
            memory,
            spec: Some(spec),
            host_check: None,
            _lcore: lcore,
        })
    }

    /// Checks that each CPU that was set exists, may be used and is named once.
    fn check_generator_cpus(&self) -> Result<(), SessionError> {
        let (cpus, allowed) = (&self.generator_cpus, runtime::allowed_cpus());
        let error = |problem: String, remedy: &str| {
            Err(Diagnostic::new(format!("--core: {problem}")).value(list(cpus)).remedy(remedy).into())
        };
        for (n, cpu) in cpus.iter().enumerate() {
            if !allowed.contains(cpu) {
                let problem = format!("CPU {cpu} is not one of the CPUs that this process may use: {}", list(&allowed));
                return error(problem, "name fewer or other CPUs");
            }
            if cpus[..n].contains(cpu) {
                return error(format!("CPU {cpu} is named twice"), "name each CPU once");
            }
        }
        match cpus.len() {
            0..=MAX_GENERATOR_CORES => Ok(()),
            n => error(format!("{n} CPUs, and a generator has at most {MAX_GENERATOR_CORES}"), "name fewer CPUs"),
        }
    }

    /// Returns the CPUs that were set, or the last allowed one that is not in use.
    fn choose_generator_cpus(&self, used: &[usize]) -> Result<Vec<usize>, SessionError> {
        if !self.generator_cpus.is_empty() {
            return Ok(self.generator_cpus.clone());
        }
        let allowed = runtime::allowed_cpus();
        let free = allowed.iter().rev().find(|cpu| !used.contains(cpu)).copied();
        free.map(|cpu| vec![cpu]).ok_or_else(|| {
            let problem = format!("no CPU is left for the generator: the chains use all CPUs ({})", list(used));
            let remedy = "give the chains fewer cores, or share one with --core N, which lowers the rates".to_owned();
            runtime::Error::Environment { problem, remedy }.into()
        })
    }
}

/// Returns the bytes of the longest frame of all traffic, without FCS.
pub(super) fn longest_frame(traffic: &[PreparedTraffic]) -> usize {
    traffic.iter().map(PreparedTraffic::longest_frame).max().unwrap_or(0)
}

/// Pins the calling thread to the first CPU of the generator.
fn pin_generator(cpus: &[usize]) -> Result<(), SessionError> {
    cpus.iter().take(1).try_for_each(|&cpu| runtime::pin(cpu).map_err(|source| SessionError::Pin { cpu, source }))
}

fn list(cpus: &[usize]) -> String {
    cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Returns the isolation of the NFs of a file.
fn isolation(file: &ChainFile) -> String {
    let kinds: BTreeSet<&str> = file.sandboxes.iter().map(|sandbox| sandbox.isolation.name()).collect();
    if kinds.is_empty() { "inproc".to_owned() } else { kinds.into_iter().collect::<Vec<_>>().join(", ") }
}

/// Returns the facts of the host of a remote DUT, with names that begin with `dut`.
pub(super) fn remote_environment(remote: &Environment) -> impl Iterator<Item = (String, String)> {
    let list = |cpus: &[u32]| cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let isolated = Some(list(&remote.isolated_cpus)).filter(|cpus| !cpus.is_empty());
    let facts = [
        ("CPU", Some(remote.cpu.clone())),
        ("kernel", Some(remote.kernel.clone())),
        ("huge pages", Some(remote.hugepages.to_string())),
        ("isolated CPUs", isolated),
        ("hypervisor", remote.hypervisor.clone()),
        ("DPDK", remote.dpdk_version.clone()),
    ];
    let facts = facts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    facts.chain(remote.extra.clone()).map(|(name, value)| (format!("dut {name}"), value))
}

impl SessionDut {
    /// Returns deviations of a result that the setup causes.
    pub(super) fn deviations(&self) -> Vec<String> {
        let mut all = match (self.dut.description(), &self.spec) {
            (Some(description), Some(spec)) => {
                let ports = match (&spec.remote, &spec.ports) {
                    (Some(_), _) => "the DUT runs on another host, whose facts begin with \"dut\"; timestamps are \
                         taken in software"
                        .to_owned(),
                    (None, Ports::Devices(_)) => {
                        "the DUT is connected to these ports; timestamps are taken in software".to_owned()
                    }
                    (None, ports) => format!(
                        "generator and DUT share one host, joined by {ports} ports, and timestamps are taken in \
                         software: no NIC, no line rate"
                    ),
                };
                let sender = match &self.dut {
                    RunningDut::ExternalGenerator(external) => Some(format!(
                        "{} sent and counted, after Bondstone had checked that the DUT forwards correctly",
                        external.generator()
                    )),
                    _ => None,
                };
                [ports].into_iter().chain(sender).chain(description.remarks.iter().cloned()).collect()
            }
            _ if matches!(self.dut, RunningDut::Simulated(_)) => {
                vec!["the DUT is simulated, in virtual time: nothing was sent".to_owned()]
            }
            _ => vec![
                "ports are in-memory rings and timestamps are taken in software on this host: no NIC, no link, no \
                 line rate"
                    .to_owned(),
            ],
        };
        if self.dut.answers() != 0 {
            all.push("the generator answered ARP requests or neighbor solicitations of the DUT".to_owned());
        }
        all
    }

    /// Returns the description of the DUT in a result.
    pub(super) fn document(&self, run: &Run<'_>) -> Dut {
        let cores = self.dut_cpus.iter().map(|c| *c as u32).collect();
        let nfs = |file: &ChainFile| {
            let nf = |n: &config::NfConfig| NfInstance { name: n.name.clone(), kind: n.kind.name.to_owned() };
            file.nfs.iter().map(nf).collect()
        };
        match (self.dut.description(), run.target) {
            (Some(description), Target::External { spec, file, .. }) => {
                let mut configuration = description.configuration.clone();
                configuration.truncate(configuration.floor_char_boundary(report::limit::CHAIN));
                let device = |n: usize| match &spec.ports {
                    Ports::Devices(all) => all[n].clone(),
                    ports => ports.to_string(),
                };
                let port = |n: usize| Port { name: format!("port{n}"), device: device(n), driver: None };
                Dut {
                    kind: spec.kind.clone(),
                    version: description.version.clone(),
                    file: None,
                    chain_sha256: Some(report::sha256(configuration.as_bytes())),
                    chain: Some(configuration),
                    isolation: Some(if file.sandboxes.is_empty() { spec.env.to_string() } else { isolation(file) }),
                    nfs: if spec.chain.is_some() { nfs(file) } else { vec![] },
                    ports: (0..spec.ports.count()).map(port).collect(),
                    cores,
                }
            }
            (_, Target::Simulated { device, .. }) => {
                let text = device.to_string();
                Dut {
                    kind: "simulated".to_owned(),
                    chain_sha256: Some(report::sha256(text.as_bytes())),
                    chain: Some(text),
                    isolation: Some("simulated".to_owned()),
                    ..Dut::default()
                }
            }
            (_, target) => {
                let file = target.file();
                let port = |p: &config::Port| Port { name: p.name.clone(), device: "wire".to_owned(), driver: None };
                Dut {
                    kind: "bondstone".to_owned(),
                    version: Some(env!("CARGO_PKG_VERSION").to_owned()),
                    file: Some(file.file.display().to_string()),
                    chain_sha256: Some(report::sha256(file.text.as_bytes())),
                    chain: Some(file.text.clone()),
                    isolation: Some(isolation(file)),
                    nfs: nfs(file),
                    ports: file.ports.iter().map(port).collect(),
                    cores,
                }
            }
        }
    }
}
