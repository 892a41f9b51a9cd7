//! Traffic of Linux network stacks in two namespaces that only Bondstone connects.

use crate::common::alone;
use crate::common::namespace::{Namespace, done, possible};
use crate::common::sandboxed_run::until;
use crate::common::traffic::{Web, iperf3};
use crate::common::{Running, Scratch};
use rustix::process::Signal;

const TOOLS: [&str; 4] = ["ping", "curl", "nginx", "iperf3"];

/// Ports that lead to the namespaces.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PortKind {
    /// Veth pairs between each of them and the namespace of Bondstone.
    Veth(&'static str),
    /// TAP interfaces, moved into the namespaces.
    Tap,
}

/// Sends pings, HTTP and iperf3 traffic between two namespaces.
fn forwards_traffic(name: &str, kind: PortKind) {
    let _one = alone();
    if !possible(&TOOLS) {
        return;
    }
    let scratch = Scratch::new();
    let [a, b, between] = ["a", "b", "m"].map(|side| Namespace::new(&format!("{name}-{side}")));
    let devices = match kind {
        PortKind::Tap => ["tap:enda", "tap:endb"].map(str::to_owned),
        PortKind::Veth(kind) => {
            for (near, far, side) in [("neara", "enda", &a), ("nearb", "endb", &b)] {
                between.link(near, side, far);
                between.raise(near);
            }
            ["neara", "nearb"].map(|near| format!("{kind}:{near}"))
        }
    };
    let chains = format!(
        "bondstone = 1\nport.a.device = {:?}\nport.b.device = {:?}\nnf.there.kind = \"count\"\nnf.back.kind = \"count\"\n\
         chain = [{{ path = [\"a\", \"there\", \"b\"], cores = [0] }}, {{ path = [\"b\", \"back\", \"a\"], cores = [1] }}]\n",
        devices[0], devices[1]
    );
    let file = scratch.write("chain.toml", chains);
    let mut command = between.command(env!("CARGO_BIN_EXE_bondstone"));
    let mut bondstone = Running::start(command.arg("run").arg(&file).arg("--json"));
    bondstone.started();
    if kind == PortKind::Tap {
        for (end, side) in [("enda", &a), ("endb", &b)] {
            between.ip(&format!("link set {end} netns {}", side.0));
        }
    }
    a.configure("enda", &["10.9.0.1/24", "fd09::1/64"]);
    b.configure("endb", &["10.9.0.2/24", "fd09::2/64"]);

    for address in ["10.9.0.2", "fd09::2"] {
        done(a.command("ping").args(["-q", "-c", "5", "-i", "0.1", "-W", "2", address]));
    }
    let web = Web::start(&scratch, &b, "nginx", 5 << 20);
    for host in ["10.9.0.2:8080", "[fd09::2]:8080"] {
        web.fetch(&a, host);
    }
    let bytes = iperf3(&a, &b, "-c 10.9.0.2 -t 2", "/end/sum_received/bytes")["end"]["sum_received"]["bytes"].clone();

    let ended = bondstone.interrupt();
    let summary = ended.summary(130);
    for (nf, from, to) in [("there", "a", "b"), ("back", "b", "a")] {
        let packets = summary.nf(nf).number("/packets");
        assert!(packets > 0 && summary.port(from).number("/received") == packets, "{}", summary.0);
        assert!(summary.port(to).number("/sent") <= packets, "{}", summary.0);
    }
    let has_note = ended.err.contains("tx off");
    assert_eq!(
        has_note,
        kind != PortKind::Tap,
        "a note about checksum offload of the other end of a veth pair: {}",
        ended.err
    );
    assert!(!ended.err.contains("link down"), "{}", ended.err);
    eprintln!("{name}: {} packets, {bytes} bytes of TCP in 2 s", summary.number("/totals/received"));
}

#[test]
fn forwards_traffic_between_veth_pairs_by_af_packet() {
    forwards_traffic("packet", PortKind::Veth("af_packet"));
}

#[test]
fn forwards_traffic_between_veth_pairs_by_af_xdp() {
    forwards_traffic("xdp", PortKind::Veth("af_xdp"));
}

#[test]
fn forwards_traffic_between_taps() {
    forwards_traffic("tap", PortKind::Tap);
}

/// Returns a namespace with a veth pair, which is down, and a chain file for both ends.
fn veth_pair(name: &str, kind: &str, scratch: &Scratch) -> (Namespace, std::path::PathBuf) {
    let namespace = Namespace::new(&format!("{name}-{kind}"));
    namespace.ip("link add near type veth peer name far");
    scratch.capture("in", 200);
    let chains = format!(
        "bondstone = 1\nport.in.device = \"pcap:in\"\nport.out.device = \"pcap:out\"\n\
         port.near.device = \"{kind}:near\"\nport.far.device = \"{kind}:far\"\n\
         chain = [{{ path = [\"in\", \"count\", \"near\"], cores = [0] }}, {{ path = [\"far\", \"out\"], cores = [0] }}]\n"
    );
    (namespace, scratch.write("chain.toml", chains))
}

fn set_link(namespace: &Namespace, interface: &str, state: &str) {
    namespace.ip(&format!("link set {interface} {state}"));
}

#[test]
fn a_capture_waits_until_its_destination_has_a_link() {
    let _one = alone();
    if !possible(&TOOLS) {
        return;
    }
    for kind in ["af_packet", "af_xdp"] {
        let scratch = Scratch::new();
        let (namespace, file) = veth_pair("wait", kind, &scratch);
        // up, but the other end is down
        set_link(&namespace, "near", "up");
        let mut command = namespace.command(env!("CARGO_BIN_EXE_bondstone"));
        let mut bondstone = Running::start(command.arg("run").arg(&file).arg("--json"));
        bondstone.started();
        set_link(&namespace, "far", "up");
        bondstone.quiet();
        let ended = bondstone.interrupt();
        assert!(ended.err.contains("once port \"near\" has a link"), "{}", ended.err);
        let summary = ended.summary(130);
        assert_eq!((summary.port("in").number("/received"), summary.nf("count").number("/packets")), (200, 200));
        // the kernel sends packets of its own on an interface that comes up
        let frames = |name| {
            let mut reader = pcap::Reader::open(scratch.path(name)).unwrap();
            let mut frames = vec![];
            while let Some(record) = reader.next().unwrap() {
                frames.push(record.frame.to_vec());
            }
            frames.retain(|f| f[1..].iter().all(|b| *b == 0));
            frames
        };
        assert!(frames("out") == frames("in"), "{kind}: {} of 200 received", frames("out").len());
    }
}

#[test]
fn reports_a_lost_interface_and_continues() {
    let _one = alone();
    if !possible(&TOOLS) {
        return;
    }
    for kind in ["af_packet", "af_xdp"] {
        for event in ["link set near down", "link delete near"] {
            let scratch = Scratch::new();
            let (namespace, file) = veth_pair("gone", kind, &scratch);
            let flood = std::fs::read_to_string(&file).unwrap().replace("pcap:in", "null").replace("pcap:out", "null");
            let file = scratch.write("chain.toml", flood);
            set_link(&namespace, "near", "up");
            set_link(&namespace, "far", "up");
            let mut command = namespace.command(env!("CARGO_BIN_EXE_bondstone"));
            let mut bondstone = Running::start(command.arg("run").arg(&file).arg("--json"));
            bondstone.wait_for("packets", |line| line.contains("far rx ") && !line.contains("far rx 0 "));
            namespace.ip(event);
            bondstone.wait_for("the loss", |line| line.contains("\"near\"") && line.contains("link down"));
            let ended = bondstone.interrupt();
            let summary = ended.reported(4);
            let lost = if event.contains("delete") { "near was deleted" } else { "near lost its link" };
            assert!(summary.errors().iter().any(|fault| fault.contains(lost)), "{}", summary.0);
            assert!(
                summary.port("far").number("/received") > 0 && summary.port("near").number("/drops/tx_full") > 0,
                "{}",
                summary.0
            );
        }
    }
}

/// A tap in another network namespace has no link state, but is not deleted.
#[test]
fn reports_a_deleted_tap_once() {
    let _one = alone();
    if !possible(&[]) {
        return;
    }
    let scratch = Scratch::new();
    let [here, there] = ["here", "there"].map(|side| Namespace::new(&format!("deleted-{side}")));
    let text = "bondstone = 1\nport.one.device = \"tap:one\"\nport.two.device = \"tap:two\"\n\
                chain = [{ path = [\"one\", \"count\", \"two\"] }]\n";
    let file = scratch.write("chain.toml", text);
    let mut command = here.command(env!("CARGO_BIN_EXE_bondstone"));
    let mut bondstone = Running::start(command.arg("run").arg(&file).arg("--json"));
    bondstone.started();
    for tap in ["one", "two"] {
        here.ip(&format!("link set {tap} netns {} name moved-{tap}", there.0));
    }
    bondstone.quiet();
    there.ip("link delete moved-one");
    bondstone.wait_for("the deletion", |line| line.contains("warning") && line.contains("one was deleted"));
    let ended = bondstone.interrupt();
    assert_eq!(ended.err.matches("was deleted").count(), 2, "a warning, and an error at the end: {}", ended.err);
    assert_eq!(ended.reported(4).errors().len(), 1);
}

#[test]
fn an_existing_tap_is_used_on_request_and_restored() {
    let _one = alone();
    if !possible(&[]) {
        return;
    }
    let scratch = Scratch::new();
    let namespace = Namespace::new("old");
    namespace.mute();
    namespace.ip("tuntap add dev old mode tap multi_queue");
    namespace.ip("link set old up address 02:00:00:00:00:07 mtu 1400");
    let state = || namespace.ip("-o link show dev old");
    let before = state();
    let file = |existing: &str| {
        let text = format!(
            "bondstone = 1\n[port.old]\ndevice = \"tap:old\"\n{existing}\n[port.new]\ndevice = \"null\"\n\
             [[chain]]\npath = [\"old\", \"count\", \"new\"]\n"
        );
        scratch.write("chain.toml", text)
    };
    let run = |file: &std::path::Path| {
        let mut command = namespace.command(env!("CARGO_BIN_EXE_bondstone"));
        Running::start(command.arg("run").arg(file).arg("--json"))
    };
    let refused = run(&file("")).end();
    assert!(refused.err.contains("a tap \"old\" exists") && refused.err.contains("existing = true"), "{}", refused.err);
    assert_eq!(state(), before);

    let file = file("existing = true");
    let mut bondstone = run(&file);
    bondstone.started();
    assert!(state().contains("PROMISC"));
    let busy = run(&file).end();
    assert!(busy.err.contains("another process uses the tap \"old\""), "{}", busy.err);
    bondstone.interrupt().summary(130);
    assert_eq!(state(), before);

    let mut bondstone = run(&file);
    bondstone.started();
    bondstone.signal(Signal::KILL);
    bondstone.end();
    until("the state to be restored", || state() == before);
    namespace.ip("link delete old");
    let missing = run(&file).end();
    assert!(missing.err.contains("there is no tap \"old\""), "{}", missing.err);
}

/// Three hosts on the bridge of `examples/bridge.toml`, whose ports are on two cores: each reaches the others, and the
/// third does not receive the traffic between two of them.
#[test]
fn a_bridge_connects_hosts() {
    let _one = alone();
    if !possible(&TOOLS) {
        return;
    }
    let scratch = Scratch::new();
    let [a, b, c, between] = ["a", "b", "c", "m"].map(|side| Namespace::new(&format!("bridge-{side}")));
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/bridge.toml");
    let mut command = between.command(env!("CARGO_BIN_EXE_bondstone"));
    let mut bondstone = Running::start(command.arg("run").arg(file).arg("--json"));
    bondstone.started();
    for (end, side, host) in [("one0", &a, 1), ("two0", &b, 2), ("three0", &c, 3)] {
        between.ip(&format!("link set {end} netns {}", side.0));
        side.configure(end, &[&format!("10.9.0.{host}/24"), &format!("fd09::{host}/64")]);
    }
    for (from, to) in [(&a, 2), (&b, 3), (&c, 1)] {
        for address in [format!("10.9.0.{to}"), format!("fd09::{to}")] {
            done(from.command("ping").args(["-q", "-c", "5", "-i", "0.1", "-W", "2", &address]));
        }
    }
    let web = Web::start(&scratch, &b, "nginx", 5 << 20);
    web.fetch(&a, "10.9.0.2:8080");
    iperf3(&a, &b, "-c 10.9.0.2 -t 2", "/end/sum_received/bytes");
    let summary = bondstone.interrupt().summary(130);
    let nf = summary.nf("switch");
    let (all, flooded) = (nf.number("/packets"), nf.number("/counters/flooded"));
    // the third host receives broadcasts and frames to unknown addresses
    let third = summary.port("three").number("/sent");
    assert!(all > 1000 && flooded < all / 10 && third < all / 10, "{}", summary.0);
    assert!(nf.number("/counters/learned") >= 3, "{}", summary.0);
}
