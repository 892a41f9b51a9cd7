//! `bondstone new`: a crate is created, tested, run, and checked for unsafe code.

use crate::common::{Ended, Said, Scratch, Summary, bondstone};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A name that collides with a type in the templates unless it is converted.
const NAME: &str = "ipv4-addr";

/// Returns the folder of the crate: always the same, so that build results are reused.
fn crate_dir() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("new").join(NAME);
    drop(fs::remove_dir_all(&dir));
    dir
}

/// Runs Cargo in the crate as a user does, but offline and with the target folder of this test, where most dependencies
/// are built already.
fn cargo(dir: &Path, arguments: &[&str], more: &[&str]) -> Said {
    let program = Path::new(env!("CARGO_BIN_EXE_bondstone"));
    let built = program.parent().expect("a folder");
    let release = if built.ends_with("release") { &["--release"][..] } else { &[] };
    // with the same profile, so that dependencies are not built again
    let own = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml")).unwrap();
    let profile = dir.with_file_name("profile.toml");
    fs::write(&profile, &own[own.find("[profile.release]").unwrap()..]).unwrap();
    let mut command = Command::new(env!("CARGO"));
    command.arg("--config").arg(profile).args(arguments).arg("--offline").args(release).args(more).current_dir(dir);
    command.env("CARGO_TARGET_DIR", built.parent().expect("a folder per profile"));
    // the flags of this build: those in the configuration of the crate would be added
    if fs::read_to_string(dir.join(".cargo/config.toml")).unwrap().contains("\"-Ctarget-cpu=x86-64-v3\"") {
        command.env("RUSTFLAGS", "-Ctarget-cpu=x86-64-v3");
    }
    command.output().unwrap().into()
}

#[test]
fn new_crate_passes_tests_runs_and_fails_lint_with_unsafe_code() {
    let dir = crate_dir();
    let path = dir.to_str().unwrap();
    let said = bondstone(["new", NAME, "--dir", path]);
    assert_eq!((said.status, said.err.as_str()), (Some(0), ""), "{said:?}");
    for words in [path, "src/lib.rs", "cargo test", "cargo bench", "cargo run -- run chain.toml", "cargo run -- lint"] {
        assert!(said.out.contains(words), "{words}: {}", said.out);
    }
    let again = bondstone(["new", NAME, "--dir", path]);
    assert!(again.status == Some(2) && again.err.contains("--dir"), "{again:?}");

    // its tests pass
    let tested = cargo(&dir, &["test"], &[]);
    assert_eq!(tested.status, Some(0), "{}\n{}", tested.out, tested.err);
    for test in [
        "limits_packets_of_each_source_in_an_interval",
        "matches_the_model",
        "survives_random_packets",
        "forwards_five_packets_of_each_source",
    ] {
        assert!(tested.out.contains(&format!("{test} ... ok")), "{test}: {}", tested.out);
    }

    // its program, built by the tests, has all NFs
    let program = Path::new(env!("CARGO_BIN_EXE_bondstone")).with_file_name(NAME);
    let run_program =
        |arguments: &[&str]| Said::from(Command::new(&program).args(arguments).current_dir(&dir).output().unwrap());
    let ran = run_program(&["run", "chain.toml", "--json"]);
    let summary: Summary = Ended { status: ran.status, out: ran.out, err: ran.err }.summary(0);
    assert_eq!((summary.number("/totals/received"), summary.number("/totals/sent")), (31, 15));
    let limit = summary.nf("limit");
    assert_eq!((limit.0["kind"].as_str(), limit.number("/packets")), (Some(NAME), 31));
    assert_eq!((limit.number("/drops/too_many_packets"), limit.number("/drops/malformed")), (15, 1));
    let listed = run_program(&["nf", "list", "--json"]);
    let listed: Value = serde_json::from_str(&listed.out).unwrap();
    let kinds: Vec<_> = listed.as_array().unwrap().iter().map(|kind| kind["name"].as_str().unwrap()).collect();
    assert!([NAME, "l3fwd", "ttl"].iter().all(|kind| kinds.contains(kind)), "{kinds:?}");

    // no unsafe code
    let lint = bondstone(["lint", path, "--json"]);
    assert_eq!((lint.status, lint.err.as_str()), (Some(0), ""), "{lint:?}");
    let report: Value = serde_json::from_str(&lint.out).unwrap();
    assert_eq!((&report["ok"], &report["findings"]), (&true.into(), &Value::Array(vec![])));
    let depends = report["dependencies"].as_array().unwrap();
    let packet = depends.iter().find(|d| d["name"] == "bondstone-packet").unwrap();
    assert!(packet["bondstone"] == true && packet["unsafe"].as_u64() > Some(10), "{packet}");
    // the program is built without the measurement commands
    let absent = |name: &str| !depends.iter().any(|d| d["name"] == name);
    assert!(absent("rusqlite") && absent("bondstone-results") && absent("bondstone-report"), "{depends:?}");

    // a name that contains a placeholder
    let other = dir.with_file_name("dummy_nf2");
    drop(fs::remove_dir_all(&other));
    let said = bondstone(["new", "dummy_nf2", "--dir", other.to_str().unwrap()]);
    assert_eq!(said.status, Some(0), "{said:?}");
    let tested = cargo(&other, &["test"], &["--test", "capture"]);
    assert_eq!(tested.status, Some(0), "{}\n{}", tested.out, tested.err);

    // a finding after adding unsafe code
    let lib = dir.join("src/lib.rs");
    let text = fs::read_to_string(&lib).unwrap();
    let line = text.lines().count() + 2;
    fs::write(&lib, text + "pub fn peek(byte: *const u8) -> u8 {\n    unsafe { *byte }\n}\n").unwrap();
    let lint = bondstone(["lint", path]);
    assert_eq!(lint.status, Some(1), "{lint:?}");
    let named = format!("src/lib.rs:{line}:5: an unsafe block");
    assert!(lint.err.contains(&named) && lint.err.contains("help: "), "{}", lint.err);
    assert!(lint.out.contains("1 finding"), "{}", lint.out);
    // the build script fails, too
    let built = cargo(&dir, &["build"], &[]);
    assert!(built.status != Some(0) && built.err.contains(&named), "{}", built.err);
}

#[test]
fn invalid_names_and_sources_leave_no_files() {
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
fn depends_on_a_repository_by_url() {
    let scratch = Scratch::new();
    let dir = scratch.path("made");
    let url = "https://example.org/bondstone.git";
    let said = bondstone(["new", "fine", "--dir", dir.to_str().unwrap(), "--bondstone", url]);
    assert_eq!(said.status, Some(0), "{said:?}");
    let manifest = fs::read_to_string(dir.join("Cargo.toml")).unwrap();
    assert_eq!(manifest.matches(&format!("git = \"{url}\"")).count(), 3, "{manifest}");
    // no placeholders and no local paths remain
    for file in ["Cargo.toml", "README.md", "chain.toml", "src/lib.rs", "src/main.rs", "tests/model.rs"] {
        let text = fs::read_to_string(dir.join(file)).unwrap();
        for rest in ["my-nf", "my_nf", "MyNf", "path = \"/", "@"] {
            assert!(!text.contains(rest), "{file}: {rest}");
        }
    }
}

#[test]
fn created_files_are_formatted() {
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
