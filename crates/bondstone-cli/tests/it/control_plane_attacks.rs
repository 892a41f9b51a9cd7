//! A tenant whose control plane attacks the router, beside one that forwards.

use crate::common::fpm_client::{Answer, FPM_PORT, FpmClient, NEW_ROUTE, route as route_message};
use crate::common::instance::{command, statistics};
use crate::common::load::{capture, losses};
use crate::common::namespace::{Namespace, done, possible};
use crate::common::tenants::{start, tenant, until};
use crate::common::{LIMIT, Running, Scratch, alone};
use ipnet::IpNet;
use serde_json::Value;
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// Packets per second of the tenant `red`.
const RATE: u64 = 50_000;
/// Maximum number of routes of the tenant `blue`.
const ROUTES_MAX: u64 = 100;
const BLUE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0xb];
const RED_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
/// A neighbour of both tenants.
const GATEWAY: [u8; 4] = [10, 6, 0, 9];

/// Returns a network of 24 bits.
fn net([a, b, c]: [u8; 3]) -> IpNet {
    IpNet::new_assert([a, b, c, 0].into(), 24)
}

/// Returns a frame with a route.
fn route(prefix: [u8; 3], gateway: [u8; 4]) -> Vec<u8> {
    route_message(NEW_ROUTE, net(prefix), Some(gateway.into()))
}

/// A router of two tenants with the same addresses. Packets of `red` to 198.51.100.0/24 are forwarded all the time.
struct Lab {
    sockets: PathBuf,
    blue: String,
    red: FpmClient,
    running: Option<Running>,
    sent: u64,
    lost: u64,
    /// Packets dropped by reason.
    drops: Value,
    _scratch: Scratch,
    _own: Namespace,
}

impl Lab {
    fn start() -> Lab {
        let (scratch, own) = (Scratch::new(), Namespace::new("own"));
        let namespace = |name: &str| format!("bs-{}-{name}", std::process::id());
        let mut text = "bondstone = 1\nnf.router.kind = \"l3fwd\"\nnf.sink.kind = \"drop\"\n".to_owned();
        let (mut edges, mut chains) = (vec![], vec![]);
        for (name, mac) in [("blue", BLUE_MAC), ("red", RED_MAC)] {
            capture(&scratch, &format!("{name}.pcap"), mac, [198, 51, 100, 7], RATE);
            let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
            text += &format!(
                "port.{name}-lan = {{ device = \"pcap:{name}.pcap\", timed = true, repeat = 0 }}\n\
                 port.{name}-wan = {{ device = \"null\" }}\n\
                 nf.router.interface.{name}-lan = {{ addresses = [\"10.7.0.1/24\"], mac = \"{mac}\", tenant = \"{name}\" }}\n\
                 nf.router.interface.{name}-wan = {{ addresses = [\"10.6.0.1/24\"], tenant = \"{name}\" }}\n\
                 nf.router.tenant.{name} = {{ namespace = \"{}\", neighbour = {{ \"10.6.0.9\" = \
                 \"02:00:00:00:00:99\", \"10.7.0.9\" = \"02:00:00:00:00:98\" }}, \
                 fpm = {{ routes_max = {ROUTES_MAX} }} }}\n",
                namespace(name)
            );
            edges.push(format!("{{ from = \"router.{name}-lan\", to = \"sink\" }}"));
            if name == "red" {
                chains.push(format!("{{ path = [\"{name}-lan\", \"router\"], cores = [0] }}"));
            }
        }
        text += &format!("edge = [{}]\nchain = [{}]\n", edges.join(", "), chains.join(", "));
        let text = text.replace("port.blue-lan = { device = \"pcap:blue.pcap\", timed = true, repeat = 0 }\n", "");
        // top-level keys come first
        let (tables, lists): (Vec<&str>, Vec<&str>) =
            text.lines().partition(|line| !line.starts_with("edge =") && !line.starts_with("chain ="));
        let file = scratch.write("router.toml", [tables, lists].concat().join("\n"));
        let sockets = scratch.path("sockets");
        let running = start(&own, &file, &sockets);
        let mut red = FpmClient::connect_in(Some(&namespace("red")), FPM_PORT);
        assert_eq!(red.install(net([198, 51, 100]), GATEWAY), Answer::Offloaded);
        let blue = namespace("blue");
        let mut lab = Lab {
            sockets,
            blue,
            red,
            running: Some(running),
            sent: 0,
            lost: 0,
            drops: Value::Null,
            _scratch: scratch,
            _own: own,
        };
        lab.count();
        lab
    }

    /// Records what `red` has forwarded and lost.
    fn count(&mut self) {
        let summary = statistics(&self.sockets);
        (self.sent, self.lost) = (summary.port("red-wan").number("/sent"), losses(&summary, "router"));
        self.drops = summary.nf("router").0["drops"].clone();
    }

    /// Asserts that `red` has forwarded since the last time, and lost nothing; that it can change its routes, and has
    /// the route that it had.
    #[track_caller]
    fn red_goes_on(&mut self) {
        let (sent, lost, before) = (self.sent, self.lost, self.drops.clone());
        let deadline = Instant::now() + LIMIT;
        while self.sent < sent + RATE / 10 {
            assert!(Instant::now() < deadline, "{} packets are forwarded, and {sent} before", self.sent);
            std::thread::sleep(Duration::from_millis(50));
            self.count();
        }
        assert_eq!(self.lost, lost, "{}, and before {before}", self.drops);
        assert_eq!(self.red.install(net([192, 0, 2]), GATEWAY), Answer::Offloaded);
        let red = tenant(&self.sockets, "red");
        assert_eq!(
            (&red["refused_routes"], &red["malformed"], &red["installed_routes"]),
            (&0.into(), &0.into(), &2.into())
        );
    }

    fn blue(&self) -> Value {
        tenant(&self.sockets, "blue")
    }

    /// Stops the run, whose packets are all accounted for, and returns its messages.
    fn stop(mut self) -> String {
        drop(self.red);
        let ended = self.running.take().unwrap().terminate();
        ended.summary(130);
        ended.err
    }
}

#[test]
fn a_tenant_that_sends_malformed_fpm_is_disconnected_alone() {
    let _one = alone();
    if !possible(&["nsenter"]) {
        return;
    }
    let mut lab = Lab::start();
    let mut blue = FpmClient::connect_in(Some(&lab.blue), FPM_PORT);
    for n in 0..3 {
        assert_eq!(blue.install(net([203, 0, n]), GATEWAY), Answer::Offloaded);
    }
    // messages that are not valid are skipped: a prefix that is too long, and attributes that end too late
    let valid = route([203, 0, 3], GATEWAY);
    let mut long = valid.clone();
    long[4 + 16 + 1] = 33;
    let mut cut = valid.clone();
    cut[4 + 16 + 12] = 200;
    blue.send(&[long, cut, valid.clone()].concat());
    assert_eq!(blue.answer(), Answer::Offloaded);
    let state = lab.blue();
    assert_eq!((&state["malformed"], &state["installed_routes"]), (&2.into(), &4.into()), "{state:#}");
    lab.red_goes_on();
    // frames that cannot be read end the connection, and the routes stay
    drop(blue);
    let wrong = |at: usize, value: u8| {
        let mut frame = valid.clone();
        frame[at] = value;
        frame
    };
    let noise: Vec<u8> = (0..70_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8 | 2).collect();
    let frames = [wrong(0, 2), wrong(1, 7), vec![1, 1, 0, 3], noise];
    for (n, bytes) in frames.iter().enumerate() {
        let attacker = FpmClient::connect_in(Some(&lab.blue), FPM_PORT);
        attacker.send(bytes);
        attacker.closed();
        let state = until(&lab.sockets, "blue", |state| state["malformed"] == 3 + n);
        assert_eq!(state["installed_routes"], 4, "{state:#}");
        lab.red_goes_on();
    }
    // a frame of which a part is missing is no error, and another client replaces it
    let half = FpmClient::connect_in(Some(&lab.blue), FPM_PORT);
    half.send(&valid[..20]);
    let mut last = FpmClient::connect_in(Some(&lab.blue), FPM_PORT);
    assert_eq!(last.install(net([203, 0, 0]), GATEWAY), Answer::Offloaded);
    half.closed();
    lab.red_goes_on();
    drop(last);
    let said = lab.stop();
    assert!(said.contains("tenant blue of router") && said.contains("version"), "{said}");
}

#[test]
fn a_tenant_that_fills_its_table_or_claims_prefixes_of_others_is_refused_alone() {
    let _one = alone();
    if !possible(&["nsenter"]) {
        return;
    }
    let mut lab = Lab::start();
    let mut blue = FpmClient::connect_in(Some(&lab.blue), FPM_PORT);
    // the prefix of `red`, by another gateway; and one that blue's networks do not contain
    assert_eq!(blue.install(net([198, 51, 100]), [10, 6, 0, 7]), Answer::Offloaded);
    assert_eq!(blue.install(net([198, 51, 101]), [10, 99, 0, 9]), Answer::Failed);
    let listed = command(&lab.sockets, &["routes", "list", "--tenant", "red"]);
    assert!(listed.out.contains("10.6.0.9") && !listed.out.contains("10.6.0.7"), "{}", listed.out);
    lab.red_goes_on();
    let many: Vec<u8> = (0..200).flat_map(|n| route([203, 0, n], GATEWAY)).collect();
    blue.send(&many);
    let answers: Vec<Answer> = (0..200).map(|_| blue.answer()).collect();
    let installed = answers.iter().filter(|answer| **answer == Answer::Offloaded).count() as u64;
    assert_eq!(installed, ROUTES_MAX - 1);
    let state = lab.blue();
    assert_eq!(state["installed_routes"], ROUTES_MAX, "{state:#}");
    assert_eq!(state["refused_routes"], 1 + 200 - installed, "{state:#}");
    lab.red_goes_on();
    let said = lab.stop();
    assert!(said.contains("tenant blue of router: route to"), "{said}");
}

#[test]
fn a_tenant_that_does_not_read_answers_is_blocked_alone() {
    /// Most bytes that wait in the sockets and in the server.
    const BOUND: usize = 64 << 20;
    let _one = alone();
    if !possible(&["nsenter"]) {
        return;
    }
    let mut lab = Lab::start();
    let mut blue = FpmClient::connect_in(Some(&lab.blue), FPM_PORT);
    let messages: Vec<u8> = (0..50).flat_map(|n| route([203, 0, n], GATEWAY)).collect();
    let of_one = messages.len() / 50;
    let mut stream = blue.stream();
    stream.set_nonblocking(true).unwrap();
    let (mut sent, mut last) = (0, Instant::now());
    while last.elapsed() < Duration::from_secs(2) {
        match stream.write(&messages[sent % messages.len()..]) {
            Ok(n) => (sent, last) = (sent + n, Instant::now()),
            Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(10)),
            Err(e) => panic!("{e}"),
        }
        assert!(sent < BOUND, "{sent} bytes were taken");
    }
    lab.red_goes_on();
    println!("{sent} bytes were taken of a client that reads no answer");
    // once it reads, all are answered
    stream.set_nonblocking(false).unwrap();
    let rest = (of_one - sent % of_one) % of_one;
    let end = messages[sent % messages.len()..][..rest].to_vec();
    let finish = std::thread::spawn(move || stream.write_all(&end).unwrap());
    let answers: Vec<Answer> = (0..(sent + rest) / of_one).map(|_| blue.answer()).collect();
    finish.join().unwrap();
    assert!(answers.iter().all(|answer| *answer == Answer::Offloaded));
    lab.red_goes_on();
    drop(blue);
    lab.stop();
}

/// A run that begins right after one was killed waits for it, and one beside it is refused.
#[test]
fn a_namespace_is_that_of_one_run() {
    let _one = alone();
    if !possible(&["nsenter"]) {
        return;
    }
    let scratch = Scratch::new();
    let (own, other) = (Namespace::new("own"), Namespace::new("other"));
    let control = format!("bs-{}-one", std::process::id());
    let text = format!(
        "bondstone = 1\nport.lan = {{ device = \"null\" }}\nport.wan = {{ device = \"ring:wan\" }}\n\
         chain = [{{ path = [\"wan\", \"router\"] }}]\nnf.router.kind = \"l3fwd\"\n\
         nf.router.interface.lan = {{ addresses = [\"10.0.0.1/24\"], tenant = \"blue\" }}\n\
         nf.router.interface.wan = {{ addresses = [\"10.1.0.1/24\"], tenant = \"blue\" }}\n\
         nf.router.tenant.blue = {{ namespace = \"{control}\" }}\n"
    );
    let file = scratch.write("router.toml", text);
    let sockets = |n: u8| scratch.path(format!("sockets{n}"));
    let exists = || std::path::Path::new("/run/netns").join(&control).exists();
    let first = start(&own, &file, &sockets(1));
    let mut second = Command::new("nsenter");
    second.arg(format!("--net=/run/netns/{}", other.0)).arg("--").arg(env!("CARGO_BIN_EXE_bondstone"));
    let refused = Running::start(second.env("BONDSTONE_RUNTIME_DIR", sockets(2)).arg("run").arg(&file)).end();
    assert_eq!(refused.status, Some(3), "{}", refused.err);
    let words = [format!("network namespace {control} is that of another run (process "), "help:".to_owned()];
    assert!(words.iter().all(|word| refused.err.contains(word)), "{}", refused.err);
    assert!(exists());
    let mut running = first;
    for n in 3..6 {
        done(Command::new("kill").args(["-9", &running.id().to_string()]));
        running = start(&own, &file, &sockets(n));
        assert!(exists());
    }
    running.terminate().summary(130);
    assert!(!exists());
    assert!(!std::path::Path::new("/run/bondstone-tenants").join(format!("{control}.lock")).exists());
}
