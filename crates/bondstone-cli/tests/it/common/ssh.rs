//! Hosts that are reached by ssh: network namespaces, each with its own sshd.

use super::namespace::{Namespace, done};
use super::{LIMIT, Scratch};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SSHD: &str = "/usr/sbin/sshd";
/// Directory that sshd requires.
const SSHD_DIR: &str = "/run/sshd";
const PORT: u16 = 2022;

/// Returns true if the requirements are met; prints what is missing.
pub(crate) fn possible() -> bool {
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

/// A host with the name of its namespace.
pub(crate) struct SshHost {
    pub(crate) namespace: Namespace,
    name: String,
    address: String,
    key: PathBuf,
    sshd: Child,
    /// Local end of the link for ssh.
    management: String,
    created_sshd_dir: bool,
}

impl SshHost {
    /// Creates the host `n` of a test, with files in `scratch`, and starts its sshd.
    pub(crate) fn new(scratch: &Scratch, name: &str, n: u32) -> SshHost {
        let (namespace, pid) = (Namespace::new(name), std::process::id());
        let management = format!("f{pid}m{n}");
        let here = |words: &str| done(Command::new("ip").args(words.split(' ')));
        here(&format!("link add {management} type veth peer name m0 netns {}", namespace.0));
        here(&format!("link set {management} addrgenmode none up"));
        // a different network for each run and host
        let net = format!("10.{}.{}", 200 + pid % 50, pid / 50 % 250);
        let (own, address) = (format!("{net}.{}", 4 * n + 1), format!("{net}.{}", 4 * n + 2));
        here(&format!("addr add {own}/30 dev {management}"));
        namespace.ip(&format!("addr add {address}/30 dev m0"));
        namespace.ip("link set m0 up");
        for key in ["host", "user"] {
            let file = scratch.path(format!("{name}.{key}"));
            done(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(file));
        }
        let at = |end: &str| scratch.path(format!("{name}.{end}")).display().to_string();
        let configuration = scratch.write(
            format!("{name}.sshd"),
            format!(
                "Port {PORT}\nListenAddress {address}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM no\n\
                 StrictModes no\nPermitRootLogin prohibit-password\nPasswordAuthentication no\n",
                at("host"),
                at("user.pub")
            ),
        );
        let created_sshd_dir = std::fs::create_dir(SSHD_DIR).is_ok();
        let log = std::fs::File::create(at("log")).unwrap();
        let mut command = namespace.command(SSHD);
        command.args(["-D", "-e", "-f"]).arg(configuration).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let sshd = command.spawn().unwrap();
        let (name, key) = (name.to_owned(), at("user").into());
        let host = SshHost { namespace, name, address, key, sshd, management, created_sshd_dir };
        let end = Instant::now() + LIMIT;
        while TcpStream::connect((host.address.as_str(), PORT)).is_err() {
            assert!(Instant::now() < end, "{}", std::fs::read_to_string(at("log")).unwrap());
            std::thread::sleep(Duration::from_millis(20));
        }
        host
    }

    /// Returns the lines of an ssh configuration file with which `ssh NAME` reaches it.
    pub(crate) fn configuration(&self) -> String {
        let SshHost { name, address, key, .. } = self;
        format!(
            "Host {name}\n  HostName {address}\n  Port {PORT}\n  User root\n  IdentityFile {}\n  IdentitiesOnly yes\n  \
             StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n",
            key.display()
        )
    }
}

impl Drop for SshHost {
    fn drop(&mut self) {
        let _ = self.sshd.kill();
        let _ = self.sshd.wait();
        // the kernel would delete it later
        let _ = Command::new("ip").args(["link", "del", &self.management]).output();
        if self.created_sshd_dir {
            let _ = std::fs::remove_dir(SSHD_DIR);
        }
    }
}

/// Returns the ids and command lines of the processes whose command line satisfies a condition.
pub(crate) fn processes_with(is_wanted: impl Fn(&str) -> bool) -> Vec<(i32, String)> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let all = all.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    let line = |pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        Some(String::from_utf8_lossy(&line).replace('\0', " "))
    };
    all.filter_map(|pid| Some((pid, line(pid)?))).filter(|(_, line)| is_wanted(line)).collect()
}
