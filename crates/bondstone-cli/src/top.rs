//! `bondstone top`.

mod rates;
mod screen;

use crate::exit::Exit;
use crate::instance::Instance;
use crate::interrupt::on_interrupt;
use crate::stdout::stdout;
use control::{Client, Request};
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::terminal::{self, Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{cursor, execute, queue, style};
use rates::Rates;
use runtime::Summary;
use screen::{HISTORY, Sort, View, fit, lines};
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Shows the rates of a running instance, renewed every second.
///
/// Ports and NFs with packets, bits and drops per second, and cycles per packet of the batches that were timed. The
/// busy share of the CPUs is estimated from these cycles. Without a terminal, every screen is printed.
#[derive(clap::Args)]
#[command(after_help = "\
Keys: q ends, s sorts NFs by the next column, / filters by name or kind (Enter ends the text), space pauses.

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
    /// Order of the NFs.
    #[arg(long, value_enum, default_value_t)]
    sort: Sort,
    /// Shows only ports and NFs whose name, device or kind contains this text.
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Prints the rates of one interval and ends.
    #[arg(long)]
    once: bool,
    /// Prints JSON, one value per interval.
    #[arg(long)]
    json: bool,
}

/// Shortest time between two screens.
const MIN_INTERVAL: Duration = Duration::from_millis(50);

impl Top {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let mut client = self.instance.connect()?;
        let end = Arc::new(AtomicBool::new(false));
        let interrupted = end.clone();
        on_interrupt(move || interrupted.store(true, Ordering::Relaxed))?;
        let interactive = !self.once && !self.json && std::io::stdout().is_terminal();
        let _terminal = if interactive { Some(Terminal::open()?) } else { None };
        let mut view = View { sort: self.sort, filter: self.filter.clone() };
        let (mut before, mut history) = (stats(&mut client)?, vec![]);
        let (mut typing, mut paused) = (false, false);
        let mut shown = Rates::between(None, &before);
        loop {
            let due = Instant::now() + self.interval.max(MIN_INTERVAL);
            while Instant::now() < due && !end.load(Ordering::Relaxed) {
                let wait = due.saturating_duration_since(Instant::now()).min(MIN_INTERVAL);
                if !interactive {
                    std::thread::sleep(wait);
                } else if event::poll(wait)?
                    && let Event::Key(key) = event::read()?
                    && key.kind == KeyEventKind::Press
                {
                    match key.code {
                        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                            end.store(true, Ordering::Relaxed);
                        }
                        KeyCode::Enter | KeyCode::Esc if typing => typing = false,
                        KeyCode::Backspace if typing => drop(view.filter.pop()),
                        KeyCode::Char(c) if typing => view.filter.push(c),
                        KeyCode::Char('q') | KeyCode::Esc => end.store(true, Ordering::Relaxed),
                        KeyCode::Char('s') => view.sort = view.sort.next(),
                        KeyCode::Char('/') => (typing, view.filter) = (true, String::new()),
                        KeyCode::Char(' ') => paused = !paused,
                        _ => {}
                    }
                    draw(&shown, &history, &view, typing, paused)?;
                }
            }
            if end.load(Ordering::Relaxed) {
                return Ok(Exit::Success);
            }
            if paused {
                continue;
            }
            let now = stats(&mut client)?;
            shown = Rates::between(Some(&before), &now);
            before = now;
            history.push(shown.received);
            history.drain(..history.len().saturating_sub(HISTORY));
            if self.json {
                let mut out = stdout();
                serde_json::to_writer(&mut out, &shown)?;
                writeln!(out)?;
                out.flush()?;
            } else if interactive {
                draw(&shown, &history, &view, typing, paused)?;
            } else {
                let mut out = stdout();
                lines(&shown, &history, &view).iter().try_for_each(|line| writeln!(out, "{line}"))?;
                out.flush()?;
            }
            if self.once {
                return Ok(Exit::Success);
            }
        }
    }
}

fn stats(client: &mut Client) -> anyhow::Result<Summary> {
    Ok(client.call(&Request::Stats {})?)
}

/// Draws a screen on the terminal, and below it the state of the keys.
fn draw(rates: &Rates, history: &[f64], view: &View, typing: bool, paused: bool) -> std::io::Result<()> {
    let (width, height) = terminal::size().unwrap_or((80, 24));
    let (width, height) = (usize::from(width), usize::from(height));
    let mut out = stdout();
    queue!(out, cursor::MoveTo(0, 0))?;
    for line in fit(lines(rates, history, view), width, height.saturating_sub(1)) {
        queue!(out, style::Print(line), Clear(ClearType::UntilNewLine), cursor::MoveToNextLine(1))?;
    }
    queue!(out, Clear(ClearType::FromCursorDown))?;
    let filter = if view.filter.is_empty() && !typing { String::new() } else { format!("  filter: {}", view.filter) };
    let keys =
        format!("q end  s sort: {:?}  / filter  space pause{}{filter}", view.sort, if paused { "d" } else { "" });
    let last = u16::try_from(height.saturating_sub(1)).unwrap_or(0);
    queue!(out, cursor::MoveTo(0, last), style::Print(fit(vec![keys], width, 1).concat()))?;
    out.flush()
}

/// The terminal in raw mode, with its content kept until this is dropped.
struct Terminal;

impl Terminal {
    fn open() -> std::io::Result<Terminal> {
        terminal::enable_raw_mode()?;
        let terminal = Terminal;
        execute!(stdout(), EnterAlternateScreen, cursor::Hide)?;
        Ok(terminal)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // ignore errors: the terminal is gone
        let _ = execute!(stdout(), cursor::Show, LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}
