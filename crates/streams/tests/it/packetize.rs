//! TCP through a node that rewrites it: what arrives is what was to arrive, whatever the wires do.

mod attacks;
mod cases;
mod host;
mod link;
mod malformed;
mod pressure;
mod world;

use host::Task;
use link::{Badness, Random};
use proptest::prelude::*;
use smoltcp::time::Duration;
use streams::packetize::{Packetized, Rewrite, Settings, packetize};
use world::World;

/// Change of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Nothing,
    Replace(&'static [u8], &'static [u8]),
    /// Every byte twice.
    Double,
    /// Two bytes of three, and a word at the end.
    Thin,
}

const CHANGES: [Change; 7] = [
    Change::Nothing,
    Change::Replace(b"abcab", b"<something longer>"),
    Change::Replace(b"abcab", b"x"),
    Change::Replace(b"aab", b""),
    Change::Replace(b"a", b""),
    Change::Double,
    Change::Thin,
];

impl Change {
    /// One step: bytes used.
    fn run(self, offset: u64, bytes: &[u8], more: bool, out: &mut Vec<u8>) -> usize {
        match self {
            Change::Nothing => out.extend_from_slice(bytes),
            Change::Double => bytes.iter().for_each(|byte| out.extend([*byte; 2])),
            Change::Thin => {
                let kept = bytes.iter().zip(offset..).filter(|(_, at)| at % 3 == 0);
                out.extend(kept.map(|(byte, _)| *byte));
                if !more {
                    out.extend(b"end");
                }
            }
            Change::Replace(find, replace) => {
                let mut at = 0;
                while at < bytes.len() {
                    let rest = &bytes[at..];
                    if rest.starts_with(find) {
                        out.extend(replace);
                        at += find.len();
                    } else if more && rest.len() < find.len() && find.starts_with(rest) {
                        return at;
                    } else {
                        out.push(bytes[at]);
                        at += 1;
                    }
                }
            }
        }
        bytes.len()
    }

    fn model(self, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![];
        assert_eq!(self.run(0, bytes, false, &mut out), bytes.len());
        out
    }
}

fn node(settings: &Settings, there: Change, back: Change) -> Packetized<impl Rewrite> {
    packetize(settings, move |flow, bytes, more, out| {
        let change = if flow.direction() == streams::packetize::Direction::ToServer { there } else { back };
        change.run(flow.offset(), bytes, more, out)
    })
    .unwrap()
}

fn patient() -> Settings {
    Settings { timeout: 600_000, growth: 4, ..Settings::default() }
}

/// Bytes in which the patterns come often.
fn text(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..len).map(|_| b"aabbcab."[random.below(8) as usize]).collect()
}

fn task(data: Vec<u8>) -> Task {
    Task { data, write: 5000, pause: 0, read: 100_000, buffer: 65_535, mtu: 1500, isn: 7 }
}

/// Asserts that both ends received the expected bytes and that no state is left.
fn see(mut world: World, data: [&[u8]; 2], changes: [Change; 2]) -> bool {
    let expected = [0, 1].map(|way| changes[way].model(data[way]));
    // smoltcp waits for ever where a late acknowledgment closes the window behind what was lost: the other asks it
    world.hosts.iter_mut().for_each(|host| host.socket().set_keep_alive(Some(Duration::from_secs(60))));
    let all = |world: &mut World| (0..2).all(|way| world.hosts[1 - way].got.len() >= expected[way].len());
    let done = world.run(3_000_000, all);
    let state = world.state();
    for way in 0..2 {
        let (got, expected) = (&world.hosts[1 - way].got, &expected[way]);
        let same = got.iter().zip(expected).take_while(|(a, b)| a == b).count();
        assert!(
            got == expected,
            "way {way} {:?}: {} bytes of {}, the same up to {same}, at {} ms; {state}",
            changes[way],
            got.len(),
            expected.len(),
            world.now
        );
    }
    assert!(done, "at {}", world.now);
    for never in ["given_up", "passed", "midstream", "refused", "unreadable"] {
        assert_eq!(world.between.counter(never), 0, "{never}");
    }
    // smoltcp may take no FIN that repeats bytes, and may never repeat a FIN whose bytes have arrived
    let closed = world.run(world.now + 60_000, |world| world.hosts[0].is_done() & world.hosts[1].is_done());
    if !closed {
        world.hosts.iter_mut().for_each(|host| host.socket().abort());
    }
    world.wait(20_000);
    // one that was reset is remembered as long as one that is idle
    if !closed || world.between.counter("connections") > 0 {
        world.wait(1_000_000);
    }
    for gauge in ["connections", "flows", "memory_bytes", "waiting"] {
        assert_eq!(world.between.counter(gauge), 0, "{gauge}");
    }
    closed
}

#[test]
fn streams_are_changed_on_good_wires() {
    for there in CHANGES {
        let data = [text(1, 300_000), text(2, 200_000)];
        let badness = Badness { delay: 2, ..Badness::default() };
        let changes = [there, Change::Replace(b"abcab", b"<something longer>")];
        let world =
            World::new(node(&patient(), changes[0], changes[1]), data.clone().map(task), badness, 5, false, true);
        assert!(see(world, [&data[0], &data[1]], changes), "both have closed");
    }
}

fn badness() -> impl Strategy<Value = Badness> {
    (0..120u64, 0..100u64, 0..300u64, 0..15u64, 1..40u64).prop_map(|(lost, doubled, late, delay, jitter)| Badness {
        lost,
        doubled,
        late,
        delay,
        jitter,
    })
}

fn tasks() -> impl Strategy<Value = Task> {
    let isn = prop_oneof![any::<u32>(), (0..20_000u32).prop_map(|n| n.wrapping_neg())];
    (
        (0..60_000usize, any::<u64>(), 1..6000usize, 0..4u64),
        (prop_oneof![Just(100_000usize), 50..3000usize], 2000..100_000usize, 600..1500usize, isn),
    )
        .prop_map(|((len, seed, write, pause), (read, buffer, mtu, isn))| Task {
            data: text(seed, len),
            write,
            pause,
            read,
            buffer,
            mtu: mtu.max(1280),
            isn,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 60, ..ProptestConfig::default() })]
    #[test]
    fn what_arrives_is_what_was_to_arrive(
        (a, b) in (tasks(), tasks()),
        badness in badness(),
        (there, back) in (0..CHANGES.len(), 0..CHANGES.len()),
        (seed, v6, stamps) in any::<(u64, bool, bool)>(),
    ) {
        let changes = [CHANGES[there], CHANGES[back]];
        let data = [a.data.clone(), b.data.clone()];
        let world = World::new(node(&patient(), changes[0], changes[1]), [a, b], badness, seed, v6, stamps);
        see(world, [&data[0], &data[1]], changes);
    }
}

#[test]
fn a_window_that_a_late_acknowledgment_closes_opens_again() {
    let a = Task { data: text(1, 46629), write: 3543, pause: 0, read: 377, buffer: 46629, mtu: 1280, isn: 0 };
    let b = Task { data: text(2, 18403), write: 5379, pause: 0, read: 100000, buffer: 6959, mtu: 1280, isn: 0 };
    let badness = Badness { lost: 48, doubled: 92, late: 94, delay: 6, jitter: 33 };
    let changes = [CHANGES[0], CHANGES[5]];
    let data = [a.data.clone(), b.data.clone()];
    let world = World::new(node(&patient(), changes[0], changes[1]), [a, b], badness, 9768539321728747726, false, true);
    see(world, [&data[0], &data[1]], changes);
}
