//! Cells one after the other: repetitions, progress, and results of an earlier session.

use super::measurement::CellContext;
use super::result::{REPETITION, is_partial};
use super::reuse::IndexedResult;
use super::{CellResult, Event, Observer, Run, Session, SessionCell, SessionEnd, SessionError, Store, Target};
use crate::environment::environment;
use std::time::{Duration, Instant};

/// Digits of the hash at the end of a session run's name.
const HASH_DIGITS: usize = 12;

impl Session {
    /// Measures cells. An error of a cell does not end the session if there are others.
    ///
    /// # Errors
    /// An error of the store, or of the only cell.
    pub fn run(
        &mut self,
        cells: &[SessionCell<'_>],
        store: &mut dyn Store,
        observer: &mut dyn Observer,
    ) -> Result<SessionEnd, SessionError> {
        let hash = session_hash(cells, self.repetitions, &self.generator_cpus);
        let mut session_run = format!("run-{}-{hash}", report::now().replace([':', '-'], ""));
        let mut earlier = vec![];
        if self.resume {
            match last_run(cells, &hash, store)? {
                Some((name, results)) => {
                    observer.on_event(&Event::Resumed { session_run: &name, results: results.len() });
                    (session_run, earlier) = (name, results);
                }
                None => observer.on_event(&Event::NothingToResume),
            }
        }
        let mut position = Position::new(cells.len() * self.repetitions as usize);
        let mut end = SessionEnd::Done;
        self.goal_reported = false;
        let rounds = (1..=self.repetitions).flat_map(|round| cells.iter().enumerate().map(move |(n, c)| (round, n, c)));
        for (round, index, cell) in rounds {
            let run = match &cell.run {
                Ok(run) => run,
                Err(reason) => {
                    observer.on_event(&Event::MethodSkipped { name: &cell.label, reason });
                    position.next(None);
                    observer.on_event(&Event::CellDone { cell, results: Err(reason) });
                    continue;
                }
            };
            let repetition = (self.repetitions > 1).then_some(round);
            let reusable = take_results(&mut earlier, index, repetition);
            let start = Instant::now();
            observer.on_event(&position.started(&run.label));
            let context = CellContext { store: &mut *store, observer: &mut *observer, session_run: &session_run };
            match self.measure(&Run { repetition, ..run.clone() }, reusable, context) {
                Ok(outcome) => {
                    observer.on_event(&Event::CellDone { cell, results: Ok(&outcome.results) });
                    match outcome.end {
                        // measured again when the session is resumed
                        SessionEnd::Failed => {
                            end = SessionEnd::Failed;
                            remove_from_run(&outcome.results, &session_run, store)?;
                        }
                        SessionEnd::Done => {}
                        SessionEnd::Cancelled => {
                            end = SessionEnd::Cancelled;
                            break;
                        }
                        SessionEnd::GoalNotMet if end != SessionEnd::Done => {}
                        other => end = other,
                    }
                    position.next(outcome.is_new.then(|| start.elapsed()));
                }
                Err(_) if self.cancel.is_cancelled() => {
                    end = SessionEnd::Cancelled;
                    break;
                }
                Err(e) if position.count == 1 || matches!(e, SessionError::Store(_)) => return Err(e),
                Err(e) => {
                    let message = e.to_string();
                    observer.on_event(&Event::Error(&format!("{}: {message}", run.label)));
                    position.next(Some(start.elapsed()));
                    end = e.end();
                    let reason = message.lines().next().unwrap_or_default();
                    observer.on_event(&Event::CellDone { cell, results: Err(reason) });
                }
            }
        }
        if end == SessionEnd::Cancelled && position.count > 1 {
            observer.on_event(&Event::Cancelled { number: position.number, count: position.count });
        }
        Ok(end)
    }
}

fn remove_from_run(results: &[CellResult], session_run: &str, store: &mut dyn Store) -> Result<(), SessionError> {
    results
        .iter()
        .try_for_each(|measured| store.remove_from_run(&measured.result.id, session_run).map_err(SessionError::Store))
}

/// Returns the name of the last session with the same cells, and its complete results by cell.
fn last_run(
    cells: &[SessionCell<'_>],
    hash: &str,
    store: &mut dyn Store,
) -> Result<Option<(String, Vec<IndexedResult>)>, SessionError> {
    let Some(run) = cells.iter().find_map(|cell| cell.run.as_ref().ok()) else { return Ok(None) };
    let Some(name) = store.last_run(&run.study, hash).map_err(SessionError::Store)? else { return Ok(None) };
    let mut results = vec![];
    for result in store.run_results(&name).map_err(SessionError::Store)? {
        let is_of = |cell: &SessionCell<'_>| {
            let parameters = cell.run.as_ref().map(|run| &run.cell);
            parameters.is_ok_and(|cell| cell.iter().all(|(name, value)| result.cell.get(name) == Some(value)))
        };
        if !is_partial(&result)
            && let Some(index) = cells.iter().position(is_of)
        {
            results.push((index, result));
        }
    }
    Ok(Some((name, results)))
}

/// Removes and returns the results of one cell and repetition.
fn take_results(earlier: &mut Vec<IndexedResult>, index: usize, repetition: Option<u32>) -> Vec<report::Result> {
    let repetition = repetition.map(|repetition| repetition.to_string());
    let is_of = |(n, r): &mut IndexedResult| *n == index && r.environment.extra.get(REPETITION) == repetition.as_ref();
    earlier.extract_if(.., is_of).map(|(_, result)| result).collect()
}

/// Returns a hash of everything that a session's cells specify, and of the host. Files that chains name are not part of
/// it.
fn session_hash(cells: &[SessionCell<'_>], repetitions: u32, generator_cpus: &[usize]) -> String {
    let machine_id = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let cpu = environment(&[], "").cpu;
    let mut text = format!("{} {repetitions} {generator_cpus:?} {cpu} {machine_id}", env!("CARGO_PKG_VERSION"));
    for run in cells.iter().filter_map(|cell| cell.run.as_ref().ok()) {
        let target = match run.target {
            Target::InProcess(file) => file.text.clone(),
            Target::External { name, spec, file } => format!("{name} {spec:?} {}", file.text),
            Target::Simulated { device, file } => format!("{device} {}", file.text),
        };
        text += &format!(
            "\n{} {:?} {target} {:?} {:?} {:?} {:?}",
            run.study, run.cell, run.traffic, run.settings, run.generator, run.clock_mhz
        );
    }
    let mut hash = report::sha256(text.as_bytes());
    hash.truncate(HASH_DIGITS);
    hash
}

/// Position in a session.
struct Position {
    count: usize,
    /// Number of the current cell, from 1.
    number: usize,
    /// Number of cells that were measured and not reused, and the time they took.
    measured: (u32, Duration),
}

impl Position {
    fn new(count: usize) -> Position {
        Position { count, number: 1, measured: (0, Duration::ZERO) }
    }

    /// Moves to the next cell; `elapsed` is the time of a cell that was measured.
    fn next(&mut self, elapsed: Option<Duration>) {
        self.number += 1;
        if let Some(elapsed) = elapsed {
            self.measured = (self.measured.0 + 1, self.measured.1 + elapsed);
        }
    }

    fn started<'a>(&self, label: &'a str) -> Event<'a> {
        let (measured, time) = self.measured;
        let remaining = (measured != 0).then(|| {
            let mean_s = time.as_secs_f64() / f64::from(measured);
            Duration::from_secs((mean_s * (self.count - self.number + 1) as f64).ceil() as u64)
        });
        Event::CellStarted { label, number: self.number, count: self.count, remaining }
    }
}
