//! The source files of a crate, one leading to the next.

use crate::Finding;
use crate::look::{Include, Looked, MODULE_CURE, Module, look};
use std::collections::HashSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Largest source file that is read, bytes.
const LARGEST: u64 = 16 << 20;
/// Files that are read for a crate at most.
const MOST: usize = 20_000;

/// Where the sources of a target begin.
pub(crate) struct Root {
    pub(crate) file: PathBuf,
    /// Whether it has to have `#![forbid(unsafe_code)]`.
    pub(crate) forbids: bool,
    /// Whether it is a build script.
    pub(crate) script: bool,
}

/// What was found in the sources of a crate.
#[derive(Default)]
pub(crate) struct Followed {
    pub(crate) files: usize,
    pub(crate) findings: Vec<Finding>,
    /// Names of macros that are invoked, with the place of each.
    pub(crate) macros: Vec<(String, Finding)>,
    /// Words in the tokens of macros that call what they are given, with the place of each.
    pub(crate) words: Vec<(String, Finding)>,
}

/// A file to be read.
struct Next {
    file: PathBuf,
    /// Whether modules of it lie beside it, as those of `mod.rs`, and not in a folder of its name.
    beside: bool,
    /// What names it, when somebody has to be told that it is not there.
    from: Option<Finding>,
}

/// Reads a text, or says why not.
pub(crate) fn read(file: &Path) -> Result<String, String> {
    let mut text = String::new();
    let opened = std::fs::File::open(file).and_then(|f| f.take(LARGEST + 1).read_to_string(&mut text));
    opened.map_err(|e| format!("cannot be read: {e}"))?;
    if text.len() as u64 > LARGEST {
        return Err(format!("has more than {LARGEST} bytes"));
    }
    Ok(text)
}

/// All files with Rust in a folder and below.
pub(crate) fn sources_under(dir: &Path) -> Vec<PathBuf> {
    let (mut found, mut waiting) = (vec![], vec![dir.to_owned()]);
    let mut seen = HashSet::new();
    while let Some(dir) = waiting.pop() {
        // links could lead round for ever
        if seen.len() >= MOST || !seen.insert(dir.canonicalize().unwrap_or_else(|_| dir.clone())) {
            continue;
        }
        for entry in dir.read_dir().into_iter().flatten().flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => waiting.push(path),
                false if path.extension().is_some_and(|e| e == "rs") => found.push(path),
                false => {}
            }
            if found.len() >= MOST {
                return found;
            }
        }
    }
    found.sort();
    found
}

/// The files below a folder, as if each were a module.
fn all_below(dir: &Path) -> impl Iterator<Item = Next> {
    let modules = |file: &PathBuf| file.file_name().is_some_and(|n| n == "mod.rs");
    sources_under(dir).into_iter().map(move |file| Next { beside: modules(&file), file, from: None })
}

/// Reads the sources of the crate `name` from their roots on, through modules and includes, and what else lies beside them.
/// Macros of the names `calling` invoke what they are given the name of.
pub(crate) fn follow(roots: &[Root], name: &str, calling: &HashSet<String>) -> Followed {
    let mut found = Followed::default();
    let mut seen = HashSet::new();
    let mut waiting: Vec<Next> =
        roots.iter().map(|root| Next { file: root.file.clone(), beside: true, from: None }).collect();
    // what only a macro names as a module
    let beside = roots.iter().filter(|root| root.forbids).filter_map(|root| root.file.parent());
    let mut swept: Vec<PathBuf> = beside
        .filter(|dir| dir.file_name().is_some_and(|n| n == "src"))
        .filter_map(|dir| dir.canonicalize().ok())
        .collect();
    waiting.splice(0..0, swept.iter().flat_map(|dir| all_below(dir)));
    // modules that macros name, and folders in which such may lie
    let (mut macro_modules, mut paths, mut folders): (Vec<Finding>, Vec<Finding>, Vec<PathBuf>) = Default::default();
    loop {
        let Some(Next { file, beside, from }) = waiting.pop() else {
            // macros are invoked in any file, and name what lies beside it
            let Some(dir) = folders.pop().filter(|_| !macro_modules.is_empty()) else { break };
            if swept.iter().any(|swept| dir.starts_with(swept)) {
                continue;
            }
            // beside the manifest there is everything
            if dir.join("Cargo.toml").exists() {
                found.findings.extend(macro_modules.iter().cloned());
                continue;
            }
            waiting.extend(all_below(&dir));
            swept.push(dir);
            continue;
        };
        let known = file.canonicalize().unwrap_or_else(|_| file.clone());
        if !seen.insert(known) {
            continue;
        }
        let at = |line, column, what: String, remedy: &str| Finding {
            name: name.to_owned(),
            file: file.clone(),
            line,
            column,
            what,
            remedy: remedy.to_owned(),
        };
        if seen.len() > MOST {
            let what = format!("is the last of more than {MOST} source files");
            found.findings.push(at(1, 1, what, "is this one crate?"));
            break;
        }
        let text = match read(&file) {
            Ok(text) => text,
            Err(why) => {
                let there = from.unwrap_or_else(|| at(1, 1, String::new(), ""));
                let what = format!("the source {} {why}", file.display());
                found.findings.push(Finding { what, remedy: "make it readable".to_owned(), ..there });
                continue;
            }
        };
        found.files += 1;
        let Looked { findings, modules, includes, macros, words, macro_modules: in_macros, macro_paths, forbids } =
            look(&text, calling);
        let place = |(line, column): (usize, usize)| (line, column + 1);
        for (spot, what, remedy) in findings {
            let (line, column) = place(spot);
            found.findings.push(at(line, column, what, remedy));
        }
        if roots.iter().any(|root| root.forbids && root.file == file) && !forbids {
            let what = "a crate root without #![forbid(unsafe_code)]".to_owned();
            found.findings.push(at(1, 1, what, "write #![forbid(unsafe_code)] at its top"));
        }
        for (macro_name, spot) in macros {
            let (line, column) = place(spot);
            found.macros.push((macro_name, at(line, column, String::new(), "")));
        }
        for (word, spot) in words {
            let (line, column) = place(spot);
            found.words.push((word, at(line, column, String::new(), "")));
        }
        for spot in in_macros {
            let (line, column) = place(spot);
            let what = "a module in a macro, whose file is not looked for beside Cargo.toml".to_owned();
            macro_modules.push(at(line, column, what, MODULE_CURE));
        }
        for spot in macro_paths {
            let (line, column) = place(spot);
            let what = "path = in a macro, in a crate in which macros name modules".to_owned();
            paths.push(at(line, column, what, MODULE_CURE));
        }
        let dir = file.parent().unwrap_or(Path::new(""));
        // a build script runs on its own, and is not contained anyway
        if !roots.iter().any(|root| root.script && root.file == file) {
            folders.push(dir.canonicalize().unwrap_or_else(|_| dir.to_owned()));
        }
        for module in modules {
            waiting.extend(module_files(dir, &file, beside, &module).into_iter().map(|(file, beside)| Next {
                file,
                beside,
                from: None,
            }));
        }
        for Include { path, at: spot } in includes {
            let (line, column) = place(spot);
            let from = at(line, column, String::new(), "");
            match path {
                Some(path) => waiting.push(Next { file: dir.join(path), beside: true, from: Some(from) }),
                None => found.findings.push(Finding {
                    what: "an include! whose file cannot be told".to_owned(),
                    remedy: "keep the file in the crate and name it in a literal: include!(\"file.rs\")".to_owned(),
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

/// The files that a module may be in, those that are there.
fn module_files(dir: &Path, file: &Path, beside: bool, module: &Module) -> Vec<(PathBuf, bool)> {
    let mut base = dir.to_owned();
    if !beside {
        base.push(file.file_stem().unwrap_or_default());
    }
    base.extend(&module.inside);
    let plain = [(base.join(format!("{}.rs", module.name)), false), (base.join(&module.name).join("mod.rs"), true)];
    let written = module.paths.iter().map(|path| {
        let from = if module.inside.is_empty() { dir } else { &base };
        (from.join(path), true)
    });
    plain.into_iter().chain(written).filter(|(file, _)| file.is_file()).collect()
}
