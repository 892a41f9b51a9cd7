//! Segments that no stack would send, closures that do what they must not, and too little of everything.

use crate::packetize::link::Random;
use crate::packetize::world::Between;
use proptest::prelude::*;
use streams::packetize::{Settings, WhenFull, packetize};
use wire::tcp::{TcpOption, options};
use wire::{TcpFlags, build};

/// Packets that one packet leads to at most: 64 of what is repeated, 64 of what is new in each direction, and answers.
const MOST: usize = 3 * 64 + 8;

/// One of a few flows, each with numbers near a place.
#[derive(Clone, Debug)]
struct Thrown {
    flow: u8,
    back: bool,
    flags: u8,
    seq: i16,
    ack: i16,
    window: u16,
    len: usize,
    scale: Option<u8>,
    v6: bool,
    /// Further change of the frame: byte and value.
    broken: Option<(usize, u8)>,
    pause: u16,
}

fn thrown() -> impl Strategy<Value = Thrown> {
    let flags =
        prop_oneof![Just(0x02u8), Just(0x12), Just(0x10), Just(0x10), Just(0x18), Just(0x11), Just(0x14), any::<u8>()];
    let near = || prop_oneof![Just(0i16), Just(1), -3..4i16, -300..3000i16, any::<i16>()];
    let window = prop_oneof![Just(0u16), any::<u16>(), Just(60_000)];
    let broken = prop_oneof![7 => Just(None), 1 => (0..80usize, any::<u8>()).prop_map(Some)];
    let pause = prop_oneof![5 => Just(0u16), 1 => 1..3000u16];
    let some = (0..3u8, any::<bool>(), flags, near(), near(), window);
    (some, 0..700usize, any::<Option<u8>>(), any::<bool>(), broken, pause).prop_map(
        |((flow, back, flags, seq, ack, window), len, scale, v6, broken, pause)| Thrown {
            flow,
            back,
            flags,
            seq,
            ack,
            window,
            len,
            scale,
            v6,
            broken,
            pause,
        },
    )
}

impl Thrown {
    fn frame(&self) -> Vec<u8> {
        let (near, far) = if self.back { (2, 1) } else { (1, 2) };
        let (src, dst) = if self.back { (80, 40_000) } else { (40_000, 80) };
        let seq = (-200i32 as u32).wrapping_add(self.seq as u32);
        let ack = (-200i32 as u32).wrapping_add(self.ack as u32);
        let list = self.scale.map(TcpOption::WindowScale);
        let list = options(list.as_slice()).unwrap();
        let payload = vec![b'a'; self.len];
        let flags = TcpFlags(self.flags);
        let mut frame = if self.v6 {
            let address = |n: u16| [0xfd00, 0, 0, 0, 0, 0, u16::from(self.flow), n];
            let segment = build::tcp6(address(near), address(far), src, dst).flags(flags).seq(seq).ack(ack);
            segment.window(self.window).tcp_options(list).payload(&payload).to_vec()
        } else {
            let address = |n: u8| [10, 0, self.flow, n];
            let segment = build::tcp4(address(near as u8), address(far as u8), src, dst).flags(flags).seq(seq).ack(ack);
            segment.window(self.window).tcp_options(list).payload(&payload).to_vec()
        };
        if let Some((at, value)) = self.broken {
            let at = at % frame.len();
            frame[at] = value;
        }
        frame
    }
}

/// Closures that violate the contract.
fn wild(kind: u8, bytes: &[u8], out: &mut Vec<u8>, random: &mut Random) -> usize {
    match kind {
        // uses more than there is
        0 => bytes.len() + 5,
        // never uses anything, and says something all the same
        1 => {
            out.push(7);
            0
        }
        // makes far more than it has said
        2 => {
            out.resize(random.below(200_000) as usize, 1);
            bytes.len()
        }
        _ => {
            let n = random.below(bytes.len() as u64 + 1) as usize;
            out.extend_from_slice(&bytes[..n]);
            n
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]
    #[test]
    fn nothing_that_is_thrown_at_it_breaks_it(
        thrown in prop::collection::vec(thrown(), 1..300),
        (kind, checksums, scarce, seed) in any::<(u8, bool, bool, u64)>(),
    ) {
        let mut settings = Settings {
            checksums, growth: 1, timeout: 50, withheld: 100, idle: 20, half_open: 5, ..Settings::default()
        };
        if scarce {
            settings = Settings { flows: 2, buffer: 8192, memory: 32 << 10, full: WhenFull::Drop, ..settings };
        }
        let most = settings.memory;
        let mut random = Random::new(seed);
        let node = packetize(&settings, move |_, bytes, _, out| wild(kind % 5, bytes, out, &mut random)).unwrap();
        let mut between = Between::new(node, if scarce { 40 } else { 4096 });
        let mut now = 0;
        // whatever else comes, some connections begin well
        for flow in 0..3 {
            for (back, flags, seq, ack, len) in [(false, 2, -1, 0, 0), (true, 0x12, -1, 0, 0), (false, 0x18, 0, 0, 600)] {
                let syn = Thrown {
                    flow, back, flags, seq, ack, window: 60_000, len, scale: Some(3), v6: false, broken: None, pause: 0,
                };
                between.feed(u16::from(back), &[syn.frame()]);
            }
        }
        for it in &thrown {
            let sent = between.feed(u16::from(it.back), &[it.frame()]);
            let sent: usize = sent.iter().map(Vec::len).sum();
            prop_assert!(sent <= MOST, "{} packets for one", sent);
            for _ in 0..=it.pause / 10 {
                now += if it.pause == 0 { 1 } else { 10 };
                between.wake(now);
            }
            prop_assert!(between.counter("memory_bytes") <= most);
        }
        for _ in 0..1000 {
            now += 40;
            between.wake(now);
        }
        for gauge in ["connections", "flows", "memory_bytes", "waiting"] {
            prop_assert_eq!(between.counter(gauge), 0, "{}", gauge);
        }
    }
}
