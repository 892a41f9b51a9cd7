//! Search for many literals at once: which of them occur in a text.
//!
//! Two engines do this. Hyperscan, or Vectorscan, which has the same interface, is a library that is loaded when it is
//! first used; programs start and build without it. The crate aho-corasick is slower and always there. Both find the
//! same literals.
//!
//! [`Patterns`] are compiled once and shared by all threads; each thread searches with a [`Searcher`] of its own:
//!
//! ```
//! use multi_pattern::{Engine, Literal, Patterns};
//!
//! let literals = [Literal { bytes: b"passwd", nocase: false }, Literal { bytes: b"select", nocase: true }];
//! let patterns = Patterns::compile(Engine::best(), &literals)?;
//! let mut searcher = patterns.searcher()?;
//! assert_eq!(searcher.search(b"union SELECT * from PASSWD")?, [1]);
//! assert!(searcher.search(b"nothing")?.is_empty());
//! # Ok::<(), multi_pattern::Error>(())
//! ```
//!
//! The time of a search is bounded by the length of the text and the number of literals, however often they occur.

mod automaton;
mod error;
mod hyperscan;
mod literal;

pub use error::Error;
pub use literal::Literal;

use automaton::{Automata, AutomataState};
use hyperscan::{Database, Scratch};
use std::sync::Arc;

/// Implementation of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Hyperscan or Vectorscan.
    Hyperscan,
    /// The crate aho-corasick.
    AhoCorasick,
}

impl Engine {
    /// Returns Hyperscan if it [can be loaded](hyperscan_version), otherwise aho-corasick.
    #[must_use]
    pub fn best() -> Self {
        if hyperscan_version().is_ok() { Engine::Hyperscan } else { Engine::AhoCorasick }
    }
}

/// Returns the version of Hyperscan or Vectorscan, which the first call loads.
///
/// # Errors
/// [`Error::Library`]
pub fn hyperscan_version() -> Result<&'static str, Error> {
    hyperscan::version()
}

/// Compiled literals, which are numbered from 0. Clones share them.
#[derive(Clone, Debug)]
pub struct Patterns {
    compiled: Compiled,
    len: usize,
}

#[derive(Clone, Debug)]
enum Compiled {
    Empty,
    Hyperscan(Arc<Database>),
    AhoCorasick(Arc<Automata>),
}

impl Patterns {
    /// Compiles literals.
    ///
    /// # Errors
    /// A literal is empty, the engine cannot be loaded, or it has no memory.
    pub fn compile(engine: Engine, literals: &[Literal<'_>]) -> Result<Self, Error> {
        if let Some(at) = literals.iter().position(|literal| literal.bytes.is_empty()) {
            return Err(Error::Empty(at));
        }
        let compiled = match engine {
            _ if literals.is_empty() => Compiled::Empty,
            Engine::Hyperscan => Compiled::Hyperscan(Arc::new(Database::compile(literals)?)),
            Engine::AhoCorasick => Compiled::AhoCorasick(Arc::new(Automata::compile(literals)?)),
        };
        Ok(Patterns { compiled, len: literals.len() })
    }

    /// Returns the number of literals.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no literals.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the memory that the compiled literals occupy, in bytes, without that of searchers.
    #[must_use]
    pub fn memory(&self) -> usize {
        match &self.compiled {
            Compiled::Empty => 0,
            Compiled::Hyperscan(database) => database.size(),
            Compiled::AhoCorasick(automata) => automata.memory(),
        }
    }

    /// Creates a searcher, with the working memory of one thread.
    ///
    /// # Errors
    /// Hyperscan has no memory.
    pub fn searcher(&self) -> Result<Searcher, Error> {
        let state = match &self.compiled {
            Compiled::Empty => State::Empty,
            Compiled::Hyperscan(database) => State::Hyperscan(Scratch::new(database.clone())?),
            Compiled::AhoCorasick(automata) => State::AhoCorasick(AutomataState::new(automata.clone())),
        };
        // no literal is found twice in a search: the vector never grows
        Ok(Searcher { state, found: Vec::with_capacity(self.len) })
    }
}

/// Searches for compiled literals in one thread at a time.
#[derive(Debug)]
pub struct Searcher {
    state: State,
    found: Vec<u32>,
}

#[derive(Debug)]
enum State {
    Empty,
    Hyperscan(Scratch),
    AhoCorasick(AutomataState),
}

impl Searcher {
    /// Returns the numbers of the literals that occur in the first 4 GiB of a text, each once, in no particular order.
    ///
    /// # Errors
    /// Hyperscan fails, which it does not do with valid arguments.
    #[inline]
    pub fn search(&mut self, text: &[u8]) -> Result<&[u32], Error> {
        self.found.clear();
        match &mut self.state {
            State::Empty => {}
            State::Hyperscan(scratch) => scratch.search(text, &mut self.found)?,
            State::AhoCorasick(state) => state.search(text, &mut self.found),
        }
        Ok(&self.found)
    }
}
