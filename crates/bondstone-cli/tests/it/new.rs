//! A new user's first quarter of an hour: a crate is made, tested, run, and checked for unsafe code.

use crate::common::{Ended, Said, Scratch, Summary, bondstone};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A name of which nothing must be left in the templates' own: it is called as a type that they use.
const ODD: &str = "ipv4-addr";

/// Where the crate is made: always the same place, so that what was built of it is used again.
fn place() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("new").join(ODD);
    drop(fs::remove_dir_all(&dir));
    dir
}

/// Cargo in the crate, as whoever made it calls it; without the network, and with the target folder of this very test, where
/// most of what the crate needs is built already.
fn cargo(dir: &Path, arguments: &[&str], more: &[&str]) -> Said {
    let program = Path::new(env!("CARGO_BIN_EXE_bondstone"));
    let built = program.parent().expect("it is in a folder");
    let release = if built.ends_with("release") { &["--release"][..] } else { &[] };
    // and the same profile: dependencies that are built in another way would all be built again
    let own = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml")).unwrap();
    let profile = dir.with_file_name("profile.toml");
    fs::write(&profile, &own[own.find("[profile.release]").unwrap()..]).unwrap();
    let mut command = Command::new(env!("CARGO"));
    command.arg("--config").arg(profile).args(arguments).arg("--offline").args(release).args(more).current_dir(dir);
    command.env("CARGO_TARGET_DIR", built.parent().expect("target folders have one for each profile"));
    // the same flags as here, where the crate's settings for Cargo would come on top of these
    if fs::read_to_string(dir.join(".cargo/config.toml")).unwrap().contains("\"-Ctarget-cpu=x86-64-v3\"") {
        command.env("RUSTFLAGS", "-Ctarget-cpu=x86-64-v3");
    }
    command.output().unwrap().into()
}

#[test]
fn a_new_crate_is_tested_run_and_refused_once_it_has_unsafe_code() {
    let dir = place();
    let path = dir.to_str().unwrap();
    let said = bondstone(["new", ODD, "--dir", path]);
    assert_eq!((said.status, said.err.as_str()), (Some(0), ""), "{said:?}");
    for words in [path, "src/lib.rs", "cargo test", "cargo bench", "cargo run -- run chain.toml", "cargo run -- lint"] {
        assert!(said.out.contains(words), "{words}: {}", said.out);
    }
    let again = bondstone(["new", ODD, "--dir", path]);
    assert!(again.status == Some(2) && again.err.contains("--dir"), "{again:?}");

    // it compiles and passes as it is
    let tested = cargo(&dir, &["test"], &[]);
    assert_eq!(tested.status, Some(0), "{}\n{}", tested.out, tested.err);
    for test in [
        "each_source_may_send_so_many_packets_in_an_interval",
        "decides_as_the_model",
        "survives_whatever_comes",
        "of_the_capture_five_packets_of_each_source_pass",
    ] {
        assert!(tested.out.contains(&format!("{test} ... ok")), "{test}: {}", tested.out);
    }

    // it is one of the NFs of a program, beside those shipped; its tests have built that
    let program = Path::new(env!("CARGO_BIN_EXE_bondstone")).with_file_name(ODD);
    let made =
        |arguments: &[&str]| Said::from(Command::new(&program).args(arguments).current_dir(&dir).output().unwrap());
    let ran = made(&["run", "chain.toml", "--json"]);
    let summary: Summary = Ended { status: ran.status, out: ran.out, err: ran.err }.summary(0);
    assert_eq!((summary.number("/totals/received"), summary.number("/totals/sent")), (31, 15));
    let limit = summary.nf("limit");
    assert_eq!((limit.0["kind"].as_str(), limit.number("/packets")), (Some(ODD), 31));
    assert_eq!((limit.number("/drops/too_many_packets"), limit.number("/drops/malformed")), (15, 1));
    let listed = made(&["nf", "list", "--json"]);
    let listed: Value = serde_json::from_str(&listed.out).unwrap();
    let kinds: Vec<_> = listed.as_array().unwrap().iter().map(|kind| kind["name"].as_str().unwrap()).collect();
    assert!([ODD, "l3fwd", "ttl"].iter().all(|kind| kinds.contains(kind)), "{kinds:?}");

    // it has no unsafe code
    let lint = bondstone(["lint", path, "--json"]);
    assert_eq!((lint.status, lint.err.as_str()), (Some(0), ""), "{lint:?}");
    let verdict: Value = serde_json::from_str(&lint.out).unwrap();
    assert_eq!((&verdict["ok"], &verdict["refused"]), (&true.into(), &Value::Array(vec![])));
    let depends = verdict["dependencies"].as_array().unwrap();
    let packet = depends.iter().find(|d| d["name"] == "bondstone-packet").unwrap();
    assert!(packet["own"] == true && packet["unsafe"].as_u64() > Some(10), "{packet}");
    // the program is built without what measures
    let absent = |name: &str| !depends.iter().any(|d| d["name"] == name);
    assert!(absent("rusqlite") && absent("bondstone-results") && absent("bondstone-report"), "{depends:?}");

    // so is one whose name has the templates' own in it
    let other = dir.with_file_name("dummy_nf2");
    drop(fs::remove_dir_all(&other));
    let said = bondstone(["new", "dummy_nf2", "--dir", other.to_str().unwrap()]);
    assert_eq!(said.status, Some(0), "{said:?}");
    let tested = cargo(&other, &["test"], &["--test", "capture"]);
    assert_eq!(tested.status, Some(0), "{}\n{}", tested.out, tested.err);

    // and is refused once it has
    let lib = dir.join("src/lib.rs");
    let text = fs::read_to_string(&lib).unwrap();
    let line = text.lines().count() + 2;
    fs::write(&lib, text + "pub fn peek(byte: *const u8) -> u8 {\n    unsafe { *byte }\n}\n").unwrap();
    let lint = bondstone(["lint", path]);
    assert_eq!(lint.status, Some(1), "{lint:?}");
    let named = format!("src/lib.rs:{line}:5: an unsafe block");
    assert!(lint.err.contains(&named) && lint.err.contains("help: "), "{}", lint.err);
    assert!(lint.out.contains("refused for 1 reason"), "{}", lint.out);
    // its build says so too, before anything of it is compiled
    let built = cargo(&dir, &["build"], &[]);
    assert!(built.status != Some(0) && built.err.contains(&named), "{}", built.err);
}

#[test]
fn sources_and_names_that_are_none_are_refused_and_nothing_is_left() {
    let scratch = Scratch::new();
    let dir = scratch.path("made");
    let dir = dir.to_str().unwrap();
    for (arguments, words) in [
        (&["new", "Odd Sources", "--dir", dir][..], "odd-sources"),
        (&["new", "ttl", "--dir", dir], "my-ttl"),
        (&["new", "fn", "--dir", dir], "fn-nf"),
        (&["new", "fine", "--dir", dir, "--bondstone", "/nowhere"], "crates/bondstone-cli"),
        (&["new", "fine", "--dir", dir, "--bondstone", "git@example.org:b.git"], "ssh://git@example.org/b.git"),
    ] {
        let said = bondstone(arguments);
        assert_eq!((said.status, said.out.as_str()), (Some(2), ""), "{said:?}");
        assert!(said.err.contains(words) && said.err.contains("help: "), "{words}: {}", said.err);
        assert!(!Path::new(dir).exists());
    }
}

#[test]
fn a_repository_is_depended_on_by_its_url() {
    let scratch = Scratch::new();
    let dir = scratch.path("made");
    let url = "https://example.org/bondstone.git";
    let said = bondstone(["new", "fine", "--dir", dir.to_str().unwrap(), "--bondstone", url]);
    assert_eq!(said.status, Some(0), "{said:?}");
    let manifest = fs::read_to_string(dir.join("Cargo.toml")).unwrap();
    assert_eq!(manifest.matches(&format!("git = \"{url}\"")).count(), 7, "{manifest}");
    // nothing of the templates is left, and no path of this machine
    for file in ["Cargo.toml", "README.md", "chain.toml", "src/lib.rs", "src/main.rs", "tests/model.rs"] {
        let text = fs::read_to_string(dir.join(file)).unwrap();
        for rest in ["my-nf", "my_nf", "MyNf", "path = \"/", "@"] {
            assert!(!text.contains(rest), "{file}: {rest}");
        }
    }
}

#[test]
fn what_is_made_is_formatted_whatever_the_name() {
    let scratch = Scratch::new();
    for name in ["a", "my-nf", "zz", "vec", "dummy_nf2", "a-name-of-thirty-two-letters-yes"] {
        let dir = scratch.path(name);
        let said = bondstone(["new", name, "--dir", dir.to_str().unwrap()]);
        assert_eq!(said.status, Some(0), "{said:?}");
        let mut command = Command::new("rustfmt");
        command.args(["--check", "--edition", "2024"]).current_dir(&dir);
        command.args([
            "src/lib.rs",
            "src/main.rs",
            "build.rs",
            "tests/model.rs",
            "tests/capture.rs",
            "benches/cycles.rs",
        ]);
        let Ok(output) = command.output() else {
            eprintln!("skipped: rustfmt is not installed");
            return;
        };
        let said = Said::from(output);
        assert_eq!(said.status, Some(0), "{name}: {}{}", said.out, said.err);
    }
}
