//! For build scripts.

use crate::package::Packages;
use crate::{Error, Finding, on_a_deep_stack};
use std::path::{Path, PathBuf};

/// When this is `off`, nothing is refused.
const SWITCH: &str = "BONDSTONE_LINT";

/// In the build script of a crate that registers NFs: the build fails when the crate, or an NF crate that it depends on, has
/// unsafe code, and when nobody can tell: Cargo does not say what it depends on, or reading the sources fails. Dependencies
/// named in `allow` are left out, and with `BONDSTONE_LINT=off` in the environment all are.
///
/// Where the build is not Cargo's, and there is no Cargo to ask, it warns.
///
/// Macros of dependencies are left to `bondstone lint`: to look for them is too slow for every build.
pub fn build(allow: &[&str]) {
    println!("cargo::rerun-if-env-changed={SWITCH}");
    if std::env::var_os(SWITCH).is_some_and(|value| value == "off") {
        println!("cargo::warning={SWITCH} is off: nobody has looked for unsafe code in NFs");
        return;
    }
    let Some(dir) = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from) else {
        println!("cargo::error=lint::build is for build scripts, which Cargo runs");
        return;
    };
    // a package that Cargo has fetched, or vendored: whoever builds it looks at it
    if dir.ancestors().any(|dir| dir.join(".cargo-ok").exists()) || dir.join(".cargo-checksum.json").exists() {
        return;
    }
    // everything but what the build itself writes
    for entry in dir.read_dir().into_iter().flatten().flatten() {
        let path = entry.path();
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        let sources = path.is_dir() && !path.ends_with("target") && !hidden;
        if sources || path.extension().is_some_and(|e| e == "rs" || e == "toml") || path.ends_with("Cargo.lock") {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    let allow: Vec<String> = allow.iter().map(|&name| name.to_owned()).collect();
    let asked = dir.clone();
    let outcome = on_a_deep_stack(move || refused(&asked, &allow)).and_then(|outcome| outcome);
    said(outcome, &dir).iter().for_each(|line| println!("{line}"));
}

/// What Cargo is told: what nobody has looked at is not built, unless there is no Cargo to ask.
fn said(outcome: Result<Vec<Finding>, Error>, dir: &Path) -> Vec<String> {
    let flat = |text: String| text.replace("\n  remedy:", "; remedy:").replace(['\n', '\r'], " ");
    match outcome {
        Ok(findings) => findings.iter().map(|f| format!("cargo::error={}", flat(f.to_string()))).collect(),
        Err(why @ Error::NoCargo(_)) => {
            vec![format!("cargo::warning=nobody has looked for unsafe code in NFs: {}", flat(why.to_string()))]
        }
        Err(why) => vec![format!(
            "cargo::error=nobody has looked for unsafe code in NFs: {}; remedy: mend what `cargo metadata --locked` says in \
             {}, or look at them yourself and build with {SWITCH}=off",
            flat(why.to_string()),
            dir.display()
        )],
    }
}

fn refused(dir: &Path, allow: &[String]) -> Result<Vec<Finding>, Error> {
    let ask = |arguments: &[&str]| Packages::of(dir, std::env::var("TARGET").ok(), arguments);
    // the lock file is there, and so is most of what it names: not what tests alone need
    let packages = ask(&["--locked", "--offline"]).or_else(|_| ask(&["--locked"]))?;
    packages.watched().iter().for_each(|folder| println!("cargo::rerun-if-changed={}", folder.display()));
    Ok(packages.check_nf_crates(allow).refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_has_looked_at_is_not_built() {
        let dir = Path::new("my-nf");
        let panicked = on_a_deep_stack(|| -> Vec<Finding> { panic!("the parser trips") });
        let absent = refused(Path::new("/nowhere"), &[]);
        assert!(matches!(absent, Err(Error::NoCrate(_))), "{absent:?}");
        for outcome in [panicked, absent, Err(Error::Cargo("error:\r\n  no such lock".to_owned()))] {
            let lines = said(outcome, dir);
            assert!(lines.len() == 1 && lines[0].starts_with("cargo::error="), "{lines:?}");
            assert!(lines[0].contains("my-nf") && lines[0].contains(SWITCH) && !lines[0].contains(['\n', '\r']));
        }
        let lines = said(Err(Error::NoCargo("not found".to_owned())), dir);
        assert!(lines.len() == 1 && lines[0].starts_with("cargo::warning="), "{lines:?}");
        assert_eq!(said(Ok(vec![]), dir), [""; 0]);
    }

    #[test]
    fn a_finding_is_one_line() {
        let finding = Finding {
            name: "my-nf".to_owned(),
            file: "a\nb.rs".into(),
            line: 1,
            column: 2,
            what: "an unsafe block".to_owned(),
            remedy: "none".to_owned(),
        };
        let expected = "cargo::error=a b.rs:1:2: an unsafe block, in the NF crate my-nf; remedy: none";
        assert_eq!(said(Ok(vec![finding]), Path::new("")), [expected]);
    }
}
