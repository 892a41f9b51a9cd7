//! What every command that measures chains shares: the generator's CPU, the trials, the documents, where they are kept.

use crate::exit::Exit;
use crate::interrupt::on_interrupt;
use anyhow::Context;
use bench::scenario::{self};
use bench::{Goal, MeasureError, Measured, Offered, Scenario, Sent, Steal, Trace, Trial, Wired};
use chain::{ChainFile, Start};
use graph::{Diagnostic, Diagnostics};
use report::{Dut, NfUse, Port, Tool};
use results::Store;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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

/// A chain and what it is offered.
pub(crate) struct Job<'a> {
    pub(crate) file: &'a ChainFile,
    /// For people: what this is.
    pub(crate) label: String,
    pub(crate) study: String,
    pub(crate) cell: BTreeMap<String, String>,
    pub(crate) sent: Sent,
    pub(crate) goal: Goal,
    /// One load instead of a search, packets a second.
    pub(crate) rate: Option<f64>,
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
        Ok(Desk { store, db, page: keep.report.clone(), interrupted, core })
    }

    /// Whether the user wants an end.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// The database.
    pub(crate) fn db(&self) -> &Path {
        &self.db
    }

    /// Runs a chain on wires and measures it with every sort of frames, and then the wires without it; each result is kept at
    /// once.
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
        let file = job.file;
        let offered = match job.sent.ready(file, &self.interrupted) {
            Err(_) if self.is_interrupted() => return Ok(Outcome { results: vec![], exit: Exit::Interrupted }),
            ready => ready.map_err(|d| Diagnostics(vec![d]))?,
        };
        let into = match &file.traffic.into {
            Some(name) => file.ports.iter().position(|p| p.name == *name).unwrap_or_default(),
            None => file
                .chains
                .iter()
                .find_map(|c| match c.from {
                    Start::Port(port) => Some(port),
                    Start::Link(_) => None,
                })
                .unwrap_or(0),
        };
        let mut dut = Wired::start(file, into)?;
        dut.stop_when(self.interrupted.clone());
        let used: Vec<usize> = dut.engine().snapshot().workers.keys().copied().collect();
        let core = self.generator(&used)?;
        let allowed = runtime::allowed_cpus();
        runtime::pin(core).with_context(|| format!("the generator cannot be kept on CPU {core}"))?;
        let _lcore = dut.engine().eal().register_thread();
        let cpus: Vec<usize> = used.iter().copied().chain([core]).collect();
        eprintln!("{}: chains on CPU {}, generator on CPU {core}", job.label, words(&used));
        offered.iter().filter_map(Offered::trace).for_each(introduce);

        let mut results = vec![];
        let (mut ended, mut met) = (None, true);
        for offered in &offered {
            let name = offered.name();
            let steal = Steal::now(&cpus);
            let mut progress = Progress::new(name);
            let told = |trial: &Trial| {
                progress.tell(trial);
                !self.interrupted.load(Ordering::Relaxed)
            };
            let measured = match job.rate {
                None => bench::measure(&mut dut, offered, job.goal, told),
                Some(rate) => bench::offer(&mut dut, offered, job.goal, rate, told),
            };
            progress.end();
            let measured = match measured {
                Ok(measured) => measured,
                Err(e) => {
                    ended = Some(e);
                    break;
                }
            };
            explain(offered, &measured);
            met &= measured.found.lower_pps.is_some();
            let mut environment = bench::environment(&cpus, dut.engine().snapshot().memory);
            environment.steal_share = Steal::now(&cpus).share_since(steal);
            let mut result = document(job, &measured, offered, environment);
            result.seal()?;
            self.store.add(&result)?;
            results.push(result);
        }
        let summary = dut.stop();
        if ended.is_none()
            && let Some(cpu) = used.first()
        {
            // the chain's CPU has to be among those that the loopback may choose from
            runtime::confine(&allowed)?;
            let mut loopback = bench::loopback(*cpu)?;
            runtime::pin(core)?;
            ended = self.calibrate(&mut results, &mut loopback, &offered).err();
            loopback.stop();
        }
        for result in results.iter_mut().filter(|r| r.calibration.is_some()) {
            let uncalibrated = core::mem::take(&mut result.id);
            result.seal()?;
            self.store.add(result)?;
            self.store.delete(&uncalibrated)?;
        }
        for fault in &summary.faults {
            eprintln!("error: {fault}");
        }
        let exit = match ended {
            Some(MeasureError::Interrupted) => Exit::Interrupted,
            Some(e) => {
                eprintln!("error: {e}");
                Exit::Failed
            }
            None if !summary.balanced => {
                eprintln!("error: the counts of packets do not add up; this is a bug in Bondstone");
                Exit::Failed
            }
            None if !summary.faults.is_empty() => Exit::Failed,
            None if !met => Exit::NotMet,
            None => Exit::Done,
        };
        Ok(Outcome { results, exit })
    }

    /// Measures what generator and wires do by themselves, with every sort of frames, at the rate at which the chain's
    /// latency was measured.
    fn calibrate(
        &self,
        results: &mut [report::Result],
        loopback: &mut Wired,
        offered: &[Offered],
    ) -> Result<(), MeasureError> {
        loopback.stop_when(self.interrupted.clone());
        for (result, offered) in results.iter_mut().zip(offered) {
            let mut progress = Progress::new(&format!("{}, without the chain", offered.name()));
            let told = |trial: &Trial| {
                progress.tell(trial);
                !self.is_interrupted()
            };
            let load_pps = result.latency.first().map_or(1e5, |l| l.load_pps);
            let calibration = bench::calibrate(loopback, offered, load_pps, told);
            progress.end();
            result.calibration = Some(calibration?);
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

/// A cell as the scenario has it, or why it cannot be measured.
pub(crate) fn job<'a>(scenario: &'a Scenario, cell: &'a scenario::Cell) -> Result<Job<'a>, &'a str> {
    let file = match &cell.dut {
        scenario::Dut::Chain(file) => file,
        scenario::Dut::Absent(why) => return Err(why),
    };
    Ok(Job {
        file,
        label: format!("{}, {}", scenario.name, cell.label()),
        study: scenario.name.clone(),
        cell: cell.parameters.clone(),
        sent: cell.sent.clone(),
        goal: scenario.goal,
        rate: None,
    })
}

/// A wrong option, as an input error.
pub(crate) fn wrong(option: &str, value: impl std::fmt::Display, problem: impl std::fmt::Display) -> anyhow::Error {
    Diagnostics(vec![Diagnostic::new(format!("--{option}: {problem}")).value(value)]).into()
}

pub(crate) fn words(cpus: &[usize]) -> String {
    cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn document(job: &Job<'_>, measured: &Measured, offered: &Offered, environment: report::Environment) -> report::Result {
    let file = job.file;
    let mut deviations: Vec<String> = measured.found.remarks.iter().map(ToString::to_string).collect();
    deviations.push(
        "ports are wires in memory and departure and arrival are stamped by software on this host: no NIC, no link, no line rate"
            .to_owned(),
    );
    deviations.extend(offered.remarks());
    let goal = job.goal;
    let mut cell = job.cell.clone();
    cell.extend(offered.cell());
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
        method: report::Method::default(),
        dut: Dut {
            kind: "bondstone".to_owned(),
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            file: Some(file.file.display().to_string()),
            chain_sha256: Some(report::sha256(file.text.as_bytes())),
            chain: Some(file.text.clone()),
            isolation: Some("inproc".to_owned()),
            nfs: file.nfs.iter().map(|n| NfUse { name: n.name.clone(), kind: n.kind.name.to_owned() }).collect(),
            ports: file
                .ports
                .iter()
                .map(|p| Port { name: p.name.clone(), device: "wire".to_owned(), driver: None })
                .collect(),
            cores: file.chains.iter().flat_map(|c| &c.cores).map(|c| *c as u32).collect(),
        },
        traffic: offered.document(),
        goal: report::Goal {
            name: None,
            trial_s: goal.final_s(),
            sum_s: goal.sum_s(),
            loss_ratio: goal.loss_ratio(),
            exceed_ratio: goal.exceed_ratio(),
            width: goal.width(),
            method: if job.rate.is_some() { "one load".to_owned() } else { "MLRsearch (RFC 9971)".to_owned() },
        },
        environment,
        calibration: None,
        limited_by: measured.limited_by(),
        deviations,
        trials: measured.trials.iter().map(bench::document).collect(),
        summary: measured.summary(),
        latency: measured.latency.clone().into_iter().collect(),
        quantities: vec![],
        series: vec![],
        nodes: measured.nodes.clone(),
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
fn explain(offered: &Offered, m: &Measured) {
    let name = offered.name();
    let mpps = |pps: f64| format!("{:.3} Mpps", pps / 1e6);
    match m.found.lower_pps {
        Some(lower) => eprintln!("{name}: {}, {} trials", mpps(lower), m.trials.len()),
        None => {
            let worst: Vec<_> = m.drops.iter().map(|(reason, n)| format!("{n} {reason}")).collect();
            eprintln!(
                "{name}: no rate meets the goal. Dropped by the chain: {}",
                if worst.is_empty() { "nothing".to_owned() } else { worst.join(", ") }
            );
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
    for remark in &m.found.remarks {
        eprintln!("  {remark}");
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
