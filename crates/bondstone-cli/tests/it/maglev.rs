//! A load balancer in front of web servers, one of which fails.

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
/// Bytes of a page; each byte is the number of its server.
const PAGE: usize = 2 << 20;
/// Concurrent downloads, enough for each backend to have several.
const CLIENTS: usize = 24;

/// Clients on one side, web servers behind a bridge on the other, and the load balancer between them. Health checks use
/// a kernel interface of the load balancer's namespace.
struct Lab {
    clients: Namespace,
    balancer: Namespace,
    _bridge: Namespace,
    servers: Vec<Namespace>,
}

impl Lab {
    fn new() -> Self {
        let [clients, balancer, bridge] = ["c", "lb", "sw"].map(|side| Namespace::new(&format!("maglev-{side}")));
        balancer.mute();
        bridge.mute();
        bridge.ip("link add br0 type bridge");
        bridge.ip("link set br0 up");
        balancer.link("wan", &clients, "c0");
        balancer.raise("wan");
        for (near, far) in [("lan", "p0"), ("check", "p1")] {
            balancer.link(near, &bridge, far);
            bridge.raise(far);
            bridge.ip(&format!("link set {far} master br0"));
        }
        balancer.raise("lan");
        balancer.configure("check", &["10.2.0.254/24"]);
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
        Lab { clients, balancer, _bridge: bridge, servers }
    }

    /// Starts the load balancer.
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
             health = {{ kind = \"http\", path = \"/content\", interval = 200, timeout = 10000, fall = 2 }}\n{backends}"
        );
        let file = scratch.write("lb.toml", text);
        let mut command = self.balancer.command(env!("CARGO_BIN_EXE_bondstone"));
        let mut running = Running::start(command.arg("run").arg(file).arg("--json"));
        running.started();
        running
    }

    /// Downloads the page to a file, with further arguments of curl.
    fn fetch(&self, to: &Path, more: &[&str]) -> Download {
        let mut curl = self.clients.command("curl");
        curl.args(["-sS", "--no-buffer", "--max-time", "200", "-o"]).arg(to).args(more);
        let output = curl.arg("http://192.0.2.10/content").output().unwrap();
        let page = Download { bytes: std::fs::read(to).unwrap_or_default(), output };
        let _ = std::fs::remove_file(to);
        page
    }
}

/// Result of a download.
struct Download {
    bytes: Vec<u8>,
    output: Output,
}

impl Download {
    /// Returns the number of the server, if any byte was received.
    fn server(&self) -> Option<u8> {
        self.bytes
            .first()
            .copied()
            .inspect(|n| assert!(self.bytes.iter().all(|b| b == n), "a page has bytes of several servers"))
    }

    fn is_complete(&self) -> bool {
        self.output.status.success() && self.bytes.len() == PAGE
    }

    /// Returns the messages of curl.
    fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }
}

#[test]
fn a_failed_server_breaks_only_its_own_connections() {
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
    // until neighbours are resolved and every server has been reached
    let deadline = Instant::now() + LIMIT;
    let mut reached = BTreeSet::new();
    while reached.len() < usize::from(BACKENDS) {
        assert!(Instant::now() < deadline, "only {reached:?} have been reached");
        let page = lab.fetch(&scratch.path("page"), &[]);
        if page.is_complete() {
            reached.extend(page.server());
        }
    }

    // slow downloads; once all have started, one server is stopped
    let killed = 2;
    let files: Vec<PathBuf> = (0..CLIENTS).map(|n| scratch.path(format!("page{n}"))).collect();
    let pages: Vec<Download> = std::thread::scope(|s| {
        let downloads: Vec<_> = files.iter().map(|to| s.spawn(|| lab.fetch(to, &["--limit-rate", "200k"]))).collect();
        let has_started = |file: &PathBuf| std::fs::metadata(file).is_ok_and(|m| m.len() != 0);
        let deadline = Instant::now() + LIMIT;
        while !files.iter().all(has_started) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(webs.remove(killed - 1));
        downloads.into_iter().map(|page| page.join().unwrap()).collect()
    });
    let (mut complete, mut broken) = (0, 0);
    for page in &pages {
        match page.server() {
            Some(n) if usize::from(n) == killed => broken += 1,
            Some(n) => {
                assert!(page.is_complete(), "a download from server {n} failed: {}", page.stderr());
                complete += 1;
            }
            None => panic!("a download received nothing: {}", page.stderr()),
        }
    }
    assert!(complete > 0 && broken > 0, "{complete} complete downloads, {broken} from the stopped server");

    // once the health checks have failed, no connection is sent to the stopped server
    let (deadline, mut successes) = (Instant::now() + LIMIT, 0);
    while successes < 30 {
        let page = lab.fetch(&scratch.path("page"), &[]);
        assert!(page.is_complete() || Instant::now() < deadline, "{}", page.stderr());
        successes = if page.is_complete() { successes + 1 } else { 0 };
    }
    let summary = bondstone.terminate().summary(130);
    let lb = summary.nf("lb");
    assert_eq!((lb.number("/counters/ring_changes"), lb.number("/counters/backends_up")), (1, 2), "{}", lb.0);
    assert!(lb.number("/counters/slots_reassigned") > 0 && lb.number("/counters/replies") > 1000, "{}", lb.0);
    assert_eq!(lb.dropped(), 0, "{}", lb.0);
    eprintln!(
        "{complete} downloads completed, {broken} failed with their server; {} packets to servers, {} of {} slots moved \
         although their server was up",
        lb.number("/packets") - lb.number("/counters/replies"),
        lb.number("/counters/slots_disrupted"),
        65_537,
    );
}
