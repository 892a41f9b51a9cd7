//! `bondstone capture` and `bondstone trace`.

use crate::common::flows;
use crate::common::gateway::{accounted, example, plug, start_with_socket};
use crate::common::instance::{CHAIN, command, program, start};
use crate::common::namespace::{Namespace, done, possible};
use crate::common::traffic::Web;
use crate::common::{Running, Scratch, Summary, alone};
use rustix::process::Signal;
use serde_json::Value;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Rows that tshark prints of these fields.
fn tshark(file: &Path, fields: &[&str]) -> Vec<Vec<String>> {
    let mut command = Command::new("tshark");
    command.arg("-n").arg("-r").arg(file).args(["-T", "fields"]);
    command.args(fields.iter().flat_map(|field| ["-e", field]));
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

/// Starts a capture or trace, and waits until it runs.
fn observe(dir: &Path, arguments: &[&str]) -> Running {
    let mut running = Running::start(program(dir).args(arguments).stdout(Stdio::piped()));
    running.wait_for("the beginning", |line| line.contains("Ctrl-C ends"));
    running
}

/// The example with real hosts on both sides.
struct Gateway {
    home: Namespace,
    remote: Namespace,
    _gateway: Namespace,
    instance: Running,
    dir: std::path::PathBuf,
    scratch: Scratch,
}

impl Gateway {
    fn start(name: &str) -> Gateway {
        let scratch = Scratch::new();
        let dir = scratch.path("sockets");
        let [home, remote, gateway] = ["h", "r", "m"].map(|n| Namespace::new(&format!("{name}-{n}")));
        let instance = start_with_socket(&gateway, &example(&scratch, "home-gateway.toml"), &dir);
        plug(&gateway, "lan0", &home, &["192.168.1.10/24"]);
        plug(&gateway, "wan0", &remote, &["203.0.113.1/24", "198.51.100.7/32"]);
        home.ip("route add default via 192.168.1.1");
        Gateway { home, remote, _gateway: gateway, instance, dir, scratch }
    }

    /// Sends echo requests from home and waits for the replies.
    fn ping(&self, count: u32) {
        let count = count.to_string();
        done(self.home.command("ping").args(["-n", "-i", "0.05", "-w", "100", "-c", &count, "198.51.100.7"]));
    }

    fn end(self) {
        let summary = self.instance.terminate().summary(130);
        accounted(&summary);
    }
}

#[test]
fn packets_are_captured_on_every_edge_of_the_gateway() {
    let _alone = alone();
    if !possible(&["ping"]) {
        return;
    }
    let gateway = Gateway::start("edge");
    // neighbours are known from now on
    gateway.ping(1);
    let places = ["lan", "wan", "fw", "fw.out", "router:lan", "router:wan", "router.lan", "router.wan", "nat:inside"];
    let places = [&places[..], &["nat:outside", "nat.out"]].concat();
    let file = gateway.scratch.path("edges.pcapng");
    let options = ["-w", file.to_str().unwrap(), "--filter", "icmp"];
    let capture = observe(&gateway.dir, &[&["capture"], &places[..], &options].concat());
    gateway.ping(2);
    let said = capture.interrupt();
    assert!(said.err.contains("32 packets captured") && !said.err.contains("lost"), "{}", said.err);
    let rows = tshark(&file, &["frame.interface_name", "ip.src", "ip.dst", "ip.ttl", "icmp.type"]);
    // fw.out is part of fw, and the first place that selects a packet has it
    let (inside, outside, remote) = ("192.168.1.10", "203.0.113.2", "198.51.100.7");
    let request = [
        ["lan rx", inside, remote, "64", "8"],
        ["fw in", inside, remote, "64", "8"],
        ["fw out", inside, remote, "64", "8"],
        ["router:lan", inside, remote, "64", "8"],
        ["router.wan", inside, remote, "63", "8"],
        ["nat:inside", inside, remote, "63", "8"],
        ["nat.out", outside, remote, "63", "8"],
        ["wan tx", outside, remote, "63", "8"],
    ];
    let reply = [
        ["wan rx", remote, outside, "64", "0"],
        ["nat:outside", remote, outside, "64", "0"],
        ["nat.out", remote, inside, "64", "0"],
        ["fw in", remote, inside, "64", "0"],
        ["fw out", remote, inside, "64", "0"],
        ["router:wan", remote, inside, "64", "0"],
        ["router.lan", remote, inside, "63", "0"],
        ["lan tx", remote, inside, "63", "0"],
    ];
    let once = [&request[..], &reply].concat();
    assert_eq!(rows, [&once[..], &once].concat());

    // directions
    let file = gateway.scratch.path("in.pcapng");
    let capture =
        observe(&gateway.dir, &["capture", "lan", "nat", "-Q", "in", "-w", file.to_str().unwrap(), "-f", "icmp"]);
    gateway.ping(1);
    assert!(capture.interrupt().err.contains("3 packets captured"));
    let rows = tshark(&file, &["frame.interface_name"]);
    assert_eq!(rows, [["lan rx"], ["nat in"], ["nat in"]]);
    gateway.end();
}

#[test]
fn dropped_packets_are_captured_with_their_reasons() {
    let _alone = alone();
    if !possible(&["ping"]) {
        return;
    }
    let gateway = Gateway::start("drop");
    gateway.ping(1);
    let file = gateway.scratch.path("drops.pcapng");
    let all = observe(&gateway.dir, &["capture", "--drops", "-w", file.to_str().unwrap(), "-f", "ip", "-s", "60"]);
    let one = gateway.scratch.path("one.pcapng");
    let arguments = ["capture", "router", "--drops=ttl_expired", "-c", "1", "-w", one.to_str().unwrap()];
    let one_reason = observe(&gateway.dir, &arguments);
    // no rule permits the first, the second has crossed too many routers
    let ping = |from: &Namespace, words: &str| {
        let _ = from.command("ping").args(["-n", "-c", "1", "-w", "1"]).args(words.split(' ')).output().unwrap();
    };
    gateway.home.ip("addr add 10.9.9.9/32 dev lan0");
    ping(&gateway.home, "198.51.100.7 -s 200 -I 10.9.9.9");
    ping(&gateway.home, "198.51.100.7 -t 1");
    // ends after one packet
    assert!(one_reason.end().err.contains("1 packets captured"));
    assert!(all.interrupt().err.contains("2 packets captured"));
    let fields = ["frame.interface_name", "frame.comment", "frame.len", "frame.cap_len"];
    assert_eq!(
        tshark(&file, &fields),
        [
            ["fw drops", "dropped by fw: denied_by_default", "242", "60"],
            ["router drops", "dropped by router: ttl_expired", "98", "60"],
        ]
    );
    assert_eq!(tshark(&one, &["frame.comment"]), [["dropped by router: ttl_expired"]]);
    gateway.end();
}

#[test]
fn packets_are_traced_through_the_gateway() {
    let _alone = alone();
    if !possible(&["ping"]) {
        return;
    }
    let gateway = Gateway::start("trace");
    gateway.ping(1);
    let trace = observe(&gateway.dir, &["trace", "-n", "2", "--filter", "icmp"]);
    gateway.ping(1);
    let said = trace.end();
    let lines: Vec<&str> = said.out.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let has = |wanted: &[&str]| {
        let mut lines = lines.iter();
        let missing = wanted.iter().find(|wanted| !lines.any(|line| line.contains(**wanted)));
        assert_eq!(missing, None, "{}", said.out);
    };
    has(&[
        "packet 1, ",
        "received from lan by CPU 0",
        "ipv4 src 192.168.1.10 dst 198.51.100.7 ttl 64 protocol 1",
        "icmp type 8",
        "enters fw",
        "1 accept src 192.168.1.0/24 +1",
        "leaves by fw.out",
        "enters router:lan",
        "router: 198.51.100.7: route 0.0.0.0/0 via 203.0.113.1",
        "leaves by router.wan",
        "ipv4 ttl 64 -> 63",
        "enters nat:inside",
        "created +1",
        "ipv4 src 192.168.1.10 -> 203.0.113.2",
        "sent to wan",
        "packet 2, ",
        "received from wan",
        "enters nat:outside",
        "ipv4 dst 203.0.113.2 -> 192.168.1.10",
        "sent to lan",
    ]);

    // a reply that an NF creates, and a drop
    let arguments = ["trace", "-n", "1", "--json", "--filter", "icmp and ip[8] == 1"];
    let trace = Running::start(program(&gateway.dir).args(arguments).stdout(Stdio::piped()));
    let ping = gateway
        .home
        .command("sh")
        .args(["-c", "for i in $(seq 50); do ping -c 1 -t 1 -W 1 198.51.100.7 && exit; sleep 0.1; done"])
        .spawn();
    let packet: Value = serde_json::from_str(&trace.end().out).unwrap();
    let mut ping = ping.unwrap();
    let _ = (ping.kill(), ping.wait());
    let steps = packet["steps"].as_array().unwrap();
    let step = |copy: u64, kind: &str| {
        steps.iter().find(|step| step["copy"] == copy && step["step"] == kind).unwrap_or_else(|| panic!("{packet:#}"))
    };
    assert_eq!(step(0, "dropped")["reason"], "ttl_expired");
    assert_eq!((&step(1, "created")["nf"], &step(1, "sent")["to"]), (&"router".into(), &"lan".into()));
    assert_eq!(packet["is_held"], false);
    gateway.end();
}

#[test]
fn operators_of_an_nf_are_traced_one_by_one() {
    let _alone = alone();
    let scratch = Scratch::new();
    flows::capture(&scratch, |n| {
        let frame = wire::build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 2000 + n, 53);
        frame.ttl(if n % 2 == 0 { 64 } else { 1 }).pad_to(60).to_vec()
    });
    let dir = scratch.path("sockets");
    let edge = scratch.write("edge.toml", flows::chain("", "\"ttl\""));
    let running = start(&dir, &edge, &[]);
    // another trace and a capture at the same time change nothing
    let trace = |arguments: &[&str]| command(&dir, &[&["trace", "-n", "1"], arguments].concat());
    let said = trace(&["--filter", "ip[8] == 64"]);
    let lines: Vec<&str> = said.out.lines().map(str::trim).collect();
    let at = lines.iter().position(|line| *line == "enters ttl").unwrap_or_else(|| panic!("{}{}", said.out, said.err));
    let is_step = |line: &str, wanted: &str| line.starts_with(&format!("ttl: {wanted}, ")) && line.ends_with(" cycles");
    for (line, wanted) in lines[at + 1..].iter().zip([
        "parse ethernet: passed",
        "group_by: branch 0",
        "parse ipv4: passed",
        "filter ttl_expired: passed",
        "transform: changed",
    ]) {
        assert!(is_step(line, wanted), "{line}: {}", said.out);
    }
    assert_eq!(
        (lines[at + 6], lines[at + 8], lines[at + 9]),
        ("ipv4 ttl 64 -> 63", "leaves by ttl.out", "sent to out")
    );

    let said = trace(&["--json", "--filter", "ip[8] == 1"]);
    let packet: Value = serde_json::from_str(&said.out).unwrap();
    let steps = packet["steps"].as_array().unwrap();
    let operators: Vec<_> = steps.iter().filter(|step| step["step"] == "operator").collect();
    assert_eq!(operators.len(), 4, "{packet:#}");
    let last = operators[3];
    assert_eq!((&last["operator"], &last["result"]), (&"filter ttl_expired".into(), &"dropped: ttl_expired".into()));
    let cycles = |step: &Value| step["cycles"].as_u64().unwrap();
    let all = steps.iter().find(|step| step["step"] == "processed").unwrap();
    assert_eq!(cycles(all), operators.iter().map(|step| cycles(step)).sum::<u64>());
    assert_eq!(command(&dir, &["stop"]).status, Some(0));
    let summary = Summary(serde_json::from_str(&running.end().out).unwrap());
    accounted(&summary);
}

#[test]
fn a_trace_tells_how_many_steps_are_missing() {
    let _alone = alone();
    let scratch = Scratch::new();
    flows::capture(&scratch, |n| wire::build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 2000 + n, 53).pad_to(60).to_vec());
    let dir = scratch.path("sockets");
    let nfs: Vec<_> = (0..20).map(|n| format!("[nf.t{n}]\nkind = \"ttl\"")).collect();
    let path: Vec<_> = (0..20).map(|n| format!("\"t{n}\"")).collect();
    let running = start(&dir, &scratch.write("edge.toml", flows::chain(&nfs.join("\n"), &path.join(", "))), &[]);
    // the output is not read while all packets are processed, with more steps than the queue has room for
    let trace = observe(&dir, &["trace", "-n", "3000"]);
    trace.signal(Signal::STOP);
    std::thread::sleep(Duration::from_secs(1));
    trace.signal(Signal::CONT);
    let said = trace.end();
    assert_eq!(said.status, Some(0), "{}", said.err);
    let shown = said.out.lines().filter(|line| line.starts_with("packet ")).count();
    assert!((1..3000).contains(&shown) && said.err.contains(" steps are missing"), "{shown}: {}", said.err);
    assert_eq!(command(&dir, &["stop"]).status, Some(0));
    assert_eq!(running.end().status, Some(0));
}

/// The commands of a page of the book.
fn commands_of_page(page: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-to").join(page);
    let text = std::fs::read_to_string(path).unwrap();
    let blocks = text.split("\n```console\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.flat_map(str::lines).map(str::to_owned).collect()
}

#[test]
fn the_commands_of_the_book_find_a_lost_packet() {
    let _alone = alone();
    if !possible(&["ping", "curl", "nginx"]) {
        return;
    }
    let gateway = Gateway::start("book");
    let web = Web::start(&gateway.scratch, &gateway.home, "inside", 1 << 10);
    web.fetch(&gateway.remote, "203.0.113.2:8080");
    assert_eq!(command(&gateway.dir, &["rules", "remove", "2"]).status, Some(0));
    // the symptom
    // ends by itself if the test fails
    let fetch = "for i in $(seq 60); do curl -s -o /dev/null --max-time 0.5 http://203.0.113.2:8080; done";
    let mut client = gateway
        .remote
        .command("sh")
        .args(["-c", fetch])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
    let commands = commands_of_page("find-a-lost-packet.md");
    let run = |number: usize| {
        let folder = Path::new(env!("CARGO_BIN_EXE_bondstone")).parent().unwrap();
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("sh");
        shell.args(["-c", &commands[number]]).env("PATH", path).env("BONDSTONE_RUNTIME_DIR", &gateway.dir);
        let output = shell.current_dir(gateway.scratch.path("")).output().unwrap();
        let said = [&output.stdout[..], &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        assert!(output.status.code().is_some_and(|code| code <= 1), "{}: {}", commands[number], said[1]);
        said.concat()
    };
    let says = |number: usize, expected: &[&str]| {
        let said = run(number);
        expected.iter().for_each(|words| assert!(said.contains(words), "{}: {words:?}: {said}", commands[number]));
    };
    says(0, &["nf fw: drops: denied_by_default", "no rule matches"]);
    says(1, &["denied_by_default"]);
    says(2, &["1 packets captured"]);
    let comment = tshark(&gateway.scratch.path("drops.pcapng"), &["frame.comment", "tcp.dstport"]);
    assert_eq!(comment, [["dropped by fw: denied_by_default", "8080"]]);
    says(3, &["ipv4 dst 203.0.113.2 -> 192.168.1.10", "DROPPED by fw: denied_by_default"]);
    says(4, &["accept src 192.168.1.0/24"]);
    // the remedy
    says(5, &[]);
    let _ =
        (rustix::process::kill_process_group(rustix::process::Pid::from_child(&client), Signal::KILL), client.wait());
    web.fetch(&gateway.remote, "203.0.113.2:8080");
    drop(web);
    gateway.end();
}

#[test]
fn captures_last_over_reloads_and_lose_packets_rather_than_hold_up_others() {
    let _alone = alone();
    let scratch = Scratch::new();
    let (dir, chain) = (scratch.path("sockets"), scratch.write("edge.toml", CHAIN));
    let mut running = start(&dir, &chain, &[]);
    let file = scratch.path("all.pcapng");
    let capture =
        observe(&dir, &["capture", "hops", "-w", file.to_str().unwrap(), "-s", "14", "--filter", "len <= 64"]);
    scratch.write(
        "edge.toml",
        CHAIN
            .replace("\"hops\", ", "\"first\", \"hops\", ")
            .replace("[[chain]]", "[nf.first]\nkind = \"ttl\"\n[[chain]]"),
    );
    assert_eq!(command(&dir, &["reload"]).status, Some(0));
    running.wait_for("the reload", |line| line.contains("added") && line.contains("nf first"));
    // the reader stops for longer than the queue has room
    let packets = || flows::json(&dir, &["stats", "--json"])["nfs"][0]["packets"].as_u64().unwrap();
    capture.signal(Signal::STOP);
    let full = packets() + 1_000_000;
    flows::until("packets that are not read", || packets() > full);
    capture.signal(Signal::CONT);
    let said = capture.interrupt();
    assert!(said.err.contains(" lost: narrow it by"), "{}", said.err);
    let mut reader = pcap::Reader::open(&file).unwrap();
    let mut frames = 0;
    while let Some(record) = reader.next().unwrap() {
        assert_eq!((record.frame.len(), record.original_len >= 60), (14, true));
        frames += 1;
    }
    assert!(said.err.contains(&format!("{frames} packets captured")), "{frames}: {}", said.err);

    // after the capture, batches are sampled as before
    let timed = |stats: &Value| stats["nfs"][0]["cycles"]["packets"].as_u64().unwrap();
    let stats = || serde_json::from_str::<Value>(&command(&dir, &["stats", "--json"]).out).unwrap();
    let before = stats();
    std::thread::sleep(Duration::from_millis(100));
    let after = stats();
    let packets = |stats: &Value| stats["nfs"][0]["packets"].as_u64().unwrap();
    assert!((timed(&after) - timed(&before)) * 32 < packets(&after) - packets(&before), "{before} {after}");

    for (arguments, problem) in [
        (&["capture", "absent", "-w", "-"][..], "name a port or an NF: in, out, first, hops"),
        (&["capture", "hops.absent", "-w", "-"], "name one of out"),
        (&["capture", "hops.out", "--drops", "-w", "-"], "which drops no packets"),
        (&["capture", "-w", "-", "--filter", "udp and dst port"], "syntax error"),
        (&["trace", "-n", "0"], "from 1 to 100000"),
    ] {
        let said = command(&dir, arguments);
        assert!(said.status == Some(2) && said.err.contains(problem), "{arguments:?}: {:?} {}", said.status, said.err);
    }
    let few = command(&dir, &["capture", "-w", file.to_str().unwrap(), "-c", "3"]);
    assert!(few.status == Some(0) && few.err.contains("3 packets captured"), "{}", few.err);
    let summary: Value = {
        assert_eq!(command(&dir, &["stop"]).status, Some(0));
        serde_json::from_str(&running.end().out).unwrap()
    };
    accounted(&Summary(summary));
}
