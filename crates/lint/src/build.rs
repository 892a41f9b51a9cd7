//! The check for build scripts.

use crate::package::Packages;
use crate::{Error, Finding, on_large_stack};
use std::path::{Path, PathBuf};

/// Environment variable; the value `off` disables the check.
const VARIABLE: &str = "BONDSTONE_LINT";

/// Fails the build if the crate, or an NF crate among its dependencies, contains unsafe code, or if the check fails:
/// Cargo cannot resolve the dependencies, or a source cannot be read. For the build script of a crate that registers
/// NFs. Dependencies named in `allow` are not checked; `BONDSTONE_LINT=off` disables the check.
///
/// If Cargo is not installed because another build system is used, it prints a warning.
///
/// Macros of dependencies are checked by `bondstone lint` only, because that is too slow for every build.
#[expect(clippy::print_stdout, reason = "Cargo reads standard output of build scripts")]
pub fn build(allow: &[&str]) {
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    if std::env::var_os(VARIABLE).is_some_and(|value| value == "off") {
        println!("cargo::warning={VARIABLE}=off: NFs were not checked for unsafe code");
        return;
    }
    let Some(dir) = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from) else {
        println!("cargo::error=lint::build runs in build scripts only");
        return;
    };
    // a fetched or vendored package is checked by the crate that depends on it
    if dir.ancestors().any(|dir| dir.join(".cargo-ok").exists()) || dir.join(".cargo-checksum.json").exists() {
        return;
    }
    // all sources, without the output of the build
    for entry in dir.read_dir().into_iter().flatten().flatten() {
        let path = entry.path();
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        let sources = path.is_dir() && !path.ends_with("target") && !hidden;
        if sources || path.extension().is_some_and(|e| e == "rs" || e == "toml") || path.ends_with("Cargo.lock") {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    let allow: Vec<String> = allow.iter().map(|&name| name.to_owned()).collect();
    let crate_dir = dir.clone();
    let outcome = on_large_stack(move || findings(&crate_dir, &allow)).and_then(|outcome| outcome);
    cargo_lines(outcome, &dir).iter().for_each(|line| println!("{line}"));
}

/// Returns the lines for Cargo: findings and failed checks are errors, a missing Cargo is a warning.
fn cargo_lines(outcome: Result<Vec<Finding>, Error>, dir: &Path) -> Vec<String> {
    let flat = |text: String| text.replace("\n  help:", "; help:").replace(['\n', '\r'], " ");
    match outcome {
        Ok(findings) => findings.iter().map(|f| format!("cargo::error={}", flat(f.to_string()))).collect(),
        Err(why @ Error::NoCargo(_)) => {
            vec![format!("cargo::warning=NFs were not checked for unsafe code: {}", flat(why.to_string()))]
        }
        Err(why) => vec![format!(
            "cargo::error=NFs were not checked for unsafe code: {}; help: fix the errors of `cargo metadata --locked` \
             in {}, or review the sources and build with {VARIABLE}=off",
            flat(why.to_string()),
            dir.display()
        )],
    }
}

#[expect(clippy::print_stdout, reason = "Cargo reads standard output of build scripts")]
fn findings(dir: &Path, allow: &[String]) -> Result<Vec<Finding>, Error> {
    let resolve = |arguments: &[&str]| Packages::resolve(dir, std::env::var("TARGET").ok(), arguments);
    // the lock file exists, and so do most packages in it, except dev-dependencies
    let packages = resolve(&["--locked", "--offline"]).or_else(|_| resolve(&["--locked"]))?;
    packages.local_folders().iter().for_each(|folder| println!("cargo::rerun-if-changed={}", folder.display()));
    Ok(packages.check_nf_crates(allow).findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_checks_fail_the_build() {
        let dir = Path::new("my-nf");
        let panicked = on_large_stack(|| -> Vec<Finding> { panic!("parser error") });
        let absent = findings(Path::new("/nowhere"), &[]);
        assert!(matches!(absent, Err(Error::NoCrate(_))), "{absent:?}");
        for outcome in [panicked, absent, Err(Error::Cargo("error:\r\n  no such lock".to_owned()))] {
            let lines = cargo_lines(outcome, dir);
            assert!(lines.len() == 1 && lines[0].starts_with("cargo::error="), "{lines:?}");
            assert!(lines[0].contains("my-nf") && lines[0].contains(VARIABLE) && !lines[0].contains(['\n', '\r']));
        }
        let lines = cargo_lines(Err(Error::NoCargo("not found".to_owned())), dir);
        assert!(lines.len() == 1 && lines[0].starts_with("cargo::warning="), "{lines:?}");
        assert_eq!(cargo_lines(Ok(vec![]), dir), [""; 0]);
    }

    #[test]
    fn findings_are_printed_in_one_line() {
        let finding = Finding {
            name: "my-nf".to_owned(),
            file: "a\nb.rs".into(),
            line: 1,
            column: 2,
            problem: "an unsafe block".to_owned(),
            remedy: "none".to_owned(),
        };
        let expected = "cargo::error=a b.rs:1:2: an unsafe block, in the NF crate my-nf; help: none";
        assert_eq!(cargo_lines(Ok(vec![finding]), Path::new("")), [expected]);
    }
}
