//! Both engines, compared with a search of every position.
#![allow(clippy::print_stdout, reason = "a test says why it is skipped")]

use multi_pattern::{Engine, Error, Literal, Patterns, hyperscan_version};
use proptest::prelude::*;

fn engines() -> Vec<Engine> {
    match hyperscan_version() {
        Ok(_) => vec![Engine::Hyperscan, Engine::AhoCorasick],
        Err(e) => {
            println!("skipped: the engine Hyperscan: {e}");
            vec![Engine::AhoCorasick]
        }
    }
}

fn slow_search(literals: &[(Vec<u8>, bool)], text: &[u8]) -> Vec<u32> {
    let is_in = |bytes: &[u8], nocase: bool| {
        text.windows(bytes.len()).any(|part| if nocase { part.eq_ignore_ascii_case(bytes) } else { part == bytes })
    };
    (0..).zip(literals).filter(|(_, (bytes, nocase))| is_in(bytes, *nocase)).map(|(n, _)| n).collect()
}

fn check(literals: &[(Vec<u8>, bool)], texts: &[Vec<u8>]) -> Result<(), TestCaseError> {
    let compiled: Vec<_> = literals.iter().map(|(bytes, nocase)| Literal { bytes, nocase: *nocase }).collect();
    for engine in engines() {
        let patterns = Patterns::compile(engine, &compiled).unwrap();
        let mut searcher = patterns.searcher().unwrap();
        for text in texts {
            let mut found = searcher.search(text).unwrap().to_vec();
            found.sort_unstable();
            prop_assert_eq!(found, slow_search(literals, text), "{:?}, {:?}", engine, text);
        }
    }
    Ok(())
}

/// Literals that are often in each other, and bytes that are letters in C but not in ASCII.
fn letters(len: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(
        prop_oneof![4 => Just(b'a'), 2 => Just(b'A'), 2 => Just(b'b'), 1 => Just(0), 1 => Just(0xe4)],
        len,
    )
}

proptest! {
    #[test]
    fn engines_find_the_literals_that_a_slow_search_finds(
        literals in proptest::collection::vec((letters(1..6), any::<bool>()), 0..40),
        texts in proptest::collection::vec(letters(0..60), 1..4),
    ) {
        check(&literals, &texts)?;
    }

    #[test]
    fn engines_find_parts_of_random_texts(
        texts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 1..4),
        parts in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 1usize..40, any::<bool>(), any::<bool>()), 0..200),
    ) {
        let cut = |(text, at, len, swapped, nocase): &(prop::sample::Index, prop::sample::Index, usize, bool, bool)| {
            let text = &texts[text.index(texts.len())];
            let at = at.index(text.len().max(1));
            let mut bytes = text.get(at..(at + len).min(text.len())).unwrap_or_default().to_vec();
            if *swapped {
                bytes.make_ascii_uppercase();
            }
            (!bytes.is_empty()).then_some((bytes, *nocase))
        };
        let literals: Vec<_> = parts.iter().filter_map(cut).collect();
        check(&literals, &texts)?;
    }
}

#[test]
fn every_literal_is_found_once_however_often_it_occurs() {
    let literals: Vec<_> = (1..200).map(|n| vec![b'a'; n]).collect();
    let literals: Vec<_> = literals.iter().map(|bytes| Literal { bytes, nocase: false }).collect();
    for engine in engines() {
        let mut searcher = Patterns::compile(engine, &literals).unwrap().searcher().unwrap();
        let mut found = searcher.search(&[b'a'; 60_000]).unwrap().to_vec();
        found.sort_unstable();
        assert!(found.into_iter().eq(0..199), "{engine:?}");
        assert!(searcher.search(b"").unwrap().is_empty());
    }
}

#[test]
fn threads_share_patterns() {
    for engine in engines() {
        let patterns = Patterns::compile(engine, &[Literal { bytes: b"x", nocase: true }]).unwrap();
        assert!(patterns.memory() > 0 && patterns.len() == 1 && !patterns.is_empty());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let mut searcher = patterns.searcher().unwrap();
                scope.spawn(move || (0..1000).for_each(|_| assert_eq!(searcher.search(b"aXb").unwrap(), [0])));
            }
        });
    }
}

#[test]
fn empty_literals_are_refused() {
    for engine in engines() {
        let literals = [Literal { bytes: b"a", nocase: false }, Literal { bytes: b"", nocase: false }];
        assert_eq!(Patterns::compile(engine, &literals).unwrap_err(), Error::Empty(1));
        assert!(Patterns::compile(engine, &[]).unwrap().searcher().unwrap().search(b"a").unwrap().is_empty());
    }
}
