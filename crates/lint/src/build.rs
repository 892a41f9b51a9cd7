//! For build scripts.

use crate::package::Packages;
use crate::{Error, Finding, on_a_deep_stack};
use std::path::{Path, PathBuf};

/// When this is `off`, nothing is refused.
const SWITCH: &str = "BONDSTONE_LINT";

/// In the build script of a crate that registers NFs: the build fails when the crate, or an NF crate that it depends on, has
/// unsafe code. Dependencies named in `allow` are left out, and with `BONDSTONE_LINT=off` in the environment all are.
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
    // a package that Cargo has fetched: whoever builds it looks at it
    if dir.ancestors().any(|dir| dir.join(".cargo-ok").exists()) {
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
    match on_a_deep_stack(move || refused(&dir, &allow)) {
        Ok(Ok(findings)) => findings.iter().for_each(|finding| {
            println!("cargo::error={}", finding.to_string().replace("\n  cure:", "; cure:").replace('\n', " "));
        }),
        Ok(Err(why)) | Err(why) => {
            let why = why.to_string().replace('\n', " ");
            println!("cargo::warning=nobody has looked for unsafe code in NFs: {why}; run bondstone lint");
        }
    }
}

fn refused(dir: &Path, allow: &[String]) -> Result<Vec<Finding>, Error> {
    let ask = |arguments: &[&str]| Packages::of(dir, std::env::var("TARGET").ok(), arguments);
    // the lock file is there, and so is most of what it names: not what tests alone need
    let packages = ask(&["--locked", "--offline"]).or_else(|_| ask(&["--locked"]))?;
    packages.watched().iter().for_each(|folder| println!("cargo::rerun-if-changed={}", folder.display()));
    Ok(packages.check_nf_crates(allow).refused)
}
