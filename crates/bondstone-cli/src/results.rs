//! `bondstone results`.

mod compare;
mod export;
mod import;
mod list;
mod rm;
pub(crate) mod select;
mod show;
mod tag;

use crate::exit::Exit;
use diagnostics::{Diagnostic, Diagnostics};
use results::{Location, Store};
pub(crate) use select::{load, select_all};

/// Lists, compares, exports and imports results of measurements.
///
/// Results are documents in a database: a SQLite file, or a shared PostgreSQL database. Stored documents never change;
/// tags are stored separately.
#[derive(clap::Subcommand)]
#[command(after_help = SELECTION)]
pub(crate) enum Results {
    List(list::List),
    Show(show::Show),
    Compare(compare::Compare),
    Export(export::Export),
    Import(import::Import),
    Rm(rm::Rm),
    Tag(tag::Tag),
}

/// Explains how results are selected; the end of the help of each command.
pub(crate) const SELECTION: &str = "\
SELECTION: the beginning of an id (3fa85f), a tag (nightly), or a filter (dut=native,frame=64).
Keys of a filter: id, study, dut, version, frame, method, tool, tag, since, until, cell.NAME.";

/// Location of the database.
#[derive(clap::Args)]
pub(crate) struct Db {
    /// Database: a SQLite file, or postgres://USER@HOST/DATABASE [default: $BONDSTONE_DB, else the file of the user].
    #[arg(long, value_name = "FILE|URL")]
    db: Option<String>,
}

impl Db {
    pub(crate) fn open(&self) -> anyhow::Result<Store> {
        let location = self.db.as_ref().map_or_else(Location::from_env, Location::from_argument)?;
        Ok(Store::open(location)?)
    }
}

impl Results {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        match self {
            Results::List(list) => list.run(),
            Results::Show(show) => show.run(),
            Results::Compare(compare) => compare.run(),
            Results::Export(export) => export.run(),
            Results::Import(import) => import.run(),
            Results::Rm(rm) => rm.run(),
            Results::Tag(tag) => tag.run(),
        }
    }
}

/// Returns an input error.
pub(crate) fn input_error(problem: impl std::fmt::Display) -> anyhow::Error {
    Diagnostics(vec![Diagnostic::new(problem.to_string())]).into()
}

/// Truncates an id for tables.
pub(crate) fn short(id: &str) -> String {
    id.chars().take(12).collect()
}

/// Formats a value with a readable unit.
pub(crate) fn with_unit(value: f64, unit: &str) -> String {
    let (value, unit) = match unit {
        "pps" => (value / 1e6, "Mpps"),
        "bps" => (value / 1e9, "Gbit/s"),
        "ns" => (value / 1e3, "µs"),
        "ratio" => (value * 100.0, "%"),
        other => (value, other),
    };
    let digits = match value.abs() {
        v if v >= 1000.0 || v == 0.0 => format!("{value:.0}"),
        v if v >= 0.1 => format!("{value:.3}"),
        _ => format!("{value:.3e}"),
    };
    format!("{digits} {unit}").trim_end().to_owned()
}
