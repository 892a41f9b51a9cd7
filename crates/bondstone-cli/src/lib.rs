//! The command line as a library, for programs with additional NFs.
//!
//! ```no_run
//! fn main() -> std::process::ExitCode {
//!     bondstone_cli::main(nf::registry() /* .with::<MyNf>() */)
//! }
//!
//! #[global_allocator] // counts the allocations of each NF
//! static MEMORY: bondstone_cli::Memory = bondstone_cli::Memory;
//! ```
//!
//! The feature `measure`, enabled by default, adds the commands `bench`, `reproduce`, `results` and `trend`. Without it
//! (`default-features = false`) a program builds faster, and without SQLite.
#![forbid(unsafe_code)]

#[cfg(feature = "measure")]
mod bench;
mod capture;
#[cfg(feature = "measure")]
mod captures;
mod check;
mod compile;
mod control_planes;
mod diff;
mod doctor;
mod exit;
mod hosts;
mod image;
mod import;
mod instance;
mod interrupt;
mod lint;
mod log;
mod maglev;
mod metrics;
mod nat;
mod new;
mod nf;
mod notify;
mod observe;
mod plan;
mod reload;
#[cfg(feature = "measure")]
mod reproduce;
#[cfg(feature = "measure")]
mod results;
mod routes;
mod rules;
mod run;
#[cfg(feature = "measure")]
mod session;
mod source;
mod stats;
mod stdin_lines;
mod stdout;
mod stop;
mod table;
mod template;
mod tenant;
mod thresholds;
mod top;
mod trace;
#[cfg(feature = "measure")]
mod trend;
mod upgrade;

use clap::{CommandFactory, Parser, Subcommand};
pub use crash::CountingAllocator as Memory;
use exit::Exit;
use graph::Registry;
use std::io::Write;
use std::process::ExitCode;
use stdout::stdout;

/// Returns the end of the help.
fn examples() -> String {
    let measure =
        "  bondstone bench examples/router.toml\n  bondstone reproduce netbricks/lpm\n  bondstone results list\n";
    let measure = if cfg!(feature = "measure") { measure } else { "" };
    format!(
        "\
Exit status: 0 success, 1 verdict not met, 2 invalid input, 3 missing privilege, device or memory, 4 failed run, 130
interrupted.

Examples:
  bondstone run examples/demo.toml --for 10s
  bondstone stats
  bondstone trace -n 1
  bondstone capture --drops -w drops.pcapng
{measure}  bondstone check examples/demo.toml
  bondstone plan examples/demo.toml
  bondstone compile examples/demo.toml
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
    max_term_width = 100,
    after_help = examples()
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Run),
    Stats(stats::Stats),
    Top(top::Top),
    Capture(capture::CaptureCommand),
    Trace(trace::TraceCommand),
    Reload(reload::Reload),
    #[command(subcommand)]
    Rules(rules::Rules),
    #[command(subcommand)]
    Routes(routes::Routes),
    #[command(subcommand)]
    Tenant(tenant::Tenant),
    #[command(subcommand)]
    Nat(nat::Nat),
    #[command(subcommand)]
    Maglev(maglev::Maglev),
    #[command(subcommand)]
    Log(log::Log),
    Upgrade(upgrade::Upgrade),
    Stop(stop::Stop),
    #[cfg(feature = "measure")]
    Bench(Box<bench::Bench>),
    #[cfg(feature = "measure")]
    Reproduce(reproduce::Reproduce),
    #[cfg(feature = "measure")]
    #[command(subcommand)]
    Results(results::Results),
    #[cfg(feature = "measure")]
    Trend(trend::Trend),
    Check(check::Check),
    Diff(diff::Diff),
    Plan(plan::Plan),
    Compile(compile::Compile),
    /// Lists and describes network functions.
    #[command(subcommand, after_help = "Examples:\n  bondstone nf list\n  bondstone nf show tee")]
    Nf(nf::Nf),
    #[command(subcommand, after_help = "Examples:\n  bondstone image oci ttl monitor\n  bondstone image vm ttl --time")]
    Image(image::Image),
    New(new::New),
    Import(import::Import),
    Lint(lint::Lint),
    Doctor(doctor::Doctor),
    /// Runs as a sandboxed process of the same program.
    #[command(name = sandbox::PROCESS_COMMAND, hide = true)]
    SandboxProcess {
        /// File of the launch spec.
        spec: std::path::PathBuf,
        /// Runs in the namespaces that an outer process has created.
        #[arg(long)]
        inner: bool,
    },
    /// Runs the part of a host of a chain file for the same program on another machine, controlled through standard
    /// input.
    #[command(name = hosts::AGENT_COMMAND, hide = true)]
    HostAgent,
    /// Runs the control planes of tenants for a run, which writes orders to standard input.
    #[command(name = control_planes::COMMAND, hide = true)]
    ControlPlanes,
    /// Runs the sandboxes of a chain file at an external switch.
    #[command(name = sandbox::EXTERNAL_SWITCH_COMMAND, hide = true)]
    SandboxesAtSwitch {
        /// Chain file.
        file: std::path::PathBuf,
    },
    /// Runs as the first process of a guest.
    #[command(name = sandbox::GUEST_COMMAND, hide = true)]
    SandboxGuest {
        /// Runs on the prepared kernel.
        #[arg(long)]
        inner: bool,
    },
    /// Runs a DUT for the same program on another machine, controlled through standard input.
    #[cfg(feature = "measure")]
    #[command(hide = true)]
    DutAgent,
}

/// Returns the definition of the command line, from which manual pages and shell completions are generated.
#[must_use]
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the command line of this process with the NFs of `registry`.
pub fn main(registry: Registry) -> ExitCode {
    let exit = run(&registry);
    logger::flush();
    exit
}

fn run(registry: &Registry) -> ExitCode {
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(e) => {
            // invalid arguments, or a request for help
            let printed = e.print().and_then(|()| stdout().flush());
            return if printed.is_ok() || e.use_stderr() {
                ExitCode::from(e.exit_code() as u8)
            } else {
                Exit::Failed.into()
            };
        }
    };
    if !matches!(command, Command::Run(_)) {
        run::log::init_plain(matches!(command, Command::SandboxProcess { .. }));
    }
    let result = match command {
        Command::SandboxProcess { spec, inner } => return sandbox::run_process(registry, &spec, inner),
        Command::HostAgent => hosts::agent(),
        Command::ControlPlanes => control_planes::supervise(),
        Command::SandboxesAtSwitch { file } => {
            // only the end of the input stops it
            match interrupt::on_interrupt(|| {}) {
                Ok(()) => return sandbox::serve_external_switch(registry, &file),
                Err(e) => Err(e),
            }
        }
        Command::SandboxGuest { inner } => return sandbox::run_guest(registry, inner),
        Command::Run(run) => run.run(registry),
        Command::Stats(stats) => stats.run(),
        Command::Top(top) => top.run(),
        Command::Capture(capture) => capture.run(),
        Command::Trace(trace) => trace.run(),
        Command::Reload(reload) => reload.run(),
        Command::Rules(rules) => rules.run(),
        Command::Routes(routes) => routes.run(),
        Command::Tenant(tenant) => tenant.run(),
        Command::Nat(nat) => nat.run(),
        Command::Maglev(maglev) => maglev.run(),
        Command::Log(log) => log.run(),
        Command::Upgrade(upgrade) => upgrade.run(),
        Command::Stop(stop) => stop.run(),
        #[cfg(feature = "measure")]
        Command::Bench(bench) => bench.run(registry),
        #[cfg(feature = "measure")]
        Command::Reproduce(reproduce) => reproduce.run(registry),
        #[cfg(feature = "measure")]
        Command::Results(results) => results.run(),
        #[cfg(feature = "measure")]
        Command::Trend(trend) => trend.run(),
        Command::Check(check) => check.run(registry),
        Command::Diff(diff) => diff.run(registry),
        Command::Plan(plan) => plan.run(registry),
        Command::Compile(compile) => compile.run(registry),
        Command::Nf(nf) => nf.run(registry),
        Command::Image(image) => image.run(registry),
        Command::New(new) => new.run(registry),
        Command::Import(import) => import.run(),
        Command::Lint(lint) => lint.run(),
        Command::Doctor(doctor) => doctor.run(),
        #[cfg(feature = "measure")]
        Command::DutAgent => ::bench::dut::agent().map(|()| Exit::Success).map_err(Into::into),
    };
    let result = result.and_then(|exit| Ok(stdout().flush().map(|()| exit)?));
    result
        .unwrap_or_else(|e: anyhow::Error| {
            // a reader that has closed the output, such as `head`, needs no message
            if !is_broken_pipe(&e) {
                tracing::error!(target: "run", "{e:#}");
            }
            exit::of(&e)
        })
        .into()
}

/// Returns true if the reader of the output has closed it.
fn is_broken_pipe(e: &anyhow::Error) -> bool {
    let of_json = e.downcast_ref::<serde_json::Error>().and_then(serde_json::Error::io_error_kind);
    let kind = of_json.or(e.downcast_ref::<std::io::Error>().map(std::io::Error::kind));
    kind == Some(std::io::ErrorKind::BrokenPipe)
}
