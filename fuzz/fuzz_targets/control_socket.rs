//! Requests of the control socket: lines do not depend on how they are received and are never longer than permitted,
//! and an accepted request is read again from what is written of it. The first bytes select the limit and the size of
//! the pieces that are received at once.
#![no_main]

use control::line::{Limits, Line};
use libfuzzer_sys::fuzz_target;
use std::io::BufReader;
use std::time::Duration;

fuzz_target!(|bytes: &[u8]| {
    let [len, piece, bytes @ ..] = bytes else { return };
    let limits = Limits { len: usize::from(*len) + 1, time: Duration::MAX };
    let mut reader = BufReader::with_capacity(usize::from(*piece) + 1, bytes);
    let mut at = 0;
    loop {
        let mut line = vec![];
        let read = limits.read(&mut reader, &mut line, || false).expect("memory has no errors");
        assert!(line.len() <= limits.len && bytes[at..].starts_with(&line));
        at += line.len();
        match read {
            Line::Whole => assert_eq!(line.iter().position(|b| *b == b'\n'), Some(line.len() - 1)),
            Line::TooLong => assert!(line.len() == limits.len && !line.contains(&b'\n')),
            Line::End => assert!(at == bytes.len() && !line.contains(&b'\n')),
            Line::TooSlow => panic!("there is no time limit"),
        }
        match serde_json::from_slice::<control::Request>(&line) {
            Ok(request) => {
                let written = serde_json::to_vec(&request).expect("a request can be written");
                assert_eq!(serde_json::from_slice::<control::Request>(&written).expect("it can be read"), request);
            }
            // the message is part of the response
            Err(e) => assert!(!e.to_string().is_empty()),
        }
        if read != Line::Whole {
            return;
        }
    }
});
