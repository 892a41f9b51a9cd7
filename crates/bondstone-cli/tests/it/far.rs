//! Devices under test on another machine: a network namespace with an sshd of its own, joined to this one by three veth pairs.

use crate::common::namespace::{Namespace, done};
use crate::common::{LIMIT, Running, Scratch};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SSHD: &str = "/usr/sbin/sshd";
/// Where sshd goes after its start; it insists on it.
const EMPTY: &str = "/run/sshd";
const PORT: u16 = 2022;

/// Whether this can be tested here; says why not.
fn possible() -> bool {
    let is_there =
        |name: &str| ["/usr/bin", "/usr/sbin", "/bin", "/sbin"].iter().any(|f| Path::new(f).join(name).exists());
    let why = if !rustix::process::geteuid().is_root() {
        "needs root, for network namespaces"
    } else if runtime::allowed_cpus().len() < 2 {
        "needs two CPUs"
    } else if !["ip", "unshare", "nsenter", "setpriv", "ssh", "sshd", "ssh-keygen"].iter().all(|name| is_there(name)) {
        "needs openssh-client, openssh-server, iproute2 and util-linux"
    } else if !Command::new("unshare").args(["--net", "true"]).status().is_ok_and(|s| s.success()) {
        "no network namespaces here"
    } else {
        return true;
    };
    eprintln!("skipped: {why}");
    false
}

/// The other machine.
struct Far {
    scratch: Scratch,
    sshd: Child,
    namespace: Namespace,
    /// Ends of the cables here, and of the way for ssh.
    near: [String; 3],
    made_empty: bool,
}

impl Far {
    fn new() -> Far {
        let (scratch, namespace) = (Scratch::new(), Namespace::new("far"));
        let pid = std::process::id();
        let name = |end: &str| format!("f{pid}{end}");
        let [way, a, b] = ["m", "a", "b"].map(name);
        let here = |words: &str| done(Command::new("ip").args(words.split(' ')));
        for (near, far) in [(&way, "m0"), (&a, "d0"), (&b, "d1")] {
            here(&format!("link add {near} type veth peer name {far} netns {}", namespace.0));
            here(&format!("link set {near} addrgenmode none up"));
        }
        // a network of its own for every run
        let net = format!("10.{}.{}", 200 + pid % 50, pid / 50 % 250);
        here(&format!("addr add {net}.1/30 dev {way}"));
        namespace.ip(&format!("addr add {net}.2/30 dev m0"));
        namespace.ip("link set m0 up");
        // one is up, one is not, and so they have to be afterwards
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
        let made_empty = std::fs::create_dir(EMPTY).is_ok();
        let log = std::fs::File::create(scratch.path("sshd.log")).unwrap();
        let mut command = namespace.command(SSHD);
        command.args(["-D", "-e", "-f"]).arg(sshd).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let sshd = command.spawn().unwrap();
        let far = Far { scratch, sshd, namespace, near: [a, b, way], made_empty };
        let end = Instant::now() + LIMIT;
        while TcpStream::connect((format!("{net}.2"), PORT)).is_err() {
            assert!(Instant::now() < end, "{}", std::fs::read_to_string(far.scratch.path("sshd.log")).unwrap());
            std::thread::sleep(Duration::from_millis(20));
        }
        far
    }

    /// A scenario with a device there.
    fn scenario(&self, device: &str) -> String {
        let [a, b, _] = &self.near;
        format!(
            "bondstone = 1\n[scenario]\ntitle = \"far\"\n[traffic]\nframes = \"64\"\nflows = 10\n[dut]\nssh = \"far\"\n\
             ports = [\"af_packet:{a}\", \"af_packet:{b}\"]\nprogram = {:?}\n{device}\n",
            env!("CARGO_BIN_EXE_bondstone")
        )
    }

    /// `bondstone bench` of a device there.
    fn bench(&self, device: &str, goal: &str) -> Command {
        let file = self.scratch.write("device.toml", self.scenario(device));
        let mut command = Command::new(env!("CARGO_BIN_EXE_bondstone"));
        command.arg("bench").arg(file).arg("--db").arg(self.scratch.path("db"));
        command.arg("--report").arg(self.scratch.path("page.html"));
        command.args(["--rate", "1000", "--goal", goal]).env("BONDSTONE_SSH_CONFIG", self.scratch.path("ssh.conf"));
        command
    }

    /// What there is on both sides: interfaces with their flags and addresses, routes, rules of forwarding, processes.
    fn state(&self) -> Vec<String> {
        let mut all: Vec<String> = self.namespace.ip("-o link").lines().map(str::to_owned).collect();
        all.extend(self.namespace.ip("route show table all").lines().map(str::to_owned));
        let forwards = done(self.namespace.command("cat").arg("/proc/sys/net/ipv4/ip_forward"));
        all.push(String::from_utf8(forwards.stdout).unwrap());
        let mut here: Vec<_> = std::fs::read_dir("/sys/class/net").unwrap().flatten().map(|e| e.file_name()).collect();
        here.sort();
        all.extend(here.into_iter().map(|name| name.into_string().unwrap()));
        all.extend(processes().into_iter().map(|(_, line)| line));
        // the link's state follows the other end's, and its addresses the kernel's random numbers
        all.retain(|line| !line.contains("fe80:") && !line.contains("ff00::"));
        all
    }

    /// Waits until all is as it was.
    #[track_caller]
    fn comes_back(&self, before: &[String], what: &str) {
        let end = Instant::now() + LIMIT;
        loop {
            let now = self.state();
            if now == before {
                return;
            }
            assert!(Instant::now() < end, "{what}: {before:#?}\n{now:#?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        let _ = self.sshd.kill();
        let _ = self.sshd.wait();
        // the kernel would, some time after the namespace is gone
        for near in &self.near {
            let _ = Command::new("ip").args(["link", "del", near]).output();
        }
        if self.made_empty {
            let _ = std::fs::remove_dir(EMPTY);
        }
    }
}

/// Processes that belong to a device: the program at the other end, and shells that wait for its end.
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

/// The bridge and the router of another machine are measured; what its kernel says of it is in the result, and nothing is left.
#[test]
fn measured_there() {
    let _one = crate::common::alone();
    if !possible() {
        return;
    }
    let far = Far::new();
    let before = far.state();
    let chain = "bondstone = 1\nport.a.device = \"ring:a\"\nport.b.device = \"ring:b\"\n\
                 chain = [{ path = [\"a\", \"count\", \"b\"] }]\n";
    far.scratch.write("chain.toml", chain);
    let inner = "inner = [\"d0\", \"d1\"]";
    for device in ["kind = \"bridge\"", "kind = \"router\"", "kind = \"bondstone\"\nchain = \"chain.toml\""] {
        let mut command = far.bench(&format!("{device}\n{inner}"), "quick,final=100ms,sum=200ms,first=100ms");
        let output = command.arg("--json").output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(matches!(output.status.code(), Some(0 | 1)), "{device}\n{err}\n{out}");
        let results: Vec<Value> = serde_json::from_str(&out).unwrap();
        let mut received = 0;
        for trial in results[0]["trials"].as_array().unwrap() {
            let n = |name: &str| trial[name].as_u64().unwrap();
            assert_eq!((n("sent") + n("unsent"), n("received") + n("lost")), (n("intended"), n("sent")));
            received += n("received");
        }
        // before the trials 200 packets came out as they have to, all of them
        assert!(received > 0, "nothing comes back: {:#}", results[0]);
        let more = &results[0]["environment"]["more"];
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        assert_eq!(more["dut kernel"], kernel.trim(), "{more:#}");
        assert!(more["dut clock source"].is_string() && more["dut CPU"].is_string(), "{more:#}");
        let text = results[0].to_string();
        assert!(text.contains("on another machine") && text.contains("given to the device: d0 d1"), "{text}");
        far.comes_back(&before, device);
    }
}

/// What cannot be is said, and nothing is touched.
#[test]
fn refused_there() {
    let _one = crate::common::alone();
    if !possible() {
        return;
    }
    let far = Far::new();
    let before = far.state();
    let old = far.scratch.write("old", "#!/bin/sh\necho '{\"bondstone\":\"0.0.1\"}'; cat\n");
    done(Command::new("chmod").arg("+x").arg(&old));
    let bridge = "kind = \"bridge\"\ninner = [\"d0\", \"d1\"]".to_owned();
    let program = format!("program = {:?}", env!("CARGO_BIN_EXE_bondstone"));
    for (device, program_there, words) in [
        // the interface that ssh comes in by
        (bridge.replace("d1", "m0"), &*program, "it has the address"),
        (bridge.replace("d1", "d9"), &program, "there is no interface \"d9\""),
        (format!("{bridge}\ncpus = [1023]"), &program, "CPU 1023 is not there"),
        (bridge.clone(), "program = \"/nowhere/bondstone\"", "does not run this program"),
        (bridge.clone(), &format!("program = {old:?}"), "and 0.0.1 on far"),
    ] {
        let text = far.scenario(&device).replace(&program, program_there);
        let mut command = far.bench(&device, "quick");
        far.scratch.write("device.toml", text);
        let output = command.output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{err}");
        assert!(err.contains(words) && err.contains("help:"), "{words}: {err}");
        far.comes_back(&before, words);
    }
}

/// Killed on this side or on the other, the interfaces are given back, and nothing goes on there.
#[test]
fn killed_it_gives_back() {
    let _one = crate::common::alone();
    if !possible() {
        return;
    }
    let far = Far::new();
    let before = far.state();
    for kills_far in [false, true] {
        let device = "kind = \"router\"\ninner = [\"d0\", \"d1\"]";
        let mut running = Running::start(&mut far.bench(device, "quick,final=60s,sum=600s"));
        running.wait_for("the generator", |line| line.contains("generator on CPU"));
        assert!(!far.namespace.ip("-o link").contains("d0@"), "it is lent");
        if kills_far {
            // sshd's shell has the same words in its line, and may be this program already
            for (pid, _) in processes().into_iter().filter(|(_, line)| line.ends_with("dut-agent ")) {
                let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
            }
            far.comes_back(&before[..], "killed there");
            running.interrupt();
        } else {
            running.signal(Signal::KILL);
            running.end();
            far.comes_back(&before, "killed here");
        }
    }
}
