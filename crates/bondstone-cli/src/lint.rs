//! `bondstone lint`.

use crate::exit::Exit;
use crate::stdout::stdout;
use crate::table::{Table, count};
use diagnostics::{Diagnostic, Diagnostics};
use lint::{Dependency, Error, Finding, Report};
use logger::eprintln;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Rejects unsafe code in a crate of NFs, and counts it in the dependencies.
///
/// Checks the sources of the crate and of its dependencies that are NF crates: those that depend on bondstone-graph,
/// directly or not, and are not part of Bondstone. Reports unsafe blocks, functions, impls, traits and extern blocks,
/// also in macros; assembly; the attributes no_mangle, export_name and link_section; attributes that weaken the lint
/// unsafe_code; libraries, programs and examples without #![forbid(unsafe_code)]; sources that cannot be followed; and
/// the use of macros of dependencies that contain unsafe code, assembly or an include!, directly or not, which the lint
/// does not cover.
///
/// In other dependencies unsafe code is counted. Build scripts and procedural macros are listed: they run at build time
/// without isolation. Their output and the expansion of macros of the standard library are not checked. The command
/// runs cargo metadata, which may fetch dependencies; it does not build anything.
#[derive(clap::Args)]
#[command(after_help = "\
Safe code can still loop forever, overflow the stack, abort or exit the process, and use unbounded memory. Run an NF
that is not trusted in this respect in a process sandbox.

Exit status: 0 no findings, 1 findings, 2 no crate in the folder.

Examples:
  bondstone lint
  bondstone lint ../my-nf --json | jq '.findings'
  bondstone lint --allow-dependency vendor-nat")]
pub(crate) struct Lint {
    /// Folder of the crate.
    #[arg(value_name = "CRATE_DIR", default_value = ".")]
    dir: PathBuf,
    /// Dependency that may contain unsafe code although it is an NF crate, and whose macros may be used.
    #[arg(long, value_name = "NAME")]
    allow_dependency: Vec<String>,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

impl Lint {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let report = match lint::check(&self.dir, &self.allow_dependency) {
            Ok(report) => report,
            Err(e @ Error::NoCargo(_)) => {
                eprintln!("error: {e}\n  help: install Rust (rustup), or set CARGO to the path of cargo");
                return Ok(Exit::Environment);
            }
            Err(e) => return Err(Diagnostics(vec![diagnostic(&e)]).into()),
        };
        let mut out = stdout();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &report)?;
            writeln!(out)?;
        } else {
            write!(out, "{}", text(&report))?;
        }
        for name in self.allow_dependency.iter().filter(|name| !report.dependencies.iter().any(|d| d.name == **name)) {
            eprintln!(
                "warning: --allow-dependency {name}: not a dependency of {}\n  help: remove the option",
                report.name
            );
        }
        for finding in &report.findings {
            eprintln!("error: {}", finding_diagnostic(finding));
        }
        Ok(if report.ok { Exit::Success } else { Exit::NotMet })
    }
}

fn finding_diagnostic(finding: &Finding) -> Diagnostic {
    Diagnostic {
        file: Some(relative(&finding.file)),
        line: Some(finding.line),
        column: Some(finding.column),
        problem: format!("{}, in the NF crate {}", finding.problem, finding.name),
        remedy: Some(finding.remedy.clone()),
        ..Default::default()
    }
}

/// Returns a path relative to the working directory if it is inside.
fn relative(path: &Path) -> PathBuf {
    let working_dir = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(working_dir).unwrap_or(path).to_owned()
}

fn diagnostic(e: &Error) -> Diagnostic {
    let remedy = match e {
        Error::NoCrate(_) => "specify the folder of a crate: bondstone lint CRATE_DIR",
        Error::Workspace(_) => "specify the folder of one of its crates: bondstone lint CRATE_DIR",
        _ => "fix the errors of `cargo check` there first",
    };
    Diagnostic::new(e.to_string()).remedy(remedy)
}

/// Formats the report without its findings.
fn text(report: &Report) -> String {
    let Report { name, version, files, nf_crates, findings, dependencies, build_time, .. } = report;
    let mut table = Table::new(&["dependency", "version", "unsafe", "in macros", "notes"]);
    let shown =
        |d: &&Dependency| d.unsafe_code != 0 || d.unreadable_files != 0 || d.build_script || d.proc_macro || d.nf;
    for d in dependencies.iter().filter(shown) {
        let notes = [
            (d.nf, "NF crate".to_owned()),
            (d.bondstone, "part of Bondstone".to_owned()),
            (d.build_script, "build script".to_owned()),
            (d.proc_macro, "procedural macro".to_owned()),
            (d.build_only && !d.proc_macro, "build dependency".to_owned()),
            (d.links.is_some(), format!("links {}", d.links.as_deref().unwrap_or_default())),
            (d.unreadable_files != 0, format!("{} unreadable files", d.unreadable_files)),
        ];
        let notes: Vec<_> = notes.into_iter().filter(|(applies, _)| *applies).map(|(_, note)| note).collect();
        let in_macros = if d.in_macros == 0 { "-".to_owned() } else { count(d.in_macros as u64) };
        table.row([d.name.clone(), d.version.clone(), count(d.unsafe_code as u64), in_macros, notes.join(", ")]);
    }
    let mut out = String::new();
    if !table.is_empty() {
        out += &format!("{table}\n");
    }
    let hidden = dependencies.iter().filter(|d| !shown(d)).count();
    let unsafe_code: usize = dependencies.iter().map(|d| d.unsafe_code).sum();
    out += &format!(
        "  {} dependencies; {hidden} without unsafe code are not listed; unsafe code in the others: {}\n",
        dependencies.len(),
        count(unsafe_code as u64),
    );
    let build_code: Vec<_> = build_time.iter().filter(|b| b.name == *name).map(|b| relative(&b.file)).collect();
    let build_code: Vec<_> = build_code.iter().map(|file| file.display().to_string()).collect();
    out += &format!("  run at build time: {} build scripts and procedural macros", build_time.len());
    out += &if build_code.is_empty() { "\n".to_owned() } else { format!(", of {name}: {}\n", build_code.join(", ")) };
    if !nf_crates.is_empty() {
        out += &format!("  also checked: {}\n", nf_crates.join(", "));
    }
    let verdict = match findings.len() {
        0 => "no unsafe code".to_owned(),
        1 => "1 finding".to_owned(),
        n => format!("{n} findings"),
    };
    out + format!("\n{name} {version}: {verdict}, {files} source files checked\n").as_str()
}
