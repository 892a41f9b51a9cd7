//! `bondstone top`.

mod interactive;
mod rates;
mod screen;
mod view;

use crate::exit::Exit;
use crate::instance::Instance;
use crate::interrupt::on_interrupt;
use crate::stdout::stdout;
use control::{Client, Request};
use rates::Rates;
use runtime::Summary;
use screen::{HISTORY, Screen};
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use view::{Sort, View};

/// Shows the rates of a running instance, renewed every second.
///
/// Ports, CPUs with their busy share, chains, NFs, sandboxes, queues, tables, and drops by reason. Cycles per packet and
/// packets per batch are those of batches that were timed, one in 128. Without a terminal, every screen is printed.
#[derive(clap::Args)]
#[command(after_help = "\
Keys: q ends, s sorts by the next column, / filters by name, device or kind (Enter ends the text), space pauses,
up, down, page up and page down scroll.

Examples:
  bondstone top
  bondstone top edge.toml --sort share
  bondstone top --once --json | jq '.nfs[] | {name, cycles}'")]
pub(crate) struct Top {
    #[command(flatten)]
    instance: Instance,
    /// Time between two screens, such as 1s or 200ms.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = humantime::parse_duration)]
    interval: Duration,
    /// Order of the rows. Those without the value remain as in the chain file.
    #[arg(long, value_enum, default_value_t)]
    sort: Sort,
    /// Shows only rows whose name, device or kind contains this text.
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Prints the rates of one interval and ends.
    #[arg(long)]
    once: bool,
    /// Prints JSON, one object per interval.
    #[arg(long)]
    json: bool,
}

/// Shortest time between two screens.
const MIN_INTERVAL: Duration = Duration::from_millis(50);

/// The rates of an instance, one interval after the other.
struct Source {
    client: Client,
    before: Summary,
    /// Received packets per second of the last intervals, oldest first.
    history: Vec<f64>,
}

impl Source {
    fn new(mut client: Client) -> anyhow::Result<Source> {
        let before = client.call(&Request::Stats {})?;
        Ok(Source { client, before, history: vec![] })
    }

    /// Returns the rates since the start of the instance.
    fn since_start(&self) -> Rates {
        Rates::between(None, &self.before)
    }

    /// Returns the rates since the last call.
    fn next(&mut self) -> anyhow::Result<Rates> {
        let now = self.client.call(&Request::Stats {})?;
        let rates = Rates::between(Some(&self.before), &now);
        self.before = now;
        self.history.push(rates.received);
        self.history.drain(..self.history.len().saturating_sub(HISTORY));
        Ok(rates)
    }
}

impl Top {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let mut source = Source::new(self.instance.connect()?)?;
        let end = Arc::new(AtomicBool::new(false));
        let interrupted = end.clone();
        on_interrupt(move || interrupted.store(true, Ordering::Relaxed))?;
        let view = View::new(self.sort, self.filter.clone());
        let interval = self.interval.max(MIN_INTERVAL);
        if !self.once && !self.json && std::io::stdout().is_terminal() {
            return interactive::run(source, view, interval, &end);
        }
        loop {
            let due = Instant::now() + interval;
            while Instant::now() < due {
                if end.load(Ordering::Relaxed) {
                    return Ok(Exit::Success);
                }
                std::thread::sleep(due.saturating_duration_since(Instant::now()).min(MIN_INTERVAL));
            }
            let rates = source.next()?;
            let mut out = stdout();
            if self.json {
                serde_json::to_writer(&mut out, &rates)?;
                writeln!(out)?;
            } else {
                let Screen { head, body } = Screen::new(&rates, &source.history, &view, None);
                head.iter().chain(&body).try_for_each(|line| writeln!(out, "{line}"))?;
            }
            out.flush()?;
            if self.once {
                return Ok(Exit::Success);
            }
        }
    }
}
