//! Rates of both engines: `cargo run --release -p bondstone-multi-pattern --example rates [LITERALS...]`.
//!
//! Compiles random literals of 4 to 40 bytes (default 100, 3,000 and 30,000) and searches texts of 1,460 bytes for them,
//! random bytes and words like those of the literals. Prints the time of compilation, memory, and GB/s on one core.
#![allow(clippy::print_stdout, reason = "a program that prints its results")]

use multi_pattern::{Engine, Literal, Patterns, hyperscan_version};
use std::time::{Duration, Instant};

const TEXT_LEN: usize = 1460;
const TEXTS: usize = 256;

/// A generator of pseudo-random numbers (xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % n
    }

    fn word(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| b"etaoinshrdlucmfwypvbgkjqxz0123456789/._-=&? "[self.below(44) as usize]).collect()
    }
}

fn main() {
    let mut counts: Vec<usize> = std::env::args().skip(1).filter_map(|n| n.parse().ok()).collect();
    if counts.is_empty() {
        counts = vec![100, 3000, 30_000];
    }
    match hyperscan_version() {
        Ok(version) => println!("Hyperscan {version}"),
        Err(e) => println!("{e}"),
    }
    let mut random = Random(1);
    let bytes: Vec<Vec<u8>> = (0..TEXTS).map(|_| (0..TEXT_LEN).map(|_| random.below(256) as u8).collect()).collect();
    let words: Vec<Vec<u8>> = (0..TEXTS).map(|_| random.word(TEXT_LEN)).collect();
    for count in counts {
        let literals: Vec<(Vec<u8>, bool)> = (0..count)
            .map(|_| {
                let len = 4 + random.below(37) as usize;
                (random.word(len), random.below(2) == 0)
            })
            .collect();
        let literals: Vec<_> = literals.iter().map(|(bytes, nocase)| Literal { bytes, nocase: *nocase }).collect();
        for engine in [Engine::Hyperscan, Engine::AhoCorasick] {
            let start = Instant::now();
            let Ok(patterns) = Patterns::compile(engine, &literals) else { continue };
            let compiled = start.elapsed();
            let mut searcher = patterns.searcher().expect("memory");
            let mut rate = |texts: &[Vec<u8>]| {
                let (start, mut searched, mut found) = (Instant::now(), 0, 0);
                while start.elapsed() < Duration::from_millis(500) {
                    for text in texts {
                        found += searcher.search(text).map_or(0, <[u32]>::len);
                        searched += 1;
                    }
                }
                let rate = (searched * TEXT_LEN) as f64 / start.elapsed().as_secs_f64() / 1e9;
                (rate, found as f64 / searched as f64)
            };
            let (random_bytes, random_words) = (rate(&bytes), rate(&words));
            println!(
                "{count:6} literals, {engine:?}: compiled in {:.3} s, {:.1} MB; random bytes {:.2} GB/s; words {:.2} GB/s, {:.2} found per text",
                compiled.as_secs_f64(),
                patterns.memory() as f64 / 1e6,
                random_bytes.0,
                random_words.0,
                random_words.1
            );
        }
    }
}
