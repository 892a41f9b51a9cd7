//! What a user writes about traffic: sizes, mixes and genomes, orders, stacks, short flows, traces, addresses, rewriting. A text is
//! refused, with a message that a terminal can show, or means the same when it is written again. The first byte says what it is.
#![no_main]

use bondstone_fuzz::read;
use libfuzzer_sys::fuzz_target;
use std::fmt::{Debug, Display};
use std::str::FromStr;
use traffic::nfpa::Name;
use traffic::{AddressRange, FrameSize, Mix, Order, PrefixMap, ShortSettings, Stack, Tagging};

/// Texts of users are no longer.
const LONGEST: usize = 2000;
/// Turns of a mix that are looked at.
const TURNS: usize = 64;

/// What is written of a value means that value.
fn again<T: FromStr<Err: Display> + Display + Debug + PartialEq>(text: &str) -> Option<T> {
    let value: T = read(text)?;
    let written = value.to_string();
    let back: T = read(&written).unwrap_or_else(|| panic!("{text:?} becomes {written:?}, which is refused"));
    assert_eq!(back, value, "{text:?} becomes {written:?}");
    Some(value)
}

fuzz_target!(|bytes: &[u8]| {
    let Some((which, rest)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    if text.len() > LONGEST {
        return;
    }
    match which.wrapping_sub(b'0') % 9 {
        0 => {
            let Some(mix) = read::<Mix>(text) else { return };
            let mut cycle = mix.cycle();
            let entries = mix.entries();
            assert!(!entries.is_empty() && entries.iter().all(|(_, weight)| *weight != 0));
            assert!((0..TURNS).all(|_| cycle.next_index() < entries.len()));
            assert!(mix.largest() >= entries[0].0 || entries.len() > 1);
        }
        1 => drop(again::<Order>(text)),
        2 => {
            if let Some(stack) = again::<Stack>(text) {
                assert_eq!(stack.reversed().reversed(), stack);
            }
        }
        3 => drop(again::<ShortSettings>(text)),
        4 => drop(again::<Name>(text)),
        5 => {
            if let Some(range) = read::<AddressRange>(text) {
                assert_eq!(range.first().is_ipv4(), range.is_ipv4());
            }
        }
        6 => drop(again::<PrefixMap>(text)),
        7 => drop(again::<Tagging>(text)),
        _ => {
            if let Some(size) = read::<FrameSize>(text) {
                assert!(size.with_fcs() > size.without_fcs() as u16);
            }
        }
    }
});
