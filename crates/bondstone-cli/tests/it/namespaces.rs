//! Two network namespaces with nothing between them but the program: real kernels' traffic crosses it, byte for byte.

use crate::common::alone;
use crate::common::namespace::{Namespace, done, possible};
use crate::common::traffic::{Web, iperf3};
use crate::common::{Running, Scratch};

const TOOLS: [&str; 4] = ["ping", "curl", "nginx", "iperf3"];

/// How the program reaches the two namespaces.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// One end of a veth pair in each, the other ends in the program's namespace.
    Veth(&'static str),
    /// Interfaces that the program makes, moved there.
    Tap,
}

/// Builds it, lets real traffic cross, and takes it down.
fn traffic_crosses(name: &str, by: By) {
    let _one = alone();
    if !possible(&TOOLS) {
        return;
    }
    let scratch = Scratch::new();
    let [a, b, between] = ["a", "b", "m"].map(|side| Namespace::new(&format!("{name}-{side}")));
    let devices = match by {
        By::Tap => ["tap:enda", "tap:endb"].map(str::to_owned),
        By::Veth(kind) => {
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
    if by == By::Tap {
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
    let did = ended.summary(130);
    for (nf, from, to) in [("there", "a", "b"), ("back", "b", "a")] {
        let packets = did.nf(nf).number("/packets");
        assert!(packets > 0 && did.port(from).number("/received") == packets, "{}", did.0);
        assert!(did.port(to).number("/sent") <= packets, "{}", did.0);
    }
    let says = ended.err.contains("tx off");
    assert_eq!(says, by != By::Tap, "who uses one end of a veth pair is told of the other: {}", ended.err);
    assert!(!ended.err.contains("lost its link"), "{}", ended.err);
    eprintln!("{name}: {} packets, TCP carried {bytes} bytes in 2 s", did.number("/totals/received"));
}

#[test]
fn traffic_crosses_between_veth_ends_by_af_packet() {
    traffic_crosses("packet", By::Veth("af_packet"));
}

#[test]
fn traffic_crosses_between_veth_ends_by_af_xdp() {
    traffic_crosses("xdp", By::Veth("af_xdp"));
}

#[test]
fn traffic_crosses_between_taps_moved_into_namespaces() {
    traffic_crosses("tap", By::Tap);
}

/// A namespace with one veth pair in it, down, and a chain file for both of its ends.
fn pair(name: &str, kind: &str, scratch: &Scratch) -> (Namespace, std::path::PathBuf) {
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

fn set(namespace: &Namespace, interface: &str, state: &str) {
    namespace.ip(&format!("link set {interface} {state}"));
}

#[test]
fn a_capture_waits_until_the_interface_that_it_leads_to_is_up() {
    let _one = alone();
    if !possible(&TOOLS) {
        return;
    }
    for kind in ["af_packet", "af_xdp"] {
        let scratch = Scratch::new();
        let (namespace, file) = pair("wait", kind, &scratch);
        // up, but nobody at its other end
        set(&namespace, "near", "up");
        let mut command = namespace.command(env!("CARGO_BIN_EXE_bondstone"));
        let mut bondstone = Running::start(command.arg("run").arg(&file).arg("--json"));
        bondstone.started();
        set(&namespace, "far", "up");
        bondstone.quiet();
        let ended = bondstone.interrupt();
        assert!(ended.err.contains("once port \"near\" has a link"), "{}", ended.err);
        let did = ended.summary(130);
        assert_eq!((did.port("in").number("/received"), did.nf("count").number("/packets")), (200, 200));
        // the kernel says a word of its own on an interface that comes up
        let frames = |name| {
            let mut reader = pcap::Reader::open(scratch.path(name)).unwrap();
            let mut frames = vec![];
            while let Some(record) = reader.next().unwrap() {
                frames.push(record.frame.to_vec());
            }
            frames.retain(|f| f[1..].iter().all(|b| *b == 0));
            frames
        };
        assert!(frames("out") == frames("in"), "{kind}: {} of 200 came", frames("out").len());
    }
}

#[test]
fn an_interface_that_goes_away_is_told_and_the_run_goes_on() {
    let _one = alone();
    if !possible(&TOOLS) {
        return;
    }
    for kind in ["af_packet", "af_xdp"] {
        for gone in ["link set near down", "link delete near"] {
            let scratch = Scratch::new();
            let (namespace, file) = pair("gone", kind, &scratch);
            let flood = std::fs::read_to_string(&file).unwrap().replace("pcap:in", "null").replace("pcap:out", "null");
            let file = scratch.write("chain.toml", flood);
            set(&namespace, "near", "up");
            set(&namespace, "far", "up");
            let mut command = namespace.command(env!("CARGO_BIN_EXE_bondstone"));
            let mut bondstone = Running::start(command.arg("run").arg(&file).arg("--json"));
            bondstone.wait_for("packets", |line| line.contains("far in ") && !line.contains("far in 0 "));
            namespace.ip(gone);
            bondstone.wait_for("the loss", |line| line.contains("\"near\"") && line.contains("lost its link"));
            let did = bondstone.interrupt().summary(130);
            assert!(
                did.port("far").number("/received") > 0 && did.port("near").number("/drops/tx_full") > 0,
                "{}",
                did.0
            );
        }
    }
}

/// Three hosts on the switch of `examples/bridge.toml`, whose ports are on two cores: each hears the others, and what two say to
/// each other the third does not hear.
#[test]
fn hosts_find_each_other_through_a_bridge() {
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
    let did = bondstone.interrupt().summary(130);
    let nf = did.nf("switch");
    let (all, flooded) = (nf.number("/packets"), nf.number("/counters/flooded"));
    // to the third went what is for all, and what was for somebody new
    let third = did.port("three").number("/sent");
    assert!(all > 1000 && flooded < all / 10 && third < all / 10, "{}", did.0);
    assert!(nf.number("/counters/learnt") >= 3, "{}", did.0);
}
