//! Devices under test on a remote host: a network namespace with its own sshd, connected by three veth pairs.

use crate::common::namespace::{Namespace, done};
use crate::common::{LIMIT, Running, Scratch, measured};
use rustix::process::{Pid, Signal, kill_process};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SSHD: &str = "/usr/sbin/sshd";
/// Directory that sshd requires.
const SSHD_DIR: &str = "/run/sshd";
const PORT: u16 = 2022;

/// Returns true if the requirements are met; prints what is missing.
fn possible() -> bool {
    let is_there =
        |name: &str| ["/usr/bin", "/usr/sbin", "/bin", "/sbin"].iter().any(|f| Path::new(f).join(name).exists());
    let reason = if !rustix::process::geteuid().is_root() {
        "needs root, for network namespaces"
    } else if runtime::allowed_cpus().len() < 2 {
        "needs two CPUs"
    } else if !["ip", "unshare", "nsenter", "setpriv", "ssh", "sshd", "ssh-keygen"].iter().all(|name| is_there(name)) {
        "needs openssh-client, openssh-server, iproute2 and util-linux"
    } else if !Command::new("unshare").args(["--net", "true"]).status().is_ok_and(|s| s.success()) {
        "needs network namespaces"
    } else {
        return true;
    };
    eprintln!("skipped: {reason}");
    false
}

/// The remote host.
struct RemoteHost {
    scratch: Scratch,
    sshd: Child,
    namespace: Namespace,
    /// Local ends of the two links of the device, and of the link for ssh.
    local_ends: [String; 3],
    created_sshd_dir: bool,
}

impl RemoteHost {
    fn new() -> RemoteHost {
        let (scratch, namespace) = (Scratch::new(), Namespace::new("far"));
        let pid = std::process::id();
        let name = |end: &str| format!("f{pid}{end}");
        let [management, a, b] = ["m", "a", "b"].map(name);
        let here = |words: &str| done(Command::new("ip").args(words.split(' ')));
        for (near, far) in [(&management, "m0"), (&a, "d0"), (&b, "d1")] {
            here(&format!("link add {near} type veth peer name {far} netns {}", namespace.0));
            here(&format!("link set {near} addrgenmode none up"));
        }
        // a different network for each run
        let net = format!("10.{}.{}", 200 + pid % 50, pid / 50 % 250);
        here(&format!("addr add {net}.1/30 dev {management}"));
        namespace.ip(&format!("addr add {net}.2/30 dev m0"));
        namespace.ip("link set m0 up");
        // one is up and one is down, and this has to be restored
        namespace.ip("link set d0 up");
        for key in ["host", "user"] {
            let file = scratch.path(key);
            done(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(file));
        }
        let at = |name: &str| scratch.path(name).display().to_string();
        let sshd = scratch.write(
            "sshd.conf",
            format!(
                "Port {PORT}\nListenAddress {net}.2\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM no\n\
                 StrictModes no\nPermitRootLogin prohibit-password\nPasswordAuthentication no\n",
                at("host"),
                at("user.pub")
            ),
        );
        scratch.write(
            "ssh.conf",
            format!(
                "Host far\n  HostName {net}.2\n  Port {PORT}\n  User root\n  IdentityFile {}\n  IdentitiesOnly yes\n  \
                 StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n",
                at("user")
            ),
        );
        let created_sshd_dir = std::fs::create_dir(SSHD_DIR).is_ok();
        let log = std::fs::File::create(scratch.path("sshd.log")).unwrap();
        let mut command = namespace.command(SSHD);
        command.args(["-D", "-e", "-f"]).arg(sshd).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let sshd = command.spawn().unwrap();
        let remote = RemoteHost { scratch, sshd, namespace, local_ends: [a, b, management], created_sshd_dir };
        let end = Instant::now() + LIMIT;
        while TcpStream::connect((format!("{net}.2"), PORT)).is_err() {
            assert!(Instant::now() < end, "{}", std::fs::read_to_string(remote.scratch.path("sshd.log")).unwrap());
            std::thread::sleep(Duration::from_millis(20));
        }
        remote
    }

    /// Returns a scenario with a device on the remote host.
    fn scenario(&self, device: &str) -> String {
        let [a, b, _] = &self.local_ends;
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
        let mut all: Vec<String> = self.namespace.ip("-o link").lines().map(str::to_owned).collect();
        all.extend(self.namespace.ip("route show table all").lines().map(str::to_owned));
        let forwards = done(self.namespace.command("cat").arg("/proc/sys/net/ipv4/ip_forward"));
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
        let _ = self.sshd.kill();
        let _ = self.sshd.wait();
        // the kernel would delete them later
        for near in &self.local_ends {
            let _ = Command::new("ip").args(["link", "del", near]).output();
        }
        if self.created_sshd_dir {
            let _ = std::fs::remove_dir(SSHD_DIR);
        }
    }
}

/// Returns the processes of a device: agents and cleanup processes.
fn processes() -> Vec<(i32, String)> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let all = all.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    let line = |pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        Some(String::from_utf8_lossy(&line).replace('\0', " "))
    };
    let all = all.filter_map(|pid| Some((pid, line(pid)?)));
    let own = env!("CARGO_BIN_EXE_bondstone");
    all.filter(|(_, line): &(i32, String)| {
        line.contains(&format!("{own} dut-agent")) || line.contains("/proc/$1/ns/net")
    })
    .collect()
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
        assert!(!remote.namespace.ip("-o link").contains("d0@"), "the interface was not moved");
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
