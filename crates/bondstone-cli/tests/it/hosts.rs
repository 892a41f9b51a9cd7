//! Chains across two hosts: network namespaces, each with its own sshd, joined by a veth pair.

use crate::common::namespace::{Namespace, done};
use crate::common::sandboxed_run::until;
use crate::common::ssh::{SshHost, possible, processes_with};
use crate::common::{Ended, Running, Scratch, Summary, bondstone, measured};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A firewall on host `a` and a router on host `b`.
const CHAINS: &str = "\
[nf.firewall]
kind = \"firewall\"
rules = [\"accept proto icmp\"]
host = \"a\"
[nf.router]
kind = \"l3fwd\"
host = \"b\"
interface.lan = { addresses = [\"10.9.1.1/24\"] }
interface.wan = { addresses = [\"10.9.2.1/24\"] }
[[chain]]
path = [\"lan\", \"firewall\", \"router\"]
[[chain]]
path = [\"wan\", \"router\"]
";

/// Returns the beginning of a file: both hosts, and a link between them.
fn beginning(program: &str) -> String {
    format!(
        "bondstone = 1\nidle = \"sleep\"\n[host.a]\nssh = \"a\"\nprogram = {program:?}\n[host.b]\nssh = \"b\"\n\
         program = {program:?}\n[link.wire]\na = \"af_packet:wire0\"\nb = \"af_packet:wire1\"\n"
    )
}

/// Returns a file whose ports are interfaces of the hosts.
fn two_hosts(program: &str) -> String {
    let ports = "[port.lan]\ndevice = \"af_packet:lan0\"\nhost = \"a\"\n\
                 [port.wan]\ndevice = \"af_packet:wan0\"\nhost = \"b\"\n";
    beginning(program) + ports + CHAINS
}

/// Two hosts, with a client at the first and a server at the second.
struct Lab {
    scratch: Scratch,
    a: SshHost,
    b: SshHost,
    client: Namespace,
    _server: Namespace,
}

impl Lab {
    fn new() -> Lab {
        let scratch = Scratch::new();
        let [a, b] = [("a", 0), ("b", 1)].map(|(name, n)| SshHost::new(&scratch, name, n));
        let (client, server) = (Namespace::new("client"), Namespace::new("server"));
        for namespace in [&a.namespace, &b.namespace, &client, &server] {
            namespace.mute();
        }
        a.namespace.link("wire0", &b.namespace, "wire1");
        client.link("c0", &a.namespace, "lan0");
        server.link("s0", &b.namespace, "wan0");
        for (namespace, interface) in [(&a, "wire0"), (&a, "lan0"), (&b, "wire1"), (&b, "wan0")] {
            namespace.namespace.raise(interface);
        }
        client.configure("c0", &["10.9.1.2/24"]);
        server.configure("s0", &["10.9.2.2/24"]);
        client.ip("route add default via 10.9.1.1");
        server.ip("route add default via 10.9.2.1");
        scratch.write("ssh.conf", [&a, &b].map(SshHost::configuration).concat());
        Lab { scratch, a, b, client, _server: server }
    }

    /// Returns `bondstone run` for a file, with more arguments.
    fn command(&self, text: &str, more: &[&str]) -> Command {
        let file = self.scratch.write("two.toml", text);
        let mut command = Command::new(env!("CARGO_BIN_EXE_bondstone"));
        command.arg("run").arg(file).arg("--json").args(more);
        command.env("BONDSTONE_SSH_CONFIG", self.scratch.path("ssh.conf"));
        command
    }

    /// Starts a file and waits until both hosts are ready.
    fn start(&self, text: &str) -> Running {
        let mut running = Running::start(&mut self.command(text, &[]));
        running.wait_for("both hosts", |line| line.contains("all 2 hosts are ready"));
        running
    }
}

/// Returns the processes on both hosts, and the folders and sockets of runs. The socket of a run that is killed is
/// removed by the next one.
fn left() -> Vec<String> {
    let own = env!("CARGO_BIN_EXE_bondstone");
    let is_part = |line: &str| line.contains(own) && (line.contains("host-agent") || line.contains(" --host "));
    let processes = processes_with(is_part).into_iter().map(|(_, line)| line);
    let entries = |folder: &str| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let folders = entries("/run").filter(|folder| folder.join("two.toml").exists());
    let is_socket = |path: &PathBuf| {
        let id = path.file_stem().and_then(|name| name.to_str()?.strip_prefix("two-"));
        id.is_some_and(|id| Path::new("/proc").join(id).exists())
    };
    let sockets = entries("/run/bondstone").filter(is_socket);
    processes.chain(folders.chain(sockets).map(|path| path.display().to_string())).collect()
}

#[track_caller]
fn nothing_is_left(case: &str) {
    until(case, || left().is_empty());
}

/// Returns the summary of each host, whose counts must add up, and the links.
#[track_caller]
fn hosts(ended: &Ended, status: i32) -> (Summary, Summary, Vec<[u64; 4]>) {
    assert_eq!(ended.status, Some(status), "{}\n{}", ended.err, ended.out);
    let all: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(all["balanced"], true, "{all:#}");
    assert_eq!(all["errors"], serde_json::json!([]), "{all:#}");
    let host = |name: &str| {
        let summary = Summary(all["hosts"][name].clone());
        let of = |name: &str| summary.number(&format!("/totals/{name}"));
        assert_eq!(of("received") + of("created"), of("sent") + of("held") + of("dropped"), "{all:#}");
        summary
    };
    let counts = |link: &serde_json::Value| ["sent", "received", "lost", "foreign"].map(|n| link[n].as_u64().unwrap());
    (host("a"), host("b"), all["links"].as_array().unwrap().iter().map(counts).collect())
}

/// Traffic passes a firewall on one host and a router on another, in both directions, and every packet is counted.
#[test]
fn forwards_across_two_hosts() {
    let _one = crate::common::alone();
    if !possible() {
        return;
    }
    let lab = Lab::new();
    let running = lab.start(&two_hosts(env!("CARGO_BIN_EXE_bondstone")));
    until("the router", || lab.client.reaches("10.9.2.2"));
    // before the packets that are answered, so that they have been handled once there are answers
    let denied = "for n in 1 2 3 4 5 6 7; do echo > /dev/udp/10.9.2.2/9; done";
    done(lab.client.command("bash").args(["-c", denied]));
    let ping = ["-q", "-c", "50", "-i", "0.01", "-W", "5", "10.9.2.2"];
    done(lab.client.command("ping").args(ping));
    let ended = running.interrupt();
    let (a, b, links) = hosts(&ended, 130);
    assert_eq!(a.nf("firewall").number("/drops/denied_by_default"), 7, "{}", ended.out);
    assert!(b.nf("router").number("/packets") >= 100, "{}", ended.out);
    let [there, back] = links[..] else { panic!("{links:?}") };
    for (direction, (from, to)) in [(there, (&a, &b)), (back, (&b, &a))] {
        let [sent, received, lost, foreign] = direction;
        assert!(sent >= 50 && sent == received && lost == 0 && foreign == 0, "{links:?}");
        assert_eq!((sent, received), (from.port("wire").number("/sent"), to.port("wire").number("/received")));
    }
    assert!(ended.err.contains("a: note: CPU ") && ended.err.contains("b: note: CPU "), "{}", ended.err);
    nothing_is_left("the end");
}

/// A capture on the first host is received completely by the second, and its end stops both.
#[test]
fn a_capture_crosses_to_another_host() {
    let _one = crate::common::alone();
    if !possible() {
        return;
    }
    let lab = Lab::new();
    let input = lab.scratch.capture("in.pcap", 2000);
    let output = lab.scratch.path("out.pcap");
    let text = format!(
        "{}[port.in]\ndevice = \"pcap:{}\"\ntimed = true\nhost = \"a\"\n\
         [port.out]\ndevice = \"pcap:{}\"\nhost = \"b\"\n[[chain]]\npath = [\"in\", \"count\", \"out\"]\n",
        beginning(env!("CARGO_BIN_EXE_bondstone")),
        input.display(),
        output.display()
    );
    let ended = Running::start(&mut lab.command(&text, &[])).end();
    let (a, b, links) = hosts(&ended, 0);
    let [sent, received, lost, foreign] = links[0];
    assert_eq!((sent, lost + received, foreign), (2000, 2000, 0), "{}", ended.out);
    assert_eq!((a.number("/totals/received"), b.port("out").number("/sent")), (2000, received), "{}", ended.out);
    // the queue of AF_PACKET may overflow while its reader waits for the CPU
    assert!(received > 0, "{}", ended.out);
    nothing_is_left("the end of the capture");
    let text = two_hosts(env!("CARGO_BIN_EXE_bondstone"));
    hosts(&Running::start(&mut lab.command(&text, &["--for", "1s"])).end(), 0);
    nothing_is_left("the end of the time");
}

/// Nothing is left on the hosts when Bondstone, an agent or the run of a host is killed; the others stop.
#[test]
fn stops_everything_after_sigkill() {
    let _one = crate::common::alone();
    if !possible() {
        return;
    }
    let lab = Lab::new();
    let own = env!("CARGO_BIN_EXE_bondstone");
    let text = two_hosts(own);
    let running = lab.start(&text);
    running.signal(Signal::KILL);
    running.end();
    nothing_is_left("Bondstone killed");
    let agent = |line: &str| line.starts_with(own) && line.ends_with("host-agent ");
    let run = |line: &str| line.starts_with(own) && line.contains(" --host b ");
    type IsVictim<'a> = &'a dyn Fn(&str) -> bool;
    let cases: [(&str, IsVictim<'_>, &str); 2] =
        [("agents killed", &agent, "lost the connection"), ("run killed", &run, "host b: the run has ended")];
    for (case, is_victim, words) in cases {
        let running = lab.start(&text);
        let victims = processes_with(is_victim);
        assert!(!victims.is_empty(), "{case}: {:?}", left());
        for (pid, _) in victims {
            let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
        }
        let ended = running.end();
        assert_eq!(ended.status, Some(4), "{case}: {}", ended.err);
        assert!(ended.err.contains(words) && ended.err.contains("help:"), "{case}: {}", ended.err);
        nothing_is_left(case);
    }
}

/// A scenario starts the chain on its hosts, measures it through the ports of the generator, and stops it.
#[test]
fn measures_a_chain_across_hosts() {
    let _one = crate::common::alone();
    if !possible() {
        return;
    }
    let lab = Lab::new();
    let [first, second] = ["a", "b"].map(|end| format!("g{}{end}", std::process::id()));
    for (near, host) in [(&first, &lab.a), (&second, &lab.b)] {
        let words = format!("link add {near} type veth peer name generator netns {}", host.namespace.0);
        done(Command::new("ip").args(words.split(' ')));
        done(Command::new("ip").args(["link", "set", near, "addrgenmode", "none", "up"]));
        host.namespace.raise("generator");
    }
    let chain = "[port.in]\ndevice = \"af_packet:generator\"\nhost = \"a\"\n\
                 [port.out]\ndevice = \"af_packet:generator\"\nhost = \"b\"\n\
                 [[chain]]\npath = [\"in\", \"count\", \"ttl\", \"out\"]\n";
    lab.scratch.write("two.toml", beginning(env!("CARGO_BIN_EXE_bondstone")) + chain);
    let scenario = format!(
        "bondstone = 1\n[scenario]\ntitle = \"two hosts\"\n[traffic]\nframes = \"64\"\nflows = 10\n\
         [dut]\nkind = \"hosts\"\nchain = \"two.toml\"\nforward = \"any\"\n\
         ports = [\"af_packet:{first}\", \"af_packet:{second}\"]\n"
    );
    let file = lab.scratch.write("scenario.toml", scenario);
    let mut command = Command::new(env!("CARGO_BIN_EXE_bondstone"));
    command.arg("bench").arg(file).arg("--db").arg(lab.scratch.path("db")).arg("--json");
    command.args(["--rate", "1000", "--goal", "quick,final=100ms,sum=200ms,first=100ms"]);
    command.env("BONDSTONE_SSH_CONFIG", lab.scratch.path("ssh.conf"));
    let results = measured(&mut command);
    for trial in results[0]["trials"].as_array().unwrap() {
        let n = |name: &str| trial[name].as_u64().unwrap();
        assert_eq!((n("sent") + n("unsent"), n("received") + n("lost")), (n("intended"), n("sent")));
    }
    assert!(results[0].to_string().contains("runs on other hosts"), "{}", results[0]);
    nothing_is_left("the measurement");
    for near in [first, second] {
        let _ = Command::new("ip").args(["link", "del", &near]).output();
    }
}

/// Errors name the host and a remedy, and no other host keeps running.
#[test]
fn reports_errors_of_hosts() {
    let _one = crate::common::alone();
    if !possible() {
        return;
    }
    let lab = Lab::new();
    let good = two_hosts(env!("CARGO_BIN_EXE_bondstone"));
    let old = lab.scratch.write("old", "#!/bin/sh\necho '{\"hello\":{\"bondstone\":\"0.0.1\"}}'; cat >/dev/null\n");
    // floods its client with output
    let flood = lab.scratch.write("flood", "#!/bin/sh\nyes 'a long line of output' | head -n 100000 >&2; yes\n");
    done(Command::new("chmod").arg("+x").args([&old, &flood]));
    let program = |of: &PathBuf| two_hosts(&of.display().to_string());
    for (text, status, words) in [
        (good.replace("wan0", "wan9"), 3, "host b: the run has ended with status 3"),
        (
            good.replace("ssh = \"b\"", "ssh = \"nowhere.invalid\""),
            3,
            "host b: Bondstone cannot be run on nowhere.invalid",
        ),
        (program(&PathBuf::from("/nowhere/bondstone")), 3, "cannot be run on"),
        (program(&old), 3, "and 0.0.1 on host"),
        (program(&flood), 3, "cannot be run on"),
    ] {
        let ended = Running::start(&mut lab.command(&text, &[])).end();
        assert_eq!(ended.status, Some(status), "{words}: {}", ended.err);
        assert!(ended.err.contains(words) && ended.err.contains("help:"), "{words}: {}", ended.err);
        assert!(ended.err.len() < 1 << 20, "{words}");
        nothing_is_left(words);
    }
}

/// `check` and `plan` print the part of each host; other commands refuse the file.
#[test]
fn shows_the_part_of_each_host() {
    let scratch = Scratch::new();
    let file = scratch.write("two.toml", two_hosts("bondstone")).display().to_string();
    for command in ["check", "plan"] {
        let said = bondstone([command, &file]);
        assert_eq!(said.status, Some(0), "{}", said.err);
        for words in ["lan -> firewall -> wire", "wire -> router:lan", "wire -> lan", "af_packet:wire1"] {
            assert!(said.out.contains(words), "{command}: {words}: {}", said.out);
        }
    }
    let said = bondstone(["plan", &file, "--json"]);
    let plan: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(plan["hosts"][1]["chains"][0]["path"], serde_json::json!(["wire", "router:lan"]), "{plan:#}");
    assert_eq!(plan["links"][0]["directions"].as_array().unwrap().len(), 2, "{plan:#}");
    let said = bondstone(["compile", &file]);
    assert_eq!(said.status, Some(2), "{}", said.err);
    assert!(said.err.contains("describes several hosts") && said.err.contains("help:"), "{}", said.err);
    let said = bondstone(["run", &file, "--watch"]);
    assert!(said.status == Some(2) && said.err.contains("--watch"), "{}", said.err);
    let said = bondstone(["run", &file, "--host", "c"]);
    assert!(said.status == Some(2) && said.err.contains("no host of this name"), "{}", said.err);
}
