//! Devices under test on a remote host: a network namespace with its own sshd, connected by three veth pairs.

use crate::common::namespace::done;
use crate::common::ssh::{SshHost, possible, processes_with};
use crate::common::{LIMIT, Running, Scratch, measured};
use rustix::process::{Pid, Signal, kill_process};
use std::process::Command;
use std::time::{Duration, Instant};

/// The remote host.
struct RemoteHost {
    scratch: Scratch,
    host: SshHost,
    /// Local ends of the two links of the device.
    local_ends: [String; 2],
}

impl RemoteHost {
    fn new() -> RemoteHost {
        let scratch = Scratch::new();
        let host = SshHost::new(&scratch, "far", 0);
        scratch.write("ssh.conf", host.configuration());
        let local_ends = ["a", "b"].map(|end| format!("f{}{end}", std::process::id()));
        for (near, far) in local_ends.iter().zip(["d0", "d1"]) {
            let here = |words: &str| done(Command::new("ip").args(words.split(' ')));
            here(&format!("link add {near} type veth peer name {far} netns {}", host.namespace.0));
            here(&format!("link set {near} addrgenmode none up"));
        }
        // one is up and one is down, and this has to be restored
        host.namespace.ip("link set d0 up");
        RemoteHost { scratch, host, local_ends }
    }

    /// Returns a scenario with a device on the remote host.
    fn scenario(&self, device: &str) -> String {
        let [a, b] = &self.local_ends;
        format!(
            "bondstone = 1\n[scenario]\ntitle = \"far\"\n[traffic]\nframes = \"64\"\nflows = 10\n[dut]\nssh = \"far\"\n\
             ports = [\"af_packet:{a}\", \"af_packet:{b}\"]\nprogram = {:?}\n{device}\n",
            env!("CARGO_BIN_EXE_bondstone")
        )
    }

    /// Returns the command `bondstone bench` for a device on the remote host.
    fn bench(&self, device: &str, goal: &str) -> Command {
        let file = self.scratch.write("device.toml", self.scenario(device));
        let mut command = Command::new(env!("CARGO_BIN_EXE_bondstone"));
        command.arg("bench").arg(file).arg("--db").arg(self.scratch.path("db"));
        command.arg("--report").arg(self.scratch.path("page.html"));
        command.args(["--rate", "1000", "--goal", goal]).env("BONDSTONE_SSH_CONFIG", self.scratch.path("ssh.conf"));
        command
    }

    /// Returns interfaces with flags and addresses, routes, forwarding settings and processes of both hosts.
    fn state(&self) -> Vec<String> {
        let mut all: Vec<String> = self.host.namespace.ip("-o link").lines().map(str::to_owned).collect();
        all.extend(self.host.namespace.ip("route show table all").lines().map(str::to_owned));
        let forwards = done(self.host.namespace.command("cat").arg("/proc/sys/net/ipv4/ip_forward"));
        all.push(String::from_utf8(forwards.stdout).unwrap());
        let mut here: Vec<_> = std::fs::read_dir("/sys/class/net").unwrap().flatten().map(|e| e.file_name()).collect();
        here.sort();
        all.extend(here.into_iter().map(|name| name.into_string().unwrap()));
        all.extend(processes().into_iter().map(|(_, line)| line));
        // link-local addresses are random
        all.retain(|line| !line.contains("fe80:") && !line.contains("ff00::"));
        all
    }

    /// Waits until the state is restored.
    #[track_caller]
    fn wait_until_restored(&self, before: &[String], case: &str) {
        let end = Instant::now() + LIMIT;
        loop {
            let now = self.state();
            if now == before {
                return;
            }
            assert!(Instant::now() < end, "{case}: {before:#?}\n{now:#?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for RemoteHost {
    fn drop(&mut self) {
        // the kernel would delete them later
        for near in &self.local_ends {
            let _ = Command::new("ip").args(["link", "del", near]).output();
        }
    }
}

/// Returns the processes of a device: agents and cleanup processes.
fn processes() -> Vec<(i32, String)> {
    let agent = format!("{} dut-agent", env!("CARGO_BIN_EXE_bondstone"));
    processes_with(|line| line.contains(&agent) || line.contains("/proc/$1/ns/net"))
}

/// Measures devices of a remote host: the result has its environment, and its state is restored.
#[test]
fn measures_devices_on_a_remote_host() {
    let _one = crate::common::alone();
    if !possible() {
        return;
    }
    let remote = RemoteHost::new();
    let before = remote.state();
    let chain = "bondstone = 1\nport.a.device = \"ring:a\"\nport.b.device = \"ring:b\"\n\
                 chain = [{ path = [\"a\", \"count\", \"b\"] }]\n";
    remote.scratch.write("chain.toml", chain);
    let interfaces = "interfaces = [\"d0\", \"d1\"]";
    for device in ["kind = \"bridge\"", "kind = \"router\"", "kind = \"bondstone\"\nchain = \"chain.toml\""] {
        let mut command = remote.bench(&format!("{device}\n{interfaces}"), "quick,final=100ms,sum=200ms,first=100ms");
        let results = measured(command.arg("--json"));
        for trial in results[0]["trials"].as_array().unwrap() {
            let n = |name: &str| trial[name].as_u64().unwrap();
            assert_eq!((n("sent") + n("unsent"), n("received") + n("lost")), (n("intended"), n("sent")));
        }
        let extra = &results[0]["environment"]["extra"];
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        assert_eq!(extra["dut kernel"], kernel.trim(), "{extra:#}");
        assert!(extra["dut clock source"].is_string() && extra["dut CPU"].is_string(), "{extra:#}");
        let text = results[0].to_string();
        assert!(text.contains("runs on another host") && text.contains("given to the device: d0 d1"), "{text}");
        remote.wait_until_restored(&before, device);
    }
}

/// Reports errors without changing the remote host.
#[test]
fn reports_errors_of_the_remote_host() {
    let _one = crate::common::alone();
    if !possible() {
        return;
    }
    let remote = RemoteHost::new();
    let before = remote.state();
    let old = remote.scratch.write("old", "#!/bin/sh\necho '{\"bondstone\":\"0.0.1\"}'; cat\n");
    done(Command::new("chmod").arg("+x").arg(&old));
    let bridge = "kind = \"bridge\"\ninterfaces = [\"d0\", \"d1\"]".to_owned();
    let program = format!("program = {:?}", env!("CARGO_BIN_EXE_bondstone"));
    for (device, program_there, words) in [
        // the interface of the ssh connection
        (bridge.replace("d1", "m0"), &*program, "it has the address"),
        (bridge.replace("d1", "d9"), &program, "interface \"d9\" does not exist"),
        (format!("{bridge}\ncpus = [1023]"), &program, "CPU 1023 is not available"),
        (bridge.clone(), "program = \"/nowhere/bondstone\"", "cannot run Bondstone on far"),
        (bridge.clone(), &format!("program = {old:?}"), "and 0.0.1 on far"),
    ] {
        let text = remote.scenario(&device).replace(&program, program_there);
        let mut command = remote.bench(&device, "quick");
        remote.scratch.write("device.toml", text);
        let output = command.output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{err}");
        assert!(err.contains(words) && err.contains("help:"), "{words}: {err}");
        remote.wait_until_restored(&before, words);
    }
}

/// Interfaces are returned when Bondstone or its agent is killed.
#[test]
fn returns_interfaces_after_sigkill() {
    let _one = crate::common::alone();
    if !possible() {
        return;
    }
    let remote = RemoteHost::new();
    let before = remote.state();
    for kill_agent in [false, true] {
        let device = "kind = \"router\"\ninterfaces = [\"d0\", \"d1\"]";
        let mut running = Running::start(&mut remote.bench(device, "quick,final=60s,sum=600s"));
        running.wait_for("the generator", |line| line.contains("generator on CPU"));
        assert!(!remote.host.namespace.ip("-o link").contains("d0@"), "the interface was not moved");
        if kill_agent {
            // the command line of sshd's shell contains the same words
            for (pid, _) in processes().into_iter().filter(|(_, line)| line.ends_with("dut-agent ")) {
                let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
            }
            remote.wait_until_restored(&before[..], "agent killed");
            running.interrupt();
        } else {
            running.signal(Signal::KILL);
            running.end();
            remote.wait_until_restored(&before, "client killed");
        }
    }
}
