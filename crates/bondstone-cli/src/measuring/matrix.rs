//! Several jobs, one after the other: rounds, progress, and what an interrupted run has done already.

use super::{Desk, Job, Measured, Under};
use crate::exit::{self, Exit};
use results::Filter;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What says in a result's environment which repetition it is.
pub(super) const REPETITION: &str = "repetition";
/// Digits of a plan's hash that a run's tag ends with.
const DIGITS: usize = 12;

/// A cell of a matrix.
#[derive(Clone)]
pub(crate) struct Task<'a> {
    /// For people: which.
    pub(crate) label: String,
    /// Parameters that tell it from the others.
    pub(crate) cell: BTreeMap<String, String>,
    /// How it is measured, or why it cannot be.
    pub(crate) job: Result<Job<'a>, String>,
}

/// What came of a cell: what was measured, as far as it came, or why nothing was.
pub(crate) type Came<'r> = Result<&'r [Measured], String>;

/// How often all cells are measured, and whether an earlier run goes on.
#[derive(Clone, Copy)]
pub(crate) struct Rounds {
    /// One round after the other, so that what changes with time does not fall on one cell.
    pub(crate) rounds: u32,
    /// What the last run of the same plan has measured counts.
    pub(crate) resume: bool,
}

impl Desk {
    /// Measures all cells; `each` is told of every one. A cell that fails does not end the rest.
    ///
    /// # Errors
    /// When the database fails; when there is only one cell, its error.
    pub(crate) fn measure_all(
        &mut self,
        tasks: &[Task<'_>],
        how: Rounds,
        mut each: impl FnMut(&Task<'_>, Came<'_>),
    ) -> anyhow::Result<Exit> {
        let plan = plan(tasks, how.rounds, self.core);
        self.run = Some(format!("run-{}-{plan}", report::now().replace([':', '-'], "")));
        let mut kept = if how.resume { self.unfinished(tasks, &plan)? } else { vec![] };
        let mut cells = Cells::new(tasks.len() * how.rounds as usize);
        let mut exit = Exit::Done;
        let mut told_goal = false;
        let all = (1..=how.rounds).flat_map(|round| tasks.iter().enumerate().map(move |(n, task)| (round, n, task)));
        for (round, number, task) in all {
            let job = match &task.job {
                Ok(job) => job,
                Err(why) => {
                    eprintln!("{}: not measured: {why}", task.label);
                    cells.skip();
                    each(task, Err(why.clone()));
                    continue;
                }
            };
            if !core::mem::replace(&mut told_goal, true) {
                eprintln!("goal: {}", job.how.goal);
            }
            let round = (how.rounds > 1).then_some(round);
            let before = take_round(&mut kept, number, round);
            let began = Instant::now();
            let label = format!("{}{}", cells.place(), job.label);
            match self.measure(&Job { label: label.clone(), round, ..job.clone() }, before) {
                Ok(outcome) => {
                    each(task, Ok(&outcome.results));
                    match outcome.exit {
                        // a device that ended badly is measured again
                        Exit::Failed => {
                            exit = Exit::Failed;
                            self.leave_out(&outcome.results)?;
                        }
                        Exit::Done => {}
                        Exit::Interrupted => {
                            exit = Exit::Interrupted;
                            break;
                        }
                        Exit::NotMet if exit != Exit::Done => {}
                        other => exit = other,
                    }
                    cells.did(outcome.is_new.then(|| began.elapsed()));
                }
                Err(_) if self.is_interrupted() => {
                    exit = Exit::Interrupted;
                    break;
                }
                Err(e) if cells.all == 1 || e.is::<results::Error>() => return Err(e),
                Err(e) => {
                    eprintln!("error: {label}: {e:#}");
                    cells.did(Some(began.elapsed()));
                    exit = exit::of(&e);
                    each(task, Err(format!("{e:#}").lines().next().unwrap_or_default().to_owned()));
                }
            }
        }
        if exit == Exit::Interrupted && cells.all > 1 {
            eprintln!(
                "interrupted in cell {} of {}; the same command with --resume goes on from there",
                cells.at, cells.all
            );
        }
        Ok(exit)
    }

    /// Takes results out of the run: they do not count when it goes on.
    fn leave_out(&mut self, results: &[Measured]) -> anyhow::Result<()> {
        if let Some(run) = self.run.clone() {
            for measured in results {
                self.store.untag(&measured.result.id, &run)?;
            }
        }
        Ok(())
    }

    /// What the last run of the plan has measured, by task; from here on this is that run.
    fn unfinished(&mut self, tasks: &[Task<'_>], plan: &str) -> anyhow::Result<Vec<(usize, report::Result)>> {
        let Some(study) = tasks.iter().find_map(|t| Some(t.job.as_ref().ok()?.study.clone())) else {
            return Ok(vec![]);
        };
        let of_study = Filter { study: Some(study), ..Filter::default() };
        let ours = |tag: &&String| tag.starts_with("run-") && tag.ends_with(plan);
        let entries = self.store.list(&of_study)?;
        let Some(run) = entries.iter().flat_map(|e| &e.tags).filter(ours).max().cloned() else {
            eprintln!("nothing to resume: the plan was not measured before, or has changed since");
            return Ok(vec![]);
        };
        let of_run = Filter { tag: Some(run.clone()), ..Filter::default() };
        let mut kept = vec![];
        for result in self.store.select(&of_run)?.into_iter().filter(|r| !super::is_partial(r)) {
            let is_of = |t: &Task<'_>| {
                t.job.as_ref().is_ok_and(|job| job.cell.iter().all(|(name, v)| result.cell.get(name) == Some(v)))
            };
            if let Some(number) = tasks.iter().position(is_of) {
                kept.push((number, result));
            }
        }
        eprintln!("{run}: {} results are there already", kept.len());
        self.run = Some(run);
        Ok(kept)
    }
}

/// Takes one round's results of a cell.
fn take_round(kept: &mut Vec<(usize, report::Result)>, number: usize, round: Option<u32>) -> Vec<report::Result> {
    let round = round.map(|round| round.to_string());
    let is_of =
        |(of, r): &mut (usize, report::Result)| *of == number && r.environment.more.get(REPETITION) == round.as_ref();
    kept.extract_if(.., is_of).map(|(_, result)| result).collect()
}

/// What tells these jobs from others: all that is written of them, and the machine. Files that a chain names are not looked at.
fn plan(tasks: &[Task<'_>], rounds: u32, core: Option<usize>) -> String {
    let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let cpu = bench::environment(&[], "").cpu;
    let mut text = format!("{} {rounds} {core:?} {cpu} {machine}", env!("CARGO_PKG_VERSION"));
    for job in tasks.iter().filter_map(|task| task.job.as_ref().ok()) {
        let dut = match job.dut {
            Under::Chain(file) => file.text.clone(),
            Under::Rig { name, plan, file } => format!("{name} {plan:?} {}", file.text),
            Under::Simulated { device, file } => format!("{device} {}", file.text),
        };
        text += &format!(
            "\n{} {:?} {dut} {:?} {:?} {:?} {:?}",
            job.study, job.cell, job.sent, job.how, job.generator, job.clock_mhz
        );
    }
    let mut hash = report::sha256(text.as_bytes());
    hash.truncate(DIGITS);
    hash
}

/// How far a matrix has come.
struct Cells {
    all: usize,
    /// The one that is measured, from 1.
    at: usize,
    /// Of those measured in this run.
    times: (u32, Duration),
}

impl Cells {
    fn new(all: usize) -> Cells {
        Cells { all, at: 1, times: (0, Duration::ZERO) }
    }

    fn skip(&mut self) {
        self.at += 1;
    }

    /// Counts one; the time it took, if anything was measured.
    fn did(&mut self, took: Option<Duration>) {
        self.at += 1;
        if let Some(took) = took {
            self.times = (self.times.0 + 1, self.times.1 + took);
        }
    }

    /// What stands before the name of the one that comes.
    fn place(&self) -> String {
        let (at, all) = (self.at, self.all);
        match self.times {
            _ if all < 2 => String::new(),
            (0, _) => format!("[{at}/{all}] "),
            (done, sum) => {
                let each = sum.as_secs_f64() / f64::from(done);
                let left = Duration::from_secs((each * (all - at + 1) as f64).ceil() as u64);
                format!("[{at}/{all}, about {} left] ", humantime::format_duration(left))
            }
        }
    }
}
