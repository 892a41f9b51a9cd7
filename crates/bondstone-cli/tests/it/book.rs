//! The book: its chain files are right, its commands exist, its links lead somewhere. Its Rust blocks are documentation tests
//! of the library.

use crate::common::{Scratch, bondstone};
use std::fs::{copy, read_dir, read_to_string};
use std::path::{Path, PathBuf};

/// A fenced block.
struct Block {
    /// Where it stands: file and line.
    place: String,
    /// What stands behind the opening fence.
    language: String,
    text: String,
}

/// The root of the sources.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All pages that readers are sent to.
fn pages() -> Vec<PathBuf> {
    let root = root();
    let in_docs = read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<_> = in_docs.filter(|path| path.extension().is_some_and(|e| e == "md")).collect();
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
                    let place = format!("{}:{}", page.display(), n + 1);
                    blocks.push(Block { place, language: language.to_owned(), text: String::new() });
                }
                (None, true) => {
                    let block = blocks.last_mut().expect("it has begun");
                    block.text += &format!("{line}\n");
                }
                (None, false) => {}
            }
        }
        assert!(!inside, "{}: a block does not end", page.display());
    }
    blocks
}

#[test]
fn every_chain_file_in_the_book_is_right() {
    let first = |text: &str| {
        text.lines().find(|l| !l.is_empty() && !l.starts_with('#')).map(|l| l.starts_with("bondstone = 1"))
    };
    let mut checked = 0;
    for block in blocks().iter().filter(|b| b.language == "toml" && first(&b.text) == Some(true)) {
        let scratch = Scratch::new();
        // what its ports read, and what a scenario measures
        for capture in ["demo.pcap", "in.pcap", "left.pcap", "right.pcap"] {
            if block.text.contains(&format!("pcap:{capture}")) {
                scratch.capture(capture, 1);
            }
        }
        let study = root().join("scenarios/netbricks");
        if block.text.contains("[scenario]") {
            for entry in read_dir(study).unwrap().map(|entry| entry.unwrap().path()) {
                copy(&entry, scratch.path(entry.file_name().unwrap())).unwrap();
            }
        }
        let file = scratch.write("book.toml", &block.text);
        let said = bondstone([Path::new("check"), &file]);
        assert_eq!((said.status, said.err.as_str()), (Some(0), ""), "{}: {}", block.place, said.out);
        checked += 1;
    }
    assert!(checked >= 8, "only {checked} chain files");
}

/// The words of a command as a shell would part them, without its comment and what follows `|`, `>` or `;`.
fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().take_while(|word| !word.starts_with(['#', '|', '>', ';'])).collect()
}

#[test]
fn every_command_in_the_book_is_one() {
    let mut tried = 0;
    for block in blocks().iter().filter(|b| b.language == "console") {
        for line in block.text.lines() {
            let mut words = words(line);
            if words.first() == Some(&"perf") {
                words = words.into_iter().skip_while(|word| !word.ends_with("bondstone")).collect();
            }
            let arguments = match words[..] {
                ["bondstone" | "target/release/bondstone", ref rest @ ..] => rest,
                ["cargo", "run", "--", ref rest @ ..] => rest,
                _ => continue,
            };
            // every word before it is looked at
            let said = bondstone(arguments.iter().copied().chain(["--help"]));
            assert_eq!(said.status, Some(0), "{}: {line}\n{}", block.place, said.err);
            tried += 1;
        }
    }
    assert!(tried >= 15, "only {tried} commands");
}

#[test]
fn every_block_says_what_it_is() {
    for block in blocks() {
        let known = ["rust", "toml", "text", "console"].iter().any(|l| block.language.split(',').next() == Some(l));
        assert!(known, "{}: a block of {:?}", block.place, block.language);
    }
}

/// Pages with Rust blocks are documentation tests, and every page of the book is in its table of contents.
#[test]
fn every_chapter_is_tested_and_found() {
    let tested = read_to_string(root().join("crates/bondstone/src/book.rs")).unwrap();
    for block in blocks().iter().filter(|b| b.language.starts_with("rust")) {
        let (page, _) = block.place.rsplit_once(':').unwrap();
        let name = Path::new(page).strip_prefix(root()).unwrap().display().to_string();
        assert!(tested.contains(&format!("{name:?}")), "{name} is not in crates/bondstone/src/book.rs");
    }
    let contents = read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    for page in pages().iter().filter(|p| p.parent() == Some(&root().join("docs")) && !p.ends_with("SUMMARY.md")) {
        let name = page.file_name().unwrap().display().to_string();
        assert!(contents.contains(&format!("({name})")), "{name} is not in docs/SUMMARY.md");
    }
}

/// What a heading is called in a link: mdbook's way, and GitHub's.
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
fn every_link_leads_somewhere() {
    let mut followed = 0;
    for page in pages() {
        let text = read_to_string(&page).unwrap();
        for (_, rest) in text.match_indices("](").map(|(at, _)| text.split_at(at + 2)) {
            let Some((link, _)) = rest.split_once(')') else { continue };
            if link.contains("://") || link.contains([' ', '\n']) {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let to = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            assert!(to.exists(), "{}: there is no {link}", page.display());
            let found = heading.is_empty() || headings(&to).iter().any(|h| h == heading);
            assert!(found, "{}: {link} has no such heading: {:?}", page.display(), headings(&to));
            followed += 1;
        }
    }
    assert!(followed > 50, "only {followed} links");
}
