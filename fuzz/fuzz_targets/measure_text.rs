//! Textual settings of measurements: goals, searches, simulated DUTs, frame lists, traffic specs. A text is rejected
//! with a printable message or yields a consistent value. The first byte selects the type.
#![no_main]

use bench::search::SearchKind;
use bench::simulated::Simulated;
use bench::{Goal, Measurer, SyntheticOptions, TrialInput};
use bondstone_fuzz::parse_text;
use libfuzzer_sys::fuzz_target;

/// Longest text in bytes.
const MAX_TEXT_LEN: usize = 2000;

fuzz_target!(|bytes: &[u8]| {
    let Some((selector, rest)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    if text.len() > MAX_TEXT_LEN {
        return;
    }
    match selector.wrapping_sub(b'0') % 5 {
        0 => {
            let Some(goal) = parse_text::<Goal>(text) else { return };
            assert!(goal.final_s() > 0.0 && goal.sum_s() >= goal.final_s());
            assert!((0.0..=1.0).contains(&goal.loss_ratio()) && (0.0..=1.0).contains(&goal.exceed_ratio()));
            assert!(!goal.to_string().is_empty());
        }
        1 => {
            if let Some(kind) = parse_text::<SearchKind>(text) {
                assert!(!kind.name().is_empty() && !kind.standard().is_empty());
            }
        }
        2 => {
            let Some(mut device) = parse_text::<Simulated>(text) else { return };
            let written = device.to_string();
            assert!(written.parse::<Simulated>().is_ok(), "{text:?} becomes {written:?}, which is rejected");
            if let Ok(output) = device.trial(&TrialInput::constant(1e5, 0.01)) {
                assert!(output.trial.check().is_ok(), "{written}: {:?}", output.trial);
            }
        }
        3 => {
            if let Ok(frames) = bench::parse_frame_sizes(text) {
                assert!(frames.iter().all(|(_, mix)| !mix.entries().is_empty()));
            }
        }
        _ => {
            let mut words = text.split(';').map(|word| (!word.is_empty()).then_some(word));
            let mut next = || words.next().flatten();
            let (trace, stack, short, tcp) = (next(), next(), next(), next());
            let vary: Vec<String> = next().into_iter().map(str::to_owned).collect();
            match SyntheticOptions::parse(trace, stack, short, tcp, &vary) {
                Ok(options) => drop(options.checked(text.len().is_multiple_of(2), text.len().is_multiple_of(3))),
                Err((name, d)) => assert!(!name.is_empty() && d.remedy.is_some()),
            }
        }
    }
});
