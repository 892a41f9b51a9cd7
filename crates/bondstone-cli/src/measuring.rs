//! What every command that measures chains shares: the generator's CPU, the trials, the documents, where they are kept.

mod kept;
mod matrix;
mod result;
mod standing;

use crate::exit::Exit;
use crate::interrupt::on_interrupt;
use crate::results::pick;
use bench::dut::{Plan, SentTo};
use bench::method::{self, Outline, Settings, Stopped};
use bench::scenario::{self, How};
use bench::simulated::Simulated;
use bench::{
    Ask, Bed, BedError, Clock, Findings, Generator, Machine, Offered, Rig, RigError, Scenario, Seen, Sent, Stand,
    Steal, Way,
};
use config::ChainFile;
use diagnostics::{Diagnostic, Diagnostics};
use graph::Registry;
use kept::{Kept, named};
use result::{Progress, document, explain, introduce};
use results::Store;
use standing::Standing;
use std::collections::BTreeMap;
use std::io::Write;
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
    /// Results of the database that stand beside on the page, as those of other machines that were imported: the beginning of
    /// an id, a tag, or a filter, see `bondstone results list --help`.
    #[arg(long, value_name = "WHICH")]
    beside: Vec<String>,
}

pub(crate) use matrix::{Rounds, Task};

/// A device and what it is offered.
#[derive(Clone)]
pub(crate) struct Job<'a> {
    pub(crate) dut: Under<'a>,
    /// For people: what this is.
    pub(crate) label: String,
    pub(crate) study: String,
    pub(crate) cell: BTreeMap<String, String>,
    pub(crate) sent: Sent,
    pub(crate) how: How,
    /// Who sends.
    pub(crate) generator: Generator,
    /// What the clock of the device's CPUs is fixed to.
    pub(crate) clock_mhz: Option<u32>,
    /// Which of several repetitions it is, from 1; none of one.
    pub(crate) round: Option<u32>,
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
        rate_pps: how.rate_pps.or_else(|| offered.own_pps()),
        search: how.search,
        soak_s: how.soak_s,
        ..Settings::new(how.form, how.goal, bench::limits(&how.goal, given)?)
    };
    if let Sent::Profile(timetable) = &job.sent {
        settings.profile = Some(Outline { mean_pps: timetable.mean_pps(), seconds: timetable.seconds() });
    }
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
    /// For each sort of frames and each method, as far as it came.
    pub(crate) results: Vec<Measured>,
    /// How the job ended.
    pub(crate) exit: Exit,
    /// Whether anything was measured, and not all there before.
    pub(crate) is_new: bool,
}

/// A result.
pub(crate) struct Measured {
    /// What was written of its frames.
    pub(crate) frames: String,
    pub(crate) result: report::Result,
}

/// Of results that were ended early, in their deviations.
const ENDED_EARLY: &str = "it was ended early: what was found until then";

/// Whether a result was ended early.
fn is_partial(result: &report::Result) -> bool {
    result.deviations.iter().any(|d| d == ENDED_EARLY)
}

/// Measures, and keeps what was measured.
pub(crate) struct Desk {
    store: Store,
    registry: Registry,
    db: PathBuf,
    page: Option<PathBuf>,
    interrupted: Arc<AtomicBool>,
    /// CPU of the generator, if the user named one.
    core: Option<usize>,
    /// Whether it was said what the machine is good for.
    told: AtomicBool,
    /// Tag of what is measured together.
    run: Option<String>,
    /// Results that stand beside on the page.
    beside: Vec<report::Result>,
}

impl Desk {
    /// Opens the database; from here on Ctrl-C ends measurements, not the program.
    pub(crate) fn open(keep: &Keep, core: Option<usize>, registry: &Registry) -> anyhow::Result<Desk> {
        let db = keep.db.clone().map_or_else(results::default_path, Ok)?;
        let store = Store::open(&db)?;
        let beside = pick::whole(&store, &pick::pick_all(&store, &keep.beside)?)?;
        // as it may be shown: a URL without its password
        let db = PathBuf::from(store.place().to_string());
        let interrupted = Arc::new(AtomicBool::new(false));
        let seen = interrupted.clone();
        on_interrupt(move || seen.store(true, Ordering::Relaxed))?;
        Ok(Desk {
            store,
            registry: registry.clone(),
            db,
            page: keep.report.clone(),
            interrupted,
            core,
            told: AtomicBool::new(false),
            run: None,
            beside,
        })
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
    /// result is kept at once. What is among `before` is not measured again.
    ///
    /// # Errors
    /// Wrong input, a machine that lacks something, a database that fails. What ends a measurement under way is no error
    /// but an [`Exit`]; the results up to then are there.
    fn measure(&mut self, job: &Job<'_>, before: Vec<report::Result>) -> anyhow::Result<Outcome> {
        // a thread of its own: the generator stays on one CPU, and the next job may choose from all of them again
        std::thread::scope(|scope| {
            let run = scope.spawn(|| self.measure_here(job, before));
            run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn measure_here(&mut self, job: &Job<'_>, before: Vec<report::Result>) -> anyhow::Result<Outcome> {
        let file = job.dut.file();
        let offered = match job.sent.ready(file, &self.interrupted) {
            Err(_) if self.is_interrupted() => {
                return Ok(Outcome { results: vec![], exit: Exit::Interrupted, is_new: false });
            }
            ready => ready.map_err(|d| Diagnostics(vec![d]))?,
        };
        let kept = Kept::of(before, job, &offered);
        if kept.0.len() == offered.len() * job.how.methods.len() {
            eprintln!("{}: measured before", job.label);
            let exit = if kept.0.iter().all(|(_, result)| is_met(result)) { Exit::Done } else { Exit::NotMet };
            return Ok(Outcome { results: named(kept.0, &offered), exit, is_new: false });
        }
        let allowed = runtime::allowed_cpus();
        // this thread, and with it the device that it starts
        let first = runtime::put_first();
        let generator = self.core.or(allowed.last().copied());
        let others = allowed.iter().copied().filter(|cpu| Some(*cpu) != generator).take(1);
        let machine = match job.dut {
            Under::Simulated { .. } => None,
            _ => Some(Machine::watch(&others.chain(generator).collect::<Vec<_>>())),
        };
        let mut at = self.stand(job, &offered)?;
        let _clock = job.clock_mhz.map(|mhz| Clock::fix(&at.used, mhz)).transpose()?;
        self.tell(machine.as_ref());
        at.machine = machine;
        offered.iter().for_each(introduce);
        offered.iter().filter_map(Offered::timetable).for_each(|timetable| eprintln!("{timetable}"));

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
                let before =
                    found.filter(|_| !matches!(&**name, "throughput" | "load" | "receive-rate" | "connections"));
                if let Some(result) = kept.find(number, name) {
                    if name == "throughput" && result.summary.lower_pps >= 1.0 {
                        found = Some(Found { summary: result.summary, limited_by: result.limited_by });
                    }
                    met &= is_met(result);
                    results.push((number, result.clone()));
                    continue;
                }
                let mut carried = self.carry_out(job, &mut at, offered, name, before)?;
                carried.environment.more.insert("priority".to_owned(), priority.to_owned());
                if let Some(round) = job.round {
                    carried.environment.more.insert(matrix::REPETITION.to_owned(), round.to_string());
                }
                if let Some(mhz) = job.clock_mhz {
                    carried
                        .environment
                        .more
                        .insert("clock of the device's CPUs".to_owned(), format!("fixed, {mhz} MHz"));
                }
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
                    findings.deviations.insert(0, ENDED_EARLY.to_owned());
                }
                if name == "throughput" && findings.summary.lower_pps >= 1.0 {
                    found = Some(Found { summary: findings.summary, limited_by: findings.limit() });
                }
                if ended.is_none() {
                    explain(offered, &carried);
                }
                let mut result = document(job, &at, &carried, offered, before);
                met &= is_met(&result);
                self.keep(&mut result)?;
                results.push((number, result));
                if ended.is_some() {
                    break 'frames;
                }
            }
        }
        let Standing { stand, core, used, plan, .. } = at;
        let summary = match stand {
            Stand::Wired(wired) => Some(wired.stop()),
            // its ports are those of the calibration
            other => {
                drop(other);
                None
            }
        };
        // what another generator does by itself is its own affair
        if ended.is_none() && unfit.is_none() && job.generator == Generator::Bondstone {
            match self.calibrate(&mut results, plan.as_ref(), &used, core, &allowed, &offered) {
                Err(CalibrationError::Trials(e)) => ended = Some(e),
                // the results are good without
                Err(CalibrationError::Stand(e)) => eprintln!("warning: not calibrated: {e:#}"),
                Ok(()) => {}
            }
        }
        for (_, result) in results.iter_mut().filter(|(_, r)| r.calibration.is_some()) {
            let uncalibrated = core::mem::take(&mut result.id);
            self.keep(result)?;
            if result.id != uncalibrated {
                self.store.delete(&uncalibrated)?;
            }
        }
        let results = named(results, &offered);
        if let Some(e) = unfit {
            if results.is_empty() {
                return Err(e.into());
            }
            eprintln!("error: {e}");
            return Ok(Outcome { results, exit: Exit::Environment, is_new: true });
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
        Ok(Outcome { results, exit, is_new: true })
    }

    /// Seals a result and adds it to the database, under the tag of what is measured together.
    fn keep(&mut self, result: &mut report::Result) -> anyhow::Result<()> {
        result.seal()?;
        self.store.add(result)?;
        if let Some(run) = &self.run {
            self.store.tag(&result.id, run)?;
        }
        Ok(())
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
        let mut settings = settings(job, offered, throughput)?;
        if name == "load" && offered.own_pps().is_some() {
            // parts of a capture have other rates than the whole
            settings.goal = settings.goal.with_final_s(settings.goal.sum_s())?;
        }
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
        let cold = match job.generator {
            Generator::Bondstone => bed.trial(&Ask::load(cold_pps, (1.0 / cold_pps).max(0.05))).map(drop),
            _ => Ok(()),
        };
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
        let mut environment = bench::environment(&at.cpus, &at.memory);
        if let Some(machine) = &at.machine {
            environment
                .more
                .insert("machine check".to_owned(), format!("{}: {}", machine.fitness.name(), machine.words()));
        }
        if let Some(there) = at.stand.about().and_then(|about| about.environment.as_ref()) {
            environment.more.extend(standing::elsewhere(there));
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
                let sent = SentTo { dst_mac: wire::build::DST_MAC, destinations: vec![], trace: None };
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
            let of_these = results.iter_mut().filter(|(n, r)| *n == number && r.calibration.is_none());
            let mut of_these = of_these.map(|(_, result)| result).peekable();
            let Some(first) = of_these.peek() else { continue };
            let load_pps = first.latency.first().map_or(1e5, |l| l.load_pps);
            let is_read = offered.traces().iter().any(bench::Trace::is_streamed);
            let most_pps = is_read.then_some(2.0 * load_pps);
            let mut progress = Progress::new(&format!("{}, without the device", offered.name()));
            let told = |seen: &Seen| {
                progress.tell(&seen.trial);
                !self.is_interrupted()
            };
            let calibration = bench::calibrate(&mut stand.offer(offered), load_pps, most_pps, told);
            progress.end();
            let calibration = calibration.map_err(CalibrationError::Trials)?;
            of_these.for_each(|result| result.calibration = Some(calibration.clone()));
        }
        if let Stand::Wired(wired) = stand {
            wired.stop();
        }
        Ok(())
    }

    /// Writes the page of results and says where it is; `name` is what they are of.
    pub(crate) fn page(&self, results: &[report::Result], name: &str) -> anyhow::Result<PathBuf> {
        let page = self.page.clone().unwrap_or_else(|| {
            let name = format!("{name}-{}", report::now()).replace([':', '/'], "-");
            self.store.place().beside(&format!("{name}.html"))
        });
        let all: Vec<report::Result> = results.iter().chain(&self.beside).cloned().collect();
        std::fs::write(&page, report::html(&all)).map_err(|e| wrong("report", page.display(), e))?;
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

/// A cell as the scenario has it.
pub(crate) fn task<'a>(scenario: &'a Scenario, cell: &'a scenario::Cell) -> Task<'a> {
    let label = format!("{}, {}", scenario.name, cell.label());
    let dut = match &cell.dut {
        scenario::Dut::Chain(file) => Ok(Under::Chain(file)),
        scenario::Dut::Rig(rig) => {
            let (plan, file) = &**rig;
            let name = cell.parameters.get("dut").map_or(plan.kind.name(), String::as_str);
            Ok(Under::Rig { name, plan, file })
        }
        scenario::Dut::Simulated(simulated) => {
            let (device, file) = &**simulated;
            Ok(Under::Simulated { device, file })
        }
        scenario::Dut::Absent(why) => Err(why.clone()),
    };
    let job = dut.map(|dut| Job {
        dut,
        label: label.clone(),
        study: scenario.name.clone(),
        cell: cell.parameters.clone(),
        sent: cell.sent.clone(),
        how: cell.how.clone(),
        generator: cell.generator.clone(),
        clock_mhz: cell.clock_mhz,
        round: None,
    });
    Task { label, cell: cell.parameters.clone(), job }
}

/// A wrong option, as an input error.
pub(crate) fn wrong(option: &str, value: impl std::fmt::Display, problem: impl std::fmt::Display) -> anyhow::Error {
    Diagnostics(vec![Diagnostic::new(format!("--{option}: {problem}")).value(value)]).into()
}

pub(crate) fn words(cpus: &[usize]) -> String {
    cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Whether a result has the rate that was asked for, if one was.
fn is_met(result: &report::Result) -> bool {
    result.summary.lower_pps > 0.0 || !asks_for_a_rate(&result.method.name)
}

/// Whether a method that finds no rate has failed.
fn asks_for_a_rate(method: &str) -> bool {
    !matches!(method, "loss" | "receive-rate" | "profile")
}
