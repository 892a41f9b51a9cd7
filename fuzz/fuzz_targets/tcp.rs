//! TCP connections of the generator across a network that loses, duplicates, changes and injects frames. Connections are
//! accounted for, and what both sides send is well-formed.
#![no_main]

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use std::collections::VecDeque;
use traffic::FlowSettings;
use traffic::tcp::{Client, Segment, Server, TcpSettings, Transmit};

/// Most frames under way in one direction, and most steps.
const MAX_FRAMES: usize = 200;
const MAX_STEPS: usize = 400;

#[derive(Default)]
struct Frames(VecDeque<Vec<u8>>);

impl Transmit for Frames {
    fn frame(&mut self, len: usize) -> Option<&mut [u8]> {
        if self.0.len() == MAX_FRAMES {
            return None;
        }
        self.0.push_back(vec![0; len]);
        self.0.back_mut().map(Vec::as_mut_slice)
    }
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let settings = TcpSettings {
        request: u.int_in_range(1..=1440)?,
        response: u.int_in_range(1..=6000)?,
        transactions: u.int_in_range(0..=3)?,
        retries: u.int_in_range(0..=3)?,
        hold: std::time::Duration::from_millis(u.int_in_range(0..=3)?),
        ..TcpSettings::default()
    };
    let flows = match u.arbitrary()? {
        true => FlowSettings { count: 5, ..FlowSettings::v4() },
        false => FlowSettings { count: 5, ..FlowSettings::v6() },
    };
    let (mut client, mut server) = (Client::new(settings.client(&flows), 0), Server::new(settings.server(&flows)));
    let (mut there, mut back) = (Frames::default(), Frames::default());
    let mut now = 0_u64;
    for _ in 0..MAX_STEPS {
        if u.is_empty() {
            break;
        }
        let from_client = u.arbitrary()?;
        match u.int_in_range(0..=9_u8)? {
            0 => drop(client.open(now, &mut there)),
            1 => {
                now += u64::from(u.arbitrary::<u32>()?);
                client.poll(now, &mut there);
            }
            action => {
                let frames = if from_client { &mut there.0 } else { &mut back.0 };
                let mut frame = match action {
                    2 => u.arbitrary::<Vec<u8>>()?,
                    3 => frames.front().cloned().unwrap_or_default(),
                    _ => frames.pop_front().unwrap_or_default(),
                };
                let is_own = action > 2 && !frame.is_empty();
                assert!(!is_own || Segment::parse(&frame).is_ok(), "{frame:02x?}");
                if action == 4 && is_own {
                    let at = u.choose_index(frame.len())?;
                    frame[at] ^= u.arbitrary::<u8>()?;
                }
                if let Ok(segment) = Segment::parse(&frame) {
                    match client.is_destination(&segment) {
                        true => client.receive(&segment, now, &mut there),
                        false => server.receive(&segment, &mut back),
                    }
                }
            }
        }
        let counts = client.counts();
        assert_eq!(counts.opened, counts.completed + counts.failed.sum() + counts.open());
        assert!(counts.open() <= 5);
    }
    client.abandon();
    assert_eq!(client.counts().open(), 0);
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    let _ = run(&mut Unstructured::new(bytes));
});
