//! Full tables of 63 tenants: streams of a real zebra, replayed.

use crate::common::fpm_client::{Answer, FpmClient, first_answer, free_ports};
use crate::common::fpm_recording::Recording;
use crate::common::frr::{self, Frr};
use crate::common::full_table;
use crate::common::gateway::accounted;
use crate::common::instance::{command, start, statistics};
use crate::common::namespace::{Namespace, possible};
use crate::common::tenants::start as start_in;
use crate::common::{LIMIT, Running, Scratch, Summary, alone};
use ipnet::IpNet;
use serde_json::Value;
use std::io::Read as _;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wire::MacAddr;

/// Memory of the process with the full tables of 63 tenants.
const MEMORY_MAX: u64 = 8 << 30;
const TENANTS: u8 = 63;
/// Updates of each tenant per second, and for how long.
const UPDATES: usize = 1000;
const TIME: Duration = Duration::from_secs(60);
/// Time without drops after which no packet waits for a neighbour.
const SETTLED: Duration = Duration::from_secs(5);
/// Parts of a second in which updates are sent.
const TICKS: usize = 10;
/// Routes of zebra that are not of the table: networks of its interfaces.
const OWN_ROUTES: u64 = 10;

/// Returns the memory that is available, in bytes.
fn available() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Returns true if so much memory is available; prints a note otherwise.
fn has_memory(needed: u64) -> bool {
    let enough = available() >= needed;
    if !enough {
        println!("skipped: needs {} GiB of memory, {} GiB are available", needed >> 30, available() >> 30);
    }
    enough
}

const BGPD: &str = "router bgp 65001\n bgp router-id 10.2.0.1\n no bgp ebgp-requires-policy\n \
     neighbor 10.2.0.2 remote-as 65002\n neighbor 10.2.0.2 timers connect 1\n address-family ipv6 unicast\n  \
     neighbor 10.2.0.2 activate\n exit-address-family\n";

/// Returns the next hops of BIRD's routes.
fn hops() -> (String, String) {
    ("10.2.0.9".to_owned(), "fd02::9".to_owned())
}

/// Records the messages of a zebra whose bgpd receives the full table.
fn record(scratch: &Scratch, prefixes: &[String]) -> Recording {
    let (control, peer) = (Namespace::new("record-c"), Namespace::new("record-p"));
    control.link("wan", &peer, "b0");
    control.configure("wan", &["10.2.0.1/24", "fd02::1/64"]);
    peer.configure("b0", &["10.2.0.2/24", "fd02::2/64"]);
    let listener =
        dpdk::netdev::in_namespace(Some(&control.0), || TcpListener::bind("127.0.0.1:2620")).expect("a free port");
    let zebra = ("fpm address 127.0.0.1 port 2620\n", &["-M", "dplane_fpm_nl"][..]);
    let frr = Frr::start_zebra(scratch, &control, zebra, &[("bgpd", BGPD)]);
    let file = scratch.write("bird.conf", full_table::bird(prefixes, "10.2.0", |_| hops()));
    let socket = scratch.path("bird.ctl");
    let _bird = Running::start(peer.command("bird").arg("-f").arg("-c").arg(&file).arg("-s").arg(&socket));
    let recording = Recording::new(&listener, prefixes.len(), 5 * LIMIT);
    drop(frr);
    recording
}

/// Connections that end when this is dropped, so that threads which read from them do.
struct Closed<'a>(&'a [FpmClient]);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        // ignore errors: the server has closed it
        self.0.iter().for_each(|client| drop(client.stream().shutdown(Shutdown::Both)));
    }
}

/// Counts the routes that the answers of a connection refuse, until it ends.
fn count_refused(mut stream: TcpStream, refused: &AtomicU64) {
    let (mut received, mut bytes) = (vec![], vec![0; 256 << 10]);
    stream.set_read_timeout(None).unwrap();
    while let Ok(n @ 1..) = stream.read(&mut bytes) {
        received.extend_from_slice(&bytes[..n]);
        let mut at = 0;
        while let Some((answer, len)) = first_answer(&received[at..]) {
            refused.fetch_add(u64::from(matches!(answer, Answer::Failed)), Ordering::Relaxed);
            at += len;
        }
        received.drain(..at);
    }
}

/// Returns the prefixes that packets are sent to.
fn destinations(prefixes: &[String]) -> Vec<IpNet> {
    prefixes.iter().step_by(prefixes.len() / 64).map(|prefix| prefix.parse().unwrap()).collect()
}

/// Writes packets of every tenant to addresses of the table.
fn write_packets(scratch: &Scratch, prefixes: &[String]) {
    let mut writer = pcap::Writer::create(scratch.path("in.pcap"), pcap::LinkType::ETHERNET).unwrap();
    for net in destinations(prefixes) {
        for n in 1..=TENANTS {
            let mac = MacAddr([2, 0, 0, 0, 1, n]);
            let frame = match net {
                IpNet::V4(net) => {
                    wire::build::udp4([10, 100, n, 2], net.network(), 1, 2).dst_mac(mac).pad_to(60).to_vec()
                }
                IpNet::V6(net) => {
                    let from = std::net::Ipv6Addr::new(0xfd10, u16::from(n), 0, 0, 0, 0, 0, 2);
                    wire::build::udp6(from, net.network(), 1, 2).dst_mac(mac).to_vec()
                }
            };
            writer.write(0, frame.len() as u32, &frame).unwrap();
        }
    }
    writer.finish().unwrap();
}

/// Streams of a zebra with the full table are replayed for 63 tenants, which then change routes; no packet is dropped for
/// want of a route.
#[test]
#[ignore = "takes ten minutes and 12 GiB: make soak"]
fn sixty_three_tenants_replay_full_tables() {
    let _one = alone();
    let Some(prefixes) = full_table::prefixes() else { return };
    if !possible(&["bird"]) || !frr::installed() || !has_memory(12 << 30) {
        return;
    }
    let scratch = Scratch::new();
    let began = Instant::now();
    let recording = record(&scratch, &prefixes);
    println!(
        "recorded {} routes, {:.1} MB, in {:.1?}",
        recording.routes.len(),
        recording.len() as f64 / 1e6,
        began.elapsed()
    );
    write_packets(&scratch, &prefixes);
    let ports = free_ports(TENANTS.into());
    let tenant = |(n, port): (u8, &u16)| {
        format!(
            "interface.l{n} = {{ addresses = [\"10.100.{n}.1/24\", \"fd10:{n:x}::1/64\"], port = \"lan\", \
             mac = \"02:00:00:00:01:{n:02x}\", tenant = \"t{n}\" }}\n\
             interface.w{n} = {{ addresses = [\"10.2.{n}.1/24\", \"fd02:{n:x}::1/64\"], port = \"wan\", tenant = \"t{n}\" }}\n\
             tenant.t{n} = {{ fpm.listen = \"127.0.0.1:{port}\", neighbour = {{ \
             \"10.2.{n}.2\" = \"02:00:00:00:02:02\", \"fd02:{n:x}::2\" = \"02:00:00:00:02:02\" }} }}\n"
        )
    };
    let text = format!(
        "bondstone = 1\n[port.in]\ndevice = \"pcap:in.pcap\"\nrepeat = 0\n[port.lan]\ndevice = \"null\"\n\
         [port.wan]\ndevice = \"null\"\n[[chain]]\npath = [\"in\", \"router:lan\"]\n[nf.router]\nkind = \"l3fwd\"\n{}",
        (1..).zip(&ports).map(tenant).collect::<String>()
    );
    let (file, sockets) = (scratch.write("router.toml", text), scratch.path("sockets"));
    let running = start(&sockets, &file, &[]);
    let empty = running.resident();

    let clients: Vec<FpmClient> = ports.iter().map(|port| FpmClient::connect(*port)).collect();
    let counts: Vec<AtomicU64> = ports.iter().map(|_| AtomicU64::new(0)).collect();
    let refused = || counts.iter().map(|count| count.load(Ordering::Relaxed)).sum::<u64>();
    std::thread::scope(|scope| {
        for (client, refused) in clients.iter().zip(&counts) {
            let stream = client.stream();
            scope.spawn(move || count_refused(stream, refused));
        }
        let _closed = Closed(&clients);
        let began = Instant::now();
        let load = |(n, client): (u8, &FpmClient)| recording.replay(n, |frames| client.send(frames));
        let loaders: Vec<_> = (1..).zip(&clients).map(|loaded| scope.spawn(move || load(loaded))).collect();
        loaders.into_iter().for_each(|loader| loader.join().unwrap());
        let expected = prefixes.len() as u64..prefixes.len() as u64 + OWN_ROUTES;
        let installed = || tenant_routes(&sockets);
        let is_full =
            |routes: &[u64]| routes.len() == usize::from(TENANTS) && routes.iter().all(|n| expected.contains(n));
        until(10 * LIMIT, || is_full(&installed()), || format!("{:?}", installed()));
        let seconds = began.elapsed().as_secs_f64();
        let all = installed().iter().sum::<u64>();
        let memory = running.resident();
        println!(
            "{all} routes of {TENANTS} tenants in {seconds:.1} s, {:.0} per second; {:.2} GiB, {:.2} of them before",
            all as f64 / seconds,
            memory as f64 / f64::from(1 << 30),
            empty as f64 / f64::from(1 << 30)
        );
        assert!(memory <= MEMORY_MAX, "{memory}");
        assert!(refused() <= OWN_ROUTES * u64::from(TENANTS), "{} routes refused", refused());
        // from now on all packets have routes; those that waited for neighbours are dropped first
        let mut before = statistics(&sockets).nf("router");
        until(
            LIMIT,
            || {
                std::thread::sleep(SETTLED);
                let now = statistics(&sockets).nf("router");
                let is_settled = now.0["drops"] == before.0["drops"];
                before = now;
                is_settled
            },
            || "packets are dropped after all routes are installed".to_owned(),
        );
        let (updates, seconds) = update(&recording, &clients, &destinations(&prefixes));
        let ended = Instant::now();
        until(LIMIT, || is_full(&installed()), || format!("{:?}", installed()));
        assert!(refused() <= OWN_ROUTES * u64::from(TENANTS), "{} routes refused", refused());
        let after = statistics(&sockets).nf("router");
        let drops = |summary: &Summary| summary.0["drops"].clone();
        println!(
            "{updates} updates in {seconds:.1} s, {:.0} per second, installed {:.2} s later; {} packets, dropped before \
             {} and after {}",
            updates as f64 / seconds,
            ended.elapsed().as_secs_f64(),
            after.number("/packets") - before.number("/packets"),
            drops(&before),
            drops(&after)
        );
        assert!(after.number("/packets") > before.number("/packets"));
        assert_eq!(drops(&after), drops(&before));
        let now = running.resident();
        println!("{:.2} GiB after the updates", now as f64 / f64::from(1 << 30));
        assert!(now <= MEMORY_MAX, "{now}");
    });
    assert_eq!(command(&sockets, &["stop"]).status, Some(0));
    accounted(&running.end().summary(0));
}

#[track_caller]
fn until(limit: Duration, mut done: impl FnMut() -> bool, state: impl Fn() -> String) {
    let deadline = Instant::now() + limit;
    while !done() {
        assert!(Instant::now() < deadline, "{}", state());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the number of installed routes of each tenant.
fn tenant_routes(sockets: &Path) -> Vec<u64> {
    let said = command(sockets, &["tenant", "list", "--json"]);
    let list = serde_json::from_str::<Value>(&said.out).unwrap_or_default();
    let tenants = list["tenants"].as_array().into_iter().flatten();
    tenants.map(|tenant| tenant["installed_routes"].as_u64().unwrap()).collect()
}

/// Withdraws and announces routes of every tenant, and announces those of packets again; returns the number of updates
/// and seconds.
fn update(recording: &Recording, clients: &[FpmClient], used: &[IpNet]) -> (u64, f64) {
    let (used, others): (Vec<_>, Vec<_>) = recording.routes.iter().partition(|(prefix, _)| used.contains(prefix));
    let (mut updates, mut out) = (0, vec![]);
    let (began, per_tick, ticks) = (Instant::now(), UPDATES / TICKS, TIME.as_secs() as usize * TICKS);
    for tick in 0..ticks {
        for (n, client) in (1..).zip(clients) {
            out.clear();
            for k in tick / 2 * per_tick..(tick / 2 + 1) * per_tick {
                let is_used = k % 10 == 0;
                let (_, route) = if is_used { used[k / 10 % used.len()] } else { others[k * 7919 % others.len()] };
                // each other one is announced in the tick after that in which it is withdrawn
                let withdraws = tick % 2 == 0 && !is_used;
                recording.route(route, n, withdraws, &mut out);
                updates += 1;
            }
            client.send(&out);
        }
        let due = began + TIME.mul_f64((tick + 1) as f64 / ticks as f64);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    (updates, began.elapsed().as_secs_f64())
}

/// Eight tenants whose bgpd and zebra have the full table.
#[test]
#[ignore = "takes half an hour and 16 GiB: make soak"]
fn eight_tenants_have_frr_with_full_tables() {
    const FULL: usize = 8;
    let _one = alone();
    let Some(prefixes) = full_table::prefixes() else { return };
    if !possible(&["bird", "nsenter"]) || !frr::installed() || !has_memory(FULL as u64 * (2 << 30)) {
        return;
    }
    let (scratch, own) = (Scratch::new(), Namespace::new("own"));
    scratch.write("frr.conf", BGPD);
    let control = |n: usize| format!("bs-{}-full{n}", std::process::id());
    let peers: Vec<Namespace> = (0..FULL).map(|n| Namespace::new(&format!("full-p{n}"))).collect();
    let tenant = |(n, peer): (usize, &Namespace)| {
        format!(
            "port.w{n} = {{ device = \"tap:w{n}-p\", namespace = \"{}\" }}\n\
             nf.router.interface.w{n} = {{ addresses = [\"10.2.0.1/24\", \"fd02::1/64\"], tenant = \"t{n}\" }}\n\
             nf.router.tenant.t{n} = {{ namespace = \"{}\", frr = {{ daemons = [\"bgpd\"], config = \"frr.conf\" }} }}\n",
            peer.0,
            control(n)
        )
    };
    let paths: Vec<String> = (0..FULL).map(|n| format!("{{ path = [\"w{n}\", \"router\"] }}")).collect();
    let text = format!(
        "bondstone = 1\nnf.router.kind = \"l3fwd\"\nchain = [{}]\n{}",
        paths.join(", "),
        peers.iter().enumerate().map(tenant).collect::<String>()
    );
    let (file, sockets) = (scratch.write("router.toml", text), scratch.path("sockets"));
    let running = start_in(&own, &file, &sockets);
    let config = scratch.write("bird.conf", full_table::bird(&prefixes, "10.2.0", |_| hops()));
    let (before, began) = (available(), Instant::now());
    let birds: Vec<Running> = peers
        .iter()
        .enumerate()
        .map(|(n, peer)| {
            peer.configure(&format!("w{n}-p"), &["10.2.0.2/24", "fd02::2/64"]);
            let socket = scratch.path(format!("bird{n}.ctl"));
            Running::start(peer.command("bird").arg("-f").arg("-c").arg(&config).arg("-s").arg(socket))
        })
        .collect();
    let installed = || tenant_routes(&sockets);
    let is_full = || {
        let installed = installed();
        installed.len() == FULL && installed.iter().all(|routes| *routes >= prefixes.len() as u64)
    };
    until(15 * LIMIT, is_full, || format!("{:?}", installed()));
    println!(
        "{FULL} tenants have {} routes each after {:.1?}; memory of the router {:.2} GiB, of all {:.2} GiB",
        prefixes.len(),
        began.elapsed(),
        running.resident() as f64 / f64::from(1 << 30),
        before.saturating_sub(available()) as f64 / f64::from(1 << 30)
    );
    drop(birds);
    accounted(&running.terminate().summary(130));
}
