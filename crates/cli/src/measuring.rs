//! What every command that measures chains shares: the generator's CPU, the trials, the documents, where they are kept.

use crate::exit::Exit;
use crate::interrupt::on_interrupt;
use anyhow::Context;
use bench::dut::{Plan, SentTo};
use bench::method::{self, Settings, Stopped};
use bench::scenario::{self, How};
use bench::search::SearchKind;
use bench::simulated::Simulated;
use bench::{
    Ask, Bed, BedError, Findings, LimitedBy, Machine, Offered, Rig, RigError, Scenario, Seen, Sent, Stand, Steal,
    Trace, Trial, Way, Wired,
};
use chain::ChainFile;
use graph::{Diagnostic, Diagnostics};
use report::{Dut, NfUse, Port, Tool};
use results::Store;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Where results go.
#[derive(clap::Args)]
pub(crate) struct Keep {
    /// Database that results are added to, a file or postgres://USER@HOST/DATABASE; by default $BONDSTONE_DB or the user's.
    #[arg(long, value_name = "FILE-or-URL")]
    db: Option<PathBuf>,
    /// Page that the results are shown on; by default beside the database.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// A device and what it is offered.
pub(crate) struct Job<'a> {
    pub(crate) dut: Under<'a>,
    /// For people: what this is.
    pub(crate) label: String,
    pub(crate) study: String,
    pub(crate) cell: BTreeMap<String, String>,
    pub(crate) sent: Sent,
    pub(crate) how: How,
}

/// What is known of a device from a method before.
#[derive(Clone, Copy)]
struct Found {
    summary: report::Summary,
    limited_by: report::LimitedBy,
}

/// What a method is told, for these frames.
fn settings(job: &Job<'_>, offered: &Offered, throughput_pps: Option<f64>) -> anyhow::Result<Settings> {
    let how = &job.how;
    let line_of = |bps| report::rate::line_pps(bps, offered.document().frames.mean_bytes());
    let given = how.line_bps.map(line_of);
    // ports in memory have no rate of their own: a device that is faster than the usual one is to be overloaded too
    let usual = line_of(report::rate::TEN_GBE_BPS).max(throughput_pps.unwrap_or(0.0) * OVERLOAD);
    let mut settings = Settings {
        line_pps: Some(given.unwrap_or(usual).min(traffic::pace::MAX_PPS)),
        throughput_pps,
        rate_pps: how.rate_pps,
        search: how.search,
        soak_s: how.soak_s,
        ..Settings::new(how.form, how.goal, bench::limits(&how.goal, given)?)
    };
    if let Sent::Made { shape, .. } = &job.sent
        && let Some(short) = shape.short
    {
        settings.packets_per_connection = short.packets.into();
    }
    Ok(settings)
}

/// Methods whose 100 % is what the medium carries.
fn asks_for_a_line(method: &str) -> bool {
    matches!(method, "loss" | "back-to-back" | "recovery")
}

/// Of a throughput, as much is offered at most where the medium sets no limit.
const OVERLOAD: f64 = 1.5;

/// What is measured.
#[derive(Clone, Copy)]
pub(crate) enum Under<'a> {
    /// A chain in this process.
    Chain(&'a ChainFile),
    /// Another program, called so; the file says what is sent.
    Rig { name: &'a str, plan: &'a Plan, file: &'a ChainFile },
    /// Numbers.
    Simulated { device: &'a Simulated, file: &'a ChainFile },
}

impl Under<'_> {
    /// The chain file whose `[traffic]` says what is sent.
    fn file(&self) -> &ChainFile {
        match self {
            Under::Chain(file) | Under::Rig { file, .. } | Under::Simulated { file, .. } => file,
        }
    }
}

/// What came of a job.
pub(crate) struct Outcome {
    /// For each sort of frames, as far as it came.
    pub(crate) results: Vec<report::Result>,
    /// How the job ended.
    pub(crate) exit: Exit,
}

/// Measures, and keeps what was measured.
pub(crate) struct Desk {
    store: Store,
    db: PathBuf,
    page: Option<PathBuf>,
    interrupted: Arc<AtomicBool>,
    /// CPU of the generator, if the user named one.
    core: Option<usize>,
    /// Whether it was said what the machine is good for.
    told: AtomicBool,
}

impl Desk {
    /// Opens the database; from here on Ctrl-C ends measurements, not the program.
    pub(crate) fn open(keep: &Keep, core: Option<usize>) -> anyhow::Result<Desk> {
        let db = keep.db.clone().map_or_else(results::default_path, Ok)?;
        let store = Store::open(&db)?;
        // as it may be shown: a URL without its password
        let db = PathBuf::from(store.place().to_string());
        let interrupted = Arc::new(AtomicBool::new(false));
        let seen = interrupted.clone();
        on_interrupt(move || seen.store(true, Ordering::Relaxed))?;
        Ok(Desk { store, db, page: keep.report.clone(), interrupted, core, told: AtomicBool::new(false) })
    }

    /// Whether the user wants an end.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// The database.
    pub(crate) fn db(&self) -> &Path {
        &self.db
    }

    /// Starts a device and measures it with every sort of frames, and then what generator and ports do without it; each
    /// result is kept at once.
    ///
    /// # Errors
    /// Wrong input, a machine that lacks something, a database that fails. What ends a measurement under way is no error
    /// but an [`Exit`]; the results up to then are there.
    pub(crate) fn measure(&mut self, job: &Job<'_>) -> anyhow::Result<Outcome> {
        // a thread of its own: the generator stays on one CPU, and the next job may choose from all of them again
        std::thread::scope(|scope| {
            let run = scope.spawn(|| self.measure_here(job));
            run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn measure_here(&mut self, job: &Job<'_>) -> anyhow::Result<Outcome> {
        let file = job.dut.file();
        let offered = match job.sent.ready(file, &self.interrupted) {
            Err(_) if self.is_interrupted() => return Ok(Outcome { results: vec![], exit: Exit::Interrupted }),
            ready => ready.map_err(|d| Diagnostics(vec![d]))?,
        };
        let allowed = runtime::allowed_cpus();
        // this thread, and with it the device that it starts
        let first = runtime::put_first();
        let generator = self.core.or(allowed.last().copied());
        let others = allowed.iter().copied().filter(|cpu| Some(*cpu) != generator).take(1);
        let machine = match job.dut {
            Under::Simulated { .. } => None,
            _ => Some(Machine::watch(&others.chain(generator).collect::<Vec<_>>())),
        };
        let mut at = self.stand(job)?;
        self.tell(machine.as_ref());
        at.machine = machine;
        offered.iter().filter_map(Offered::trace).for_each(introduce);

        // each result with the number of its frames
        let mut results: Vec<(usize, report::Result)> = vec![];
        let (mut ended, mut met): (Option<Stopped>, bool) = (None, true);
        let mut unfit = None;
        'frames: for (number, offered) in offered.iter().enumerate() {
            if let Stand::Rig(rig) = &mut at.stand
                && let Err(e) = rig.conform(offered)
            {
                unfit = Some(RigError::from(e));
                break;
            }
            let mut found: Option<Found> = None;
            for name in &job.how.methods {
                let priority = if first { "before others (nice -20)" } else { "as others" };
                if name == "connections" && !job.sent.is_short() {
                    eprintln!("{name}: not measured: the packets are of no connections; say --short 10x1024");
                    met = false;
                    continue;
                }
                // a connection's packets are not those that the throughput was measured with
                let before = found.filter(|_| !matches!(&**name, "throughput" | "load" | "connections"));
                let mut carried = self.carry_out(job, &mut at, offered, name, before)?;
                carried.environment.more.insert("priority".to_owned(), priority.to_owned());
                match carried.ended.take() {
                    None => {}
                    // what this device cannot do is no reason not to measure what it can
                    Some(Stopped::Bed(e @ BedError::Cannot { .. })) => {
                        eprintln!("{}: not measured: {e}", carried.what);
                        met = false;
                        continue;
                    }
                    Some(e) => ended = Some(e),
                }
                let findings = &mut carried.findings;
                if ended.is_some() {
                    if findings.trials.is_empty() {
                        break 'frames;
                    }
                    findings.deviations.insert(0, "it was ended early: what was found until then".to_owned());
                }
                if name == "throughput" && findings.summary.lower_pps >= 1.0 {
                    found = Some(Found { summary: findings.summary, limited_by: findings.limit() });
                }
                met &= findings.summary.lower_pps > 0.0 || !asks_for_a_rate(name);
                explain(offered, &carried);
                let mut result = document(job, &at, &carried, offered, before);
                result.seal()?;
                self.store.add(&result)?;
                results.push((number, result));
                if ended.is_some() {
                    break 'frames;
                }
            }
        }
        let Standing { stand, core, used, plan, .. } = at;
        let summary = match stand {
            Stand::Wired(wired) => Some(wired.stop()),
            Stand::Rig(rig) => {
                rig.stop();
                None
            }
            Stand::Simulated(_) => None,
        };
        if ended.is_none() && unfit.is_none() {
            match self.calibrate(&mut results, plan.as_ref(), &used, core, &allowed, &offered) {
                Err(CalibrationError::Trials(e)) => ended = Some(e),
                // the results are good without
                Err(CalibrationError::Stand(e)) => eprintln!("warning: not calibrated: {e:#}"),
                Ok(()) => {}
            }
        }
        let mut results: Vec<report::Result> = results.into_iter().map(|(_, result)| result).collect();
        for result in results.iter_mut().filter(|r| r.calibration.is_some()) {
            let uncalibrated = core::mem::take(&mut result.id);
            result.seal()?;
            self.store.add(result)?;
            self.store.delete(&uncalibrated)?;
        }
        if let Some(e) = unfit {
            if results.is_empty() {
                return Err(e.into());
            }
            eprintln!("error: {e}");
            return Ok(Outcome { results, exit: Exit::Environment });
        }
        let faults = summary.as_ref().map_or(&[][..], |s| &s.faults);
        for fault in faults {
            eprintln!("error: {fault}");
        }
        let exit = match ended {
            Some(Stopped::Bed(BedError::Interrupted)) => Exit::Interrupted,
            _ if self.is_interrupted() => Exit::Interrupted,
            Some(e) => {
                eprintln!("error: {e}");
                Exit::Failed
            }
            None if summary.as_ref().is_some_and(|s| !s.balanced) => {
                eprintln!("error: the counts of packets do not add up; this is a bug in Bondstone");
                Exit::Failed
            }
            None if !faults.is_empty() => Exit::Failed,
            None if !met => Exit::NotMet,
            None => Exit::Done,
        };
        Ok(Outcome { results, exit })
    }

    /// Says once what the machine is good for.
    fn tell(&self, machine: Option<&Machine>) {
        let Some(machine) = machine.filter(|_| !self.told.swap(true, Ordering::Relaxed)) else { return };
        if let Some(advice) = machine.advice() {
            eprintln!("machine: {}: {}\n  {advice}", machine.fitness.name(), machine.words());
        }
    }

    /// Carries a method out.
    fn carry_out(
        &self,
        job: &Job<'_>,
        at: &mut Standing,
        offered: &Offered,
        name: &str,
        before: Option<Found>,
    ) -> anyhow::Result<Carried> {
        let throughput = before.map(|found| found.summary.lower_pps);
        let settings = settings(job, offered, throughput)?;
        let mut method = method::by_name(name, &settings).map_err(|e| wrong("method", name, e))?;
        let steal = Steal::now(&at.cpus);
        let several = job.how.methods.len() > 1;
        let what = if several { format!("{}, {name}", offered.name()) } else { offered.name().to_owned() };
        let mut progress = Progress::new(&what);
        let (mut nodes, mut drops, mut ways) = (vec![], BTreeMap::new(), vec![]);
        let is_simulated = matches!(at.stand, Stand::Simulated(_));
        let mut bed = at.stand.offer(offered);
        // the first packets find caches cold and neighbours unknown
        let cold_pps = settings.rate_pps.unwrap_or(settings.limits.max_pps()).min(1e5);
        let cold = bed.trial(&Ask::load(cold_pps, (1.0 / cold_pps).max(0.05)));
        let ended = cold.map_err(Stopped::from).and_then(|_| {
            let told = |seen: &Seen| {
                progress.tell(&seen.trial);
                nodes.clone_from(&seen.nodes);
                ways.resize(seen.ways.len().max(ways.len()), Way::default());
                for (all, way) in ways.iter_mut().zip(&seen.ways) {
                    all.sent += way.sent;
                    all.received += way.received;
                }
                for (reason, n) in &seen.drops {
                    *drops.entry(reason.clone()).or_default() += n;
                }
                !self.is_interrupted()
            };
            let pause = |seconds: f64| {
                let end = Instant::now() + Duration::from_secs_f64(seconds);
                // a device of numbers has a time of its own
                while !is_simulated && Instant::now() < end && !self.is_interrupted() {
                    std::thread::sleep((end - Instant::now()).min(Duration::from_millis(20)));
                }
            };
            method::carry_out(&mut *method, &mut bed, told, pause)
        });
        progress.end();
        let mut environment = bench::environment(&at.cpus, at.memory);
        if let Some(machine) = &at.machine {
            environment
                .more
                .insert("machine check".to_owned(), format!("{}: {}", machine.fitness.name(), machine.words()));
        }
        environment.steal_share = Steal::now(&at.cpus).share_since(steal);
        Ok(Carried {
            what,
            findings: method.findings(),
            nodes,
            drops,
            ways,
            environment,
            line_pps: settings.line_pps,
            ended: ended.err(),
        })
    }

    /// Starts the device, with the calling thread as the generator.
    fn stand(&self, job: &Job<'_>) -> anyhow::Result<Standing> {
        let at = match job.dut {
            Under::Chain(file) => self.wired(file, job.sent.is_both_ways())?,
            Under::Rig { name, plan, file } => self.rig(name, plan, file, &job.sent)?,
            Under::Simulated { device, .. } if job.sent.is_both_ways() => {
                return Err(wrong("both-ways", device, "a simulated device has one direction; leave it out"));
            }
            Under::Simulated { device, .. } => {
                eprintln!("{}: a simulated device, in virtual time", job.label);
                let stand = Stand::Simulated(Box::new(device.clone()));
                return Ok(Standing {
                    stand,
                    core: 0,
                    used: vec![],
                    cpus: vec![],
                    memory: "none",
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
        let into = bench::entries(file, both_ways).map_err(|d| Diagnostics(vec![d]))?;
        let mut wired = Wired::start(file, &into)?;
        wired.stop_when(self.interrupted.clone());
        let started = wired.engine().snapshot();
        let used: Vec<usize> = started.workers.keys().copied().collect();
        let core = self.generator(&used)?;
        runtime::pin(core).with_context(|| format!("the generator cannot be kept on CPU {core}"))?;
        let lcore = wired.engine().eal().register_thread().ok();
        let cpus = used.iter().copied().chain([core]).collect();
        let stand = Stand::Wired(Box::new(wired));
        Ok(Standing { stand, core, used, cpus, memory: started.memory, plan: None, machine: None, _lcore: lcore })
    }

    fn rig(&self, name: &str, plan: &Plan, file: &ChainFile, sent: &Sent) -> anyhow::Result<Standing> {
        let allowed = runtime::allowed_cpus();
        let mut plan = plan.clone();
        let core = self.generator(&plan.cpus)?;
        if plan.cpus.is_empty() {
            plan.cpus = allowed.iter().copied().filter(|cpu| *cpu != core).collect();
        }
        if let Some(absent) = plan.cpus.iter().find(|cpu| !allowed.contains(cpu)) {
            let problem =
                format!("{name}: CPU {absent} is not there for this process, which may use {}", words(&allowed));
            let cure = "write others: cpus = [0]".to_owned();
            return Err(runtime::Error::Environment { problem, cure }.into());
        }
        runtime::pin(core).with_context(|| format!("the generator cannot be kept on CPU {core}"))?;
        let settings = bench::flow_settings(file, 1).map_err(|d| Diagnostics(vec![d]))?;
        let destinations = match &file.traffic.dst[..] {
            [] => vec!["198.19.0.0/16".to_owned()],
            all => all.to_vec(),
        };
        let sent = SentTo { dst_mac: settings.dst_mac, destinations, tables: sent.tables() };
        let rig = Rig::start(name, &plan, sent, self.interrupted.clone())?;
        let lcore = rig.outside().eal().register_thread().ok();
        let memory = rig.outside().memory();
        let used = plan.cpus.clone();
        let cpus = used.iter().copied().chain([core]).collect();
        Ok(Standing {
            stand: Stand::Rig(Box::new(rig)),
            core,
            used,
            cpus,
            memory,
            plan: Some(plan),
            machine: None,
            _lcore: lcore,
        })
    }

    /// Measures what generator and ports do by themselves, with every sort of frames, at the rate at which the device's
    /// latency was measured.
    fn calibrate(
        &self,
        results: &mut [(usize, report::Result)],
        plan: Option<&Plan>,
        used: &[usize],
        core: usize,
        allowed: &[usize],
        offered: &[Offered],
    ) -> Result<(), CalibrationError> {
        let mut stand = match (plan, used.first()) {
            (Some(plan), _) => {
                let Some(without) = plan.without() else { return Ok(()) };
                let sent = SentTo { dst_mac: wire::build::DST_MAC, destinations: vec![], tables: None };
                let rig = Rig::start("calibration", &without, sent, self.interrupted.clone());
                Stand::Rig(Box::new(rig.map_err(|e| CalibrationError::Stand(e.into()))?))
            }
            (None, Some(cpu)) => {
                // the chain's CPU has to be among those that the loopback may choose from
                let stands = |e: anyhow::Error| CalibrationError::Stand(e);
                runtime::confine(allowed).map_err(|e| stands(e.into()))?;
                let both_ways = offered.iter().any(|offered| offered.directions() > 1);
                let mut loopback = bench::loopback(*cpu, both_ways).map_err(|e| stands(e.into()))?;
                runtime::pin(core).map_err(|e| stands(e.into()))?;
                loopback.stop_when(self.interrupted.clone());
                Stand::Wired(Box::new(loopback))
            }
            (None, None) => return Ok(()),
        };
        for (number, offered) in offered.iter().enumerate() {
            let mut of_these = results.iter_mut().filter(|(n, _)| *n == number).map(|(_, result)| result).peekable();
            let Some(first) = of_these.peek() else { continue };
            let load_pps = first.latency.first().map_or(1e5, |l| l.load_pps);
            let mut progress = Progress::new(&format!("{}, without the device", offered.name()));
            let told = |seen: &Seen| {
                progress.tell(&seen.trial);
                !self.is_interrupted()
            };
            let calibration = bench::calibrate(&mut stand.offer(offered), load_pps, told);
            progress.end();
            let calibration = calibration.map_err(CalibrationError::Trials)?;
            of_these.for_each(|result| result.calibration = Some(calibration.clone()));
        }
        match stand {
            Stand::Wired(wired) => drop(wired.stop()),
            Stand::Rig(rig) => rig.stop(),
            Stand::Simulated(_) => {}
        }
        Ok(())
    }

    fn generator(&self, used: &[usize]) -> anyhow::Result<usize> {
        let allowed = runtime::allowed_cpus();
        let free = allowed.iter().rev().find(|cpu| !used.contains(cpu)).copied();
        self.core.or(free).ok_or_else(|| {
            let problem = format!("the chains use all CPUs ({}), and the generator needs one of its own", words(used));
            let cure =
                "give the chains fewer cores, or share one with --core N, which measures both together".to_owned();
            runtime::Error::Environment { problem, cure }.into()
        })
    }

    /// Writes the page of results and says where it is; `name` is what they are of.
    pub(crate) fn page(&self, results: &[report::Result], name: &str) -> anyhow::Result<PathBuf> {
        let page = self.page.clone().unwrap_or_else(|| {
            let name = format!("{name}-{}", report::now()).replace([':', '/'], "-");
            self.store.place().beside(&format!("{name}.html"))
        });
        std::fs::write(&page, report::html(results)).map_err(|e| wrong("report", page.display(), e))?;
        Ok(page)
    }

    /// Shows results as `bench` does.
    pub(crate) fn show(&self, results: &[report::Result], name: &str, json: bool) -> anyhow::Result<()> {
        if results.is_empty() {
            return Ok(());
        }
        let page = self.page(results, name)?;
        let mut out = std::io::stdout().lock();
        if json {
            serde_json::to_writer_pretty(&mut out, results)?;
            writeln!(out)?;
        } else {
            write!(out, "\n{}", report::table(results))?;
            writeln!(out, "\nresults  {}\nreport   {}", self.store.place(), page.display())?;
        }
        Ok(())
    }
}

/// A device that runs, and where.
struct Standing {
    stand: Stand,
    /// CPU of the generator.
    core: usize,
    /// CPUs of the device.
    used: Vec<usize>,
    /// All of these.
    cpus: Vec<usize>,
    memory: &'static str,
    /// The plan of another program.
    plan: Option<Plan>,
    /// What was seen of these CPUs before.
    machine: Option<Machine>,
    _lcore: Option<dpdk::LcoreGuard>,
}

impl Standing {
    /// What a reader of a result has to know.
    fn remarks(&self) -> Vec<String> {
        match (&self.stand, &self.plan) {
            (Stand::Rig(rig), Some(plan)) => {
                let ports = format!(
                    "generator and device are on one host, joined by {} ports, and stamps are by software: no NIC, no line rate",
                    plan.ports
                );
                [ports].into_iter().chain(rig.about().remarks.iter().cloned()).collect()
            }
            (Stand::Simulated(_), _) => vec!["the device is simulated: nothing was sent, and no time passed".to_owned()],
            _ => vec![
                "ports are wires in memory and departure and arrival are stamped by software on this host: no NIC, no link, \
                 no line rate"
                    .to_owned(),
            ],
        }
    }

    /// What a result says of the device.
    fn dut(&self, job: &Job<'_>) -> Dut {
        let cores = self.used.iter().map(|c| *c as u32).collect();
        let nfs = |file: &ChainFile| {
            let nf = |n: &chain::NfUse| NfUse { name: n.name.clone(), kind: n.kind.name.to_owned() };
            file.nfs.iter().map(nf).collect()
        };
        match (&self.stand, job.dut) {
            (Stand::Rig(rig), Under::Rig { plan, file, .. }) => {
                let about = rig.about();
                let mut configuration = about.configuration.clone();
                configuration.truncate(configuration.floor_char_boundary(report::limit::CHAIN));
                let port = |n: usize| Port { name: format!("port{n}"), device: plan.ports.to_string(), driver: None };
                Dut {
                    kind: plan.kind.name().to_owned(),
                    version: about.version.clone(),
                    file: None,
                    chain_sha256: Some(report::sha256(configuration.as_bytes())),
                    chain: Some(configuration),
                    isolation: Some("native".to_owned()),
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
                let port = |p: &chain::Port| Port { name: p.name.clone(), device: "wire".to_owned(), driver: None };
                Dut {
                    kind: "bondstone".to_owned(),
                    version: Some(env!("CARGO_PKG_VERSION").to_owned()),
                    file: Some(file.file.display().to_string()),
                    chain_sha256: Some(report::sha256(file.text.as_bytes())),
                    chain: Some(file.text.clone()),
                    isolation: Some("inproc".to_owned()),
                    nfs: nfs(file),
                    ports: file.ports.iter().map(port).collect(),
                    cores,
                }
            }
        }
    }
}

/// What came of a method.
struct Carried {
    /// The frames, and the method where there are several.
    what: String,
    findings: Findings,
    /// What each node did in the last trial.
    nodes: Vec<report::Node>,
    /// Packets dropped by the device in all trials.
    drops: BTreeMap<String, u64>,
    /// Packets of each direction in all trials, where there are several.
    ways: Vec<Way>,
    environment: report::Environment,
    /// What 100 % is to methods that ask for it, packets a second.
    line_pps: Option<f64>,
    /// Why it ended early.
    ended: Option<Stopped>,
}

/// Why there is no calibration.
enum CalibrationError {
    /// It does not stand.
    Stand(anyhow::Error),
    /// It was ended.
    Trials(Stopped),
}

/// A cell as the scenario has it, or why it cannot be measured.
pub(crate) fn job<'a>(scenario: &'a Scenario, cell: &'a scenario::Cell) -> Result<Job<'a>, &'a str> {
    let dut = match &cell.dut {
        scenario::Dut::Chain(file) => Under::Chain(file),
        scenario::Dut::Rig(rig) => {
            let (plan, file) = &**rig;
            let name = cell.parameters.get("dut").map_or(plan.kind.name(), String::as_str);
            Under::Rig { name, plan, file }
        }
        scenario::Dut::Simulated(simulated) => {
            let (device, file) = &**simulated;
            Under::Simulated { device, file }
        }
        scenario::Dut::Absent(why) => return Err(why),
    };
    Ok(Job {
        dut,
        label: format!("{}, {}", scenario.name, cell.label()),
        study: scenario.name.clone(),
        cell: cell.parameters.clone(),
        sent: cell.sent.clone(),
        how: scenario.how.clone(),
    })
}

/// A wrong option, as an input error.
pub(crate) fn wrong(option: &str, value: impl std::fmt::Display, problem: impl std::fmt::Display) -> anyhow::Error {
    Diagnostics(vec![Diagnostic::new(format!("--{option}: {problem}")).value(value)]).into()
}

pub(crate) fn words(cpus: &[usize]) -> String {
    cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Whether a method that finds no rate has failed.
fn asks_for_a_rate(method: &str) -> bool {
    !matches!(method, "loss")
}

fn document(
    job: &Job<'_>,
    at: &Standing,
    carried: &Carried,
    offered: &Offered,
    before: Option<Found>,
) -> report::Result {
    let Carried { findings, nodes, environment, .. } = carried;
    let mut deviations = findings.deviations.clone();
    if asks_for_a_line(&findings.method.name) && job.how.line_bps.is_none() {
        let line = carried.line_pps.unwrap_or_default() / 1e6;
        deviations.push(format!("no rate of the medium is given (--line): 100 % is taken to be {line:.3} Mpps"));
    }
    deviations.extend(at.remarks());
    deviations.extend(offered.remarks());
    deviations.truncate(report::limit::DEVIATIONS);
    let goal = findings.goal;
    let mut cell = job.cell.clone();
    cell.extend(offered.cell());
    let by = match &*findings.method.name {
        "load" => "one load".to_owned(),
        _ if job.how.search == SearchKind::Mlr => "MLRsearch (RFC 9971)".to_owned(),
        _ => format!("{} ({})", job.how.search.name(), job.how.search.standard()),
    };
    report::Result {
        schema: report::Version::V1,
        id: String::new(),
        tool: Tool {
            name: "bondstone".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command: Some(std::env::args().collect::<Vec<_>>().join(" ")),
        },
        study: job.study.clone(),
        cell,
        method: findings.method.clone(),
        dut: at.dut(job),
        traffic: offered.document(),
        goal: report::Goal {
            name: None,
            trial_s: goal.final_s(),
            sum_s: goal.sum_s(),
            loss_ratio: goal.loss_ratio(),
            exceed_ratio: goal.exceed_ratio(),
            width: goal.width(),
            method: by,
        },
        environment: environment.clone(),
        calibration: None,
        limited_by: before.map_or_else(|| findings.limit(), |found| found.limited_by),
        deviations,
        trials: findings.trials.iter().map(bench::document).collect(),
        // of a throughput that was found before, the bounds as well
        summary: match before {
            Some(found) if found.summary.lower_pps == findings.summary.lower_pps => found.summary,
            _ => findings.summary,
        },
        latency: findings.latency.clone(),
        quantities: findings.quantities.clone(),
        series: findings.series.clone(),
        nodes: nodes.clone(),
    }
}

/// Says what of a capture is sent.
fn introduce(trace: &Trace) {
    let capture = trace.capture();
    eprintln!(
        "{}: {} frames of {:.0} bytes on average, flows: {}",
        trace.name(),
        capture.len(),
        capture.mean_size(),
        capture.flows()
    );
    if let Some(left_out) = trace.left_out() {
        eprintln!("  {left_out}");
    }
}

/// Says what was found, and if it is nothing, why.
fn explain(offered: &Offered, carried: &Carried) {
    let Carried { what, findings, drops, ways, .. } = carried;
    let mpps = |pps: f64| format!("{:.3} Mpps", pps / 1e6);
    let trials = findings.trials.len();
    match findings.summary.lower_pps {
        _ if !asks_for_a_rate(&findings.method.name) => eprintln!("{what}: {trials} trials"),
        lower if lower > 0.0 => eprintln!("{what}: {}, {trials} trials", mpps(lower)),
        _ => {
            let worst: Vec<_> = drops.iter().map(|(reason, n)| format!("{n} {reason}")).collect();
            match () {
                () if !worst.is_empty() => {
                    eprintln!("{what}: no rate meets the goal. Dropped by the chain: {}", worst.join(", "))
                }
                () if findings.limited_by == LimitedBy::Machine => {
                    eprintln!("{what}: no rate could be judged: the machine was in the way of every try");
                }
                () => eprintln!("{what}: no rate meets the goal"),
            }
            let cure = match offered.trace() {
                _ if worst.is_empty() => None,
                None => Some(
                    "[traffic] in the chain file says what is sent; a router takes only what goes to its MAC address (dst_mac)",
                ),
                Some(_) => Some(
                    "frames of a capture go where they say: set dst_mac in [traffic] to the router's, give it routes for \
                     them, or allow with --loss what the chain refuses",
                ),
            };
            if let Some(cure) = cure {
                eprintln!("  cure: {cure}");
            }
        }
    }
    for (way, Way { sent, received }) in ["there", "back"].iter().zip(ways) {
        eprintln!("  {way}: {received} of {sent} packets came");
    }
}

/// One line that changes, on a terminal; nothing elsewhere.
struct Progress {
    name: String,
    trials: usize,
    shown: bool,
}

impl Progress {
    fn new(name: &str) -> Self {
        Progress { name: name.to_owned(), trials: 0, shown: std::io::stderr().is_terminal() }
    }

    fn tell(&mut self, trial: &Trial) {
        self.trials += 1;
        if self.shown {
            let verdict = match () {
                () if trial.machine => "the machine was away".to_owned(),
                () => format!("loss {:.4} %", 100.0 * trial.loss_ratio()),
            };
            eprint!("\r\x1b[K{}: trial {}, {:.3} Mpps, {verdict}", self.name, self.trials, trial.load_pps / 1e6);
        }
    }

    fn end(&self) {
        if self.shown {
            eprint!("\r\x1b[K");
        }
    }
}
