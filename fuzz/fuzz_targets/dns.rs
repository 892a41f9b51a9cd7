//! DNS messages: nothing panics, the work is bounded, and names and queries survive writing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::dns::{Message, Name, Repr};

fuzz_target!(|bytes: &[u8]| {
    if let Some(at) = bytes.first() {
        if let Ok((name, end)) = Name::parse(bytes, usize::from(*at)) {
            assert!(usize::from(*at) < end && end <= bytes.len());
            assert_eq!(Name::new(&name.to_string()), Ok(name));
            assert_eq!(Name::parse(name.as_bytes(), 0), Ok((name, name.as_bytes().len())));
        }
    }
    if let Ok(name) = core::str::from_utf8(bytes).map_err(drop).and_then(|text| Name::new(text).map_err(drop)) {
        assert_eq!(Name::new(&name.to_string()), Ok(name));
    }
    let Ok(message) = Message::new(bytes) else { return };
    let questions = message.questions().filter(Result::is_ok).count();
    let records: Vec<_> = message.records().flatten().collect();
    assert!(12 + 5 * questions + 11 * records.len() <= bytes.len());
    for record in records {
        let _ = (record.name_at(0), record.name_at(2), record.name_at(usize::MAX));
    }
    if let Ok(repr) = Repr::parse(&message) {
        let mut written = vec![0; repr.len()];
        repr.emit(&mut written).unwrap();
        assert_eq!(Repr::parse(&Message::new(&written).unwrap()), Ok(repr));
    }
});
