//! IMIX genomes (RFC 6985): a mix written as a letter for each frame, in the order in which frames are sent.
//!
//! | letter | frame, bytes with FCS |
//! |---|---|
//! | `a` to `g` | 64, 128, 256, 512, 1024, 1280, 1518 |
//! | `h` | 2112 |
//! | `i`, `j` | 9000, 16000 |
//! | `z` | the largest that the path carries: 1518 unless `z=SIZE` says otherwise |
//! | `A` to `Z` | what is said behind the genome: `aaABg,A=74,B=1492` |

use super::{FrameSize, MAX_PERIOD, MAX_SIZES, SizeError};

/// The letters of fixed meaning.
const LETTERS: [(char, u16); 11] = [
    ('a', 64),
    ('b', 128),
    ('c', 256),
    ('d', 512),
    ('e', 1024),
    ('f', 1280),
    ('g', 1518),
    ('h', 2112),
    ('i', 9000),
    ('j', 16_000),
    ('z', 1518),
];

/// Returns true if a text looks like a genome: it starts with letters.
pub(super) fn is(text: &str) -> bool {
    let word = text.split(',').next().unwrap_or_default();
    !word.is_empty() && word.chars().all(|c| c.is_ascii_uppercase() || LETTERS.iter().any(|(letter, _)| *letter == c))
}

/// Returns the sizes in their order, the shortest cycle of them.
pub(super) fn parse(text: &str) -> Result<Vec<FrameSize>, SizeError> {
    let mut parts = text.split(',').map(str::trim);
    let word = parts.next().unwrap_or_default();
    if word.len() > MAX_PERIOD {
        return Err(SizeError::Period(word.len() as u64));
    }
    let unknown = || SizeError::Text(text.chars().take(80).collect());
    let mut own: Vec<(char, FrameSize)> = Vec::new();
    for part in parts.by_ref().take(MAX_SIZES + 1) {
        let (letter, size) = part.split_once('=').ok_or_else(unknown)?;
        let mut letters = letter.trim().chars();
        match (letters.next(), letters.next()) {
            (Some(letter @ ('A'..='Z' | 'z')), None) if own.iter().all(|(known, _)| *known != letter) => {
                own.push((letter, size.parse()?));
            }
            _ => return Err(unknown()),
        }
    }
    let size = |letter: char| {
        if let Some((_, size)) = own.iter().find(|(known, _)| *known == letter) {
            return Ok(*size);
        }
        match LETTERS.iter().find(|(known, _)| *known == letter) {
            Some((_, size)) => FrameSize::new(*size),
            None => Err(SizeError::Letter(letter)),
        }
    };
    let mut sizes = word.chars().map(size).collect::<Result<Vec<_>, _>>()?;
    let len = sizes.len();
    let cycle = (1..=len).find(|n| len.is_multiple_of(*n) && (*n..len).all(|at| sizes[at] == sizes[at - n]));
    sizes.truncate(cycle.unwrap_or(len));
    Ok(sizes)
}

/// Returns the genome of sizes in an order.
pub(super) fn write(sizes: impl Iterator<Item = FrameSize>) -> String {
    let (mut word, mut own) = (String::new(), Vec::new());
    for size in sizes {
        let known = LETTERS.iter().find(|(_, bytes)| *bytes == size.with_fcs());
        word.push(known.map_or_else(
            || {
                let at = own.iter().position(|known| *known == size).unwrap_or_else(|| {
                    own.push(size);
                    own.len() - 1
                });
                // A genome has no more letters of its own than it was read with.
                char::from(b'A' + (at % 26) as u8)
            },
            |(letter, _)| *letter,
        ));
    }
    for (letter, size) in ('A'..='Z').zip(own) {
        word.push_str(&format!(",{letter}={size}"));
    }
    word
}
