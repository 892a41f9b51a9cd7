//! `bondstone lint` on crates of this repository.

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
    assert!(said.out.contains("part of Bondstone") && said.out.contains("procedural macro"), "{}", said.out);
}

#[test]
fn reports_each_finding() {
    let said = lint("packet", &["--json"]);
    assert_eq!(said.status, Some(1), "{said:?}");
    let report: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((report["schema"].as_str(), &report["ok"]), (Some("bondstone.lint/2"), &Value::Bool(false)));
    let findings = report["findings"].as_array().unwrap();
    assert!(findings.len() > 20, "{findings:?}");
    for finding in findings {
        assert!(finding["file"].as_str().is_some_and(|file| file.ends_with(".rs")), "{finding}");
        assert!(finding["line"].as_u64() >= Some(1) && finding["remedy"].is_string(), "{finding}");
    }
    // the text output has the same findings
    assert_eq!(said.err.matches("error: ").count(), findings.len());
    assert!(said.err.contains("src/buffer.rs:") && said.err.contains("an unsafe block"), "{}", said.err);
}

#[test]
fn missing_crate_is_an_input_error() {
    let scratch = Scratch::new();
    let said = bondstone(["lint", scratch.path("nowhere").to_str().unwrap()]);
    assert!(said.status == Some(2) && said.err.contains("Cargo.toml") && said.err.contains("help: "), "{said:?}");
    let said = lint("..", &[]);
    assert!(said.status == Some(2) && said.err.contains("workspace"), "{said:?}");
    let said = lint("nf", &["--allow-dependency", "no-such-crate"]);
    assert!(said.status == Some(0) && said.err.contains("no-such-crate"), "{said:?}");
}

#[test]
fn help_names_limits_of_the_check() {
    let said = bondstone(["lint", "--help"]);
    let text = said.out.replace('\n', " ");
    for word in ["loop forever", "overflow the stack", "abort or exit", "unbounded memory", "process sandbox"] {
        assert!(text.contains(word), "{word}: {}", said.out);
    }
}
