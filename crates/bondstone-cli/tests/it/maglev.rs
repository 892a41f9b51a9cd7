//! A load balancer in front of real web servers, of which one dies.

use crate::common::alone;
use crate::common::namespace::{Namespace, done, possible};
use crate::common::traffic::Web;
use crate::common::{LIMIT, Running, Scratch};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

const TOOLS: [&str; 2] = ["curl", "nginx"];
const BACKENDS: u8 = 3;
/// Bytes of a page, each the number of who serves it.
const PAGE: usize = 2 << 20;
/// Downloads at once, so many that each backend has some.
const CLIENTS: usize = 24;

/// Clients on one side, web servers behind a bridge on the other; the program between them. It asks for the servers' health
/// through an interface of its kernel's.
struct Lab {
    clients: Namespace,
    between: Namespace,
    _bridge: Namespace,
    servers: Vec<Namespace>,
}

impl Lab {
    fn new() -> Self {
        let [clients, between, bridge] = ["c", "lb", "sw"].map(|side| Namespace::new(&format!("maglev-{side}")));
        between.mute();
        bridge.mute();
        bridge.ip("link add br0 type bridge");
        bridge.ip("link set br0 up");
        between.link("wan", &clients, "c0");
        between.raise("wan");
        for (near, far) in [("lan", "p0"), ("check", "p1")] {
            between.link(near, &bridge, far);
            bridge.raise(far);
            bridge.ip(&format!("link set {far} master br0"));
        }
        between.raise("lan");
        between.configure("check", &["10.2.0.254/24"]);
        let server = |n: u8| {
            let server = Namespace::new(&format!("maglev-b{n}"));
            bridge.link(&format!("s{n}"), &server, "e0");
            bridge.raise(&format!("s{n}"));
            bridge.ip(&format!("link set s{n} master br0"));
            server.configure("e0", &[&format!("10.2.0.1{n}/24")]);
            server.ip("route add default via 10.2.0.1");
            server
        };
        let servers = (1..=BACKENDS).map(server).collect();
        clients.configure("c0", &["10.1.0.2/24"]);
        clients.ip("route add default via 10.1.0.1");
        Lab { clients, between, _bridge: bridge, servers }
    }

    /// Starts the program.
    fn start(&self, scratch: &Scratch) -> Running {
        let backends: String =
            (1..=BACKENDS).map(|n| format!("backend.b{n} = {{ address = \"10.2.0.1{n}\", port = 8080 }}\n")).collect();
        let text = format!(
            "bondstone = 1\nport.wan.device = \"af_packet:wan\"\nport.lan.device = \"af_packet:lan\"\n\
             chain = [{{ path = [\"wan\", \"lb\", \"router:wan\"], cores = [0] }}, \
             {{ path = [\"lan\", \"lb:backends\", \"router:lan\"], cores = [0] }}]\n\
             [nf.router]\nkind = \"l3fwd\"\n\
             interface.wan = {{ addresses = [\"10.1.0.1/24\"] }}\ninterface.lan = {{ addresses = [\"10.2.0.1/24\"] }}\n\
             [nf.lb]\nkind = \"maglev\"\n[nf.lb.service.web]\nvip = [\"tcp 192.0.2.10:80\"]\nforward = \"nat\"\n\
             health = {{ kind = \"http\", path = \"/content\", every = 200, timeout = 10000, fall = 2 }}\n{backends}"
        );
        let file = scratch.write("lb.toml", text);
        let mut command = self.between.command(env!("CARGO_BIN_EXE_bondstone"));
        let mut running = Running::start(command.arg("run").arg(file).arg("--json"));
        running.started();
        running
    }

    /// Fetches the page into a file, slower or not.
    fn fetch(&self, to: &Path, more: &[&str]) -> Page {
        let mut curl = self.clients.command("curl");
        curl.args(["-sS", "--no-buffer", "--max-time", "200", "-o"]).arg(to).args(more);
        let output = curl.arg("http://192.0.2.10/content").output().unwrap();
        let page = Page { bytes: std::fs::read(to).unwrap_or_default(), output };
        let _ = std::fs::remove_file(to);
        page
    }
}

/// What became of a download.
struct Page {
    bytes: Vec<u8>,
    output: Output,
}

impl Page {
    /// Whose page it is, the beginning of it at the least.
    fn whose(&self) -> Option<u8> {
        self.bytes.first().copied().inspect(|n| assert!(self.bytes.iter().all(|b| b == n), "pages are mixed"))
    }

    fn is_whole(&self) -> bool {
        self.output.status.success() && self.bytes.len() == PAGE
    }

    /// What curl said.
    fn said(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }
}

#[test]
fn a_server_dies_under_load_and_no_connection_to_another_breaks() {
    let _one = alone();
    if !possible(&TOOLS) || !crate::common::has_cpu_0_and_another() {
        return;
    }
    let scratch = Scratch::new();
    let lab = Lab::new();
    let mut webs: Vec<Web> = (1..=BACKENDS)
        .zip(&lab.servers)
        .map(|(n, server)| Web::serve(&scratch, server, &format!("nginx{n}"), vec![n; PAGE]))
        .collect();
    for (n, server) in (1..).zip(&lab.servers) {
        done(
            server
                .command("curl")
                .args(["-sS", "-o", "/dev/null", "--retry", "40", "--retry-delay", "1", "--retry-connrefused"])
                .arg(format!("http://10.2.0.1{n}:8080/content")),
        );
    }
    let bondstone = lab.start(&scratch);
    // addresses are found by now; and every server is reached
    let deadline = Instant::now() + LIMIT;
    let mut seen = BTreeSet::new();
    while seen.len() < usize::from(BACKENDS) {
        assert!(Instant::now() < deadline, "only {seen:?} are reached");
        let page = lab.fetch(&scratch.path("page"), &[]);
        if page.is_whole() {
            seen.extend(page.whose());
        }
    }

    // slow downloads; once all have begun one server goes
    let killed = 2;
    let files: Vec<PathBuf> = (0..CLIENTS).map(|n| scratch.path(format!("page{n}"))).collect();
    let pages: Vec<Page> = std::thread::scope(|s| {
        let all: Vec<_> = files.iter().map(|to| s.spawn(|| lab.fetch(to, &["--limit-rate", "200k"]))).collect();
        let has_begun = |file: &PathBuf| std::fs::metadata(file).is_ok_and(|m| m.len() != 0);
        let deadline = Instant::now() + LIMIT;
        while !files.iter().all(has_begun) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(webs.remove(killed - 1));
        all.into_iter().map(|page| page.join().unwrap()).collect()
    });
    let (mut whole, mut broken) = (0, 0);
    for page in &pages {
        match page.whose() {
            Some(n) if usize::from(n) == killed => broken += 1,
            Some(n) => {
                assert!(page.is_whole(), "a download from server {n} broke: {}", page.said());
                whole += 1;
            }
            None => panic!("a download got nothing: {}", page.said()),
        }
    }
    assert!(whole > 0 && broken > 0, "{whole} downloads from others, {broken} from the one that went");

    // once the checks have found it, nobody is sent there any more
    let (deadline, mut in_a_row) = (Instant::now() + LIMIT, 0);
    while in_a_row < 30 {
        let page = lab.fetch(&scratch.path("page"), &[]);
        assert!(page.is_whole() || Instant::now() < deadline, "{}", page.said());
        in_a_row = if page.is_whole() { in_a_row + 1 } else { 0 };
    }
    let did = bondstone.terminate().summary(130);
    let lb = did.nf("lb");
    assert_eq!((lb.number("/counters/ring_changes"), lb.number("/counters/backends")), (1, 2), "{}", lb.0);
    assert!(lb.number("/counters/slots_bereft") > 0 && lb.number("/counters/answers") > 1000, "{}", lb.0);
    assert_eq!(lb.dropped(), 0, "{}", lb.0);
    eprintln!(
        "{whole} downloads went on, {broken} broke with their server; {} packets to servers, {} of {} slots moved \
         although their server stayed",
        lb.number("/packets") - lb.number("/counters/answers"),
        lb.number("/counters/slots_disrupted"),
        65_537,
    );
}
