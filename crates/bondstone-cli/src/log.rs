//! `bondstone log`.

use crate::exit::Exit;
use crate::instance::Target;
use crate::table::Table;
use control::{LogLevels, Request};
use logger::TARGETS;

/// Shows and changes what a running instance logs.
#[derive(clap::Subcommand)]
#[command(after_help = "Examples:\n  bondstone log level\n  bondstone log level info,nf=debug")]
pub(crate) enum Log {
    /// Shows or changes the levels of log messages, by target.
    ///
    /// Messages of a level and of more important ones are logged: off, error, warn, info, debug, trace. Changes last
    /// until the end of the run. Processes in sandboxes have the levels of their last start.
    #[command(after_help = "\
Examples:
  bondstone log level                          # all targets
  bondstone log level warn                     # warnings and errors only
  bondstone log level info,nf=debug            # all levels at once
  bondstone log level debug --target control   # one target, the others stay
  bondstone log level --target nf --instance edge")]
    Level {
        /// Levels from now on: a level, or with those of targets, such as info,nf=debug.
        #[arg(value_name = "DIRECTIVES")]
        set: Option<String>,
        /// Shows or changes only the level of this target.
        #[arg(long, value_name = "TARGET")]
        target: Option<String>,
        #[command(flatten)]
        instance: Target,
    },
}

impl Log {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let Log::Level { set, target, instance } = self;
        let request = Request::LogLevel { set: set.clone(), target: target.clone() };
        let levels: LogLevels = instance.connect()?.call(&request)?;
        instance.print(&levels, |LogLevels { directives, levels }, out| {
            let mut table = Table::new(&["target", "level", "messages"]);
            for (target, level) in levels {
                let messages = TARGETS.iter().find(|(name, _)| name == target).map_or("", |(_, messages)| messages);
                table.row([target.clone(), level.clone(), messages.to_owned()]);
            }
            writeln!(out, "{directives}\n\n{table}")
        })
    }
}
