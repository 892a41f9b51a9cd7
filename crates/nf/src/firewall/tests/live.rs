//! Rules that change while packets go on.

use crate::Firewall;
use kit::{Bench, Setup};
use std::fs::{remove_file, write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use wire::build;

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
