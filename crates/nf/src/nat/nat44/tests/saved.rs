//! State for the process that replaces this one.

use super::*;
use std::net::UdpSocket;
use testkit::proptest::prelude::*;
use testkit::{Damage, HarnessBuilder};

/// Unit of the clock of the session tables.
const UNIT: Duration = Duration::from_millis(256);

/// A packet of UDP, of TCP with flags, or of ICMP.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Udp,
    Tcp(u8),
    Echo,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// From a host and port inside to one outside; to an external address if the outside host is 3.
    Outbound(Kind, u8, u16, u8, u16),
    /// From outside to a port of an external address.
    Inbound(Kind, u8, u16, u8, u16),
}

impl Step {
    fn feed(self, nat: &mut Nat, external: u8) -> Result<Vec<u8>, &'static str> {
        let packet = |kind, src, src_port, dst, dst_port, id| match kind {
            Kind::Udp => udp(src, src_port, dst, dst_port),
            Kind::Tcp(flags) => tcp(src, src_port, dst, dst_port, TcpFlags(flags)),
            Kind::Echo if src[0] == 10 => echo(src, dst, id),
            Kind::Echo => reply(src, dst, id),
        };
        let outside = |n: u8| if n == 3 { [203, 0, 113, external] } else { [198, 18, 0, n] };
        match self {
            Step::Outbound(kind, host, port, to, to_port) => {
                nat.feed(0, &packet(kind, [10, 0, 0, host], port, outside(to), to_port, port))
            }
            Step::Inbound(kind, from, from_port, to, port) => {
                nat.feed(1, &packet(kind, [198, 18, 0, from], from_port, [203, 0, 113, to], port, port))
            }
        }
    }
}

/// Packets, each after a pause in units of time.
fn traffic() -> impl Strategy<Value = Vec<(u32, Step)>> {
    let kind = || {
        let flags = prop_oneof![3 => Just(2u8), 2 => Just(18), 3 => Just(16), 1 => Just(17), 1 => Just(4)];
        prop_oneof![4 => Just(Kind::Udp), 4 => flags.prop_map(Kind::Tcp), 1 => Just(Kind::Echo)]
    };
    let (port, other) = (|| 2000..2004u16, || 2000..2003u16);
    let step = prop_oneof![
        3 => (kind(), 1..4u8, port(), 1..4u8, other()).prop_map(|(k, a, b, c, d)| Step::Outbound(k, a, b, c, d)),
        2 => (kind(), 1..3u8, other(), 0..2u8, port()).prop_map(|(k, a, b, c, d)| Step::Inbound(k, a, b, c, d)),
    ];
    let pause = prop_oneof![10 => Just(0u32), 2 => 1..50u32, 1 => 50..3000u32];
    prop::collection::vec((pause, step), 0..60)
}

fn settings() -> impl Strategy<Value = String> {
    let mapping = prop_oneof![Just("endpoint-independent"), Just("endpoint-dependent")];
    let filtering =
        prop_oneof![Just("endpoint-independent"), Just("address-dependent"), Just("address-and-port-dependent")];
    let allocation = prop_oneof![
        Just("\"dynamic\"\nforward = [\"udp 203.0.113.1:2001 -> 10.0.0.1:2001\"]"),
        Just("\"blocks\"\nblock_size = 8\nmax_blocks = 2\nforward = [\"tcp 203.0.113.0:2000 -> 10.0.0.2:2002\"]"),
        Just("\"deterministic\"\nblock_size = 4000\ninside = [\"10.0.0.0/29\"]"),
    ];
    (mapping, filtering, allocation).prop_map(|(mapping, filtering, allocation)| {
        format!(
            "external = [\"203.0.113.0/31\"]\nmapping = \"{mapping}\"\nfiltering = \"{filtering}\"\nallocation = {allocation}"
        )
    })
}

const GAUGES: [&str; 5] = ["sessions", "mappings", "ports", "subscribers", "blocks"];

/// Feeds a packet in the middle of a unit of time, after a scan of all sessions, and returns what has become of it.
fn feed(nat: &mut Nat, unit: u32, step: Step) -> (Result<Vec<u8>, &'static str>, [u64; 5]) {
    nat.0.jump_to(UNIT * unit + UNIT / 2);
    let out = step.feed(nat, (unit & 1) as u8);
    nat.0.advance(Duration::from_millis(1));
    (out, GAUGES.map(|gauge| nat.0.counter(gauge)))
}

/// Units of time in which all sessions are scanned, and one more.
const SCAN: u32 = 17;

fn restored(settings: &str, old: &mut Nat) -> Nat {
    let mut new = Nat::new(settings);
    let (state, now) = (old.0.save(), old.0.now());
    new.0.restore(&state, now).unwrap();
    new
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn a_translator_continues_with_the_sessions_of_another(
        settings in settings(), before in traffic(), after in traffic(), start in 0..100_000_000u32
    ) {
        let (mut old, mut unit) = (Nat::new(&settings), start);
        for (pause, step) in before {
            unit += SCAN + pause;
            let _ = feed(&mut old, unit, step);
        }
        let mut new = restored(&settings, &mut old);
        for nat in [&mut new, &mut old] {
            nat.0.advance(Duration::from_millis(1));
        }
        prop_assert_eq!(GAUGES.map(|gauge| new.0.counter(gauge)), GAUGES.map(|gauge| old.0.counter(gauge)));
        let created = old.0.counter("created");
        for (pause, step) in after {
            unit += SCAN + pause;
            prop_assert_eq!(feed(&mut new, unit, step), feed(&mut old, unit, step), "{:?}", step);
        }
        prop_assert_eq!(new.0.counter("created"), old.0.counter("created") - created);
        // nothing leaks
        (0..3).for_each(|n| drop(new.0.jump_to(UNIT * unit + Duration::from_secs(8000 + 10 * n))));
        let left = GAUGES.map(|gauge| new.0.counter(gauge));
        let forwards = u64::from(settings.contains("forward"));
        prop_assert_eq!(left, [0, forwards, 0, 0, 0]);
    }

    #[test]
    fn damaged_state_is_rejected_or_harmless(
        settings in settings(),
        before in traffic(),
        after in traffic(),
        damage in Damage::any(),
    ) {
        let mut old = Nat::new(&settings);
        before.iter().for_each(|(_, step)| drop(step.feed(&mut old, 0)));
        let mut state = old.0.save();
        let end = damage.apply(&mut state);
        let mut new = Nat::new(&settings);
        let is_valid = new.0.restore(&state, Duration::from_secs(1)).is_ok();
        prop_assert!(end.is_none() || !is_valid);
        for (n, (_, step)) in after.iter().enumerate() {
            drop(step.feed(&mut new, 0));
            new.0.advance(Duration::from_millis(n as u64));
        }
        // a damaged time may be later than now by half of the clock's range
        (0..100).for_each(|n| drop(new.0.jump_to(Duration::from_secs(20_000 * n))));
        let forwards = u64::from(settings.contains("forward"));
        prop_assert_eq!(GAUGES.map(|gauge| new.0.counter(gauge)), [0, forwards, 0, 0, 0]);
    }
}

#[test]
fn sessions_that_contradict_new_forwards_are_left_out() {
    for (mapping, reload) in
        [("endpoint-independent", false), ("endpoint-dependent", false), ("endpoint-independent", true)]
    {
        let with =
            |forwards: &str| format!("external = [\"203.0.113.1\"]\nmapping = \"{mapping}\"\nforward = [{forwards}]");
        let before = HarnessBuilder::new::<Nat44>(&with("\"udp 203.0.113.1:6000 -> 10.0.0.1:6000\""));
        let mut old = Nat(before.clone().build().unwrap());
        for (host, port) in [(A, 6000), (A, 5000), (A, 5001), (B, 5002)] {
            assert_eq!(old.outbound(&udp(host, port, REMOTE, 53)).unwrap().src_port, port);
        }
        // port 6000 is removed; sessions have a port that is forwarded to them or another host, or forwards of other ports
        let after = with(
            "\"udp 203.0.113.1:5000 -> 10.0.0.1:5000\", \"udp 203.0.113.1:7000 -> 10.0.0.1:5001\", \
             \"udp 203.0.113.1:5002 -> 10.0.0.9:5002\"",
        );
        if reload {
            // before the scan for such sessions
            HarnessBuilder::new::<Nat44>(&after).reload(&before, &mut old.0).unwrap();
        }
        let mut new = restored(&after, &mut old);
        let closed = [&old, &new].map(|nat| nat.0.counter("closed_by_reload"));
        assert_eq!(closed, if reload { [3, 0] } else { [0, 3] });
        assert_eq!(new.inbound(&udp(REMOTE, 53, EXTERNAL, 5000)), Ok(endpoints(REMOTE, 53, A, 5000)));
        assert_eq!(new.outbound(&udp(A, 5001, REMOTE, 53)).unwrap().src_port, 7000);
        assert_eq!(new.inbound(&udp(REMOTE, 53, EXTERNAL, 6000)), Err("no_session"));
        assert_eq!(new.inbound(&udp(REMOTE, 53, EXTERNAL, 5002)).unwrap().dst, [10, 0, 0, 9]);
        new.0.advance(Duration::from_millis(2));
        assert_eq!(["sessions", "ports"].map(|name| new.0.counter(name)), [3, 0]);
        new.advance_seconds(310);
        assert_eq!(GAUGES.map(|gauge| new.0.counter(gauge)), [0, 3, 0, 0, 0]);
    }
}

#[test]
fn a_smaller_table_takes_what_fits() {
    let mut old = Nat::new("sessions = 1000");
    (0..1000).for_each(|port| assert!(old.outbound(&udp(A, 2000 + port, REMOTE, 53)).is_ok()));
    let mut new = restored("sessions = 100", &mut old);
    new.0.advance(Duration::from_millis(2));
    let gauges = ["sessions", "mappings", "ports", "closed_by_reload"].map(|name| new.0.counter(name));
    assert_eq!(gauges, [100, 100, 100, 900]);
    new.advance_seconds(310);
    assert_eq!(GAUGES.map(|gauge| new.0.counter(gauge)), [0; 5]);
}

#[test]
fn a_restored_session_is_not_logged_again() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let records = || {
        let mut bytes = [0; 2048];
        let n = server.recv(&mut bytes).unwrap();
        let text = String::from_utf8_lossy(&bytes[..n]).into_owned();
        text.split(' ').find(|word| word.ends_with("-BEGIN") || word.ends_with("-END")).unwrap_or(&text).to_owned()
    };
    let log = format!("log = \"{}\"\ntimers = {{ udp = 5 }}\n", server.local_addr().unwrap());
    for (allocation, begin, end) in
        [("dynamic", "SESSION-BEGIN", "SESSION-END"), ("blocks", "BLOCK-BEGIN", "BLOCK-END")]
    {
        let settings = format!("{log}allocation = \"{allocation}\"");
        let mut old = Nat::new(&settings);
        old.outbound(&udp(A, 5000, REMOTE, 53)).unwrap();
        let mut new = restored(&settings, &mut old);
        drop(old);
        assert_eq!(records(), begin);
        new.advance_seconds(10);
        assert_eq!((records(), new.0.counter("log_lost")), (end.to_owned(), 0));
    }
}
