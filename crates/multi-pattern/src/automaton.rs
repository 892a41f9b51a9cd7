//! Search by Aho-Corasick automata.

use crate::error::Error;
use crate::literal::Literal;
use aho_corasick::automaton::Automaton;
use aho_corasick::dfa::DFA;
use aho_corasick::nfa::contiguous::NFA;
use aho_corasick::{Anchored, PatternID, Span};
use std::sync::Arc;

/// Largest size of a DFA in bytes; beyond, a slower automaton of a tenth of the size is built.
const DFA_BYTES: usize = 32 << 20;

/// Automata of the literals with and without regard to case.
#[derive(Debug)]
pub(crate) struct Automata {
    parts: Vec<Part>,
    literals: usize,
}

#[derive(Debug)]
struct Part {
    automaton: Kind,
    /// Numbers of its patterns among all literals.
    numbers: Vec<u32>,
}

#[derive(Debug)]
enum Kind {
    Dfa(DFA),
    Nfa(NFA),
}

/// Returns the largest size of a DFA for literals: a state for each byte, and in it 4 bytes for each class of bytes.
fn dfa_bytes(literals: &[&[u8]], nocase: bool) -> usize {
    let mut used = [false; 256];
    let mut states = 1;
    for literal in literals {
        states += literal.len();
        literal.iter().for_each(|byte| used[usize::from(*byte)] = true);
    }
    let letters = if nocase { 2 } else { 1 };
    // each byte is a class, and so are the bytes between two of them
    let classes = (2 * letters * used.iter().filter(|used| **used).count() + 1).min(256);
    states * classes.next_power_of_two() * 4
}

impl Automata {
    pub(crate) fn compile(literals: &[Literal<'_>]) -> Result<Self, Error> {
        let mut parts = vec![];
        for nocase in [false, true] {
            let chosen = (0..).zip(literals).filter(|(_, literal)| literal.nocase == nocase);
            let (numbers, bytes): (Vec<u32>, Vec<&[u8]>) = chosen.map(|(n, literal)| (n, literal.bytes)).unzip();
            if numbers.is_empty() {
                continue;
            }
            let automaton = if dfa_bytes(&bytes, nocase) <= DFA_BYTES {
                DFA::builder().ascii_case_insensitive(nocase).build(bytes).map(Kind::Dfa)
            } else {
                NFA::builder().ascii_case_insensitive(nocase).build(bytes).map(Kind::Nfa)
            };
            let automaton = automaton.map_err(|e| Error::Compile(e.to_string()))?;
            parts.push(Part { automaton, numbers });
        }
        Ok(Automata { parts, literals: literals.len() })
    }

    pub(crate) fn memory(&self) -> usize {
        let of = |part: &Part| match &part.automaton {
            Kind::Dfa(dfa) => dfa.memory_usage(),
            Kind::Nfa(nfa) => nfa.memory_usage(),
        };
        self.parts.iter().map(|part| of(part) + part.numbers.len() * 4).sum()
    }
}

/// Automata with the marks of the literals that the present search has found.
#[derive(Debug)]
pub(crate) struct AutomataState {
    automata: Arc<Automata>,
    marks: Marks,
}

#[derive(Debug)]
struct Marks {
    /// Number of the last search that found each literal.
    last: Vec<u32>,
    search: u32,
}

impl Marks {
    /// Marks a literal and returns true if it was not marked.
    fn insert(&mut self, number: u32) -> bool {
        match self.last.get_mut(number as usize) {
            Some(last) if *last != self.search => {
                *last = self.search;
                true
            }
            _ => false,
        }
    }
}

impl AutomataState {
    pub(crate) fn new(automata: Arc<Automata>) -> Self {
        let marks = Marks { last: vec![0; automata.literals], search: 0 };
        AutomataState { automata, marks }
    }

    /// Appends the numbers of the literals that occur in a text.
    pub(crate) fn search(&mut self, text: &[u8], found: &mut Vec<u32>) {
        self.marks.search = self.marks.search.wrapping_add(1);
        if self.marks.search == 0 {
            self.marks.last.fill(0);
            self.marks.search = 1;
        }
        for part in &self.automata.parts {
            match &part.automaton {
                Kind::Dfa(dfa) => run(dfa, &part.numbers, text, &mut self.marks, found),
                Kind::Nfa(nfa) => run(nfa, &part.numbers, text, &mut self.marks, found),
            }
        }
    }
}

fn run<A: Automaton>(automaton: &A, numbers: &[u32], text: &[u8], marks: &mut Marks, found: &mut Vec<u32>) {
    // an automaton for unanchored searches has a start state for them
    let Ok(start) = automaton.start_state(Anchored::No) else { return };
    let prefilter = automaton.prefilter();
    let (mut state, mut at) = (start, 0);
    while at < text.len() {
        if state == start
            && let Some(prefilter) = prefilter
        {
            match prefilter.find_in(text, Span::from(at..text.len())).into_option() {
                Some(next) => at = next.max(at),
                None => return,
            }
        }
        let Some(byte) = text.get(at) else { return };
        state = automaton.next_state(Anchored::No, state, *byte);
        at += 1;
        if automaton.is_special(state) && automaton.is_match(state) {
            // The patterns of a state are ordered by length, and those behind a pattern are the same in every state that
            // has it: they have been found if it has.
            for n in 0..automaton.match_len(state) {
                let pattern: PatternID = automaton.match_pattern(state, n);
                let Some(number) = numbers.get(pattern.as_usize()) else { continue };
                if !marks.insert(*number) {
                    break;
                }
                found.push(*number);
            }
        }
    }
}
