//! Following the source files of a crate through modules and includes.

use crate::Finding;
use crate::scan::{Include, MODULE_REMEDY, Module, Scan, scan};
use std::collections::HashSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Maximum size of a source file, bytes.
const MAX_BYTES: u64 = 16 << 20;
/// Maximum number of source files of a crate.
const MAX_FILES: usize = 20_000;

/// The root file of a target.
pub(crate) struct Root {
    pub(crate) file: PathBuf,
    /// True if it must contain `#![forbid(unsafe_code)]`.
    pub(crate) forbids: bool,
    /// True for a build script.
    pub(crate) script: bool,
}

/// Findings and macros of the sources of a crate.
#[derive(Default)]
pub(crate) struct Followed {
    pub(crate) files: usize,
    pub(crate) findings: Vec<Finding>,
    /// Invoked macros with their positions.
    pub(crate) macros: Vec<(String, Finding)>,
    /// Identifiers that may become the name of a macro, with their positions.
    pub(crate) possible_macros: Vec<(String, Finding)>,
}

/// A file to scan.
struct Pending {
    file: PathBuf,
    /// True if its modules are in the same folder, as those of `mod.rs`, and not in a folder with its name.
    same_folder: bool,
    /// The position of the `include!`, for the error if it cannot be read.
    from: Option<Finding>,
}

/// Reads a source file.
pub(crate) fn read(file: &Path) -> Result<String, String> {
    let mut text = String::new();
    let opened = std::fs::File::open(file).and_then(|f| f.take(MAX_BYTES + 1).read_to_string(&mut text));
    opened.map_err(|e| format!("cannot be read: {e}"))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(format!("exceeds {MAX_BYTES} bytes"));
    }
    Ok(text)
}

/// Returns all Rust files in a folder and its subfolders.
pub(crate) fn sources_under(dir: &Path) -> Vec<PathBuf> {
    let (mut found, mut pending) = (vec![], vec![dir.to_owned()]);
    let mut visited = HashSet::new();
    while let Some(dir) = pending.pop() {
        // symbolic links may form a cycle
        if visited.len() >= MAX_FILES || !visited.insert(dir.canonicalize().unwrap_or_else(|_| dir.clone())) {
            continue;
        }
        for entry in dir.read_dir().into_iter().flatten().flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => pending.push(path),
                false if path.extension().is_some_and(|e| e == "rs") => found.push(path),
                false => {}
            }
            if found.len() >= MAX_FILES {
                return found;
            }
        }
    }
    found.sort();
    found
}

/// Returns the files in a folder and its subfolders as modules.
fn all_below(dir: &Path) -> impl Iterator<Item = Pending> {
    let modules = |file: &PathBuf| file.file_name().is_some_and(|n| n == "mod.rs");
    sources_under(dir).into_iter().map(move |file| Pending { same_folder: modules(&file), file, from: None })
}

/// Scans the sources of the crate `name` from their roots through modules and includes, and other files in the same
/// folders. Macros in `argument_invokers` invoke macros that are named by their arguments.
pub(crate) fn follow(roots: &[Root], name: &str, argument_invokers: &HashSet<String>) -> Followed {
    let mut found = Followed::default();
    let mut visited = HashSet::new();
    let mut pending: Vec<Pending> =
        roots.iter().map(|root| Pending { file: root.file.clone(), same_folder: true, from: None }).collect();
    // includes files that only macros declare as modules
    let source_folders = roots.iter().filter(|root| root.forbids).filter_map(|root| root.file.parent());
    let mut scanned_folders: Vec<PathBuf> = source_folders
        .filter(|dir| dir.file_name().is_some_and(|n| n == "src"))
        .filter_map(|dir| dir.canonicalize().ok())
        .collect();
    pending.splice(0..0, scanned_folders.iter().flat_map(|dir| all_below(dir)));
    // modules declared by macros, and folders that may contain them
    let (mut macro_modules, mut paths, mut folders): (Vec<Finding>, Vec<Finding>, Vec<PathBuf>) = Default::default();
    loop {
        let Some(Pending { file, same_folder, from }) = pending.pop() else {
            // a macro may be invoked in any file and declare modules in its folder
            let Some(dir) = folders.pop().filter(|_| !macro_modules.is_empty()) else { break };
            if scanned_folders.iter().any(|scanned| dir.starts_with(scanned)) {
                continue;
            }
            // the folder of the manifest contains unrelated files
            if dir.join("Cargo.toml").exists() {
                found.findings.extend(macro_modules.iter().cloned());
                continue;
            }
            pending.extend(all_below(&dir));
            scanned_folders.push(dir);
            continue;
        };
        let known = file.canonicalize().unwrap_or_else(|_| file.clone());
        if !visited.insert(known) {
            continue;
        }
        let at = |line, column, problem: String, remedy: &str| Finding {
            name: name.to_owned(),
            file: file.clone(),
            line,
            column,
            problem,
            remedy: remedy.to_owned(),
        };
        if visited.len() > MAX_FILES {
            let problem = format!("more than {MAX_FILES} source files");
            found.findings.push(at(1, 1, problem, "split the crate"));
            break;
        }
        let text = match read(&file) {
            Ok(text) => text,
            Err(why) => {
                let position = from.unwrap_or_else(|| at(1, 1, String::new(), ""));
                let problem = format!("the source {} {why}", file.display());
                found.findings.push(Finding { problem, remedy: "make it readable".to_owned(), ..position });
                continue;
            }
        };
        found.files += 1;
        let Scan {
            findings,
            modules,
            includes,
            macros,
            possible_macros,
            macro_modules: in_macros,
            macro_paths,
            forbids,
        } = scan(&text, argument_invokers);
        let one_based = |(line, column): (usize, usize)| (line, column + 1);
        for (position, problem, remedy) in findings {
            let (line, column) = one_based(position);
            found.findings.push(at(line, column, problem, remedy));
        }
        if roots.iter().any(|root| root.forbids && root.file == file) && !forbids {
            let problem = "a crate root without #![forbid(unsafe_code)]".to_owned();
            found.findings.push(at(1, 1, problem, "add #![forbid(unsafe_code)] at its top"));
        }
        for (macro_name, position) in macros {
            let (line, column) = one_based(position);
            found.macros.push((macro_name, at(line, column, String::new(), "")));
        }
        for (ident, position) in possible_macros {
            let (line, column) = one_based(position);
            found.possible_macros.push((ident, at(line, column, String::new(), "")));
        }
        for position in in_macros {
            let (line, column) = one_based(position);
            let problem = "a module in a macro in the folder of Cargo.toml, where its file is not followed".to_owned();
            macro_modules.push(at(line, column, problem, MODULE_REMEDY));
        }
        for position in macro_paths {
            let (line, column) = one_based(position);
            let problem = "`path =` in a macro, in a crate whose macros declare modules".to_owned();
            paths.push(at(line, column, problem, MODULE_REMEDY));
        }
        let dir = file.parent().unwrap_or(Path::new(""));
        // a build script is a separate program and not isolated
        if !roots.iter().any(|root| root.script && root.file == file) {
            folders.push(dir.canonicalize().unwrap_or_else(|_| dir.to_owned()));
        }
        for module in modules {
            pending.extend(
                module_files(dir, &file, same_folder, &module).into_iter().map(|(file, same_folder)| Pending {
                    file,
                    same_folder,
                    from: None,
                }),
            );
        }
        for Include { path, at: position } in includes {
            let (line, column) = one_based(position);
            let from = at(line, column, String::new(), "");
            match path {
                Some(path) => pending.push(Pending { file: dir.join(path), same_folder: true, from: Some(from) }),
                None => found.findings.push(Finding {
                    problem: "an include! whose file cannot be determined".to_owned(),
                    remedy: "keep the file in the crate and use a literal: include!(\"file.rs\")".to_owned(),
                    ..from
                }),
            }
        }
    }
    if !macro_modules.is_empty() {
        found.findings.append(&mut paths);
    }
    found
}

/// Returns the existing files that may contain a module.
fn module_files(dir: &Path, file: &Path, same_folder: bool, module: &Module) -> Vec<(PathBuf, bool)> {
    let mut base = dir.to_owned();
    if !same_folder {
        base.push(file.file_stem().unwrap_or_default());
    }
    base.extend(&module.parents);
    let plain = [(base.join(format!("{}.rs", module.name)), false), (base.join(&module.name).join("mod.rs"), true)];
    let written = module.paths.iter().map(|path| {
        let from = if module.parents.is_empty() { dir } else { &base };
        (from.join(path), true)
    });
    plain.into_iter().chain(written).filter(|(file, _)| file.is_file()).collect()
}
