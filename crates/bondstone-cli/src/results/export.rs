//! `bondstone results export`.

use super::pick::{pick_all, whole};
use super::{Db, SELECTION, wrong};
use crate::exit::Exit;
use results::Filter;
use results::export::{csv, junit, markdown};
use results::threshold::{Bound, Threshold};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Writes results for other programs and for people.
///
/// json: the documents, which `results import` reads back. csv: a line for each number (RFC 4180). junit: a test for each
/// threshold of each result, for continuous integration; one that is missed fails, and the exit status is 1. markdown: tables.
/// html: the page with the figures. svg, png: the figures, a file for each.
#[derive(clap::Args)]
#[command(after_help = format!("{SELECTION}

Thresholds: throughput=5Mpps, p50, p99, p99.9 or max of the latency with ns, us, ms or s (at the highest load, or as
\"p99 at 50 %\"), loss=0.1%, or a quantity by its name.

Examples:
  bondstone results export nightly --format json --out nightly.json
  bondstone results export study=bench --format csv > bench.csv
  bondstone results export nightly --format junit --at-least throughput=5Mpps --at-most p99=100us --out junit.xml
  bondstone results export 3fa85f 91be02 --format html --out report.html
  bondstone results export nightly --format svg --out figures/"))]
pub(crate) struct Export {
    /// Which; all, if left out.
    #[arg(value_name = "WHICH")]
    which: Vec<String>,
    /// What is written.
    #[arg(long, value_enum)]
    format: Format,
    /// File that is written, standard output if left out; for svg and png the folder of the files.
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    /// What a number has to be at least.
    #[arg(long, value_name = "METRIC=VALUE")]
    at_least: Vec<String>,
    /// What a number may be at most.
    #[arg(long, value_name = "METRIC=VALUE")]
    at_most: Vec<String>,
    /// Pixels of a PNG for each of the drawing's.
    #[arg(long, default_value_t = 2.0, value_name = "FACTOR")]
    scale: f32,
    #[command(flatten)]
    db: Db,
}

/// Forms that are written.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Csv,
    Json,
    Junit,
    Markdown,
    Html,
    Svg,
    Png,
}

impl Export {
    pub(super) fn run(&self) -> anyhow::Result<Exit> {
        let thresholds = self.thresholds()?;
        if !thresholds.is_empty() && self.format != Format::Junit {
            return Err(wrong("--at-least and --at-most are judged with --format junit"));
        }
        let store = self.db.open()?;
        let entries =
            if self.which.is_empty() { store.list(&Filter::default())? } else { pick_all(&store, &self.which)? };
        if entries.is_empty() {
            return Err(wrong(format_args!("no results in {}; `bondstone bench` adds some", store.place())));
        }
        if self.format == Format::Json {
            let mut texts = vec![];
            for entry in &entries {
                texts.extend(store.document(&entry.id)?.map(|document| document.text().to_owned()));
            }
            self.write(&format!("[\n{}\n]\n", texts.join(",\n")))?;
            return Ok(Exit::Done);
        }
        let all = whole(&store, &entries)?;
        match self.format {
            Format::Csv => self.write(&csv::csv(&all))?,
            Format::Markdown => self.write(&markdown::markdown(&all))?,
            Format::Html => self.write(&report::html(&all))?,
            Format::Svg | Format::Png => self.figures(&all)?,
            Format::Json => {}
            Format::Junit => {
                let report = junit::junit(&all, &thresholds).map_err(wrong)?;
                self.write(&report.xml)?;
                if report.failures > 0 {
                    eprintln!("{} of {} thresholds missed", report.failures, thresholds.len() * all.len());
                    return Ok(Exit::NotMet);
                }
            }
        }
        Ok(Exit::Done)
    }

    fn thresholds(&self) -> anyhow::Result<Vec<Threshold>> {
        let read = |option: &'static str, bound: Bound| {
            move |text: &String| {
                Threshold::parse(text, bound).map_err(|problem| wrong(format_args!("--{option} {text}: {problem}")))
            }
        };
        let least = self.at_least.iter().map(read("at-least", Bound::AtLeast));
        least.chain(self.at_most.iter().map(read("at-most", Bound::AtMost))).collect()
    }

    fn write(&self, text: &str) -> anyhow::Result<()> {
        match &self.out {
            Some(file) => save(file, text.as_bytes()),
            None => Ok(std::io::stdout().lock().write_all(text.as_bytes())?),
        }
    }

    fn figures(&self, all: &[report::Result]) -> anyhow::Result<()> {
        let folder =
            self.out.as_ref().ok_or_else(|| wrong("figures are several files: name their folder with --out"))?;
        std::fs::create_dir_all(folder).map_err(|e| wrong(format_args!("--out {}: {e}", folder.display())))?;
        let figures = report::figures(all);
        for figure in &figures {
            if self.format == Format::Png {
                let png = report::png(&figure.svg, self.scale);
                let png = png.map_err(|e| wrong(format_args!("--scale {}: {}: {e}", self.scale, figure.name)))?;
                save(&folder.join(format!("{}.png", figure.name)), &png)?;
            } else {
                save(&folder.join(format!("{}.svg", figure.name)), figure.svg.as_bytes())?;
            }
        }
        eprintln!("{} figures in {}", figures.len(), folder.display());
        Ok(())
    }
}

fn save(file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    std::fs::write(file, bytes).map_err(|e| wrong(format_args!("--out {}: {e}", file.display())))
}
