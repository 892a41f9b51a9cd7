//! `bondstone bench`.

use crate::exit::Exit;
use anyhow::Context;
use bench::{Goal, Measured, Steal, Trial, Wired};
use chain::ChainFile;
use graph::{Diagnostic, Diagnostics, Registry};
use report::{Dut, Frames, Mix as MixDocument, MixPart, NfUse, Port, Tool, Traffic};
use results::Store;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use traffic::{Flows, Mix, Order, Template};

/// Frame sizes of RFC 2544 §9.1 for Ethernet, bytes with FCS.
const SIZES: &str = "64,128,256,512,1024,1280,1518";

/// Measures a chain: the highest rate without loss for each frame size, latency below it, cycles of each NF.
///
/// The chains of the file run as they do with `run`, but with a wire in memory in the place of each port; a generator on a
/// core of its own sends into one and takes back what comes out of any. Every packet carries a number and its time of
/// departure. The table [traffic] of the file says what is sent.
#[derive(clap::Args)]
#[command(after_help = "\
The goal says what counts as throughput: how long trials last, how much trial time decides about a rate, the loss allowed,
the share of the time that may have more, and how near the bounds must come.
  quick    trials of 50 ms, 1 s in sum, no loss, exceeded in at most 50 % of it, bounds within 2 %
  ndr, pdr, rfc2544, tst009, and after a comma what differs: ndr,final=100ms,sum=2s,width=1%

Examples:
  bondstone bench examples/router.toml
  bondstone bench examples/router.toml --frames 64,512,imix --flows 10000 --loss 0.1% --report router.html
  bondstone bench examples/router.toml --rate 5e6 --frames 64 --json")]
pub(crate) struct Bench {
    /// The chain file.
    chain: PathBuf,
    /// Frame sizes in bytes with FCS, and mixes: imix, or 64:7,594:4 in parentheses, such as (64:1,1518:1).
    #[arg(long, default_value = SIZES)]
    frames: String,
    /// Different flows that are sent, in turn.
    #[arg(long, default_value_t = 1024)]
    flows: u32,
    /// Order of the flows: round-robin, uniform, or zipf:1.1 with an exponent.
    #[arg(long, default_value = "round-robin")]
    order: Order,
    /// What counts as throughput.
    #[arg(long, default_value = "quick")]
    goal: Goal,
    /// Loss that a trial may have, such as 0, 0.1% or 0.001; the goal's, if left out.
    #[arg(long)]
    loss: Option<String>,
    /// Offers this many packets a second for the goal's sum of time, instead of a search.
    #[arg(long, value_name = "PPS")]
    rate: Option<f64>,
    /// CPU of the generator; by default the last that no chain uses.
    #[arg(long)]
    core: Option<usize>,
    /// Database that results are added to; by default the user's.
    #[arg(long, value_name = "FILE")]
    db: Option<PathBuf>,
    /// Page that the results are shown on; by default beside the database.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Prints the result documents as JSON.
    #[arg(long)]
    json: bool,
}

impl Bench {
    pub(crate) fn run(&self, registry: &Registry) -> anyhow::Result<Exit> {
        let file = ChainFile::read(&self.chain, registry).map_err(Diagnostics)?;
        for warning in &file.warnings {
            eprintln!("warning: {warning}");
        }
        let goal = self.goal()?;
        let mixes = self.mixes()?;
        let settings = bench::flow_settings(&file, self.flows).map_err(|d| Diagnostics(vec![d]))?;
        let settings = traffic::FlowSettings { order: self.order, ..settings };
        let flows = Flows::new(settings).map_err(|e| wrong("flows", self.flows, e))?;
        let templates = mixes
            .iter()
            .map(|(name, mix)| Template::new(&flows, mix, true).map_err(|e| wrong("frames", name, e)))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let path = self.db.clone().map_or_else(results::default_path, Ok)?;
        let mut store = Store::open(&path)?;

        let interrupted = Arc::new(AtomicBool::new(false));
        let seen = interrupted.clone();
        ctrlc::set_handler(move || seen.store(true, Ordering::Relaxed))?;

        let into = match &file.traffic.into {
            Some(name) => file.ports.iter().position(|p| p.name == *name).unwrap_or_default(),
            None => file.chains.first().map_or(0, |c| c.port),
        };
        let mut dut = Wired::start(&file, into)?;
        let used: Vec<usize> = dut.engine().snapshot().workers.keys().copied().collect();
        let core = self.generator(&used)?;
        runtime::pin(core).with_context(|| format!("the generator cannot be kept on CPU {core}"))?;
        let _lcore = dut.engine().eal().register_thread();
        let cpus: Vec<usize> = used.iter().copied().chain([core]).collect();
        eprintln!("{}: chains on CPU {}, generator on CPU {core}", self.chain.display(), words(&used));
        eprintln!("goal: {goal}");

        let mut all = vec![];
        let mut ended = None;
        for ((name, mix), template) in mixes.iter().zip(&templates) {
            let steal = Steal::now(&cpus);
            let mut progress = Progress::new(name);
            let told = |trial: &Trial| {
                progress.tell(trial);
                !interrupted.load(Ordering::Relaxed)
            };
            let measured = match self.rate {
                None => bench::measure(&mut dut, &flows, (template, mix), goal, told),
                Some(rate) => bench::offer(&mut dut, &flows, (template, mix), goal, rate, told),
            };
            progress.end();
            let measured = match measured {
                Ok(measured) => measured,
                Err(e) => {
                    ended = Some(e);
                    break;
                }
            };
            explain(name, &measured);
            let mut environment = bench::environment(&cpus, dut.engine().snapshot().memory);
            environment.steal_share = Steal::now(&cpus).share_since(steal);
            let mut result = self.document(&file, &measured, (name, mix), goal, environment);
            result.seal()?;
            store.add(&result)?;
            all.push(result);
        }
        let summary = dut.stop();
        for fault in &summary.faults {
            eprintln!("error: {fault}");
        }
        if !all.is_empty() {
            self.show(&all, &path)?;
        }
        match ended {
            Some(bench::MeasureError::Interrupted) => return Ok(Exit::Interrupted),
            Some(e) => return Err(e.into()),
            None => {}
        }
        if !summary.balanced {
            eprintln!("error: the counts of packets do not add up; this is a bug in Bondstone");
            return Ok(Exit::Failed);
        }
        Ok(if summary.faults.is_empty() { Exit::Done } else { Exit::Failed })
    }

    fn goal(&self) -> anyhow::Result<Goal> {
        match &self.loss {
            None => Ok(self.goal),
            Some(text) => {
                let (number, unit) = text.strip_suffix('%').map_or((text.as_str(), 1.0), |n| (n, 100.0));
                let ratio: f64 = number.trim().parse().map_err(|e| wrong("loss", text, e))?;
                self.goal.with_loss_ratio(ratio / unit).map_err(|e| wrong("loss", text, e))
            }
        }
    }

    /// Names and mixes.
    fn mixes(&self) -> anyhow::Result<Vec<(String, Mix)>> {
        let mut all = vec![];
        for text in parts(&self.frames) {
            let inner = text.strip_prefix('(').and_then(|t| t.strip_suffix(')')).unwrap_or(text);
            let mix = inner.parse().map_err(|e| wrong("frames", text, e))?;
            all.push((inner.to_owned(), mix));
        }
        Ok(all)
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

    fn document(
        &self,
        file: &ChainFile,
        measured: &Measured,
        (name, mix): (&str, &Mix),
        goal: Goal,
        environment: report::Environment,
    ) -> report::Result {
        let text = std::fs::read_to_string(&self.chain).unwrap_or_default();
        let frames = match mix.entries() {
            [(size, _)] => Frames::FrameBytes(size.with_fcs()),
            parts => Frames::Mix(MixDocument {
                name: name.to_owned(),
                parts: parts
                    .iter()
                    .map(|(size, weight)| MixPart { frame_bytes: size.with_fcs(), weight: *weight })
                    .collect(),
            }),
        };
        let mut deviations: Vec<String> = measured.found.remarks.iter().map(ToString::to_string).collect();
        deviations.push(
            "ports are wires in memory and departure and arrival are stamped by software on this host: no NIC, no link, no line rate"
                .to_owned(),
        );
        report::Result {
            schema: report::Version::V1,
            id: String::new(),
            tool: Tool {
                name: "bondstone".to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                commit: None,
                command: Some(std::env::args().collect::<Vec<_>>().join(" ")),
            },
            study: "bench".to_owned(),
            cell: BTreeMap::from([("flows".to_owned(), self.flows.to_string())]),
            dut: Dut {
                kind: "bondstone".to_owned(),
                version: Some(env!("CARGO_PKG_VERSION").to_owned()),
                file: Some(self.chain.display().to_string()),
                chain_sha256: Some(report::sha256(text.as_bytes())),
                chain: Some(text),
                isolation: Some("inproc".to_owned()),
                nfs: file.nfs.iter().map(|n| NfUse { name: n.name.clone(), kind: n.kind.name.to_owned() }).collect(),
                ports: file
                    .ports
                    .iter()
                    .map(|p| Port { name: p.name.clone(), device: "wire".to_owned(), driver: None })
                    .collect(),
                cores: file.chains.iter().flat_map(|c| &c.cores).map(|c| *c as u32).collect(),
            },
            traffic: Traffic {
                frames,
                flows: self.flows.into(),
                protocol: "udp".to_owned(),
                burst: 8,
                directions: 1,
                trace_sha256: None,
                seed: Some(0),
            },
            goal: report::Goal {
                name: None,
                trial_s: goal.final_s(),
                sum_s: goal.sum_s(),
                loss_ratio: goal.loss_ratio(),
                exceed_ratio: goal.exceed_ratio(),
                width: goal.width(),
                method: if self.rate.is_some() { "one load".to_owned() } else { "MLRsearch (RFC 9971)".to_owned() },
            },
            environment,
            calibration: None,
            limited_by: measured.limited_by(),
            deviations,
            trials: measured.trials.iter().map(bench::document).collect(),
            summary: measured.summary(),
            latency: measured.latency.clone().into_iter().collect(),
            nodes: measured.nodes.clone(),
        }
    }

    fn show(&self, all: &[report::Result], db: &Path) -> anyhow::Result<()> {
        let page = self.report.clone().unwrap_or_else(|| {
            let stem = self.chain.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            db.with_file_name(format!("{stem}-{}.html", report::now().replace([':', '.'], "-")))
        });
        std::fs::write(&page, report::html(all)).map_err(|e| wrong("report", page.display(), e))?;
        let mut out = std::io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, all)?;
            writeln!(out)?;
        } else {
            write!(out, "\n{}", report::table(all))?;
            writeln!(out, "\nresults  {}\nreport   {}", db.display(), page.display())?;
        }
        Ok(())
    }
}

/// A wrong option, as an input error.
fn wrong(option: &str, value: impl std::fmt::Display, problem: impl std::fmt::Display) -> anyhow::Error {
    Diagnostics(vec![Diagnostic::new(format!("--{option}: {problem}")).value(value)]).into()
}

/// What stands between commas that stand in no parentheses.
fn parts(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let parts = text.split(|c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    });
    parts.map(str::trim).filter(|p| !p.is_empty()).collect()
}

fn words(cpus: &[usize]) -> String {
    cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Says what was found, and if it is nothing, why.
fn explain(name: &str, m: &Measured) {
    let mpps = |pps: f64| format!("{:.3} Mpps", pps / 1e6);
    match m.found.lower_pps {
        Some(lower) => eprintln!("{name}: {}, {} trials", mpps(lower), m.trials.len()),
        None => {
            let worst: Vec<_> = m.drops.iter().map(|(reason, n)| format!("{n} {reason}")).collect();
            eprintln!(
                "{name}: no rate meets the goal. Dropped by the chain: {}",
                if worst.is_empty() { "nothing".to_owned() } else { worst.join(", ") }
            );
            eprintln!(
                "  cure: [traffic] in the chain file says what is sent; a router takes only what goes to its MAC address (dst_mac)"
            );
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
