//! Two processes connected by shared memory: vhost with virtio-user, and memif.

use crate::common::{Running, Scratch};
use dpdk::Memory;
use pcap::{LinkType, Reader, Writer};
use rustix::process::Signal;
use std::fmt::Write as _;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

/// An unprivileged user and group.
const UNPRIVILEGED: u32 = 65534;
/// File with the number of free huge pages.
const FREE_HUGE_PAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";

fn root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Privileges and memory of the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mode {
    rootless: bool,
    huge: bool,
}

impl Mode {
    const ALL: [Mode; 4] = [
        Mode { rootless: false, huge: false },
        Mode { rootless: true, huge: false },
        Mode { rootless: false, huge: true },
        Mode { rootless: true, huge: true },
    ];

    /// Returns the reason why this machine does not support the mode.
    fn missing(self) -> Option<&'static str> {
        match self {
            Mode { huge: true, .. } if Memory::free_huge_pages() < 256 => Some("needs 256 free huge pages"),
            Mode { huge: false, .. } if Memory::free_huge_pages() >= 64 && !root() => {
                Some("only root can hide huge pages")
            }
            Mode { rootless: false, .. } if !root() => Some("needs root"),
            _ => None,
        }
    }

    fn possible() -> impl Iterator<Item = Mode> {
        Mode::ALL.into_iter().filter(|mode| {
            let missing = mode.missing();
            missing.iter().for_each(|reason| eprintln!("skipped: {mode:?}: {reason}"));
            missing.is_none()
        })
    }

    fn memory(self) -> &'static str {
        if self.huge { "huge pages" } else { "ordinary pages" }
    }

    /// Starts `bondstone run FILE --json` in this mode.
    fn run(self, scratch: &Scratch, file: &Path) -> Running {
        let mut arguments: Vec<std::ffi::OsString> = vec![];
        if !self.huge && Memory::free_huge_pages() != 0 {
            // a mount namespace in which no huge page is free
            let none = scratch.write("none", "0\n");
            let script = "mount --bind \"$0\" \"$1\" && shift && exec \"$@\"";
            arguments.extend(["unshare", "-m", "sh", "-c", script].map(Into::into));
            arguments.extend([none.into(), FREE_HUGE_PAGES.into()]);
        }
        let mut program = env!("CARGO_BIN_EXE_bondstone").into();
        if self.rootless && root() {
            arguments.extend(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"].map(Into::into));
            // other users may not have access to the build folder
            let copy = scratch.path("bondstone");
            if !copy.exists() {
                std::fs::copy(&program, &copy).unwrap();
            }
            program = copy.into();
        }
        arguments.extend([program, "run".into(), file.into(), "--json".into()]);
        Running::start(Command::new(&arguments[0]).args(&arguments[1..]).env_remove("XDG_RUNTIME_DIR"))
    }

    /// Returns a folder that is writable for the processes.
    fn scratch(self) -> Scratch {
        let scratch = Scratch::new();
        if self.rootless && root() {
            chown(scratch.path(""), Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
        }
        scratch
    }
}

/// Devices of the two sides; the first is started before the second.
const PAIRS: [(&str, &str); 2] =
    [("vhost:link.sock", "virtio-user:link.sock"), ("memif:link.sock", "memif:link.sock,role=client")];

/// Returns a device with an absolute path.
fn device(scratch: &Scratch, text: &str) -> String {
    text.replace("link.sock", scratch.path("link.sock").to_str().unwrap())
}

/// Returns different frames of all sizes.
fn frames(seed: u32, count: u32) -> Vec<Vec<u8>> {
    let frame = |n: u32| {
        let mut frame = vec![seed as u8; 60 + (n.wrapping_mul(2_654_435_761) >> 16) as usize % 1455];
        frame[..4].copy_from_slice(&n.to_be_bytes());
        frame
    };
    (0..count).map(frame).collect()
}

fn write(path: &Path, frames: &[Vec<u8>]) {
    let mut writer = Writer::create(path, LinkType::ETHERNET).unwrap();
    for (n, frame) in frames.iter().enumerate() {
        writer.write(n as u64 * 1000, 0, frame).unwrap();
    }
    writer.finish().unwrap();
}

fn read(path: &Path) -> Vec<Vec<u8>> {
    let mut reader = Reader::open(path).unwrap();
    let mut frames = vec![];
    while let Some(record) = reader.next().unwrap() {
        frames.push(record.frame.to_vec());
    }
    frames
}

/// Writes a chain file that sends from one port over the link, and from the link to another port.
fn bidirectional(scratch: &Scratch, name: &str, link: &str, from: &str, to: &str, core: usize) -> std::path::PathBuf {
    let mut chains = "bondstone = 1\n".to_owned();
    for (port, device) in [("from", from), ("link", &device(scratch, link)), ("to", to)] {
        writeln!(chains, "[port.{port}]\ndevice = \"{device}\"").unwrap();
    }
    for (nf, path) in [("out", ["from", "out", "link"]), ("back", ["link", "back", "to"])] {
        writeln!(chains, "[nf.{nf}]\nkind = \"count\"\n[[chain]]\npath = {path:?}\ncores = [{core}]").unwrap();
    }
    scratch.write(name, chains)
}

/// Returns true for a line with packets received over the link.
fn has_link_packets(line: &str) -> bool {
    line.contains("link rx ") && !line.contains("link rx 0 ")
}

/// Captures are read after the link is up, so every packet arrives in order.
#[test]
fn captures_cross_between_processes_without_loss() {
    let _one = crate::common::alone();
    for (mode, (first, second)) in Mode::possible().flat_map(|mode| PAIRS.map(|pair| (mode, pair))) {
        let scratch = mode.scratch();
        let (a, b) = (frames(1, 5000), frames(2, 4000));
        write(&scratch.path("a"), &a);
        write(&scratch.path("b"), &b);
        let a_file = bidirectional(&scratch, "a.toml", first, "pcap:a", "pcap:from_b", 0);
        let b_file = bidirectional(&scratch, "b.toml", second, "pcap:b", "pcap:from_a", 1);
        let mut a_runs = mode.run(&scratch, &a_file);
        a_runs.started();
        let mut b_runs = mode.run(&scratch, &b_file);
        a_runs.quiet();
        b_runs.quiet();
        let (b_ended, a_ended) = (b_runs.interrupt(), a_runs.interrupt());
        let (a_did, b_did) = (a_ended.summary(130), b_ended.summary(130));
        assert!(a_ended.err.contains("once port \"link\" has a link"), "{}", a_ended.err);
        for (did, sent, received) in [(&a_did, &a, &b), (&b_did, &b, &a)] {
            let what = format!("{mode:?} {first} {second}\n{}", did.0);
            assert_eq!(did.0["memory"], mode.memory(), "{what}");
            assert_eq!(did.port("link").number("/sent"), sent.len() as u64, "{what}");
            assert_eq!(did.port("link").number("/received"), received.len() as u64, "{what}");
            assert_eq!(did.number("/totals/dropped"), 0, "{what}");
        }
        assert!(read(&scratch.path("from_a")) == a, "{mode:?}: {first} to {second}");
        assert!(read(&scratch.path("from_b")) == b, "{mode:?}: {second} to {first}");
        eprintln!("{mode:?}: {first}, {second}: {} packets there, {} back", a.len(), b.len());
    }
}

/// Kills either side while packets flow in both directions.
#[test]
fn a_killed_peer_takes_down_its_link_only() {
    let _one = crate::common::alone();
    let Some(mode) = Mode::possible().next() else { return };
    for (first, second) in PAIRS {
        for kill_second in [true, false] {
            let scratch = mode.scratch();
            let a_file = bidirectional(&scratch, "a.toml", first, "null", "null", 0);
            let b_file = bidirectional(&scratch, "b.toml", second, "null", "null", 1);
            let mut a = mode.run(&scratch, &a_file);
            a.started();
            let mut b = mode.run(&scratch, &b_file);
            b.started();
            // packets in both directions
            for side in [&mut a, &mut b] {
                side.wait_for("packets over the link", |line| {
                    line.contains("link rx ") && !line.contains("link rx 0 ")
                });
            }
            let (killed, mut left) = if kill_second { (b, a) } else { (a, b) };
            killed.signal(Signal::KILL);
            assert_eq!(killed.end().status, None);
            left.wait_for("the lost link", |line| line.contains("\"link\"") && line.contains("link down"));
            // the other side continues
            let lines = left.wait_for("nothing", |_| true).len();
            let mut n = 0;
            left.wait_for("two more seconds", |line| {
                n += 1;
                n > lines + 2 && line.contains(" pps")
            });
            let did = left.interrupt().summary(130);
            let link = did.port("link");
            assert!(link.number("/received") > 0 && link.number("/sent") > 0, "{first} {second}: {}", did.0);
            assert_eq!(link.0["link"], false, "{first} {second}: {}", did.0);
            eprintln!(
                "{first}, {second}: {} killed, {} packets held on",
                if kill_second { "the second" } else { "the first" },
                did.number("/totals/received")
            );
        }
    }
}

/// The listening side accepts another peer.
#[test]
fn a_killed_peer_can_reconnect() {
    let _one = crate::common::alone();
    let Some(mode) = Mode::possible().next() else { return };
    for (first, second) in PAIRS {
        let scratch = mode.scratch();
        let a_file = bidirectional(&scratch, "a.toml", first, "null", "null", 0);
        let b_file = bidirectional(&scratch, "b.toml", second, "null", "null", 1);
        let mut a = mode.run(&scratch, &a_file);
        a.started();
        for life in 1..=3 {
            let mut b = mode.run(&scratch, &b_file);
            b.wait_for("packets over the link", has_link_packets);
            let mut links = 0;
            a.wait_for("its link", |line| {
                links += u32::from(line.contains("\"link\"") && line.contains("link up"));
                links == life
            });
            b.signal(Signal::KILL);
            b.end();
            let mut losses = 0;
            a.wait_for("the loss of its link", |line| {
                losses += u32::from(line.contains("\"link\"") && line.contains("link down"));
                losses == life
            });
        }
        assert!(a.interrupt().summary(130).port("link").number("/received") > 0, "{first} {second}");
    }
}

/// The socket of a killed process is replaced, that of a running process is not.
#[test]
fn replaces_stale_sockets_only() {
    let _one = crate::common::alone();
    let Some(mode) = Mode::possible().next() else { return };
    for (first, _) in PAIRS {
        let scratch = mode.scratch();
        let file = bidirectional(&scratch, "a.toml", first, "null", "null", 0);
        let socket = scratch.path("link.sock");
        let mut killed = mode.run(&scratch, &file);
        killed.started();
        let refused = mode.run(&scratch, &file).end();
        assert_eq!(refused.status, Some(3), "{first}: {}", refused.err);
        assert!(
            refused.err.contains("another process listens") && refused.err.contains("help: "),
            "{first}: {}",
            refused.err
        );
        assert!(socket.exists(), "{first}: the socket was removed");
        killed.signal(Signal::KILL);
        killed.end();
        assert!(socket.exists(), "{first}: the socket was removed");
        let mut next = mode.run(&scratch, &file);
        next.started();
        next.interrupt().summary(130);
        assert!(!socket.exists(), "{first}: the socket was not removed");
    }
}
