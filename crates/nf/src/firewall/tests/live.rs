//! Rules that change while packets are forwarded.

use super::{ModelRule, address, rule};
use crate::Firewall;
use proptest::prelude::*;
use std::fs::{remove_file, rename, write};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testkit::{Harness, HarnessBuilder};
use wire::build;
use wire::flow::FiveTuple;

/// A temporary directory, removed on drop.
struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("bs-firewall-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn bench(file: &Path, more: &str) -> Harness {
    HarnessBuilder::new::<Firewall>(&format!("rules = [\"accept dst 10.0.0.9\"]\nfile = {file:?}\n{more}"))
        .build()
        .unwrap()
}

/// Advances time until a counter has this value.
fn advance_until(f: &mut Harness, counter: &str, n: u64) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while f.counter(counter) != n {
        assert!(Instant::now() < deadline, "{counter} is {}, not {n}", f.counter(counter));
        std::thread::sleep(Duration::from_millis(10));
        f.advance(Duration::from_millis(20));
    }
}

#[test]
fn a_changed_file_is_loaded_and_an_invalid_one_is_not() {
    for more in ["", "track = { connections = 100 }"] {
        let folder = TempDir::new(if more.is_empty() { "plain" } else { "tracked" });
        let file = folder.0.join("edge.rules");
        write(&file, "accept dst 10.0.0.1\naccept dst 10.0.0.2 # a comment\n").unwrap();
        let mut f = bench(&file, more);
        let to = |host, port| build::udp4([192, 0, 2, 1], [10, 0, 0, host], port, 2).pad_to(60).to_vec();
        assert!(f.feed_one(&to(1, 1)).is_ok() && f.feed_one(&to(2, 1)).is_ok() && f.feed_one(&to(3, 1)).is_err());
        write(&file, "accept dst 10.0.0.3\naccept dst 10.0.0.2\n").unwrap();
        advance_until(&mut f, "rules_changed", 1);
        // other ports, because existing connections continue
        assert!(f.feed_one(&to(1, 2)).is_err() && f.feed_one(&to(2, 2)).is_ok() && f.feed_one(&to(3, 2)).is_ok());
        assert_eq!(f.feed_one(&to(1, 1)).is_ok(), !more.is_empty());
        // counters stay with the text of a rule
        assert_eq!((f.counter("2 accept dst 10.0.0.3"), f.counter("3 accept dst 10.0.0.2")), (1, 2));
        for wrong in ["accept dst nowhere\n", "accept dst 10.0.0.1 dport 80 type 8\n"] {
            let before = f.counter("rules_rejected");
            write(&file, wrong).unwrap();
            advance_until(&mut f, "rules_rejected", before + 1);
            assert!(f.feed_one(&to(3, 3)).is_ok() && f.feed_one(&to(1, 3)).is_err());
        }
        // a file that disappears and returns with other rules
        remove_file(&file).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        f.advance(Duration::from_millis(20));
        assert!(f.feed_one(&to(3, 4)).is_ok());
        write(&file, "drop dst 10.0.0.3\n").unwrap();
        advance_until(&mut f, "rules_changed", 2);
        assert_eq!(f.feed_one(&to(3, 5)), Err("denied"));
        assert!(f.feed_one(&to(9, 5)).is_ok(), "rules of the chain file come first");
    }
}

/// A client of the control socket.
struct Client(BufReader<UnixStream>);

impl Client {
    /// Connects once the firewall listens.
    fn connect(socket: &Path, f: &mut Harness) -> Self {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            f.advance(Duration::from_millis(20));
            match UnixStream::connect(socket) {
                Ok(stream) => return Client(BufReader::new(stream)),
                Err(e) => assert!(Instant::now() < deadline, "{}: {e}", socket.display()),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn send(&mut self, line: &str) {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn receive(&mut self) -> String {
        let mut answer = String::new();
        self.0.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }

    fn request(&mut self, line: &str) -> String {
        self.send(line);
        self.receive()
    }
}

#[test]
fn rules_are_changed_by_the_socket() {
    for more in ["", "track = { connections = 100 }"] {
        let folder = TempDir::new(if more.is_empty() { "socket" } else { "socket-tracked" });
        let socket = folder.0.join("fw.sock");
        let text = format!("rules = [\"accept dst 10.0.0.1\", \"accept dst 10.0.0.2\"]\ncontrol = {socket:?}\n{more}");
        let mut f = HarnessBuilder::new::<Firewall>(&text).build().unwrap();
        let to = |host, port| build::udp4([192, 0, 2, 1], [10, 0, 0, host], port, 2).pad_to(60).to_vec();
        let mut client = Client::connect(&socket, &mut f);
        assert!(f.feed_one(&to(1, 1)).is_ok() && f.feed_one(&to(3, 1)).is_err());
        assert_eq!(client.request("add accept dst 10.0.0.3"), "ok");
        // effective with the next packet, without a timer
        assert!(f.feed_one(&to(3, 2)).is_ok());
        assert_eq!(client.request("add 1 drop dst 10.0.0.0/30"), "ok");
        assert!(f.feed_one(&to(3, 3)).is_err() && f.feed_one(&to(1, 3)).is_err());
        client.send("list");
        let rules =
            ["1 drop dst 10.0.0.0/30", "2 accept dst 10.0.0.1", "3 accept dst 10.0.0.2", "4 accept dst 10.0.0.3"];
        assert_eq!([(); 5].map(|()| client.receive()), [&rules[..], &["ok"]].concat()[..]);
        assert_eq!((f.counter(rules[0]), f.counter(rules[3])), (2, 1));
        // several requests in one write are all answered
        client.send("remove 1\nremove accept dst 10.0.0.1\nremove 9\nadd 3 accept nothing\nremove accept dst 10.0.0.1");
        let answers = [(); 5].map(|()| client.receive());
        assert_eq!(&answers[..2], ["ok", "ok"]);
        assert!(answers[2].contains("there are 2") && answers[3].contains("nothing"), "{answers:?}");
        assert!(answers[4].contains("is not in the list of rules"), "{answers:?}");
        assert!(f.feed_one(&to(1, 4)).is_err() && f.feed_one(&to(2, 4)).is_ok() && f.feed_one(&to(3, 4)).is_ok());
        assert_eq!((f.counter("1 accept dst 10.0.0.2"), f.counter("2 accept dst 10.0.0.3")), (1, 2));
        f.advance(Duration::from_millis(20));
        assert_eq!((f.counter("rules_changed"), f.counter("rules_rejected")), (4, 3));
        for wrong in ["add 4 accept dst 10.0.0.1", "add 0 accept dst 10.0.0.1", "remove", "list all", "flush", ""] {
            let answer = client.request(wrong);
            assert!(answer.starts_with("error: "), "{wrong}: {answer}");
        }
        assert!(client.request("add accept dst 10.0.0.4 state established").contains("track") == more.is_empty());
        client.send(&"x".repeat(5000));
        assert!(client.receive().contains("longer than 4096"));
        // another firewall does not replace it
        let mut other = HarnessBuilder::new::<Firewall>(&text).build().unwrap();
        other.advance(Duration::from_millis(50));
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(Client::connect(&socket, &mut f).request("remove accept dst 10.0.0.2"), "ok");
        assert!(f.feed_one(&to(2, 5)).is_err() && other.feed_one(&to(2, 5)).is_ok());
        drop(other);
        assert!(socket.exists());
        drop(f);
        assert!(!socket.exists());
    }
    let e = Harness::try_new::<Firewall>("control = \"/nowhere/fw.sock\"").unwrap_err().to_string();
    assert!(e.contains("/nowhere/fw.sock"), "{e}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    /// The list is long enough that edits do not recompile it.
    #[test]
    fn matches_a_linear_scan_after_changes_by_socket_and_file(
        rules in prop::collection::vec(rule(), 80..200),
        steps in prop::collection::vec((any::<prop::sample::Index>(), prop::option::of(rule())), 1..40),
        packets in prop::collection::vec((address(), address(), any::<bool>(), 0..4u16), 32..100),
    ) {
        let folder = TempDir::new("scan");
        let (socket, file) = (folder.0.join("fw.sock"), folder.0.join("fw.rules"));
        let lines = |rules: &[ModelRule]| rules.iter().map(|r| r.text() + "\n").collect::<String>();
        write(&file, lines(&rules)).unwrap();
        let mut f = HarnessBuilder::new::<Firewall>(&format!("file = {file:?}\ncontrol = {socket:?}")).build().unwrap();
        let mut client = Client::connect(&socket, &mut f);
        let frames: Vec<_> = packets
            .iter()
            .map(|(src, dst, udp, port)| match udp {
                true => build::udp4(*src, *dst, 9, *port).pad_to(60).to_vec(),
                false => build::tcp4(*src, *dst, 9, *port).pad_to(60).to_vec(),
            })
            .collect();
        let expected = |list: &[ModelRule]| -> Vec<Vec<u8>> {
            let passes = |frame: &&Vec<u8>| {
                let tuple = FiveTuple::of_frame(frame).unwrap();
                list.iter().find(|r| r.matches(&tuple)).is_some_and(|r| r.accept)
            };
            frames.iter().filter(passes).cloned().collect()
        };
        let mut list = rules.clone();
        prop_assert_eq!(f.feed(&frames), expected(&list));
        for (at, new) in &steps {
            let line = match new {
                Some(new) => {
                    let at = at.index(list.len() + 1);
                    list.insert(at, new.clone());
                    format!("add {} {}", at + 1, new.text())
                }
                None => {
                    let at = at.index(list.len());
                    list.remove(at);
                    format!("remove {}", at + 1)
                }
            };
            prop_assert_eq!(client.request(&line), "ok");
            prop_assert_eq!(f.feed(&frames), expected(&list));
        }
        // reloading the file discards changes by the socket
        let changed = steps.len() as u64;
        let backwards: Vec<_> = rules[..60].iter().rev().cloned().chain(rules[60..].iter().cloned()).collect();
        write(&file, lines(&backwards)).unwrap();
        advance_until(&mut f, "rules_changed", changed + 1);
        prop_assert_eq!(f.feed(&frames), expected(&backwards));
        // the result is the same after recompiling
        std::thread::sleep(Duration::from_millis(100));
        prop_assert_eq!(f.feed(&frames), expected(&backwards));
    }
}

/// While the file changes, exactly one of two hosts may send: no packet is matched against both rules or neither.
#[test]
fn changes_are_atomic() {
    let folder = TempDir::new("half");
    let (file, next) = (folder.0.join("fw.rules"), folder.0.join("next"));
    let filler: String = (0..150).map(|n| format!("drop src 172.16.{n}.0/24\n")).collect();
    let lists: Vec<_> =
        ["1", "2"].map(|host| format!("{filler}accept src 10.0.0.{host}\n# no other\ndrop src 10.0.0.0/24\n")).into();
    write(&file, &lists[0]).unwrap();
    let mut f = HarnessBuilder::new::<Firewall>(&format!("file = {file:?}")).build().unwrap();
    let frames = [1, 2].map(|host| build::udp4([10, 0, 0, host], [1, 1, 1, 1], 1, 2).pad_to(60).to_vec());
    let over = AtomicBool::new(false);
    let mut seen = [0u32; 2];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1..7 {
                write(&next, &lists[n % 2]).unwrap();
                rename(&next, &file).unwrap();
                std::thread::sleep(Duration::from_millis(450));
            }
            over.store(true, Ordering::Relaxed);
        });
        while !over.load(Ordering::Relaxed) {
            let out = f.feed(&frames);
            assert_eq!(out.len(), 1, "exactly one host");
            seen[usize::from(out[0] == frames[1])] += 1;
        }
    });
    assert!(seen[0] > 100 && seen[1] > 100, "{seen:?}");
    f.advance(Duration::from_millis(20));
    assert!(f.counter("rules_changed") > 2);
}
