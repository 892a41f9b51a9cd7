//! Textual settings of traffic: sizes, mixes and genomes, orders, stacks, short flows, connections, traces, addresses, rewriting, fields. A
//! text is rejected with a printable message or its value survives formatting and parsing. The first byte selects the
//! type.
#![no_main]

use bondstone_fuzz::parse_text;
use libfuzzer_sys::fuzz_target;
use std::fmt::{Debug, Display};
use std::str::FromStr;
use traffic::nfpa::Name;
use traffic::tcp::TcpSettings;
use traffic::{
    AddressRange, FieldSpec, Fields, FlowSettings, Flows, FrameSize, Mix, Order, PrefixMap, Probe, ShortSettings,
    Stack, Tagging, Template,
};

/// Longest text in bytes.
const MAX_TEXT_LEN: usize = 2000;
/// Steps of a mix that are checked.
const CYCLE_STEPS: usize = 64;

/// Checks that a value survives formatting and parsing.
fn round_trip<T: FromStr<Err: Display> + Display + Debug + PartialEq>(text: &str) -> Option<T> {
    let value: T = parse_text(text)?;
    let written = value.to_string();
    let back: T = parse_text(&written).unwrap_or_else(|| panic!("{text:?} becomes {written:?}, which is rejected"));
    assert_eq!(back, value, "{text:?} becomes {written:?}");
    Some(value)
}

fuzz_target!(|bytes: &[u8]| {
    let Some((selector, rest)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    if text.len() > MAX_TEXT_LEN {
        return;
    }
    match selector.wrapping_sub(b'0') % 11 {
        0 => {
            let Some(mix) = parse_text::<Mix>(text) else { return };
            let mut cycle = mix.cycle();
            let entries = mix.entries();
            assert!(!entries.is_empty() && entries.iter().all(|(_, weight)| *weight != 0));
            assert!((0..CYCLE_STEPS).all(|_| cycle.next_index() < entries.len()));
            assert!(mix.largest() >= entries[0].0 || entries.len() > 1);
        }
        1 => drop(round_trip::<Order>(text)),
        2 => {
            if let Some(stack) = round_trip::<Stack>(text) {
                assert_eq!(stack.clone().reversed().reversed(), stack);
            }
        }
        3 => drop(round_trip::<ShortSettings>(text)),
        4 => drop(round_trip::<Name>(text)),
        5 => {
            if let Some(range) = parse_text::<AddressRange>(text) {
                assert_eq!(range.first().is_ipv4(), range.is_ipv4());
            }
        }
        6 => drop(round_trip::<PrefixMap>(text)),
        7 => drop(round_trip::<Tagging>(text)),
        10 => drop(round_trip::<TcpSettings>(text)),
        9 => {
            let Some(spec) = parse_text::<FieldSpec>(text) else { return };
            let (flows, mix) = (Flows::new(FlowSettings::v4()).unwrap(), Mix::imix());
            let template = Template::new(&flows, &mix, true).unwrap();
            if let Ok(fields) =
                Fields::new(&[spec.clone(), spec.reversed()][..1 + usize::from(text.contains("src"))], &template)
            {
                let mut frame = vec![0; template.frame_len(0)];
                template.fill(0, 0, Probe::default(), &mut frame);
                (0..100).for_each(|n| fields.write(n * 7919, &mut frame));
                assert!(wire::checksum::verify(&frame[14..34]));
            }
        }
        _ => {
            if let Some(size) = parse_text::<FrameSize>(text) {
                assert!(size.with_fcs() > size.without_fcs() as u16);
            }
        }
    }
});
