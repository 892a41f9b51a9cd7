//! `bondstone results import`.

use super::Db;
use crate::exit::Exit;
use crate::stdout::stdout;
use results::import::{Imported, read};
use results::{Added, Location};
use std::io::Write;

/// Imports results of Bondstone and of other programs.
///
/// Formats, detected from the content: documents as written by `results export --format json`; a database of Bondstone
/// with its tags, a SQLite file or a PostgreSQL URL; a JSON file of a test case of FD.io CSIT (UTI model 1.x); a SQLite
/// database of NFPA. Information missing in those is listed among the deviations of the results. Existing results are
/// left unchanged.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bondstone results import nightly.json
  bondstone results import tests.vpp.perf.info.json --tag csit-2602
  bondstone results import nfpa.db --format nfpa
  bondstone results import ~/.local/share/bondstone/results.sqlite --db postgres://lab@results.example/bench")]
pub(crate) struct Import {
    /// Files or databases.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,
    /// Format [default: detected from the content].
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Adds a tag to each result.
    #[arg(long)]
    tag: Vec<String>,
    #[command(flatten)]
    db: Db,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Input formats.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Bondstone,
    Uti,
    Nfpa,
}

impl Import {
    pub(super) fn run(&self) -> anyhow::Result<Exit> {
        use results::import::Format as Source;
        let format = self.format.map(|format| match format {
            Format::Bondstone => Source::Bondstone,
            Format::Uti => Source::Uti,
            Format::Nfpa => Source::Nfpa,
        });
        let mut store = self.db.open()?;
        let mut out = stdout();
        let mut json = vec![];
        for file in &self.files {
            let (format, imported) = read(&Location::from_argument(file)?, format)?;
            let (mut new, mut existing, mut ids) = (0, 0, vec![]);
            match imported {
                Imported::Documents(documents) => {
                    for document in &documents {
                        match store.add_document(document)? {
                            Added::New => new += 1,
                            Added::Existing => existing += 1,
                        }
                        ids.push(document.result().id.clone());
                    }
                }
                Imported::Store(other) => {
                    let copied = other.copy_to(&mut store)?;
                    (new, existing) = (copied.new, copied.existing);
                    if !self.tag.is_empty() {
                        ids = other.list(&results::Filter::default())?.into_iter().map(|e| e.id).collect();
                    }
                }
            }
            for (id, tag) in ids.iter().flat_map(|id| self.tag.iter().map(move |tag| (id, tag))) {
                store.tag(id, tag)?;
            }
            let location = Location::from_argument(file)?;
            if self.json {
                let file = location.to_string();
                json.push(
                    serde_json::json!({"file": file, "format": format.name(), "new": new, "existing": existing, "ids": ids}),
                );
            } else {
                let unchanged = if existing > 0 { format!(", {existing} already present") } else { String::new() };
                writeln!(out, "{location}: {}: {new} added{unchanged}", format.name())?;
            }
        }
        if self.json {
            serde_json::to_writer_pretty(&mut out, &json)?;
            writeln!(out)?;
        }
        Ok(Exit::Success)
    }
}
