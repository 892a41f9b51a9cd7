//! What a user writes about measuring: goals, searches, simulated devices, lists of frames, shapes of traffic. A text is refused, with a
//! message that a terminal can show, or makes something that holds together. The first byte says what it is.
#![no_main]

use bench::search::SearchKind;
use bench::simulated::Simulated;
use bench::{Ask, Bed, Goal, Shape};
use bondstone_fuzz::read;
use libfuzzer_sys::fuzz_target;

/// Texts of users are no longer.
const LONGEST: usize = 2000;

fuzz_target!(|bytes: &[u8]| {
    let Some((which, rest)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    if text.len() > LONGEST {
        return;
    }
    match which.wrapping_sub(b'0') % 5 {
        0 => {
            let Some(goal) = read::<Goal>(text) else { return };
            assert!(goal.final_s() > 0.0 && goal.sum_s() >= goal.final_s());
            assert!((0.0..=1.0).contains(&goal.loss_ratio()) && (0.0..=1.0).contains(&goal.exceed_ratio()));
            assert!(!goal.to_string().is_empty());
        }
        1 => {
            if let Some(kind) = read::<SearchKind>(text) {
                assert!(!kind.name().is_empty() && !kind.standard().is_empty());
            }
        }
        2 => {
            let Some(mut device) = read::<Simulated>(text) else { return };
            let written = device.to_string();
            assert!(written.parse::<Simulated>().is_ok(), "{text:?} becomes {written:?}, which is refused");
            if let Ok(seen) = device.trial(&Ask::load(1e5, 0.01)) {
                assert!(seen.trial.check().is_ok(), "{written}: {:?}", seen.trial);
            }
        }
        3 => {
            if let Ok(frames) = bench::frames(text) {
                assert!(frames.iter().all(|(_, mix)| !mix.entries().is_empty()));
            }
        }
        _ => {
            let mut words = text.split(';').map(|word| (!word.is_empty()).then_some(word));
            let mut next = || words.next().flatten();
            let (trace, stack, short) = (next(), next(), next());
            match Shape::parse(trace, stack, short) {
                Ok(shape) => drop(shape.checked(text.len().is_multiple_of(2), text.len().is_multiple_of(3))),
                Err((name, d)) => assert!(!name.is_empty() && d.remedy.is_some()),
            }
        }
    }
});
