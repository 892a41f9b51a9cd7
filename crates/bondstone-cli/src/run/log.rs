//! Where and how a run logs messages.

use control::{LogLevels, Refusal};
use diagnostics::{Diagnostic, Diagnostics};
use logger::{Directives, Format, LEVEL_VARIABLE, Options, Output, TARGETS};
use std::io::IsTerminal as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Log messages of a run.
#[derive(clap::Args)]
#[command(next_help_heading = "Log messages")]
pub(super) struct LogArgs {
    /// Writes messages as text, or as one JSON object per line with time, level, target, message and fields
    /// [default: text].
    #[arg(long, value_name = "FORMAT", value_enum)]
    log_format: Option<LogFormat>,
    /// Writes messages to this output [default: journald if systemd connects standard error with it, otherwise stderr].
    #[arg(long, value_name = "OUTPUT", value_enum)]
    log_to: Option<LogOutput>,
    /// Socket of journald or syslog [default: /run/systemd/journal/socket or /dev/log].
    #[arg(long, value_name = "SOCKET")]
    log_socket: Option<PathBuf>,
    /// Logs messages of these levels and more important ones, by target: off, error, warn, info, debug or trace, such as
    /// warn or info,nf=debug; `bondstone log level` changes it later [default: $BONDSTONE_LOG, or info].
    #[arg(long, value_name = "DIRECTIVES", value_parser = parse)]
    log_level: Option<Directives>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum LogOutput {
    Stderr,
    Journald,
    Syslog,
}

fn parse(text: &str) -> Result<Directives, String> {
    text.parse()
}

/// Returns the levels of the environment variable.
fn levels_of_environment() -> Result<Option<Directives>, Diagnostic> {
    let Some(text) = std::env::var_os(LEVEL_VARIABLE).filter(|text| !text.is_empty()) else { return Ok(None) };
    let text = text.to_string_lossy();
    text.parse().map(Some).map_err(|problem: String| {
        Diagnostic::new(problem).value(format!("{LEVEL_VARIABLE}={text}")).remedy("name levels such as info,nf=debug")
    })
}

/// Logs messages of commands other than `run`: plain text on standard error, of the levels of the environment variable
/// in a process that a run has started.
pub(crate) fn init_plain(is_of_run: bool) {
    let levels = levels_of_environment().ok().flatten().filter(|_| is_of_run).unwrap_or_default();
    // ignore errors: standard error needs no connection
    let _ = logger::init(Options { levels, ..Options::default() });
}

/// Changes the levels of messages, or of those of one target, and returns them.
pub(super) fn level(set: Option<&str>, target: Option<&str>) -> Result<LogLevels, Refusal> {
    let change = |levels: &mut Directives| match (set, target) {
        (None, None) => Ok(()),
        (None, Some(target)) => Directives::check_target(target),
        (Some(text), Some(target)) => levels.set(target, text),
        (Some(text), None) => text.parse().map(|new| *levels = new),
    };
    let remedy = "name levels such as info,nf=debug";
    let directives = logger::change_levels(change).map_err(|e| Refusal::from(Diagnostic::new(e).remedy(remedy)))?;
    if set.is_some() {
        tracing::info!(target: "log", "log level {directives}");
    }
    let targets = target.map_or_else(|| TARGETS.iter().map(|(name, _)| *name).collect(), |target| vec![target]);
    let levels = targets.into_iter().map(|target| (target.to_owned(), directives.level(target))).collect();
    Ok(LogLevels { directives: directives.to_string(), levels })
}

/// Returns true if systemd has connected standard error with journald (`systemd.exec(5)`, `$JOURNAL_STREAM`).
fn is_journal_stream() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let own = std::fs::metadata("/proc/self/fd/2").map(|file| format!("{}:{}", file.dev(), file.ino()));
    own.is_ok_and(|own| own == stream)
}

impl LogArgs {
    /// Starts to log messages of a run of a chain file.
    pub(super) fn init(&self, chain: &Path) -> anyhow::Result<()> {
        let started = self.options(chain).map_err(|e| Diagnostics(vec![e]).into()).and_then(|options| {
            let on_stderr = Options { output: Output::Stderr, ..options.clone() };
            match start(options) {
                // without --log-to, an absent journald is no reason not to run
                Err(_) if self.log_to.is_none() => start(on_stderr),
                started => started,
            }
        });
        // the error is logged, too
        started.inspect_err(|_| init_plain(false))
    }

    fn options(&self, chain: &Path) -> Result<Options, Diagnostic> {
        let format = if self.log_format == Some(LogFormat::Json) { Format::Json } else { Format::Text };
        let is_journal = is_journal_stream();
        let output = match self.log_to {
            Some(LogOutput::Stderr) => Output::Stderr,
            Some(LogOutput::Journald) => Output::Journald,
            Some(LogOutput::Syslog) => Output::Syslog,
            None if is_journal && format == Format::Text => Output::Journald,
            None => Output::Stderr,
        };
        let refuse =
            |problem: &str, value: &str, remedy: &str| Err(Diagnostic::new(problem).value(value).remedy(remedy));
        if output == Output::Journald && format == Format::Json {
            return refuse(
                "journald stores fields itself",
                "--log-format json",
                "omit it: `journalctl --output json` prints them",
            );
        }
        if output == Output::Stderr && self.log_socket.is_some() {
            return refuse("standard error has no socket", "--log-socket", "add --log-to journald or --log-to syslog");
        }
        let levels = match &self.log_level {
            Some(levels) => levels.clone(),
            None => levels_of_environment()?.unwrap_or_else(|| default_levels(output)),
        };
        let fields = vec![("chain", chain.display().to_string()), ("instance", std::process::id().to_string())];
        Ok(Options { output, socket: self.log_socket.clone(), format, priority: is_journal, levels, fields })
    }
}

/// Returns the default levels: on a terminal with rates.
fn default_levels(output: Output) -> Directives {
    let mut levels = Directives::default();
    if output == Output::Stderr && std::io::stderr().is_terminal() {
        // ignore errors: the target and the level are valid
        let _ = levels.set("rates", "debug");
    }
    levels
}

fn start(options: Options) -> anyhow::Result<()> {
    let socket = options.socket.clone().or(options.output.default_socket()).unwrap_or_default();
    logger::init(options).map_err(|e| {
        let problem = format!("log messages cannot be sent to {}: {e}", socket.display());
        let remedy = "start its server, name its socket with --log-socket, or use --log-to stderr".to_owned();
        runtime::Error::Environment { problem, remedy }.into()
    })
}
