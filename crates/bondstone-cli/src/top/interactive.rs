//! The screen on a terminal, with keys.

use super::rates::Rates;
use super::screen::Screen;
use super::view::{KeyEffect, View};
use super::{MIN_INTERVAL, Source};
use crate::exit::Exit;
use crate::stdout::stdout;
use crossterm::event::{self, Event, KeyEventKind};
use crossterm::terminal::{self, Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{cursor, execute, queue, style};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Shows the rates until a key or `end` ends it.
pub(super) fn run(mut source: Source, mut view: View, interval: Duration, end: &AtomicBool) -> anyhow::Result<Exit> {
    let _terminal = Terminal::open()?;
    let mut rates = source.since_start();
    loop {
        draw(&rates, &source.history, &mut view)?;
        let due = Instant::now() + interval;
        while Instant::now() < due {
            if end.load(Ordering::Relaxed) {
                return Ok(Exit::Success);
            }
            let wait = due.saturating_duration_since(Instant::now()).min(MIN_INTERVAL);
            if !event::poll(wait)? {
                continue;
            }
            if let Event::Key(key) = event::read()?
                && key.kind == KeyEventKind::Press
                && view.key(key, size().1 / 2) == KeyEffect::End
            {
                return Ok(Exit::Success);
            }
            // also after a change of the size
            draw(&rates, &source.history, &mut view)?;
        }
        if !view.paused {
            rates = source.next()?;
        }
    }
}

/// Returns columns and rows of the terminal.
fn size() -> (usize, usize) {
    let (width, height) = terminal::size().unwrap_or((80, 24));
    (width.into(), height.into())
}

fn draw(rates: &Rates, history: &[f64], view: &mut View) -> std::io::Result<()> {
    let (width, height) = size();
    let lines = Screen::new(rates, history, view, Some(width)).fit(view, width, height);
    let mut out = stdout();
    queue!(out, cursor::MoveTo(0, 0))?;
    for (n, line) in lines.iter().enumerate() {
        if n != 0 {
            queue!(out, cursor::MoveToNextLine(1))?;
        }
        queue!(out, style::Print(line), Clear(ClearType::UntilNewLine))?;
    }
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
