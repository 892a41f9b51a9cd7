//! `bondstone new`.

mod name;
mod sample;

use crate::exit::Exit;
use anyhow::Context;
use diagnostics::{Diagnostic, Diagnostics};
use graph::Registry;
use name::{Name, fill};
use std::fs;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};

/// Makes a crate with an NF of your own: its settings, tests, a benchmark, a chain file, a program that runs it.
///
/// What it makes builds, passes its tests and runs as it is; its NF limits the packets of each source, to be changed into
/// yours. The program has every command of bondstone and all shipped NFs.
#[derive(clap::Args)]
#[command(after_help = "\
Until Bondstone is published, the crate depends on its sources: on those that this program was built from, or others.

Examples:
  bondstone new my-nf
  bondstone new my-nf --dir work/my-nf
  bondstone new my-nf --bondstone https://git.example.org/bondstone.git")]
pub(crate) struct New {
    /// Name of the crate and of the kind of NF: small letters, digits, - and _.
    name: String,
    /// Folder to make; by default one of that name, here.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Bondstone's sources: a folder, or the URL of a git repository.
    #[arg(long, value_name = "PATH or URL")]
    bondstone: Option<String>,
}

/// The files of the crate, and what they are for, if that is worth a line.
const FILES: [(&str, &str, &str); 14] = [
    ("src/lib.rs", include_str!("new/lib.rs"), "the NF, its settings and unit tests: begin here"),
    ("src/main.rs", include_str!("new/main.rs"), "the program: bondstone with this NF"),
    ("tests/model.rs", include_str!("new/model.rs"), "the NF against a slow model, and random packets"),
    ("tests/capture.rs", include_str!("new/capture.rs"), "a capture through it"),
    ("benches/cycles.rs", include_str!("new/bench.rs"), "cycles per packet"),
    ("chain.toml", include_str!("new/chain.toml"), "the NF among others, over in.pcap"),
    ("build.rs", include_str!("new/build.rs"), "refuses unsafe code in NFs"),
    ("Cargo.toml", include_str!("new/manifest.toml"), ""),
    ("README.md", include_str!("new/readme.md"), ""),
    (".github/workflows/ci.yml", include_str!("new/ci.yml"), "format, clippy, tests, lint"),
    (".cargo/config.toml", include_str!("new/cargo_config.toml"), ""),
    (".gitignore", include_str!("new/gitignore"), ""),
    ("in.pcap", "", ""),
    ("Cargo.lock", "", ""),
];

/// Bondstone's crates that it depends on.
const CRATES: [&str; 3] = ["bondstone", "lint", "nf-testkit"];

/// Where Bondstone's crates are.
enum Source {
    /// The root of its sources.
    Folder(PathBuf),
    /// The URL of its repository.
    Git(String),
}

impl New {
    pub(crate) fn run(&self, registry: &Registry) -> anyhow::Result<Exit> {
        let wrong = |fault| anyhow::Error::from(Diagnostics(vec![fault]));
        let name = Name::of(&self.name, registry).map_err(wrong)?;
        let source = self.source().map_err(wrong)?;
        let dir = self.dir.clone().unwrap_or_else(|| name.package.clone().into());
        if dir.symlink_metadata().is_ok() {
            let fault = Diagnostic::new("is there already").value(dir.display());
            return Err(wrong(fault.remedy("name another folder: --dir FOLDER")));
        }
        fs::create_dir_all(&dir).with_context(|| format!("{} cannot be made", dir.display()))?;
        if let Err(e) = write(&dir, &name, &source) {
            // half a crate is none, and the folder is ours
            let _ = fs::remove_dir_all(&dir);
            return Err(e);
        }
        told(&dir, &name, &source)?;
        Ok(Exit::Done)
    }

    fn source(&self) -> Result<Source, Diagnostic> {
        let is_there = |root: &Path| {
            root.join("crates/bondstone-cli/Cargo.toml").is_file() && root.join("crates/nf-testkit").is_dir()
        };
        let Some(given) = &self.bondstone else {
            let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
            return match built.canonicalize() {
                Ok(root) if is_there(&root) => Ok(Source::Folder(root)),
                _ => Err(Diagnostic::new(
                    "Bondstone's sources, from which this program was built, are not there any more",
                )
                .value(built.display())
                .remedy("say where they are: --bondstone FOLDER, or --bondstone URL of a git repository")),
            };
        };
        if given.contains("://") {
            return match given.contains(['"', '\\']) || given.chars().any(char::is_control) {
                true => Err(Diagnostic::new("is no URL").value(given).remedy("write it without quotes")),
                false => Ok(Source::Git(given.clone())),
            };
        }
        match Path::new(given).canonicalize() {
            Ok(root) if is_there(&root) => Ok(Source::Folder(root)),
            _ => {
                let fault = Diagnostic::new("holds no sources of Bondstone").value(given);
                // as git writes them: git@host:path
                Err(fault.remedy(match given.split_once(':') {
                    Some((host, path)) => format!("a URL has a scheme: ssh://{host}/{path}"),
                    None => {
                        "name the folder that has crates/bondstone-cli in it, or the URL of a git repository".to_owned()
                    }
                }))
            }
        }
    }
}

impl Source {
    /// How a manifest names one of its crates.
    fn dependency(&self, name: &str) -> String {
        match self {
            Source::Folder(root) => format!("path = {:?}", root.join("crates").join(name).display().to_string()),
            Source::Git(url) => format!("git = {url:?}"),
        }
    }
}

fn write(dir: &Path, name: &Name, source: &Source) -> anyhow::Result<()> {
    let home = match source {
        Source::Folder(root) => root.display().to_string(),
        Source::Git(url) => url.clone(),
    };
    let depends = CRATES.map(|name| (format!("@{name}@"), source.dependency(name)));
    let marks = depends.iter().map(|(mark, value)| (mark.as_str(), value.as_str()));
    let marks: Vec<_> = marks.chain(name.marks()).chain([("@home@", home.as_str())]).collect();
    for (file, template, _) in FILES {
        let path = dir.join(file);
        let made = match (file, source) {
            ("in.pcap", _) => {
                sample::write(&path)?;
                continue;
            }
            // the versions that Bondstone is tested with; Cargo takes out what is not needed
            ("Cargo.lock", Source::Folder(root)) => {
                let lock = root.join(file);
                if lock.is_file() {
                    fs::copy(&lock, &path).with_context(|| format!("{} cannot be copied", lock.display()))?;
                }
                continue;
            }
            ("Cargo.lock", Source::Git(_)) => continue,
            _ => fill(template, &marks),
        };
        fs::create_dir_all(path.parent().unwrap_or(dir))
            .and_then(|()| fs::write(&path, made))
            .with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(())
}

fn told(dir: &Path, name: &Name, source: &Source) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    let (package, dir) = (&name.package, dir.display());
    writeln!(out, "{package}: a crate with an NF that limits the packets of each source, in {dir}\n")?;
    for (file, _, about) in FILES.iter().filter(|(.., about)| !about.is_empty()) {
        writeln!(out, "  {file:<26}{about}")?;
    }
    writeln!(
        out,
        "\n\
         Next:\n  \
         cd {dir}\n  \
         cargo test                    # unit, property and capture tests; the first build takes minutes\n  \
         cargo run -- run chain.toml   # beside the shipped NFs; needs no rights\n  \
         cargo bench                   # cycles per packet\n  \
         cargo run -- lint             # unsafe code in what it depends on"
    )?;
    if let Source::Folder(root) = source {
        writeln!(
            out,
            "\nIt depends on the sources in {}. For CI and others, name a git repository in Cargo.toml instead:\n  \
             bondstone = {{ git = \"https://...\" }}",
            root.display()
        )?;
    }
    Ok(())
}
