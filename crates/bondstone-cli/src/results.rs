//! `bondstone results`.

mod compare;
mod export;
mod import;
mod list;
pub(crate) mod pick;
mod rm;
mod show;
mod tag;

use crate::exit::Exit;
use diagnostics::{Diagnostic, Diagnostics};
pub(crate) use pick::{pick_all, whole};
use results::{Place, Store};

/// Lists, compares, exports and imports what was measured.
///
/// Results are documents in a database: a SQLite file, or a PostgreSQL database that several people share. Nothing changes a
/// document once it is there; tags are kept beside it.
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

/// How results are named; what the help of every command ends with.
pub(crate) const SELECTION: &str = "\
Which results: the beginning of an id, as 3fa85f; a tag, as nightly; or what they have in common, as
dut=native,frame=64. Keys: id, study, dut, version, frame, method, tool, tag, since, until, cell.NAME.";

/// Where results are.
#[derive(clap::Args)]
pub(crate) struct Db {
    /// Database: a SQLite file, or postgres://USER@HOST/DATABASE. By default $BONDSTONE_DB, else the user's file.
    #[arg(long, value_name = "FILE-or-URL")]
    db: Option<String>,
}

impl Db {
    pub(crate) fn open(&self) -> anyhow::Result<Store> {
        let place = self.db.as_ref().map_or_else(Place::usual, |text| Ok(Place::of(text)))?;
        Ok(Store::open(place)?)
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

/// Wrong input, as an error.
pub(crate) fn wrong(problem: impl std::fmt::Display) -> anyhow::Error {
    Diagnostics(vec![Diagnostic::new(problem.to_string())]).into()
}

/// An id, short enough for a table and long enough to name it.
pub(crate) fn short(id: &str) -> String {
    id.chars().take(12).collect()
}

/// A value in the unit that people read.
pub(crate) fn human(value: f64, unit: &str) -> String {
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
