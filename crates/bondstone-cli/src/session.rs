//! Measurement sessions on the command line: options, the database, progress output, and the report page.

mod database;
mod progress;

use crate::exit::Exit;
use crate::interrupt::on_interrupt;
use crate::results::{load, select_all};
use crate::stdout::stdout;
use bench::session::{CancelHandle, CellResult, Event, Observer, Session, SessionCell, SessionEnd};
use database::Database;
use diagnostics::{Diagnostic, Diagnostics};
use graph::Registry;
use progress::Progress;
pub(crate) use progress::cpu_list;
use report::reproduction::Reproduction;
use results::{Location, Store};
use std::io::Write;
use std::path::PathBuf;

/// Options for the storage and display of results.
#[derive(clap::Args)]
pub(crate) struct OutputOptions {
    /// Database for the results: a file or postgres://USER@HOST/DATABASE. By default $BONDSTONE_DB or the user's
    /// database.
    #[arg(long, value_name = "FILE-or-URL")]
    db: Option<PathBuf>,
    /// HTML report of the results. By default a file next to the database.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Results of the database to show in the report as well, such as imported results of other hosts: the first digits
    /// of an id, a tag, or a filter (see `bondstone results list --help`).
    #[arg(long, value_name = "RESULTS")]
    compare: Vec<String>,
}

/// A session with its database and its output.
pub(crate) struct CliSession {
    session: Session,
    database: Database,
    page: Option<PathBuf>,
    compared: Vec<report::Result>,
    cancel: CancelHandle,
}

impl CliSession {
    /// Opens the database. From here on Ctrl-C cancels the session instead of ending the program.
    pub(crate) fn open(
        options: &OutputOptions,
        generator_cpus: &[usize],
        registry: &Registry,
    ) -> anyhow::Result<CliSession> {
        let location = options.db.as_ref().map_or_else(Location::from_env, Location::from_argument)?;
        let store = Store::open(location)?;
        let compared = load(&store, &select_all(&store, &options.compare)?)?;
        let command = std::env::args().collect::<Vec<_>>().join(" ");
        let session = Session::new(registry).with_generator_cpus(generator_cpus.to_vec()).with_command(command);
        let cancel = session.cancel_handle();
        let handle = cancel.clone();
        on_interrupt(move || handle.cancel())?;
        Ok(CliSession { session, database: Database(store), page: options.report.clone(), compared, cancel })
    }

    /// Returns true once the user has cancelled the session.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Returns the location of the database, without a password.
    pub(crate) fn location(&self) -> String {
        self.database.0.location().to_string()
    }

    /// Measures cells with this many repetitions, and calls `on_cell` with the results of each, or with the reason why
    /// there are none.
    pub(crate) fn run(
        &mut self,
        cells: &[SessionCell<'_>],
        repetitions: u32,
        resume: bool,
        on_cell: impl FnMut(&SessionCell<'_>, Result<&[CellResult], &str>) + Send,
    ) -> anyhow::Result<Exit> {
        self.session.set_repetitions(repetitions);
        self.session.set_resume(resume);
        let mut output = Output { progress: Progress::new(), on_cell };
        let end = self.session.run(cells, &mut self.database, &mut output);
        output.progress.finish();
        Ok(end?.into())
    }

    /// Writes the report of scenarios and returns its path; `name` becomes part of the default file name.
    pub(crate) fn write_reproduction(&self, mut scenarios: Vec<Reproduction>, name: &str) -> anyhow::Result<PathBuf> {
        let is_single = scenarios.len() == 1;
        for scenario in &mut scenarios {
            let is_compared = |result: &&report::Result| is_single || result.study == scenario.name;
            scenario.results.extend(self.compared.iter().filter(is_compared).cloned());
        }
        self.write_page(name, &report::reproduction_html(&format!("Reproduction of {name}"), &scenarios))
    }

    fn write_page(&self, name: &str, html: &str) -> anyhow::Result<PathBuf> {
        let page = self.page.clone().unwrap_or_else(|| {
            let name = format!("{name}-{}", report::now()).replace([':', '/'], "-");
            self.database.0.location().sibling(&format!("{name}.html"))
        });
        std::fs::write(&page, html).map_err(|e| option_error("report", page.display(), e))?;
        Ok(page)
    }

    /// Writes the report, and prints results as a table or as JSON.
    pub(crate) fn show(&self, results: &[report::Result], name: &str, json: bool) -> anyhow::Result<()> {
        if results.is_empty() {
            return Ok(());
        }
        let all: Vec<report::Result> = results.iter().chain(&self.compared).cloned().collect();
        let page = self.write_page(name, &report::html(&all))?;
        let mut out = stdout();
        if json {
            serde_json::to_writer_pretty(&mut out, results)?;
            writeln!(out)?;
        } else {
            write!(out, "\n{}", report::table(results))?;
            writeln!(out, "\nresults  {}\nreport   {}", self.location(), page.display())?;
        }
        Ok(())
    }
}

/// Prints progress, and passes cells on.
struct Output<F> {
    progress: Progress,
    on_cell: F,
}

impl<F: FnMut(&SessionCell<'_>, Result<&[CellResult], &str>) + Send> Observer for Output<F> {
    fn on_event(&mut self, event: &Event<'_>) {
        match event {
            Event::CellDone { cell, results } => (self.on_cell)(cell, *results),
            event => self.progress.on_event(event),
        }
    }
}

impl From<SessionEnd> for Exit {
    fn from(end: SessionEnd) -> Exit {
        match end {
            SessionEnd::Done => Exit::Success,
            SessionEnd::GoalNotMet => Exit::NotMet,
            SessionEnd::InvalidInput => Exit::Input,
            SessionEnd::Environment => Exit::Environment,
            SessionEnd::Failed => Exit::Failed,
            SessionEnd::Cancelled => Exit::Interrupted,
        }
    }
}

/// Returns an input error for an option's value.
pub(crate) fn option_error(
    option: &str,
    value: impl std::fmt::Display,
    problem: impl std::fmt::Display,
) -> anyhow::Error {
    Diagnostics(vec![Diagnostic::new(format!("--{option}: {problem}")).value(value)]).into()
}
