//! Devices that run, with a generator at their ports.

use super::{Desk, Job, Under, words, wrong};
use anyhow::Context;
use bench::dut::{Plan, Ports, SentTo};
use bench::{Generator, Machine, Offered, Rig, RigError, Sent, Stand, Wired};
use config::ChainFile;
use diagnostics::Diagnostics;
use report::{Dut, Environment, NfUse, Port};

/// A device that runs, and where.
pub(super) struct Standing {
    pub(super) stand: Stand,
    /// CPU of the generator.
    pub(super) core: usize,
    /// CPUs of the device.
    pub(super) used: Vec<usize>,
    /// All of these.
    pub(super) cpus: Vec<usize>,
    pub(super) memory: runtime::Name,
    /// The plan of another program.
    pub(super) plan: Option<Plan>,
    /// What was seen of these CPUs before.
    pub(super) machine: Option<Machine>,
    pub(super) _lcore: Option<dpdk::LcoreGuard>,
}

impl Desk {
    /// Starts the device, with the calling thread as the generator.
    pub(super) fn stand(&self, job: &Job<'_>, offered: &[Offered]) -> anyhow::Result<Standing> {
        let at = match job.dut {
            Under::Chain(file) => self.wired(file, job.sent.is_both_ways())?,
            Under::Rig { name, plan, file } => self.rig(name, plan, file, job, offered)?,
            // of a profile it says itself that it cannot be sent
            Under::Simulated { device, .. } if job.sent.is_both_ways() && !matches!(job.sent, Sent::Profile(_)) => {
                let problem = "a simulated device has one direction; leave it out, or the second capture";
                return Err(wrong("both-ways", device, problem));
            }
            Under::Simulated { device, .. } => {
                eprintln!("{}: a simulated device, in virtual time", job.label);
                let stand = Stand::Simulated(Box::new(device.clone()));
                return Ok(Standing {
                    stand,
                    core: 0,
                    used: vec![],
                    cpus: vec![],
                    memory: "none".into(),
                    plan: None,
                    machine: None,
                    _lcore: None,
                });
            }
        };
        let what = match job.dut {
            Under::Chain(_) => "chains",
            _ => "device",
        };
        eprintln!("{}: {what} on CPU {}, generator on CPU {}", job.label, words(&at.used), at.core);
        Ok(at)
    }

    fn wired(&self, file: &ChainFile, both_ways: bool) -> anyhow::Result<Standing> {
        let mut wired = Wired::start(file, &self.registry, both_ways)?;
        wired.stop_when(self.interrupted.clone());
        for note in wired.chains().notes() {
            eprintln!("note: {note}");
        }
        let started = wired.chains().snapshot();
        let used: Vec<usize> = started.workers.keys().copied().collect();
        let is_chain = |name: &String| !started.walls.iter().any(|wall| *name == format!("wall {}", wall.name));
        let of_chains = started.workers.iter().filter(|(_, names)| names.iter().any(is_chain));
        let of_chains: Vec<usize> = of_chains.map(|(cpu, _)| *cpu).collect();
        // too few CPUs for all: rather beside a wall than beside the chains
        let core = self.generator(&used).or_else(|e| match started.walls.is_empty() {
            true => Err(e),
            false => self.generator(&of_chains).inspect(|core| {
                eprintln!("note: the generator shares CPU {core} with a wall, and each gets half of it: more CPUs would measure more");
            }),
        })?;
        runtime::pin(core).with_context(|| format!("the generator cannot be kept on CPU {core}"))?;
        let lcore = wired.chains().engine().eal().register_thread().ok();
        let cpus: std::collections::BTreeSet<usize> = used.iter().copied().chain([core]).collect();
        let cpus = cpus.into_iter().collect();
        let stand = Stand::Wired(Box::new(wired));
        Ok(Standing { stand, core, used, cpus, memory: started.memory, plan: None, machine: None, _lcore: lcore })
    }

    fn rig(
        &self,
        name: &str,
        plan: &Plan,
        file: &ChainFile,
        job: &Job<'_>,
        offered: &[Offered],
    ) -> anyhow::Result<Standing> {
        let allowed = runtime::allowed_cpus();
        let mut plan = plan.clone();
        let is_here = plan.elsewhere.is_none();
        let core = self.generator(if is_here { &plan.cpus } else { &[] })?;
        if plan.cpus.is_empty() && is_here {
            plan.cpus = allowed.iter().copied().filter(|cpu| *cpu != core).collect();
        }
        if let Some(absent) = plan.cpus.iter().find(|cpu| is_here && !allowed.contains(cpu)) {
            let problem =
                format!("{name}: CPU {absent} is not there for this process, which may use {}", words(&allowed));
            let remedy = "write others: cpus = [0]".to_owned();
            return Err(runtime::Error::Environment { problem, remedy }.into());
        }
        runtime::pin(core).with_context(|| format!("the generator cannot be kept on CPU {core}"))?;
        let settings = bench::flow_settings(file, 1).map_err(|d| Diagnostics(vec![d]))?;
        let destinations = match &file.traffic.dst[..] {
            [] => vec!["198.19.0.0/16".to_owned()],
            all => all.to_vec(),
        };
        let sent = SentTo { dst_mac: settings.dst_mac, destinations, trace: job.sent.trace() };
        let mut rig = Rig::start(name, &plan, sent, self.interrupted.clone())?;
        let lcore = rig.outside().eal().register_thread().ok();
        let memory = rig.outside().memory().into();
        let (used, cpus) = match &rig.about().environment {
            Some(there) => (there.cpus_used.iter().map(|cpu| *cpu as usize).collect(), vec![core]),
            None => (plan.cpus.clone(), plan.cpus.iter().copied().chain([core]).collect()),
        };
        let stand = if job.generator == Generator::Bondstone {
            Stand::Rig(Box::new(rig))
        } else {
            for offered in offered {
                rig.conform(offered).map_err(RigError::from)?;
            }
            Stand::Foreign(Box::new(rig.hand_over(&job.generator, core).map_err(RigError::from)?))
        };
        Ok(Standing { stand, core, used, cpus, memory, plan: Some(plan), machine: None, _lcore: lcore })
    }

    fn generator(&self, used: &[usize]) -> anyhow::Result<usize> {
        let allowed = runtime::allowed_cpus();
        let free = allowed.iter().rev().find(|cpu| !used.contains(cpu)).copied();
        self.core.or(free).ok_or_else(|| {
            let problem = format!("the chains use all CPUs ({}), and the generator needs one of its own", words(used));
            let remedy =
                "give the chains fewer cores, or share one with --core N, which measures both together".to_owned();
            runtime::Error::Environment { problem, remedy }.into()
        })
    }
}

/// What the NFs of a file are in.
fn walls(file: &ChainFile) -> String {
    let kinds: std::collections::BTreeSet<&str> = file.walls.iter().map(|wall| wall.isolation.name()).collect();
    if kinds.is_empty() { "inproc".to_owned() } else { kinds.into_iter().collect::<Vec<_>>().join(", ") }
}

/// Facts of the machine that the device runs on, to stand beside those of this one.
pub(super) fn elsewhere(there: &Environment) -> impl Iterator<Item = (String, String)> {
    let list = |cpus: &[u32]| cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let isolated = Some(list(&there.isolated_cpus)).filter(|cpus| !cpus.is_empty());
    let facts = [
        ("CPU", Some(there.cpu.clone())),
        ("kernel", Some(there.kernel.clone())),
        ("huge pages", Some(there.hugepages.to_string())),
        ("isolated CPUs", isolated),
        ("hypervisor", there.hypervisor.clone()),
        ("DPDK", there.dpdk_version.clone()),
    ];
    let facts = facts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    facts.chain(there.more.clone()).map(|(name, value)| (format!("dut {name}"), value))
}

impl Standing {
    /// What a reader of a result has to know.
    pub(super) fn remarks(&self) -> Vec<String> {
        match (self.stand.about(), &self.plan) {
            (Some(about), Some(plan)) => {
                let ports = match (&plan.elsewhere, &plan.ports) {
                    (Some(_), _) => "the device is on another machine, whose facts are those that begin with \"dut\"; stamps are \
                                     by software"
                        .to_owned(),
                    (None, Ports::Devices(_)) => "the device is at the ends of these ports; stamps are by software".to_owned(),
                    (None, ports) => format!(
                        "generator and device are on one host, joined by {ports} ports, and stamps are by software: no NIC, \
                         no line rate"
                    ),
                };
                let sender = match &self.stand {
                    Stand::Foreign(foreign) => Some(format!(
                        "{} sent and counted, after Bondstone had seen that the device forwards as it should",
                        foreign.generator()
                    )),
                    _ => None,
                };
                [ports].into_iter().chain(sender).chain(about.remarks.iter().cloned()).collect()
            }
            _ if matches!(self.stand, Stand::Simulated(_)) => vec!["the device is simulated: nothing was sent, and no time passed".to_owned()],
            _ => vec![
                "ports are wires in memory and departure and arrival are stamped by software on this host: no NIC, no link, \
                 no line rate"
                    .to_owned(),
            ],
        }
    }

    /// What a result says of the device.
    pub(super) fn dut(&self, job: &Job<'_>) -> Dut {
        let cores = self.used.iter().map(|c| *c as u32).collect();
        let nfs = |file: &ChainFile| {
            let nf = |n: &config::NfUse| NfUse { name: n.name.clone(), kind: n.kind.name.to_owned() };
            file.nfs.iter().map(nf).collect()
        };
        match (self.stand.about(), job.dut) {
            (Some(about), Under::Rig { plan, file, .. }) => {
                let mut configuration = about.configuration.clone();
                configuration.truncate(configuration.floor_char_boundary(report::limit::CHAIN));
                let device = |n: usize| match &plan.ports {
                    Ports::Devices(all) => all[n].clone(),
                    ports => ports.to_string(),
                };
                let port = |n: usize| Port { name: format!("port{n}"), device: device(n), driver: None };
                Dut {
                    kind: plan.kind.name().to_owned(),
                    version: about.version.clone(),
                    file: None,
                    chain_sha256: Some(report::sha256(configuration.as_bytes())),
                    chain: Some(configuration),
                    isolation: Some(if file.walls.is_empty() { plan.env.to_string() } else { walls(file) }),
                    nfs: if plan.chain.is_some() { nfs(file) } else { vec![] },
                    ports: (0..plan.ports.count()).map(port).collect(),
                    cores,
                }
            }
            (_, Under::Simulated { device, .. }) => {
                let text = device.to_string();
                Dut {
                    kind: "simulated".to_owned(),
                    chain_sha256: Some(report::sha256(text.as_bytes())),
                    chain: Some(text),
                    isolation: Some("simulated".to_owned()),
                    ..Dut::default()
                }
            }
            (_, under) => {
                let file = under.file();
                let port = |p: &config::Port| Port { name: p.name.clone(), device: "wire".to_owned(), driver: None };
                Dut {
                    kind: "bondstone".to_owned(),
                    version: Some(env!("CARGO_PKG_VERSION").to_owned()),
                    file: Some(file.file.display().to_string()),
                    chain_sha256: Some(report::sha256(file.text.as_bytes())),
                    chain: Some(file.text.clone()),
                    isolation: Some(walls(file)),
                    nfs: nfs(file),
                    ports: file.ports.iter().map(port).collect(),
                    cores,
                }
            }
        }
    }
}
