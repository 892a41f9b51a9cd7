//! `bondstone lint` on crates of this very repository.

use crate::common::{Said, Scratch, bondstone};
use serde_json::Value;

fn lint(name: &str, more: &[&str]) -> Said {
    let dir = format!("{}/../{name}", env!("CARGO_MANIFEST_DIR"));
    bondstone(["lint", dir.as_str()].iter().chain(more))
}

#[test]
fn the_shipped_nfs_have_no_unsafe_code() {
    let said = lint("nf", &[]);
    assert_eq!((said.status, said.err.as_str()), (Some(0), ""), "{said:?}");
    assert!(said.out.contains("bondstone-nf") && said.out.contains("no unsafe code"), "{}", said.out);
    assert!(said.out.contains("Bondstone's own") && said.out.contains("procedural macro"), "{}", said.out);
}

#[test]
fn a_crate_that_has_some_is_refused_with_every_place() {
    let said = lint("packet", &["--json"]);
    assert_eq!(said.status, Some(1), "{said:?}");
    let verdict: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((verdict["schema"].as_str(), &verdict["ok"]), (Some("bondstone.lint/1"), &Value::Bool(false)));
    let refused = verdict["refused"].as_array().unwrap();
    assert!(refused.len() > 20, "{refused:?}");
    for finding in refused {
        assert!(finding["file"].as_str().is_some_and(|file| file.ends_with(".rs")), "{finding}");
        assert!(finding["line"].as_u64() >= Some(1) && finding["remedy"].is_string(), "{finding}");
    }
    // people get the same, one by one
    assert_eq!(said.err.matches("error: ").count(), refused.len());
    assert!(said.err.contains("src/heap.rs:") && said.err.contains("an unsafe block"), "{}", said.err);
}

#[test]
fn what_is_no_crate_is_wrong_input() {
    let scratch = Scratch::new();
    let said = bondstone(["lint", scratch.path("nowhere").to_str().unwrap()]);
    assert!(said.status == Some(2) && said.err.contains("Cargo.toml") && said.err.contains("help: "), "{said:?}");
    let said = lint("..", &[]);
    assert!(said.status == Some(2) && said.err.contains("workspace"), "{said:?}");
    let said = lint("nf", &["--allow-dependency", "nobody"]);
    assert!(said.status == Some(0) && said.err.contains("nobody"), "{said:?}");
}

#[test]
fn help_says_what_types_cannot_contain() {
    let said = bondstone(["lint", "--help"]);
    let text = said.out.replace('\n', " ");
    for word in ["loop for ever", "overflow the stack", "abort or exit", "memory without bound", "process wall"] {
        assert!(text.contains(word), "{word}: {}", said.out);
    }
}
