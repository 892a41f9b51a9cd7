//! State for the process that replaces this one.

use super::*;
use proptest::prelude::*;
use testkit::Damage;

/// Unit of the clock of the session tables, and a number of them in which all sessions are scanned.
const UNIT: Duration = Duration::from_millis(256);
const SCAN: u32 = 17;

const GAUGES: [&str; 5] = ["sessions", "mappings", "ports", "subscribers", "blocks"];

#[derive(Clone, Copy, Debug)]
enum Step {
    /// From a host and port inside to one outside, TCP with flags unless they are 0; to the external address if the
    /// outside host is 0.
    Outbound(u8, u8, u16, u8, u16),
    /// From outside to a port of the external address.
    Inbound(u8, u8, u16, u16),
}

impl Step {
    fn feed(self, nat: &mut Nat) -> Result<Vec<Vec<u8>>, &'static str> {
        match self {
            Step::Outbound(flags, host, port, to, to_port) => {
                let (src, to) = (format!("2001:db8::{host}"), if to == 0 { EXTERNAL } else { [198, 18, 0, to] });
                let udp = || udp6(&src, port, embedded(to), to_port);
                let tcp = || tcp6(&src, port, embedded(to), to_port, TcpFlags(flags));
                nat.feed(0, &if flags == 0 { udp() } else { tcp() })
            }
            Step::Inbound(flags, from, from_port, port) => {
                let udp = || udp4([198, 18, 0, from], from_port, EXTERNAL, port);
                let tcp = || tcp4([198, 18, 0, from], from_port, EXTERNAL, port, TcpFlags(flags));
                nat.feed(1, &if flags == 0 { udp() } else { tcp() })
            }
        }
    }
}

/// Packets, each after a pause in units of time.
fn traffic() -> impl Strategy<Value = Vec<(u32, Step)>> {
    let flags = || prop_oneof![4 => Just(0u8), 3 => Just(2), 2 => Just(18), 3 => Just(16), 1 => Just(17), 1 => Just(4)];
    let (port, other) = (|| 2000..2004u16, || 2000..2003u16);
    let step = prop_oneof![
        3 => (flags(), 1..5u8, port(), 0..3u8, other()).prop_map(|(f, a, b, c, d)| Step::Outbound(f, a, b, c, d)),
        2 => (flags(), 1..3u8, other(), port()).prop_map(|(f, a, b, c)| Step::Inbound(f, a, b, c)),
    ];
    let pause = prop_oneof![10 => Just(0u32), 2 => 1..50u32, 1 => 50..3000u32];
    prop::collection::vec((pause, step), 0..60)
}

fn settings() -> impl Strategy<Value = String> {
    let forward = "forward = [\"udp 203.0.113.1:2001 -> [2001:db8::2]:2001\"]";
    let filtering = prop_oneof![Just("endpoint-independent"), Just("address-dependent")];
    let allocation = prop_oneof![Just("\"dynamic\""), Just("\"blocks\"\nblock_size = 8\nmax_blocks = 2")];
    (filtering, allocation).prop_map(move |(filtering, allocation)| {
        format!("filtering = \"{filtering}\"\nallocation = {allocation}\nsubscribers = 20\n{forward}")
    })
}

/// Feeds a packet in the middle of a unit of time, after a scan of all sessions, and returns what has become of it.
fn feed(nat: &mut Nat, unit: u32, step: Step) -> (Result<Vec<Vec<u8>>, &'static str>, [u64; 5]) {
    nat.0.jump_to(UNIT * unit + UNIT / 2);
    let out = step.feed(nat);
    nat.0.advance(Duration::from_millis(1));
    (out, GAUGES.map(|gauge| nat.0.counter(gauge)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_translator_continues_with_the_sessions_of_another(
        settings in settings(), before in traffic(), after in traffic(), start in 0..100_000_000u32
    ) {
        let (mut old, mut unit) = (Nat::new(&settings), start);
        for (pause, step) in before {
            unit += SCAN + pause;
            let _ = feed(&mut old, unit, step);
        }
        let mut new = Nat::new(&settings);
        new.0.restore(&old.0.save(), old.0.now()).unwrap();
        for nat in [&mut new, &mut old] {
            nat.0.advance(Duration::from_millis(1));
        }
        prop_assert_eq!(GAUGES.map(|gauge| new.0.counter(gauge)), GAUGES.map(|gauge| old.0.counter(gauge)));
        for (pause, step) in after {
            unit += SCAN + pause;
            prop_assert_eq!(feed(&mut new, unit, step), feed(&mut old, unit, step), "{:?}", step);
        }
        // nothing leaks: as many hosts as there may be have sessions afterwards
        (0..3).for_each(|n| drop(new.0.jump_to(UNIT * unit + Duration::from_secs(8000 + 10 * n))));
        prop_assert_eq!(GAUGES.map(|gauge| new.0.counter(gauge)), [0, 1, 0, 0, 0]);
        for host in 10..30 {
            prop_assert!(Step::Outbound(0, host, 3000, 1, 53).feed(&mut new).is_ok());
        }
    }

    #[test]
    fn damaged_state_is_rejected_or_harmless(
        settings in settings(),
        before in traffic(),
        after in traffic(),
        damage in Damage::any(),
    ) {
        let mut old = Nat::new(&settings);
        before.iter().for_each(|(_, step)| drop(step.feed(&mut old)));
        let mut state = old.0.save();
        let end = damage.apply(&mut state);
        let mut new = Nat::new(&settings);
        let is_valid = new.0.restore(&state, Duration::from_secs(1)).is_ok();
        prop_assert!(end.is_none() || !is_valid);
        for (n, (_, step)) in after.iter().enumerate() {
            drop(step.feed(&mut new));
            new.0.advance(Duration::from_millis(n as u64));
        }
        // a damaged time may be later than now by half of the clock's range
        (0..100).for_each(|n| drop(new.0.jump_to(Duration::from_secs(20_000 * n))));
        prop_assert_eq!(GAUGES.map(|gauge| new.0.counter(gauge)), [0, 1, 0, 0, 0]);
        for host in 10..30 {
            prop_assert!(Step::Outbound(0, host, 3000, 1, 53).feed(&mut new).is_ok());
        }
    }
}
