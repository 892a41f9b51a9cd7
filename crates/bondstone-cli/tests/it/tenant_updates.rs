//! Route updates of a tenant while others flood the router with theirs.

use crate::common::fpm_client::{Answer, DELETE_ROUTE, FpmClient, NEW_ROUTE, first_answer, free_ports, prefix, route};
use crate::common::gateway::accounted;
use crate::common::instance::{command, start};
use crate::common::{LIMIT, Running, Scratch, alone};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wire::MacAddr;

/// A run of two tenants, of which `b` receives packets to 198.51.100.1 without an end.
struct Run {
    sockets: PathBuf,
    running: Running,
    ports: Vec<u16>,
    _scratch: Scratch,
}

impl Run {
    /// Starts it, with settings of tenant `a`, whose network is 10.0.0.0/8.
    fn start(of_a: &str) -> Run {
        let (scratch, ports) = (Scratch::new(), free_ports(2));
        let mut writer = pcap::Writer::create(scratch.path("in.pcap"), pcap::LinkType::ETHERNET).unwrap();
        let frame = wire::build::udp4([10, 1, 0, 2], [198, 51, 100, 1], 1, 2).dst_mac(MacAddr([2, 0, 0, 0, 1, 0]));
        writer.write(0, 60, &frame.pad_to(60).to_vec()).unwrap();
        writer.finish().unwrap();
        let text = format!(
            "bondstone = 1\n[port.in]\ndevice = \"pcap:in.pcap\"\nrepeat = 0\n[port.lan]\ndevice = \"null\"\n\
             [port.wan]\ndevice = \"null\"\n[port.a]\ndevice = \"null\"\n\
             [[chain]]\npath = [\"in\", \"router:lan\"]\n[nf.router]\nkind = \"l3fwd\"\n\
             interface.lan = {{ addresses = [\"10.1.0.1/24\"], mac = \"02:00:00:00:01:00\", tenant = \"b\" }}\n\
             interface.wan = {{ addresses = [\"10.2.0.1/24\"], tenant = \"b\" }}\n\
             interface.a = {{ addresses = [\"10.0.0.1/8\"], tenant = \"a\" }}\n\
             tenant.b = {{ fpm.listen = \"127.0.0.1:{}\", neighbour = {{ \"10.2.0.2\" = \"02:00:00:00:02:02\" }} }}\n\
             [nf.router.tenant.a]\nfpm.listen = \"127.0.0.1:{}\"\n{of_a}",
            ports[1], ports[0]
        );
        let (file, sockets) = (scratch.write("router.toml", text), scratch.path("sockets"));
        let running = start(&sockets, &file, &[]);
        Run { sockets, running, ports, _scratch: scratch }
    }

    /// Connects as the routing daemons of `a` and `b`.
    fn connect(&self) -> [FpmClient; 2] {
        [0, 1].map(|n| FpmClient::connect(self.ports[n]))
    }

    fn json(&self, words: &[&str]) -> Value {
        let said = command(&self.sockets, words);
        assert_eq!(said.status, Some(0), "{words:?}: {}", said.err);
        serde_json::from_str(&said.out).unwrap()
    }

    /// Returns the state of a tenant.
    fn tenant(&self, name: &str) -> Value {
        self.json(&["tenant", "show", name, "--json"])["tenants"][0].take()
    }

    fn sent_by_b(&self) -> u64 {
        let stats = self.json(&["stats", "--json"]);
        let wan = stats["ports"].as_array().unwrap().iter().find(|port| port["name"] == "wan").unwrap();
        wan["sent"].as_u64().unwrap()
    }

    /// Waits until packets of `b` are forwarded.
    fn forwards(&self) {
        let (before, deadline) = (self.sent_by_b(), Instant::now() + LIMIT);
        while self.sent_by_b() == before {
            assert!(Instant::now() < deadline, "no packet is forwarded");
        }
    }

    /// Ends it; returns what it has logged.
    fn stop(self) -> String {
        assert_eq!(command(&self.sockets, &["stop"]).status, Some(0));
        let ended = self.running.end();
        accounted(&ended.summary(0));
        ended.err
    }
}

fn gateway(n: u32) -> IpAddr {
    let [a, b] = (n as u16 + 10).to_be_bytes();
    [10, 9, a, b].into()
}

/// Frames that change 1,000 routes from each of some next hops to the next one.
fn changes() -> Vec<u8> {
    let of = |hop: u32| (0..1000).map(move |n| route(NEW_ROUTE, prefix(n), Some(gateway(hop + n % 10))));
    (0..20).flat_map(of).flatten().collect()
}

/// A flag that is set when this is dropped, so that threads end also if an assertion fails.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends frames as fast as they are read until `end`; returns the number of whole rounds.
fn flood(mut stream: TcpStream, frames: &[u8], end: &AtomicBool) -> u64 {
    stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut rounds = 0;
    'rounds: loop {
        let mut at = 0;
        while at < frames.len() {
            if end.load(Ordering::Relaxed) {
                break 'rounds;
            }
            // errors: it is not read now
            at += stream.write(&frames[at..frames.len().min(at + (64 << 10))]).unwrap_or(0);
        }
        rounds += 1;
    }
    // ignore errors: it is closed already
    let _ = stream.shutdown(Shutdown::Write);
    rounds
}

/// Reads and counts answers until the connection ends.
fn count_answers(mut stream: TcpStream, answers: &AtomicU64) {
    let (mut received, mut bytes) = (vec![], [0; 64 << 10]);
    stream.set_read_timeout(None).unwrap();
    while let Ok(n @ 1..) = stream.read(&mut bytes) {
        received.extend_from_slice(&bytes[..n]);
        let mut at = 0;
        while let Some((answer, len)) = first_answer(&received[at..]) {
            assert_eq!(answer, Answer::Offloaded);
            at += len;
            answers.fetch_add(1, Ordering::Relaxed);
        }
        received.drain(..at);
    }
}

#[test]
fn a_tenant_above_its_share_of_next_hops_is_refused() {
    let _alone = alone();
    let run = Run::start("next_hops_max = 8\n");
    let [mut a, mut b] = run.connect();
    let hop = |n: u32| [10, 0, 1, n as u8 + 1];
    let answers: Vec<Answer> = (0..30).map(|n| a.install(prefix(n), hop(n))).collect();
    let count = |answer| answers.iter().filter(|other| **other == answer).count();
    assert_eq!((count(Answer::Offloaded), count(Answer::Failed)), (8, 22));
    // routes by next hops that are in use are installed, and other tenants can add their own
    assert_eq!(a.install(prefix(100), hop(3)), Answer::Offloaded);
    assert!((0..30).all(|n| b.install(prefix(n), [10, 2, 0, n as u8 + 2]) == Answer::Offloaded));
    let state = run.tenant("a");
    let number = |key: &str| state[key].as_u64().unwrap();
    let expected = (8, 8, 9, 22);
    assert_eq!(
        (number("next_hops"), number("next_hops_max"), number("installed_routes"), number("refused_routes")),
        expected,
        "{state:#}"
    );
    let state = run.tenant("b");
    assert_eq!((state["next_hops"].as_u64(), state["refused_routes"].as_u64()), (Some(30), Some(0)), "{state:#}");
    let shown = command(&run.sockets, &["tenant", "show", "a"]).out;
    assert!(shown.contains("8 of at most 8") && shown.contains("refused routes 22"), "{shown}");
    let logged = run.stop();
    let refused = logged.lines().filter(|line| line.contains("next_hops_max")).count();
    // the last is a number of suppressed ones
    assert!((1..=11).contains(&refused), "{logged}");
}

#[test]
fn updates_of_a_tenant_are_made_while_another_floods() {
    let _alone = alone();
    let run = Run::start("next_hops_max = 65536\n");
    let [a, mut b] = run.connect();
    let (frames, end, answers) = (changes(), AtomicBool::new(false), AtomicU64::new(0));
    let (to, from) = (a.stream(), a.stream());
    let rounds = std::thread::scope(|scope| {
        let _end = SetOnDrop(&end);
        scope.spawn(|| count_answers(from, &answers));
        let flood = scope.spawn(|| flood(to, &frames, &end));
        let deadline = Instant::now() + LIMIT;
        while answers.load(Ordering::Relaxed) < 1000 {
            assert!(Instant::now() < deadline && !flood.is_finished());
        }
        let destination = "198.51.100.0/24".parse().unwrap();
        for n in 0..100 {
            assert_eq!(b.install(prefix(n), [10, 2, 0, 2]), Answer::Offloaded);
        }
        assert_eq!(b.install(destination, [10, 2, 0, 2]), Answer::Offloaded);
        run.forwards();
        let before = answers.load(Ordering::Relaxed);
        b.send(&route(DELETE_ROUTE, destination, None));
        assert_eq!(b.install(prefix(0), [10, 2, 0, 2]), Answer::Offloaded);
        assert_eq!(run.tenant("b")["installed_routes"].as_u64(), Some(100));
        while answers.load(Ordering::Relaxed) == before {
            assert!(Instant::now() < deadline && !flood.is_finished());
        }
        end.store(true, Ordering::Relaxed);
        flood.join().unwrap()
    });
    let answers = answers.into_inner();
    println!("{rounds} rounds of 20,000 updates, {answers} answers");
    // each of its routes is one, however often it changed, and each change that was answered is counted
    let state = run.tenant("a");
    assert_eq!((state["installed_routes"].as_u64(), state["refused_routes"].as_u64()), (Some(1000), Some(0)));
    let logged = run.stop();
    let ended = logged.lines().find(|line| line.contains("connection for tenant a of router ended")).unwrap();
    let changed =
        ended.split("; ").find_map(|part| part.split_once(" routes changed, 0 refused, 0 messages malformed"));
    let changed: u64 = changed.unwrap_or_else(|| panic!("{ended}")).0.parse().unwrap();
    assert!(changed == answers && changed >= rounds * 20_000, "{ended}; {answers} answers");
}

/// A tenant that never reads its socket is not read from; the others are served.
#[test]
fn a_tenant_that_never_reads_answers_is_not_read_from() {
    let _alone = alone();
    let run = Run::start("");
    let [a, mut b] = run.connect();
    let (frames, end, stream) = (changes(), AtomicBool::new(false), a.stream());
    std::thread::scope(|scope| {
        let _end = SetOnDrop(&end);
        let flood = scope.spawn(|| flood(stream, &frames, &end));
        // until the buffers of both directions are full
        let deadline = Instant::now() + LIMIT;
        let mut before = run.running.resident();
        loop {
            std::thread::sleep(Duration::from_millis(300));
            let now = run.running.resident();
            if now == before && run.tenant("a")["installed_routes"].as_u64() == Some(1000) {
                break;
            }
            assert!(Instant::now() < deadline, "memory of the process grows: {before}, {now}");
            before = now;
        }
        for n in 0..100 {
            assert_eq!(b.install(prefix(n), [10, 2, 0, 2]), Answer::Offloaded);
        }
        assert_eq!(b.install("198.51.100.0/24".parse().unwrap(), [10, 2, 0, 2]), Answer::Offloaded);
        run.forwards();
        end.store(true, Ordering::Relaxed);
        flood.join().unwrap();
    });
    run.stop();
}

/// Updates whose latency is measured, and the time between them.
const UPDATES: u32 = 2000;
const PAUSE: Duration = Duration::from_micros(500);

/// Measures the times from a route to its answer; returns their median and 99th percentile.
fn latency(b: &mut FpmClient) -> [Duration; 2] {
    let measure = |n: u32| {
        std::thread::sleep(PAUSE);
        let start = Instant::now();
        assert_eq!(b.install(prefix(n % 500), [10, 2, 0, 2 + (n / 500) as u8]), Answer::Offloaded);
        start.elapsed()
    };
    let mut times: Vec<Duration> = (0..UPDATES).map(measure).collect();
    times.sort_unstable();
    [times[times.len() / 2], times[times.len() * 99 / 100]]
}

/// Prints the latency of updates while another tenant does several things, beside that without.
#[test]
#[ignore = "measures for a minute: make soak"]
fn latency_of_updates_while_another_tenant_floods() {
    let _alone = alone();
    let run = Run::start("next_hops_max = 65536\n");
    let (few, groups) = (changes(), group_changes());
    let full: Vec<u8> = (0..900_000)
        .flat_map(|n| {
            let net = ipnet::IpNet::new_assert(std::net::Ipv4Addr::from_bits(0x1400_0000 + (n << 8)).into(), 24);
            route(NEW_ROUTE, net, Some(gateway(n % 50)))
        })
        .collect();
    let [a, mut b] = run.connect();
    drop(a);
    latency(&mut b);
    for (name, frames, reads) in [
        ("changes 1,000 routes again and again", &few, true),
        ("changes groups of 64 next hops", &groups, true),
        ("installs 900,000 routes again and again", &full, true),
        ("never reads its socket", &few, false),
    ] {
        for _ in 0..3 {
            let alone = latency(&mut b);
            let a = FpmClient::connect(run.ports[0]);
            let (end, answers, to, from) = (AtomicBool::new(false), AtomicU64::new(0), a.stream(), a.stream());
            let (flooded, seconds) = std::thread::scope(|scope| {
                let _end = SetOnDrop(&end);
                if reads {
                    scope.spawn(|| count_bytes(from, &answers));
                }
                let flood = scope.spawn(|| {
                    give_way();
                    flood(to, frames, &end)
                });
                std::thread::sleep(Duration::from_millis(300));
                let start = Instant::now();
                let flooded = latency(&mut b);
                end.store(true, Ordering::Relaxed);
                flood.join().unwrap();
                (flooded, start.elapsed().as_secs_f64())
            });
            let ratio = [0, 1].map(|n| flooded[n].as_secs_f64() / alone[n].as_secs_f64());
            println!(
                "a {name}: p50 and p99 alone {alone:.1?}, flooded {flooded:.1?}, ratio {ratio:.2?}; {:.1} MB/s answered",
                answers.load(Ordering::Relaxed) as f64 / seconds / 1e6
            );
        }
    }
    run.stop();
}

/// Leaves the CPU to others, so that the router and not this client delays them.
fn give_way() {
    rustix::process::nice(19).unwrap();
}

/// Reads and counts bytes until the connection ends.
fn count_bytes(mut stream: TcpStream, count: &AtomicU64) {
    give_way();
    let mut bytes = vec![0; 256 << 10];
    stream.set_read_timeout(None).unwrap();
    while let Ok(n @ 1..) = stream.read(&mut bytes) {
        count.fetch_add(n as u64, Ordering::Relaxed);
    }
}

/// Frames that change a route from each of 200 groups of 64 next hops to the next one.
fn group_changes() -> Vec<u8> {
    let hops = |first: u32| (0..64).map(|n| gateway(first + n)).collect::<Vec<_>>();
    (0..200).flat_map(|n| crate::common::fpm_client::multipath(prefix(n % 4), &hops(n))).collect()
}
