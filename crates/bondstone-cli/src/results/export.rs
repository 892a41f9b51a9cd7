//! `bondstone results export`.

use super::select::{load, select_all};
use super::{Db, SELECTION, input_error};
use crate::exit::Exit;
use crate::stdout::stdout;
use logger::eprintln;
use results::Filter;
use results::export::{csv, junit, markdown};
use results::threshold::{Bound, Threshold};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Exports results.
///
/// json: documents, which `results import` reads. csv: one line per metric (RFC 4180). junit: one test per threshold
/// and result, for continuous integration; the exit status is 1 if a test fails. markdown: tables. html: a page with
/// figures. svg, png: one file per figure.
#[derive(clap::Args)]
#[command(after_help = format!("{SELECTION}

Thresholds: throughput=5Mpps; p50, p99, p99.9 or max of the latency in ns, us, ms or s (at the highest load;
\"p99 at 50 %\" at another); loss=0.1%; or a quantity by its name.

Examples:
  bondstone results export nightly --format json --out nightly.json
  bondstone results export study=bench --format csv > bench.csv
  bondstone results export nightly --format junit --at-least throughput=5Mpps --at-most p99=100us --out junit.xml
  bondstone results export 3fa85f 91be02 --format html --out report.html
  bondstone results export nightly --format svg --out figures/"))]
pub(crate) struct Export {
    /// Results to select; all by default.
    #[arg(value_name = "SELECTION")]
    selection: Vec<String>,
    /// Output format.
    #[arg(long, value_enum)]
    format: Format,
    /// Output file [default: standard output]; for svg and png the folder of the files.
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Lower bound of a metric.
    #[arg(long, value_name = "METRIC=VALUE")]
    at_least: Vec<String>,
    /// Upper bound of a metric.
    #[arg(long, value_name = "METRIC=VALUE")]
    at_most: Vec<String>,
    /// Scale factor of PNG files.
    #[arg(long, default_value_t = 2.0, value_name = "FACTOR")]
    scale: f32,
    #[command(flatten)]
    db: Db,
}

/// Output formats.
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
            return Err(input_error("--at-least and --at-most require --format junit"));
        }
        let store = self.db.open()?;
        let entries = if self.selection.is_empty() {
            store.list(&Filter::default())?
        } else {
            select_all(&store, &self.selection)?
        };
        if entries.is_empty() {
            return Err(input_error(format_args!(
                "no results in {}; `bondstone bench` adds results",
                store.location()
            )));
        }
        if self.format == Format::Json {
            let mut texts = vec![];
            for entry in &entries {
                texts.extend(store.document(&entry.id)?.map(|document| document.text().to_owned()));
            }
            self.write(&format!("[\n{}\n]\n", texts.join(",\n")))?;
            return Ok(Exit::Success);
        }
        let all = load(&store, &entries)?;
        match self.format {
            Format::Csv => self.write(&csv::csv(&all))?,
            Format::Markdown => self.write(&markdown::markdown(&all))?,
            Format::Html => self.write(&report::html(&all))?,
            Format::Svg | Format::Png => self.figures(&all)?,
            Format::Json => {}
            Format::Junit => {
                let report = junit::junit(&all, &thresholds).map_err(input_error)?;
                self.write(&report.xml)?;
                if report.failures > 0 {
                    eprintln!("{} of {} thresholds not met", report.failures, thresholds.len() * all.len());
                    return Ok(Exit::NotMet);
                }
            }
        }
        Ok(Exit::Success)
    }

    fn thresholds(&self) -> anyhow::Result<Vec<Threshold>> {
        let parse = |option: &'static str, bound: Bound| {
            move |text: &String| {
                Threshold::parse(text, bound)
                    .map_err(|problem| input_error(format_args!("--{option} {text}: {problem}")))
            }
        };
        let least = self.at_least.iter().map(parse("at-least", Bound::AtLeast));
        least.chain(self.at_most.iter().map(parse("at-most", Bound::AtMost))).collect()
    }

    fn write(&self, text: &str) -> anyhow::Result<()> {
        match &self.out {
            Some(file) => save(file, text.as_bytes()),
            None => Ok(stdout().write_all(text.as_bytes())?),
        }
    }

    fn figures(&self, all: &[report::Result]) -> anyhow::Result<()> {
        let folder = self
            .out
            .as_ref()
            .ok_or_else(|| input_error("svg and png write several files: specify a folder with --out"))?;
        std::fs::create_dir_all(folder).map_err(|e| input_error(format_args!("--out {}: {e}", folder.display())))?;
        let figures = report::figures(all);
        for figure in &figures {
            if self.format == Format::Png {
                let png = report::png(&figure.svg, self.scale);
                let png = png.map_err(|e| input_error(format_args!("--scale {}: {}: {e}", self.scale, figure.name)))?;
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
    std::fs::write(file, bytes).map_err(|e| input_error(format_args!("--out {}: {e}", file.display())))
}
