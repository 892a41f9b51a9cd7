//! Two network namespaces with nothing between them but the program: real kernels' traffic crosses it, byte for byte.

mod common;

use common::{LIMIT, Running, Scratch};
use std::io::Read;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Workers stay on their CPUs, so runs beside each other only wait for each other.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this user may make namespaces and the tools are there; says so where not.
fn possible() -> bool {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return false;
    }
    let missing = |tool: &&str| Command::new(tool).arg("-V").output().is_err();
    if let Some(tool) = ["ip", "ping", "ethtool", "curl", "nginx", "iperf3"].iter().find(|t| missing(t)) {
        eprintln!("skipped: no {tool} on this machine");
        return false;
    }
    true
}

#[track_caller]
fn done(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// A network namespace of a test's own; gone, with its interfaces, when dropped.
struct Namespace(String);

impl Namespace {
    fn new(name: &str) -> Self {
        let name = format!("bs-{}-{name}", std::process::id());
        done(Command::new("ip").args(["netns", "add", &name]));
        let namespace = Namespace(name);
        done(namespace.command("ip").args(["link", "set", "lo", "up"]));
        namespace
    }

    /// A command that runs in it.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0, program]);
        command
    }

    /// Gives an interface its addresses and brings it up; what it sends is whole and has its checksums.
    fn configure(&self, interface: &str, host: u8) {
        self.plain(interface);
        for address in [format!("10.9.0.{host}/24"), format!("fd09::{host}/64")] {
            let nodad: &[&str] = if address.contains(':') { &["nodad"] } else { &[] };
            done(self.command("ip").args(["addr", "add", &address, "dev", interface]).args(nodad));
        }
        done(self.command("ip").args(["link", "set", interface, "up"]));
    }

    /// Switches off what leaves checksums and segmentation to others.
    fn plain(&self, interface: &str) {
        let off = "tx off rx off tso off gso off gro off".split(' ');
        done(self.command("ethtool").args(["-K", interface]).args(off));
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // a test that fails shall tell why, not that this failed as well
        let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}

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
    if !possible() {
        return;
    }
    let scratch = Scratch::new();
    let [a, b, between] = ["a", "b", "m"].map(|side| Namespace::new(&format!("{name}-{side}")));
    let devices = match by {
        By::Tap => ["tap:enda", "tap:endb"].map(str::to_owned),
        By::Veth(kind) => {
            for (near, far, side) in [("neara", "enda", &a), ("nearb", "endb", &b)] {
                let pair = ["link", "add", near, "type", "veth", "peer", "name", far, "netns", &side.0];
                done(between.command("ip").args(pair));
                between.plain(near);
                done(between.command("ip").args(["link", "set", near, "up"]));
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
            done(between.command("ip").args(["link", "set", end, "netns", &side.0]));
        }
    }
    a.configure("enda", 1);
    b.configure("endb", 2);

    for address in ["10.9.0.2", "fd09::2"] {
        done(a.command("ping").args(["-q", "-c", "5", "-i", "0.1", "-W", "2", address]));
    }
    fetch(&scratch, &a, &b);
    let bytes = stream(&a, &b);

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

/// A web server in one namespace, a client in the other, over IPv4 and IPv6.
fn fetch(scratch: &Scratch, client: &Namespace, server: &Namespace) {
    let mut content = vec![0; 5 << 20];
    std::fs::File::open("/dev/urandom").unwrap().read_exact(&mut content).unwrap();
    let folder = scratch.path("nginx");
    std::fs::create_dir(&folder).unwrap();
    scratch.write("nginx/content", &content);
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|what| format!("{what}_temp_path {}/{what};\n", folder.display()))
        .collect();
    let configuration = scratch.write(
        "nginx/nginx.conf",
        format!(
            "daemon off;\nmaster_process off;\npid {folder}/pid;\nerror_log {folder}/error.log;\nevents {{}}\n\
             http {{\naccess_log off;\n{temporary}server {{\nlisten 8080;\nlisten [::]:8080;\nroot {folder};\n}}\n}}\n",
            folder = folder.display()
        ),
    );
    let mut command = server.command("nginx");
    let _nginx = Running::start(
        command.arg("-p").arg(&folder).arg("-e").arg(folder.join("error.log")).arg("-c").arg(configuration),
    );
    for host in ["10.9.0.2", "[fd09::2]"] {
        let got = scratch.path("got");
        let url = format!("http://{host}:8080/content");
        let patience = ["-sSf", "--max-time", "40", "--retry", "20", "--retry-delay", "1", "--retry-connrefused"];
        done(client.command("curl").args(patience).arg("-o").arg(&got).arg(url));
        assert!(std::fs::read(&got).unwrap() == content, "{host}: other bytes arrived");
    }
}

/// TCP for two seconds; how many bytes came.
fn stream(client: &Namespace, server: &Namespace) -> u64 {
    let deadline = Instant::now() + LIMIT;
    loop {
        let _server = Running::start(server.command("iperf3").args(["-s", "-1"]));
        // it does not say when it listens; where it was too early, or gave up on a busy machine, there is another try
        std::thread::sleep(Duration::from_millis(200));
        let run = client.command("iperf3").args(["-c", "10.9.0.2", "-t", "2", "-J"]).output().unwrap();
        let result = String::from_utf8(run.stdout).unwrap();
        let parsed = serde_json::from_str::<serde_json::Value>(&result).unwrap_or_default();
        if let Some(bytes) = parsed["end"]["sum_received"]["bytes"].as_u64().filter(|n| *n > 0) {
            return bytes;
        }
        assert!(Instant::now() < deadline, "{result}");
    }
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
    done(namespace.command("ip").args(["link", "add", "near", "type", "veth", "peer", "name", "far"]));
    scratch.capture("in", 200);
    let chains = format!(
        "bondstone = 1\nport.in.device = \"pcap:in\"\nport.out.device = \"pcap:out\"\n\
         port.near.device = \"{kind}:near\"\nport.far.device = \"{kind}:far\"\n\
         chain = [{{ path = [\"in\", \"count\", \"near\"], cores = [0] }}, {{ path = [\"far\", \"out\"], cores = [0] }}]\n"
    );
    (namespace, scratch.write("chain.toml", chains))
}

fn set(namespace: &Namespace, interface: &str, state: &str) {
    done(namespace.command("ip").args(["link", "set", interface, state]));
}

#[test]
fn a_capture_waits_until_the_interface_that_it_leads_to_is_up() {
    let _one = alone();
    if !possible() {
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
    if !possible() {
        return;
    }
    for kind in ["af_packet", "af_xdp"] {
        for gone in [&["link", "set", "near", "down"][..], &["link", "delete", "near"]] {
            let scratch = Scratch::new();
            let (namespace, file) = pair("gone", kind, &scratch);
            let flood = std::fs::read_to_string(&file).unwrap().replace("pcap:in", "null").replace("pcap:out", "null");
            let file = scratch.write("chain.toml", flood);
            set(&namespace, "near", "up");
            set(&namespace, "far", "up");
            let mut command = namespace.command(env!("CARGO_BIN_EXE_bondstone"));
            let mut bondstone = Running::start(command.arg("run").arg(&file).arg("--json"));
            bondstone.wait_for("packets", |line| line.contains("far in ") && !line.contains("far in 0 "));
            done(namespace.command("ip").args(gone));
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
