//! FPM streams: the messages do not depend on how the stream is received, memory is bounded, and each answer is a frame
//! with the same route. The first byte selects the size of the pieces that are received at once.
#![no_main]

use fpm::{FrameReader, Message, NextHop, NextHops, Route, Target, Verdict, answer, messages};
use libfuzzer_sys::fuzz_target;

/// Most next-hop objects and members of groups.
const LIMIT: usize = 64;

/// Passes the payloads of a stream, received in pieces of `piece` bytes, to `each`.
fn payloads(mut stream: &[u8], piece: usize, mut each: impl FnMut(&[u8])) {
    let mut reader = FrameReader::new();
    while !stream.is_empty() {
        let room = reader.room();
        let n = piece.min(room.len()).min(stream.len());
        assert!(n > 0);
        room[..n].copy_from_slice(&stream[..n]);
        stream = &stream[n..];
        reader.filled(n);
        loop {
            match reader.next_frame() {
                Ok(Some(payload)) => each(payload),
                Ok(None) => break,
                Err(e) => {
                    assert_eq!(reader.next_frame(), Err(e));
                    return;
                }
            }
        }
    }
}

/// Checks a route and its answer.
fn check(route: &Route<'_>) {
    match &route.target {
        Target::Hops(hops) => {
            assert!(hops.len() <= fpm::MAX_HOPS && hops.is_empty() == route.removes);
            assert!(hops.iter().all(|hop| hop.weight > 0 && (hop.gateway.is_some() || hop.interface != 0)));
        }
        _ => assert!(!route.removes),
    }
    for verdict in [Verdict::Offloaded, Verdict::Failed] {
        let (mut bytes, mut answers) = (vec![], 0);
        answer(route, verdict, &mut bytes);
        payloads(&bytes, usize::MAX, |payload| {
            let Some(Ok(Message::Route(answered))) = messages(payload).next() else { panic!("no route in {payload:?}") };
            assert_eq!((&answered.prefix, answered.table), (&route.prefix, route.table));
            assert_eq!((&answered.target, answered.removes), (&route.target, false));
            answers += 1;
        });
        assert_eq!(answers, usize::from(!route.removes));
    }
}

fuzz_target!(|bytes: &[u8]| {
    let [piece, stream @ ..] = bytes else { return };
    let mut whole = vec![];
    payloads(stream, usize::MAX, |payload| whole.push(payload.to_vec()));
    let mut pieces = vec![];
    payloads(stream, usize::from(*piece) + 1, |payload| pieces.push(payload.to_vec()));
    assert_eq!(whole, pieces);

    let mut objects = NextHops::new(LIMIT);
    for message in whole.iter().flat_map(|payload| messages(payload)) {
        match message {
            Ok(Message::Route(route)) => {
                check(&route);
                if let Target::Object(id) = route.target
                    && let Ok(target) = objects.resolve(id)
                {
                    assert!(!matches!(target, Target::Object(_)));
                }
            }
            Ok(Message::NextHop(NextHop::Add { id, value })) => {
                let added = objects.insert(id, value).is_ok();
                assert!(objects.len() <= LIMIT && objects.groups_of(id).count() <= objects.len());
                assert!(added || objects.resolve(id).is_err(), "object {id} has its old content");
            }
            Ok(Message::NextHop(NextHop::Remove { id })) => drop(objects.remove(id)),
            Ok(Message::Other { .. }) => (),
            Err(e) => assert!(!e.to_string().is_empty()),
        }
    }
});
