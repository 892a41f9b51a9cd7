//! Scenario files.

use bench::Scenario;
use diagnostics::{Diagnostic, Diagnostics};
use std::path::{Path, PathBuf};

/// Largest number of entries that are read from a directory.
const MAX_ENTRIES: usize = 1000;

/// A scenario file.
pub(super) struct ScenarioFile {
    pub(super) name: String,
    pub(super) file: PathBuf,
}

/// Returns the directory of studies: `$BONDSTONE_SCENARIOS`, or `scenarios` in the current directory or in one above
/// the program.
///
/// # Errors
/// If it does not exist.
pub(super) fn folder() -> Result<PathBuf, Diagnostics> {
    let remedy = "set BONDSTONE_SCENARIOS to a directory of studies, or name a scenario file";
    let error =
        |problem: String, value: String| Diagnostics(vec![Diagnostic::new(problem).value(value).remedy(remedy)]);
    if let Some(named) = std::env::var_os("BONDSTONE_SCENARIOS").map(PathBuf::from) {
        let not_found = || error("BONDSTONE_SCENARIOS is not a directory".to_owned(), named.display().to_string());
        return named.is_dir().then_some(named.clone()).ok_or_else(not_found);
    }
    let executable = std::env::current_exe().unwrap_or_default();
    let above = executable.ancestors().skip(1).map(|folder| folder.join("scenarios"));
    let mut candidates = std::iter::once(PathBuf::from("scenarios")).chain(above);
    candidates.find(|f| f.is_dir()).ok_or_else(|| {
        let problem = "directory not found in the current directory or above the program";
        error(problem.to_owned(), "scenarios".to_owned())
    })
}

/// Returns all scenarios of a directory of studies, sorted by name.
pub(super) fn all(folder: &Path) -> Result<Vec<ScenarioFile>, Diagnostics> {
    let mut all = vec![];
    for study in entries(folder)?.into_iter().filter(|path| path.is_dir()) {
        all.extend(of_study(&study)?);
    }
    Ok(all)
}

fn of_study(study: &Path) -> Result<Vec<ScenarioFile>, Diagnostics> {
    let is_scenario = |path: &PathBuf| {
        path.extension().is_some_and(|e| e == "toml") && config::read(path, "scenario").is_ok_and(|t| Scenario::is(&t))
    };
    let scenarios = entries(study)?.into_iter().filter(is_scenario).map(|file| {
        let part = |name: Option<&std::ffi::OsStr>| name.unwrap_or_default().to_string_lossy().into_owned();
        ScenarioFile { name: format!("{}/{}", part(study.file_name()), part(file.file_stem())), file }
    });
    Ok(scenarios.collect())
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, Diagnostics> {
    let unreadable = |e: std::io::Error| {
        let remedy = "check its permissions";
        let d =
            Diagnostic { file: Some(folder.to_owned()), ..Diagnostic::new(format!("cannot read the directory: {e}")) };
        Diagnostics(vec![d.remedy(remedy)])
    };
    let entries = std::fs::read_dir(folder).map_err(unreadable)?;
    let mut all: Vec<PathBuf> = entries.take(MAX_ENTRIES).flatten().map(|e| e.path()).collect();
    all.sort();
    Ok(all)
}

/// Returns the files that a name selects: a path, `study/name`, or all scenarios of a study.
pub(super) fn select(name: &str) -> Result<Vec<PathBuf>, Diagnostics> {
    let path = Path::new(name);
    if path.is_file() || name.ends_with(".toml") {
        return Ok(vec![path.to_owned()]);
    }
    let folder = folder()?;
    let all = all(&folder)?;
    let study = name.trim_end_matches('/');
    let of_study = |f: &&ScenarioFile| f.name.split_once('/').is_some_and(|(s, _)| s == study);
    let selected: Vec<_> = all.iter().filter(|f| f.name == name || of_study(f)).map(|f| f.file.clone()).collect();
    if !selected.is_empty() {
        return Ok(selected);
    }
    let known = all.iter().map(|f| f.name.as_str());
    let remedy = match config::nearest(name, known.clone()) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("use one of: {}", known.collect::<Vec<_>>().join(", ")),
    };
    let d = Diagnostic::new(format!("unknown scenario in {}", folder.display())).value(name).remedy(remedy);
    Err(Diagnostics(vec![d]))
}
