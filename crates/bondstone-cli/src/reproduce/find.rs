//! Where scenarios are.

use bench::Scenario;
use diagnostics::{Diagnostic, Diagnostics};
use std::path::{Path, PathBuf};

/// Scenarios of one folder, and folders of scenarios, at the most.
const MOST: usize = 1000;

/// A scenario's name and file.
pub(super) struct Found {
    pub(super) name: String,
    pub(super) file: PathBuf,
}

/// The folder of studies: `$BONDSTONE_SCENARIOS`, or `scenarios` here, or in a folder that the program is in.
///
/// # Errors
/// Where it was looked for.
pub(super) fn folder() -> Result<PathBuf, Diagnostics> {
    let remedy =
        "run it in Bondstone's folder, set BONDSTONE_SCENARIOS to a folder of studies, or name a scenario's file";
    let none = |problem: String, value: String| Diagnostics(vec![Diagnostic::new(problem).value(value).remedy(remedy)]);
    if let Some(named) = std::env::var_os("BONDSTONE_SCENARIOS").map(PathBuf::from) {
        let wrong = || none("BONDSTONE_SCENARIOS is no folder".to_owned(), named.display().to_string());
        return named.is_dir().then_some(named.clone()).ok_or_else(wrong);
    }
    let executable = std::env::current_exe().unwrap_or_default();
    let above = executable.ancestors().skip(1).map(|folder| folder.join("scenarios"));
    let mut candidates = std::iter::once(PathBuf::from("scenarios")).chain(above);
    candidates.find(|f| f.is_dir()).ok_or_else(|| {
        let problem = "there is no such folder here, nor beside or above the program";
        none(problem.to_owned(), "scenarios".to_owned())
    })
}

/// Every scenario of a folder of studies, by name.
pub(super) fn all(folder: &Path) -> Result<Vec<Found>, Diagnostics> {
    let mut found = vec![];
    for study in entries(folder)?.into_iter().filter(|path| path.is_dir()) {
        found.extend(of_study(&study)?);
    }
    Ok(found)
}

fn of_study(study: &Path) -> Result<Vec<Found>, Diagnostics> {
    let is_scenario = |path: &PathBuf| {
        path.extension().is_some_and(|e| e == "toml") && config::read(path, "scenario").is_ok_and(|t| Scenario::is(&t))
    };
    let found = entries(study)?.into_iter().filter(is_scenario).map(|file| {
        let part = |name: Option<&std::ffi::OsStr>| name.unwrap_or_default().to_string_lossy().into_owned();
        Found { name: format!("{}/{}", part(study.file_name()), part(file.file_stem())), file }
    });
    Ok(found.collect())
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, Diagnostics> {
    let unreadable = |e: std::io::Error| {
        let remedy = "name a folder that this user may read";
        let d = Diagnostic { file: Some(folder.to_owned()), ..Diagnostic::new(format!("cannot be read: {e}")) };
        Diagnostics(vec![d.remedy(remedy)])
    };
    let entries = std::fs::read_dir(folder).map_err(unreadable)?;
    let mut all: Vec<PathBuf> = entries.take(MOST).flatten().map(|e| e.path()).collect();
    all.sort();
    Ok(all)
}

/// The files that a user means: one by its path, `study/name`, or all of a study.
pub(super) fn named(name: &str) -> Result<Vec<PathBuf>, Diagnostics> {
    let path = Path::new(name);
    if path.is_file() || name.ends_with(".toml") {
        return Ok(vec![path.to_owned()]);
    }
    let folder = folder()?;
    let all = all(&folder)?;
    let study = name.trim_end_matches('/');
    let of_study = |f: &&Found| f.name.split_once('/').is_some_and(|(s, _)| s == study);
    let meant: Vec<_> = all.iter().filter(|f| f.name == name || of_study(f)).map(|f| f.file.clone()).collect();
    if !meant.is_empty() {
        return Ok(meant);
    }
    let known = all.iter().map(|f| f.name.as_str());
    let remedy = match config::nearest(name, known.clone()) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("use one of: {}", known.collect::<Vec<_>>().join(", ")),
    };
    let d = Diagnostic::new(format!("is no scenario of {}", folder.display())).value(name).remedy(remedy);
    Err(Diagnostics(vec![d]))
}
