//! `bondstone compile`: the compiled program sends and counts the same as the plain one.

use crate::common::{Ended, Said, Scratch, Summary};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Captured frames of many protocols.
const CAPTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/demo.pcap");

/// Returns an empty folder for chain files: always the same, so that build results are reused.
fn folder(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compile").join(name);
    drop(fs::remove_dir_all(&dir));
    // with the profile of this build, so that dependencies are not built again
    let own = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml")).unwrap();
    fs::create_dir_all(dir.join(".cargo")).unwrap();
    fs::write(dir.join(".cargo/config.toml"), &own[own.find("[profile.release]").unwrap()..]).unwrap();
    dir
}

/// Compiles a chain file as a user does, but offline and with the target folder of this test.
fn compile(dir: &Path, file: &str) -> Said {
    let built = Path::new(env!("CARGO_BIN_EXE_bondstone")).parent().expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_bondstone"));
    command.args(["compile", file]).current_dir(dir).env("CARGO", env!("CARGO")).env("CARGO_NET_OFFLINE", "true");
    command.env("CARGO_TARGET_DIR", built.parent().expect("a folder per profile"));
    // the flags of this build: those in the configuration of the crate would be added
    command.env("RUSTFLAGS", "-Ctarget-cpu=x86-64-v3");
    command.output().unwrap().into()
}

/// Runs a chain file with a program; returns its messages, its summary without times, and the frames sent.
fn run(program: &Path, dir: &Path, file: &str) -> (String, Value, Vec<u8>) {
    let output = Command::new(program).args(["run", file, "--json"]).current_dir(dir).output().unwrap();
    let said = Said::from(output);
    let notes = said.err.clone();
    let Summary(mut summary) = Ended { status: said.status, out: said.out, err: said.err }.summary(0);
    fn remove_times(value: &mut Value) {
        match value {
            Value::Object(object) => {
                let measured = ["seconds", "cycles_per_second", "cycles", "receive", "send", "fused", "memory"];
                measured.iter().for_each(|key| drop(object.remove(*key)));
                object.values_mut().for_each(remove_times);
            }
            Value::Array(array) => array.iter_mut().for_each(remove_times),
            _ => {}
        }
    }
    remove_times(&mut summary);
    (notes, summary, fs::read(dir.join("out.pcap")).unwrap())
}

/// NFs of a kind that does not have their name.
const NFS: [(&str, &str); 3] = [
    ("swap", "kind = \"l2fwd\"\n"),
    ("set", "kind = \"l2fwd\"\ndst = \"02:00:00:00:00:09\"\n"),
    ("source", "kind = \"l2fwd\"\nsrc = \"02:00:00:00:00:07\"\n"),
];

/// Returns a chain file from the capture to `out.pcap`.
fn chain_file(path: &[&str]) -> String {
    let mut text = format!("bondstone = 1\nport.in.device = \"pcap:{CAPTURE}\"\nport.out.device = \"pcap:out.pcap\"\n");
    for (name, settings) in NFS.iter().filter(|(name, _)| path.contains(name)) {
        text += &format!("[nf.{name}]\n{settings}");
    }
    format!("{text}[[chain]]\npath = [\"in\", \"{}\", \"out\"]\n", path.join("\", \""))
}

/// Checks that a chain file, which has been compiled, runs the same with both programs; returns the messages of the
/// compiled one.
fn check_same(program: &Path, dir: &Path, file: &str) -> String {
    let (_, plain, plain_out) = run(Path::new(env!("CARGO_BIN_EXE_bondstone")), dir, file);
    let (notes, compiled, compiled_out) = run(program, dir, file);
    assert_eq!(plain, compiled, "{file}");
    assert!(plain_out == compiled_out && plain_out.len() > 24, "{file}: the frames differ");
    notes
}

#[test]
fn a_compiled_chain_sends_and_counts_the_same() {
    let dir = folder("edge");
    let text = chain_file(&["swap", "count", "ttl", "monitor", "set", "cells"]);
    fs::write(dir.join("edge.toml"), &text).unwrap();
    let said = compile(&dir, "edge.toml");
    assert_eq!(said.status, Some(0), "{}\n{}", said.out, said.err);
    for words in
        ["fused: swap, count, ttl\n", "fused: set, cells\n", "process whole batches: monitor\n", "-compiled run edge"]
    {
        assert!(said.out.contains(words), "{words}: {}", said.out);
    }
    let program = said.out.lines().find_map(|line| line.strip_prefix("run it: ")).unwrap();
    let program = PathBuf::from(program.split(' ').next().unwrap());
    let notes = check_same(&program, &dir, "edge.toml");
    for words in ["fuses swap, count and ttl\n", "fuses set and cells\n", "process whole batches: monitor\n"] {
        assert!(notes.contains(words), "{words}: {notes}");
    }

    // with other settings, NFs choose a node that was not compiled
    let text = text.replace("[nf.swap]", "[nf.swap]\nsrc = \"02:00:00:00:00:08\"");
    fs::write(dir.join("other.toml"), text).unwrap();
    let notes = check_same(&program, &dir, "other.toml");
    assert!(notes.contains("compile the chain file again: swap, count and ttl\n"), "{notes}");
    assert!(notes.contains("fuses set and cells\n"), "{notes}");
}

#[test]
fn refuses_what_it_cannot_compile() {
    let dir = folder("refused");
    let write = |name: &str, path: &[&str]| fs::write(dir.join(name), chain_file(path)).unwrap();
    write("alone.toml", &["swap", "monitor", "ttl"]);
    let said = compile(&dir, "alone.toml");
    assert!(said.status == Some(2) && said.err.contains("nothing to compile"), "{said:?}");
    assert!(said.out.contains("processes packet by packet: swap, ttl\n"), "{}", said.out);

    write("taken.toml", &["swap", "ttl"]);
    fs::create_dir(dir.join("taken-compiled")).unwrap();
    fs::write(dir.join("taken-compiled/notes.txt"), "mine").unwrap();
    let said = compile(&dir, "taken.toml");
    assert!(said.status == Some(2) && said.err.contains("--dir"), "{said:?}");

    write("wrong.toml", &["swapp", "ttl"]);
    let said = compile(&dir, "wrong.toml");
    assert!(said.status == Some(2) && said.err.contains("wrong.toml:"), "{said:?}");
}

#[test]
fn reports_errors_of_cargo() {
    let scratch = Scratch::new();
    scratch.write("edge.toml", chain_file(&["swap", "ttl"]));
    let compile = |cargo: &Path| -> Said {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bondstone"));
        command.args(["compile", "edge.toml"]).current_dir(scratch.path("")).env("CARGO", cargo);
        command.output().unwrap().into()
    };
    let said = compile(Path::new("/nowhere/cargo"));
    assert!(said.status == Some(3) && said.err.contains("rustup"), "{said:?}");
    let failing =
        scratch.write("cargo", "#!/bin/sh\necho 'error: mismatched types --> src/main.rs:3:9' >&2\nexit 101\n");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&failing, executable).unwrap();
    let said = compile(&failing);
    assert_eq!(said.status, Some(4), "{said:?}");
    assert!(said.err.contains("src/main.rs:3:9") && said.err.contains("edge-compiled cannot be built"), "{said:?}");
}

/// Compiles random chains of shipped NFs.
#[test]
#[ignore = "builds a program for each chain"]
fn random_compiled_chains_send_and_count_the_same() {
    let kinds = ["swap", "set", "source", "ttl", "work", "count", "monitor", "tee"];
    let dir = folder("random");
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for n in 0..12 {
        let names: Vec<&str> = (0..3 + n % 6)
            .map(|_| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                kinds[random as usize % kinds.len()]
            })
            .collect();
        let file = format!("random{n}.toml");
        fs::write(dir.join(&file), chain_file(&names)).unwrap();
        let said = compile(&dir, &file);
        if said.err.contains("nothing to compile") {
            continue;
        }
        assert_eq!(said.status, Some(0), "{names:?}: {}\n{}", said.out, said.err);
        let program = said.out.lines().find_map(|line| line.strip_prefix("run it: ")).unwrap();
        let notes = check_same(Path::new(program.split(' ').next().unwrap()), &dir, &file);
        assert!(notes.contains(" fuses "), "{names:?}: {notes}");
    }
}
