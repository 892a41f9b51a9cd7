//! The command line, as a library: a program with NFs of its own is this with another registry.
//!
//! ```no_run
//! fn main() -> std::process::ExitCode {
//!     bondstone_cli::main(nf::registry() /* .with::<MyNf>() */)
//! }
//!
//! #[global_allocator] // so that what each NF allocates is known
//! static MEMORY: bondstone_cli::Memory = bondstone_cli::Memory;
//! ```
//!
//! The feature `measure`, which is on by default, adds the commands `bench`, `reproduce`, `results` and `trend`, and with them
//! a database and pages of results. Without it (`default-features = false`) a program builds sooner, and builds no SQLite.
#![forbid(unsafe_code)]

#[cfg(feature = "measure")]
mod bench;
#[cfg(feature = "measure")]
mod captures;
mod check;
mod doctor;
mod exit;
mod image;
mod import;
mod interrupt;
mod kept;
mod lint;
#[cfg(feature = "measure")]
mod measuring;
mod new;
mod nf;
mod plan;
#[cfg(feature = "measure")]
mod reproduce;
#[cfg(feature = "measure")]
mod results;
mod run;
mod table;
#[cfg(feature = "measure")]
mod trend;

use clap::{Parser, Subcommand};
pub use crash::Counting as Memory;
use exit::Exit;
use graph::Registry;
use std::process::ExitCode;

/// What `--help` ends with.
fn examples() -> String {
    let measure =
        "  bondstone bench examples/router.toml\n  bondstone reproduce netbricks/lpm\n  bondstone results list\n";
    let measure = if cfg!(feature = "measure") { measure } else { "" };
    format!(
        "\
Exit status: 0 done, 1 verdict not met, 2 wrong input, 3 this machine or user lacks something, 4 the run failed, 130 interrupted.

Examples:
  bondstone run examples/demo.toml --for 10s
{measure}  bondstone check examples/demo.toml
  bondstone plan examples/demo.toml
  bondstone nf show ttl
  bondstone image oci ttl
  bondstone new my-nf
  bondstone lint my-nf
  bondstone doctor"
    )
}

/// Build, run, isolate and measure software network functions.
#[derive(Parser)]
#[command(
    name = "bondstone",
    version,
    max_term_width = 120,
    after_help = examples()
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Run),
    #[cfg(feature = "measure")]
    Bench(Box<bench::Bench>),
    #[cfg(feature = "measure")]
    Reproduce(reproduce::Reproduce),
    #[cfg(feature = "measure")]
    #[command(subcommand)]
    Results(results::Results),
    #[cfg(feature = "measure")]
    Trend(trend::TrendOf),
    Check(check::Check),
    Plan(plan::Plan),
    /// Lists and explains network functions.
    #[command(subcommand, after_help = "Examples:\n  bondstone nf list\n  bondstone nf show tee")]
    Nf(nf::Nf),
    #[command(subcommand, after_help = "Examples:\n  bondstone image oci ttl monitor\n  bondstone image vm ttl --time")]
    Image(image::Image),
    New(new::New),
    Import(import::Import),
    Lint(lint::Lint),
    Doctor(doctor::Doctor),
    /// Runs what is behind a wall of a chain file, for the same program on this side of it.
    #[command(name = sandbox::HOST, hide = true)]
    WallHost {
        /// What it is to do.
        order: std::path::PathBuf,
        /// Whether it is in namespaces of its own already.
        #[arg(long)]
        inner: bool,
    },
    /// Runs what is behind the walls of a chain file, for a switch that is another program.
    #[command(name = sandbox::HOSTS, hide = true)]
    WallHosts {
        /// The chain file.
        file: std::path::PathBuf,
    },
    /// Runs as the first program of a virtual machine that is behind a wall.
    #[command(name = sandbox::GUEST, hide = true)]
    WallGuest {
        /// Whether the machine is ready.
        #[arg(long)]
        inner: bool,
    },
    /// Runs a device under test for the same program on another machine, which tells it on standard input.
    #[cfg(feature = "measure")]
    #[command(hide = true)]
    DutAgent,
}

/// Runs the program on the process's arguments, with the NFs of `registry`.
pub fn main(registry: Registry) -> ExitCode {
    let result = match Cli::parse().command {
        Command::WallHost { order, inner } => return sandbox::host(&registry, &order, inner),
        Command::WallHosts { file } => {
            // the end of its input ends it, orderly
            match interrupt::on_interrupt(|| {}) {
                Ok(()) => return sandbox::hosts(&registry, &file),
                Err(e) => Err(e),
            }
        }
        Command::WallGuest { inner } => return sandbox::guest(&registry, inner),
        Command::Run(run) => match run.run(&registry) {
            Ok(code) => return code,
            Err(e) => Err(e),
        },
        #[cfg(feature = "measure")]
        Command::Bench(bench) => bench.run(&registry),
        #[cfg(feature = "measure")]
        Command::Reproduce(reproduce) => reproduce.run(&registry),
        #[cfg(feature = "measure")]
        Command::Results(results) => results.run(),
        #[cfg(feature = "measure")]
        Command::Trend(trend) => trend.run(),
        Command::Check(check) => check.run(&registry),
        Command::Plan(plan) => plan.run(&registry),
        Command::Nf(nf) => nf.run(&registry),
        Command::Image(image) => image.run(&registry),
        Command::New(new) => new.run(&registry),
        Command::Import(import) => import.run(),
        Command::Lint(lint) => lint.run(),
        Command::Doctor(doctor) => doctor.run(),
        #[cfg(feature = "measure")]
        Command::DutAgent => ::bench::dut::agent().map(|()| Exit::Done).map_err(Into::into),
    };
    result
        .unwrap_or_else(|e: anyhow::Error| {
            // a reader that has closed our output is no failure of ours
            if e.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe) {
                return Exit::Done;
            }
            eprintln!("error: {e:#}");
            exit::of(&e)
        })
        .into()
}
