//! The book: chain files are valid, commands exist, links are not broken. Rust code blocks are documentation tests of
//! the crate `bondstone`.

use crate::common::{Scratch, bondstone};
use std::fs::{copy, read_dir, read_to_string};
use std::path::{Path, PathBuf};

/// A fenced code block.
struct Block {
    /// File and line.
    location: String,
    /// Info string of the opening fence.
    language: String,
    text: String,
}

/// Returns the root of the sources.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns all pages of the documentation.
fn pages() -> Vec<PathBuf> {
    let root = root();
    let (mut pages, mut folders) = (vec![], vec![root.join("docs")]);
    while let Some(folder) = folders.pop() {
        for path in read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match path.extension() {
                Some(extension) if extension == "md" => pages.push(path),
                None if path.is_dir() => folders.push(path),
                _ => {}
            }
        }
    }
    pages.extend(["README.md", "examples/README.md", "scenarios/README.md"].map(|name| root.join(name)));
    pages.sort();
    assert!(pages.len() > 10, "{pages:?}");
    pages
}

fn blocks() -> Vec<Block> {
    let mut blocks: Vec<Block> = vec![];
    for page in pages() {
        let text = read_to_string(&page).unwrap();
        let mut inside = false;
        for (n, line) in text.lines().enumerate() {
            match (line.strip_prefix("```"), inside) {
                (Some(_), true) => inside = false,
                (Some(language), false) => {
                    inside = true;
                    let location = format!("{}:{}", page.display(), n + 1);
                    blocks.push(Block { location, language: language.to_owned(), text: String::new() });
                }
                (None, true) => {
                    let block = blocks.last_mut().expect("a block");
                    block.text += &format!("{line}\n");
                }
                (None, false) => {}
            }
        }
        assert!(!inside, "{}: unterminated block", page.display());
    }
    blocks
}

#[test]
fn chain_files_are_valid() {
    let first = |text: &str| {
        text.lines().find(|l| !l.is_empty() && !l.starts_with('#')).map(|l| l.starts_with("bondstone = 1"))
    };
    let mut checked = 0;
    for block in blocks().iter().filter(|b| b.language == "toml" && first(&b.text) == Some(true)) {
        let scratch = Scratch::new();
        // input captures, and chain files of a scenario
        for capture in ["demo.pcap", "in.pcap", "left.pcap", "right.pcap"] {
            if block.text.contains(&format!("pcap:{capture}")) {
                scratch.capture(capture, 1);
            }
        }
        let study = root().join("scenarios/netbricks");
        if block.text.contains("[scenario]") {
            copy(root().join("examples/hosts.toml"), scratch.path("hosts.toml")).unwrap();
            for entry in read_dir(study).unwrap().map(|entry| entry.unwrap().path()) {
                copy(&entry, scratch.path(entry.file_name().unwrap())).unwrap();
            }
        }
        let file = scratch.write("book.toml", &block.text);
        let said = bondstone([Path::new("check"), Path::new("--json"), &file]);
        let verdict: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        // the machine may lack their devices
        assert!(
            verdict["errors"] == serde_json::json!([]) && verdict["warnings"] == serde_json::json!([]),
            "{}: {verdict}",
            block.location
        );
        checked += 1;
    }
    assert!(checked >= 8, "only {checked} chain files");
}

/// Splits a command into words as a shell does, up to a comment, `|`, `>` or `;`.
fn words(line: &str) -> Vec<String> {
    let words = shlex::split(line).unwrap_or_else(|| panic!("a quotation is not ended: {line}"));
    words.into_iter().take_while(|word| !word.starts_with(['#', '|', '>', ';'])).collect()
}

#[test]
fn commands_exist() {
    let mut checked = 0;
    for block in blocks().iter().filter(|b| b.language == "console") {
        for line in block.text.lines() {
            let words = words(line);
            let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
            if words.first() == Some(&"perf") {
                words = words.into_iter().skip_while(|word| !word.ends_with("bondstone")).collect();
            }
            let arguments = match words[..] {
                ["bondstone" | "target/release/bondstone", ref rest @ ..] => rest,
                ["cargo", "run", "--", ref rest @ ..] => rest,
                _ => continue,
            };
            // clap checks the words before --help
            let said = bondstone(arguments.iter().copied().chain(["--help"]));
            assert_eq!(said.status, Some(0), "{}: {line}\n{}", block.location, said.err);
            checked += 1;
        }
    }
    assert!(checked >= 15, "only {checked} commands");
}

#[test]
fn code_blocks_have_a_language() {
    for block in blocks() {
        let known = ["rust", "toml", "text", "console"].iter().any(|l| block.language.split(',').next() == Some(l));
        assert!(known, "{}: unknown language {:?}", block.location, block.language);
    }
}

/// Pages with Rust code blocks are documentation tests, and all pages are in the table of contents.
#[test]
fn pages_are_tested_and_listed() {
    let tested = read_to_string(root().join("crates/bondstone/src/book.rs")).unwrap();
    for block in blocks().iter().filter(|b| b.language.starts_with("rust")) {
        let (page, _) = block.location.rsplit_once(':').unwrap();
        let name = Path::new(page).strip_prefix(root()).unwrap().display().to_string();
        assert!(tested.contains(&format!("{name:?}")), "{name} is not in crates/bondstone/src/book.rs");
    }
    let docs = root().join("docs");
    let contents = read_to_string(docs.join("SUMMARY.md")).unwrap();
    for page in pages().iter().filter(|page| !page.ends_with("SUMMARY.md")) {
        let Ok(name) = page.strip_prefix(&docs) else { continue };
        let name = name.display();
        assert!(contents.contains(&format!("({name})")), "{name} is not in docs/SUMMARY.md");
    }
}

/// Converts a heading to an anchor, as mdbook and GitHub do.
fn anchor(heading: &str) -> String {
    let plain = heading.to_lowercase().replace(' ', "-");
    plain.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
}

fn headings(page: &Path) -> Vec<String> {
    let mut inside = false;
    let text = read_to_string(page).unwrap_or_default();
    let mut outside = |line: &&str| {
        inside ^= line.starts_with("```");
        !inside && line.starts_with('#')
    };
    text.lines().filter(&mut outside).map(|line| anchor(line.trim_start_matches('#').trim())).collect()
}

#[test]
fn links_are_not_broken() {
    let mut checked = 0;
    for page in pages() {
        let text = read_to_string(&page).unwrap();
        for (_, rest) in text.match_indices("](").map(|(at, _)| text.split_at(at + 2)) {
            let Some((link, _)) = rest.split_once(')') else { continue };
            if link.contains("://") || link.contains([' ', '\n']) {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let to = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            assert!(to.exists(), "{}: broken link {link}", page.display());
            let found = heading.is_empty() || headings(&to).iter().any(|h| h == heading);
            assert!(found, "{}: unknown heading in {link}: {:?}", page.display(), headings(&to));
            checked += 1;
        }
    }
    assert!(checked > 50, "only {checked} links");
}
