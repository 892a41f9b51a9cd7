//! `bondstone results import`.

use super::Db;
use crate::exit::Exit;
use results::import::{Imported, read};
use results::{Added, Place};
use std::io::Write;

/// Adds results of files: documents of Bondstone, or those of other programs.
///
/// What is read is told by its content. Documents come as `results export --format json` writes them, one or several, or as a
/// whole database with its tags, a SQLite file or a PostgreSQL URL. FD.io CSIT: a JSON file of a test case (UTI model 1.x);
/// NFPA: its SQLite database. What those do not know stands among the deviations of the results. A result that is there
/// already stays as it is.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bondstone results import nightly.json
  bondstone results import tests.vpp.perf.info.json --tag csit-2602
  bondstone results import nfpa.db --format nfpa
  bondstone results import ~/.local/share/bondstone/results.sqlite --db postgres://lab@results.example/bench")]
pub(crate) struct Import {
    /// Files, or databases.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,
    /// What they are; told by their content, if left out.
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// A tag for each result.
    #[arg(long)]
    tag: Vec<String>,
    #[command(flatten)]
    db: Db,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Forms that are read.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Bondstone,
    Uti,
    Nfpa,
}

impl Import {
    pub(super) fn run(&self) -> anyhow::Result<Exit> {
        use results::import::Format as As;
        let format = self.format.map(|format| match format {
            Format::Bondstone => As::Bondstone,
            Format::Uti => As::Uti,
            Format::Nfpa => As::Nfpa,
        });
        let mut store = self.db.open()?;
        let mut out = std::io::stdout().lock();
        let mut json = vec![];
        for file in &self.files {
            let (format, imported) = read(&Place::of(file), format)?;
            let (mut new, mut known, mut ids) = (0, 0, vec![]);
            match imported {
                Imported::Documents(documents) => {
                    for document in &documents {
                        match store.add_document(document)? {
                            Added::New => new += 1,
                            Added::Known => known += 1,
                        }
                        ids.push(document.result().id.clone());
                    }
                }
                Imported::Store(other) => {
                    let copied = other.copy_to(&mut store)?;
                    (new, known) = (copied.new, copied.known);
                    if !self.tag.is_empty() {
                        ids = other.list(&results::Filter::default())?.into_iter().map(|e| e.id).collect();
                    }
                }
            }
            for (id, tag) in ids.iter().flat_map(|id| self.tag.iter().map(move |tag| (id, tag))) {
                store.tag(id, tag)?;
            }
            let place = Place::of(file);
            if self.json {
                let file = place.to_string();
                json.push(
                    serde_json::json!({"file": file, "format": format.name(), "new": new, "known": known, "ids": ids}),
                );
            } else {
                let there = if known > 0 { format!(", {known} were there") } else { String::new() };
                writeln!(out, "{place}: {}: {new} added{there}", format.name())?;
            }
        }
        if self.json {
            serde_json::to_writer_pretty(&mut out, &json)?;
            writeln!(out)?;
        }
        Ok(Exit::Done)
    }
}
