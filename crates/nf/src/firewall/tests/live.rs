//! Rules that change while packets go on.

use super::{Simple, address, rule};
use crate::Firewall;
use proptest::prelude::*;
use std::fs::{remove_file, rename, write};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testkit::{Bench, Setup};
use wire::build;
use wire::flow::FiveTuple;

/// A folder of its own, gone in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("bs-firewall-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn bench(file: &Path, more: &str) -> Bench {
    Setup::of::<Firewall>(&format!("rules = [\"accept dst 10.0.0.9\"]\nfile = {file:?}\n{more}")).build().unwrap()
}

/// Wakes it until a counter has changed to this.
fn until(f: &mut Bench, counter: &str, n: u64) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while f.counter(counter) != n {
        assert!(Instant::now() < deadline, "{counter} is {}, not {n}", f.counter(counter));
        std::thread::sleep(Duration::from_millis(10));
        f.advance(Duration::from_millis(20));
    }
}

#[test]
fn a_changed_file_is_taken_and_a_wrong_one_is_not() {
    for more in ["", "track = { connections = 100 }"] {
        let folder = Folder::new(if more.is_empty() { "plain" } else { "tracked" });
        let file = folder.0.join("edge.rules");
        write(&file, "accept dst 10.0.0.1\naccept dst 10.0.0.2 # a comment\n").unwrap();
        let mut f = bench(&file, more);
        let to = |host, port| build::udp4([192, 0, 2, 1], [10, 0, 0, host], port, 2).pad_to(60).to_vec();
        assert!(f.one(&to(1, 1)).is_ok() && f.one(&to(2, 1)).is_ok() && f.one(&to(3, 1)).is_err());
        write(&file, "accept dst 10.0.0.3\naccept dst 10.0.0.2\n").unwrap();
        until(&mut f, "rules_changed", 1);
        // other ports: a connection that is known goes on
        assert!(f.one(&to(1, 2)).is_err() && f.one(&to(2, 2)).is_ok() && f.one(&to(3, 2)).is_ok());
        assert_eq!(f.one(&to(1, 1)).is_ok(), !more.is_empty());
        // counts stay with the rule's text
        assert_eq!((f.counter("2 accept dst 10.0.0.3"), f.counter("3 accept dst 10.0.0.2")), (1, 2));
        for wrong in ["accept dst nowhere\n", "accept dst 10.0.0.1 dport 80 type 8\n"] {
            let before = f.counter("rules_refused");
            write(&file, wrong).unwrap();
            until(&mut f, "rules_refused", before + 1);
            assert!(f.one(&to(3, 3)).is_ok() && f.one(&to(1, 3)).is_err());
        }
        // a file that is away for a while, and comes back otherwise
        remove_file(&file).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        f.advance(Duration::from_millis(20));
        assert!(f.one(&to(3, 4)).is_ok());
        write(&file, "drop dst 10.0.0.3\n").unwrap();
        until(&mut f, "rules_changed", 2);
        assert_eq!(f.one(&to(3, 5)), Err("refused"));
        assert!(f.one(&to(9, 5)).is_ok(), "rules of the chain file stay in front");
    }
}

/// A connection to a firewall's socket.
struct Talk(BufReader<UnixStream>);

impl Talk {
    /// Waits until somebody listens, which is when packets may come.
    fn to(socket: &Path, f: &mut Bench) -> Self {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            f.advance(Duration::from_millis(20));
            match UnixStream::connect(socket) {
                Ok(stream) => return Talk(BufReader::new(stream)),
                Err(e) => assert!(Instant::now() < deadline, "{}: {e}", socket.display()),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn say(&mut self, line: &str) {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn hear(&mut self) -> String {
        let mut answer = String::new();
        self.0.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }

    fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.hear()
    }
}

#[test]
fn rules_come_and_go_by_the_socket() {
    for more in ["", "track = { connections = 100 }"] {
        let folder = Folder::new(if more.is_empty() { "socket" } else { "socket-tracked" });
        let socket = folder.0.join("fw.sock");
        let text = format!("rules = [\"accept dst 10.0.0.1\", \"accept dst 10.0.0.2\"]\ncontrol = {socket:?}\n{more}");
        let mut f = Setup::of::<Firewall>(&text).build().unwrap();
        let to = |host, port| build::udp4([192, 0, 2, 1], [10, 0, 0, host], port, 2).pad_to(60).to_vec();
        let mut talk = Talk::to(&socket, &mut f);
        assert!(f.one(&to(1, 1)).is_ok() && f.one(&to(3, 1)).is_err());
        assert_eq!(talk.ask("add accept dst 10.0.0.3"), "ok");
        // in force with the next packet: nobody has woken it
        assert!(f.one(&to(3, 2)).is_ok());
        assert_eq!(talk.ask("add 1 drop dst 10.0.0.0/30"), "ok");
        assert!(f.one(&to(3, 3)).is_err() && f.one(&to(1, 3)).is_err());
        talk.say("list");
        let rules =
            ["1 drop dst 10.0.0.0/30", "2 accept dst 10.0.0.1", "3 accept dst 10.0.0.2", "4 accept dst 10.0.0.3"];
        assert_eq!([(); 5].map(|()| talk.hear()), [&rules[..], &["ok"]].concat()[..]);
        assert_eq!((f.counter(rules[0]), f.counter(rules[3])), (2, 1));
        // several in one write: each is answered
        talk.say("remove 1\nremove accept dst 10.0.0.1\nremove 9\nadd 3 accept nothing\nremove accept dst 10.0.0.1");
        let answers = [(); 5].map(|()| talk.hear());
        assert_eq!(&answers[..2], ["ok", "ok"]);
        assert!(answers[2].contains("there are 2") && answers[3].contains("nothing"), "{answers:?}");
        assert!(answers[4].contains("is no rule of the list"), "{answers:?}");
        assert!(f.one(&to(1, 4)).is_err() && f.one(&to(2, 4)).is_ok() && f.one(&to(3, 4)).is_ok());
        assert_eq!((f.counter("1 accept dst 10.0.0.2"), f.counter("2 accept dst 10.0.0.3")), (1, 2));
        f.advance(Duration::from_millis(20));
        assert_eq!((f.counter("rules_changed"), f.counter("rules_refused")), (4, 3));
        for wrong in ["add 4 accept dst 10.0.0.1", "add 0 accept dst 10.0.0.1", "remove", "list all", "flush", ""] {
            let answer = talk.ask(wrong);
            assert!(answer.starts_with("error: "), "{wrong}: {answer}");
        }
        assert!(talk.ask("add accept dst 10.0.0.4 state established").contains("track") == more.is_empty());
        talk.say(&"x".repeat(5000));
        assert!(talk.hear().contains("longer than 4096"));
        // another firewall does not take it away
        let mut other = Setup::of::<Firewall>(&text).build().unwrap();
        other.advance(Duration::from_millis(50));
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(Talk::to(&socket, &mut f).ask("remove accept dst 10.0.0.2"), "ok");
        assert!(f.one(&to(2, 5)).is_err() && other.one(&to(2, 5)).is_ok());
        drop(other);
        assert!(socket.exists());
        drop(f);
        assert!(!socket.exists());
    }
    let e = Bench::try_of::<Firewall>("control = \"/nowhere/fw.sock\"").unwrap_err().to_string();
    assert!(e.contains("/nowhere/fw.sock"), "{e}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    /// Long enough a list that changes are not made by making all of it anew.
    #[test]
    fn after_changes_by_socket_and_file_a_scan_says_the_same(
        rules in prop::collection::vec(rule(), 80..200),
        steps in prop::collection::vec((any::<prop::sample::Index>(), prop::option::of(rule())), 1..40),
        packets in prop::collection::vec((address(), address(), any::<bool>(), 0..4u16), 32..100),
    ) {
        let folder = Folder::new("scan");
        let (socket, file) = (folder.0.join("fw.sock"), folder.0.join("fw.rules"));
        let lines = |rules: &[Simple]| rules.iter().map(|r| r.text() + "\n").collect::<String>();
        write(&file, lines(&rules)).unwrap();
        let mut f = Setup::of::<Firewall>(&format!("file = {file:?}\ncontrol = {socket:?}")).build().unwrap();
        let mut talk = Talk::to(&socket, &mut f);
        let frames: Vec<_> = packets
            .iter()
            .map(|(src, dst, udp, port)| match udp {
                true => build::udp4(*src, *dst, 9, *port).pad_to(60).to_vec(),
                false => build::tcp4(*src, *dst, 9, *port).pad_to(60).to_vec(),
            })
            .collect();
        let expected = |list: &[Simple]| -> Vec<Vec<u8>> {
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
            prop_assert_eq!(talk.ask(&line), "ok");
            prop_assert_eq!(f.feed(&frames), expected(&list));
        }
        // the file makes the list what it says, whatever the socket has done
        let changed = steps.len() as u64;
        let backwards: Vec<_> = rules[..60].iter().rev().cloned().chain(rules[60..].iter().cloned()).collect();
        write(&file, lines(&backwards)).unwrap();
        until(&mut f, "rules_changed", changed + 1);
        prop_assert_eq!(f.feed(&frames), expected(&backwards));
        // and so it stays when all has been made ready anew
        std::thread::sleep(Duration::from_millis(100));
        prop_assert_eq!(f.feed(&frames), expected(&backwards));
    }
}

/// While a file changes, of two hosts exactly one may send: no packet sees neither rule, or both.
#[test]
fn no_packet_sees_half_of_a_change() {
    let folder = Folder::new("half");
    let (file, next) = (folder.0.join("fw.rules"), folder.0.join("next"));
    let filler: String = (0..150).map(|n| format!("drop src 172.16.{n}.0/24\n")).collect();
    let lists: Vec<_> =
        ["1", "2"].map(|host| format!("{filler}accept src 10.0.0.{host}\n# no other\ndrop src 10.0.0.0/24\n")).into();
    write(&file, &lists[0]).unwrap();
    let mut f = Setup::of::<Firewall>(&format!("file = {file:?}")).build().unwrap();
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
            assert_eq!(out.len(), 1, "one of both");
            seen[usize::from(out[0] == frames[1])] += 1;
        }
    });
    assert!(seen[0] > 100 && seen[1] > 100, "{seen:?}");
    f.advance(Duration::from_millis(20));
    assert!(f.counter("rules_changed") > 2);
}
