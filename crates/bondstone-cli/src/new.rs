//! `bondstone new`.

mod name;
mod sample;

use crate::exit::Exit;
use crate::source::Source;
use crate::stdout::stdout;
use crate::template::fill;
use anyhow::Context;
use diagnostics::{Diagnostic, Diagnostics};
use graph::Registry;
use name::Name;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Creates a crate with an NF: settings, tests, a benchmark, a chain file, and a program that runs it.
///
/// The crate builds, passes its tests and runs without changes. Its NF limits the packets of each source: replace it by
/// your own. The program has all commands of bondstone and all shipped NFs.
#[derive(clap::Args)]
#[command(after_help = "\
Until Bondstone is published, the crate depends on its sources: by default, those that this program was built from.

Examples:
  bondstone new my-nf
  bondstone new my-nf --dir work/my-nf
  bondstone new my-nf --bondstone https://git.example.org/bondstone.git")]
pub(crate) struct New {
    /// Name of the crate and of the kind of NF: lower-case letters, digits, - and _.
    name: String,
    /// Folder to create [default: NAME].
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Sources of Bondstone: a folder, or the URL of a git repository.
    #[arg(long, value_name = "PATH|URL")]
    bondstone: Option<String>,
}

/// Files of the crate: path, template, description; files without description are not listed.
const FILES: [(&str, &str, &str); 14] = [
    ("src/lib.rs", include_str!("new/lib.rs"), "the NF, its settings and unit tests: start here"),
    ("src/main.rs", include_str!("new/main.rs"), "the program: bondstone with this NF"),
    ("tests/model.rs", include_str!("new/model.rs"), "property tests: comparison with a model, random packets"),
    ("tests/capture.rs", include_str!("new/capture.rs"), "a capture as test input"),
    ("benches/cycles.rs", include_str!("new/bench.rs"), "cycles per packet"),
    ("chain.toml", include_str!("new/chain.toml"), "an example chain with in.pcap"),
    ("build.rs", include_str!("new/build.rs"), "rejects unsafe code in NFs"),
    ("Cargo.toml", include_str!("new/manifest.toml"), ""),
    ("README.md", include_str!("new/readme.md"), ""),
    (".github/workflows/ci.yml", include_str!("new/ci.yml"), "format, clippy, tests, lint"),
    (".cargo/config.toml", include_str!("new/cargo_config.toml"), ""),
    (".gitignore", include_str!("new/gitignore"), ""),
    ("in.pcap", "", ""),
    ("Cargo.lock", "", ""),
];

/// Crates of Bondstone that the new crate depends on.
const CRATES: [&str; 3] = ["bondstone", "lint", "nf-testkit"];

impl New {
    pub(crate) fn run(&self, registry: &Registry) -> anyhow::Result<Exit> {
        let input_error = |error| anyhow::Error::from(Diagnostics(vec![error]));
        let name = Name::parse(&self.name, registry).map_err(input_error)?;
        let source = Source::find(self.bondstone.as_deref()).map_err(input_error)?;
        let dir = self.dir.clone().unwrap_or_else(|| name.package.clone().into());
        if dir.symlink_metadata().is_ok() {
            let error = Diagnostic::new("already exists").value(dir.display());
            return Err(input_error(error.remedy("use another folder: --dir FOLDER")));
        }
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        if let Err(e) = write(&dir, &name, &source) {
            // remove the incomplete crate; the folder did not exist before
            let _ = fs::remove_dir_all(&dir);
            return Err(e);
        }
        print_summary(&dir, &name, &source)?;
        Ok(Exit::Success)
    }
}

fn write(dir: &Path, name: &Name, source: &Source) -> anyhow::Result<()> {
    let home = match source {
        Source::Folder(root) => root.display().to_string(),
        Source::Git(url) => url.clone(),
    };
    let depends = CRATES.map(|name| (format!("@{name}@"), source.dependency(name)));
    let placeholders = depends.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let placeholders: Vec<_> = placeholders.chain(name.placeholders()).chain([("@home@", home.as_str())]).collect();
    for (file, template, _) in FILES {
        let path = dir.join(file);
        let text = match file {
            "in.pcap" => {
                sample::write(&path)?;
                continue;
            }
            "Cargo.lock" => {
                source.copy_lock_file(dir)?;
                continue;
            }
            _ => fill(template, &placeholders),
        };
        fs::create_dir_all(path.parent().unwrap_or(dir))
            .and_then(|()| fs::write(&path, text))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn print_summary(dir: &Path, name: &Name, source: &Source) -> anyhow::Result<()> {
    let mut out = stdout();
    let (package, dir) = (&name.package, dir.display());
    writeln!(out, "created {package} in {dir}: a crate with an NF that limits the packets of each source\n")?;
    for (file, _, about) in FILES.iter().filter(|(.., about)| !about.is_empty()) {
        writeln!(out, "  {file:<26}{about}")?;
    }
    writeln!(
        out,
        "\n\
         Next:\n  \
         cd {dir}\n  \
         cargo test                    # unit, property and capture tests; the first build takes minutes\n  \
         cargo run -- run chain.toml   # with shipped NFs; needs no privileges\n  \
         cargo bench                   # cycles per packet\n  \
         cargo run -- lint             # unsafe code in its dependencies"
    )?;
    if let Source::Folder(root) = source {
        writeln!(
            out,
            "\nIt depends on the sources in {}. For CI and other hosts, use a git repository in Cargo.toml:\n  \
             bondstone = {{ git = \"https://...\" }}",
            root.display()
        )?;
    }
    Ok(())
}
