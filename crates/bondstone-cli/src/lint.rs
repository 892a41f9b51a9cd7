//! `bondstone lint`.

use crate::exit::Exit;
use crate::table::{Table, count};
use diagnostics::{Diagnostic, Diagnostics};
use lint::{Dependency, Error, Finding, Verdict};
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};

/// Refuses unsafe code in a crate of NFs, and says how much of it is in what the crate depends on.
///
/// Read are the sources of the crate and of every dependency that is an NF crate, one that depends on bondstone-graph, be
/// it through others, and does not come from where that comes from. Refused are: unsafe blocks, functions, impls, traits
/// and extern blocks, in macros as well; assembly; the attributes no_mangle, export_name and link_section; whatever weakens
/// the lint unsafe_code; a library, program or example without #![forbid(unsafe_code)]; sources that cannot be followed;
/// and the use of a dependency's macro that has unsafe code, assembly or an include! in it, or invokes one that has, which
/// that lint does not see. Of the other dependencies unsafe code is counted. Build scripts and procedural macros are named:
/// they run while the crate is built, and nothing contains them; what such a macro, or one of the standard library, expands
/// to is not looked at, nor what build scripts write. Nothing is built or run here, but cargo metadata, which may fetch
/// what is missing.
#[derive(clap::Args)]
#[command(after_help = "\
What types cannot contain, safe code can still do: loop for ever, overflow the stack, abort or exit the process, use memory
without bound. An NF that is not trusted with that belongs behind a process wall.

Exit status: 0 nothing is refused, 1 something is, 2 there is no crate here.

Examples:
  bondstone lint
  bondstone lint ../my-nf --json | jq '.refused'
  bondstone lint --allow-dependency vendor-nat")]
pub(crate) struct Lint {
    /// Folder of the crate.
    #[arg(value_name = "CRATE_DIR", default_value = ".")]
    dir: PathBuf,
    /// A dependency that may have unsafe code though it is an NF crate, and whose macros may be used.
    #[arg(long, value_name = "NAME")]
    allow_dependency: Vec<String>,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

impl Lint {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let verdict = match lint::check(&self.dir, &self.allow_dependency) {
            Ok(verdict) => verdict,
            Err(e @ Error::NoCargo(_)) => {
                eprintln!("error: {e}\n  help: install Rust (rustup), or say in CARGO where cargo is");
                return Ok(Exit::Environment);
            }
            Err(e) => return Err(Diagnostics(vec![fault(&e)]).into()),
        };
        let mut out = stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &verdict)?;
            writeln!(out)?;
        } else {
            write!(out, "{}", text(&verdict))?;
        }
        for name in self.allow_dependency.iter().filter(|name| !verdict.dependencies.iter().any(|d| d.name == **name)) {
            eprintln!(
                "warning: {name:?}: {} does not depend on it\n  help: take the --allow-dependency out",
                verdict.name
            );
        }
        for finding in &verdict.refused {
            eprintln!("error: {}", Diagnostic::from(Shown(finding)));
        }
        Ok(if verdict.ok { Exit::Done } else { Exit::NotMet })
    }
}

struct Shown<'a>(&'a Finding);

impl From<Shown<'_>> for Diagnostic {
    fn from(Shown(finding): Shown<'_>) -> Self {
        Diagnostic {
            file: Some(near(&finding.file)),
            line: Some(finding.line),
            column: Some(finding.column),
            problem: format!("{}, in the NF crate {}", finding.what, finding.name),
            remedy: Some(finding.remedy.clone()),
            ..Default::default()
        }
    }
}

/// A path as seen from here, where that is shorter.
fn near(path: &Path) -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(here).unwrap_or(path).to_owned()
}

fn fault(e: &Error) -> Diagnostic {
    let remedy = match e {
        Error::NoCrate(_) => "name the folder of a crate: bondstone lint CRATE_DIR",
        Error::Workspace(_) => "name the folder of one of its crates: bondstone lint CRATE_DIR",
        _ => "does cargo check pass there?",
    };
    Diagnostic::new(e.to_string()).remedy(remedy)
}

/// The verdict for people; what is refused follows by itself.
fn text(verdict: &Verdict) -> String {
    let Verdict { name, version, files, nf_crates, refused, dependencies, build_time, .. } = verdict;
    let mut table = Table::new(&["dependency", "version", "unsafe", "in macros", "what"]);
    let shown = |d: &&Dependency| d.unsafe_code != 0 || d.unread != 0 || d.build_script || d.proc_macro || d.nf;
    for d in dependencies.iter().filter(shown) {
        let words = [
            (d.nf, "an NF crate".to_owned()),
            (d.own, "Bondstone's own".to_owned()),
            (d.build_script, "build script".to_owned()),
            (d.proc_macro, "procedural macro".to_owned()),
            (d.build_only && !d.proc_macro, "for the build alone".to_owned()),
            (d.links.is_some(), format!("links {}", d.links.as_deref().unwrap_or_default())),
            (d.unread != 0, format!("{} files cannot be read", d.unread)),
        ];
        let what: Vec<_> = words.into_iter().filter(|(is, _)| *is).map(|(_, what)| what).collect();
        let in_macros = if d.in_macros == 0 { "-".to_owned() } else { count(d.in_macros as u64) };
        table.row([d.name.clone(), d.version.clone(), count(d.unsafe_code as u64), in_macros, what.join(", ")]);
    }
    let mut out = String::new();
    if !table.is_empty() {
        out += &format!("{table}\n");
    }
    let rest = dependencies.iter().filter(|d| !shown(d)).count();
    let unsafe_code: usize = dependencies.iter().map(|d| d.unsafe_code).sum();
    out += &format!(
        "  {} dependencies, {rest} of them without unsafe code and not listed; unsafe in the others: {}\n",
        dependencies.len(),
        count(unsafe_code as u64),
    );
    let runs: Vec<_> = build_time.iter().filter(|b| b.name == *name).map(|b| near(&b.file)).collect();
    let runs: Vec<_> = runs.iter().map(|file| file.display().to_string()).collect();
    out += &format!("  run while it is built: {} build scripts and procedural macros", build_time.len());
    out += &if runs.is_empty() { "\n".to_owned() } else { format!(", of {name} itself {}\n", runs.join(", ")) };
    if !nf_crates.is_empty() {
        out += &format!("  held to the same: {}\n", nf_crates.join(", "));
    }
    let verdict = match refused.len() {
        0 => "no unsafe code".to_owned(),
        1 => "refused for 1 reason".to_owned(),
        n => format!("refused for {n} reasons"),
    };
    out + format!("\n{name} {version}: {verdict}, {files} source files read\n").as_str()
}
