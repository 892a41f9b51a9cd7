//! Order, selection and position of the rows, as keys change them.

use clap::ValueEnum;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Order of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// As in the chain file.
    #[default]
    Name,
    /// By packets per second.
    Packets,
    /// By packets per batch.
    Batch,
    /// By cycles per packet.
    Cycles,
    /// By share of the cycles; CPUs by busy share.
    Share,
    /// By dropped packets.
    Dropped,
}

impl Sort {
    /// Returns the order after this one, and after the last the first.
    fn next(self) -> Sort {
        let all = Sort::value_variants();
        let at = all.iter().position(|sort| *sort == self).unwrap_or(0);
        all[(at + 1) % all.len()]
    }

    /// Returns the name by which `--sort` knows it.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Order, selection and position of the rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) sort: Sort,
    /// Text that names, devices or kinds contain.
    pub(crate) filter: String,
    /// Number of lines scrolled past.
    pub(crate) scrolled: usize,
    /// True while keys change the filter.
    pub(crate) typing: bool,
    pub(crate) paused: bool,
}

/// The effect of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyEffect {
    Redraw,
    End,
}

/// Longest filter, in characters.
const MAX_FILTER: usize = 64;

impl View {
    pub(crate) fn new(sort: Sort, filter: String) -> View {
        View { sort, filter, ..View::default() }
    }

    /// Returns true if a row with these names is to be shown.
    pub(crate) fn shows(&self, names: &[&str]) -> bool {
        self.filter.is_empty() || names.iter().any(|name| name.contains(&self.filter))
    }

    /// Processes a key; a page has `page` lines.
    pub(crate) fn key(&mut self, key: KeyEvent, page: usize) -> KeyEffect {
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return KeyEffect::End,
            KeyCode::Enter if self.typing => self.typing = false,
            KeyCode::Esc if self.typing => (self.typing, self.filter) = (false, String::new()),
            KeyCode::Backspace if self.typing => drop(self.filter.pop()),
            KeyCode::Char(c) if self.typing => {
                let has_room = self.filter.chars().count() < MAX_FILTER;
                self.filter.extend(has_room.then_some(c));
            }
            KeyCode::Char('q') | KeyCode::Esc => return KeyEffect::End,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('/') => (self.typing, self.filter) = (true, String::new()),
            KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Up => self.scrolled = self.scrolled.saturating_sub(1),
            KeyCode::Down => self.scrolled += 1,
            KeyCode::PageUp => self.scrolled = self.scrolled.saturating_sub(page),
            KeyCode::PageDown => self.scrolled += page,
            KeyCode::Home => self.scrolled = 0,
            _ => {}
        }
        KeyEffect::Redraw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(view: &mut View, code: KeyCode) -> KeyEffect {
        view.key(KeyEvent::new(code, KeyModifiers::NONE), 10)
    }

    #[test]
    fn orders_go_round() {
        let mut view = View::default();
        let mut seen = vec![];
        for _ in Sort::value_variants() {
            press(&mut view, KeyCode::Char('s'));
            seen.push(view.sort.name());
        }
        assert_eq!(seen, ["packets", "batch", "cycles", "share", "dropped", "name"]);
    }

    #[test]
    fn keys_are_text_while_the_filter_is_typed() {
        let mut view = View::default();
        for key in ['/', 'q', 's', 'x'] {
            assert_eq!(press(&mut view, KeyCode::Char(key)), KeyEffect::Redraw);
        }
        press(&mut view, KeyCode::Backspace);
        assert_eq!((view.filter.as_str(), view.typing, view.sort), ("qs", true, Sort::Name));
        press(&mut view, KeyCode::Enter);
        assert!(!view.typing && view.shows(&["eth0", "aqsb"]) && !view.shows(&["eth0"]));
        press(&mut view, KeyCode::Char('/'));
        (0..1000).for_each(|_| _ = press(&mut view, KeyCode::Char('a')));
        assert_eq!(view.filter.len(), MAX_FILTER);
        press(&mut view, KeyCode::Esc);
        assert!(view.shows(&[]) && !view.typing);
        assert_eq!(press(&mut view, KeyCode::Esc), KeyEffect::End);
        assert_eq!(view.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL), 1), KeyEffect::End);
    }

    #[test]
    fn keys_scroll_by_lines_and_pages() {
        let mut view = View::default();
        let mut at = |code| {
            press(&mut view, code);
            view.scrolled
        };
        assert_eq!([KeyCode::Up, KeyCode::Down, KeyCode::PageDown, KeyCode::Up].map(&mut at), [0, 1, 11, 10]);
        assert_eq!([KeyCode::PageUp, KeyCode::PageDown, KeyCode::Home].map(at), [0, 10, 0]);
    }
}
