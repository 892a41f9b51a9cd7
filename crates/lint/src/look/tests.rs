//! Sources that are refused, and such that are not.

use super::*;

/// Where the macro `call` invokes what it is given the name of.
fn look(text: &str) -> Looked {
    super::look(text, &HashSet::from(["call".to_owned()]))
}

fn what(text: &str) -> Vec<(usize, String)> {
    look(text).findings.into_iter().map(|((line, _), what, _)| (line, what)).collect()
}

fn one(text: &str) -> String {
    let all = what(text);
    assert!(all.len() == 1, "{text}: {all:?}");
    all.into_iter().next().unwrap().1
}

#[test]
fn unsafe_code_is_found_wherever_it_stands() {
    assert_eq!(look("fn a() {\n    unsafe { b() }\n}").findings[0].0, (2, 4));
    assert_eq!(one("fn a() { unsafe { b() } }"), "an unsafe block");
    assert_eq!(one("unsafe fn a() {}"), "the unsafe function a");
    assert_eq!(one("trait T { unsafe fn a(); }"), "the unsafe function a");
    assert_eq!(one("impl T for X { unsafe fn a() {} }"), "the unsafe function a");
    assert_eq!(one("unsafe impl Send for X {}"), "an unsafe impl");
    assert_eq!(one("unsafe trait T {}"), "the unsafe trait T");
    assert_eq!(one("const C: u8 = { unsafe { a() } };"), "an unsafe block");
    assert_eq!(one("fn a(x: [u8; unsafe { N }]) {}"), "an unsafe block");
    for block in ["extern \"C\" { fn a(); }", "unsafe extern \"C\" { safe fn a(); }", "extern {}"] {
        assert!(one(block).starts_with("an extern block"), "{block}");
    }
    assert_eq!(one("macro_rules! m { () => { unsafe { a() } } }"), "unsafe code in a macro");
    assert_eq!(one("fn a() { vec![1, unsafe { b() }]; }"), "unsafe code in a macro");
    assert_eq!(one("mod a { mod b { fn c() { d!({ e!(unsafe fn f() {}) }) } } }"), "unsafe code in a macro");
    assert_eq!(what("unsafe fn a() { unsafe { b() } }").len(), 2);
}

#[test]
fn the_words_alone_are_no_code() {
    for text in [
        "// unsafe { }\n/// unsafe fn\nfn a() { let s = \"unsafe { }\"; }",
        "fn r#unsafe() { r#unsafe(); }",
        "type P = unsafe extern \"C\" fn(u8);",
        "extern crate alloc; extern \"C\" fn a() {}",
        "#![deny(unsafe_code)]\n#![forbid(unsafe_code, missing_docs)]\n#![allow(dead_code)]",
        "#[doc = \"no_mangle\"] fn a() {}",
        "#[derive(Clone)] #[cfg_attr(test, allow(dead_code))] struct S;",
        "fn no_mangle() {}",
        "#!/usr/bin/env run\nfn a() {}",
        "",
    ] {
        assert_eq!(what(text), [], "{text}");
    }
}

#[test]
fn attributes_that_matter_are_found_also_in_macros() {
    assert_eq!(one("#[no_mangle] fn a() {}"), "the attribute no_mangle");
    assert_eq!(one("#[unsafe(no_mangle)] fn a() {}"), "the attribute no_mangle");
    assert_eq!(one("#[unsafe(export_name = \"b\")] fn a() {}"), "the attribute export_name");
    assert_eq!(
        one("#[cfg_attr(all(), link_section = \".init_array\")] static A: u8 = 0;"),
        "the attribute link_section"
    );
    assert_eq!(one("macro_rules! m { () => { #[no_mangle] fn a() {} } }"), "the attribute no_mangle");
    assert_eq!(one("#[allow(unsafe_code)] fn a() {}"), "#[allow(unsafe_code)]");
    assert_eq!(one("#![cfg_attr(feature = \"x\", expect(dead_code, unsafe_code))]"), "#[expect(unsafe_code)]");
    assert_eq!(one("m! { #![allow(unsafe_code)] }"), "#[allow(unsafe_code)]");
    assert_eq!(one("core::arch::global_asm!(\"nop\");"), "assembly (global_asm!)");
}

#[test]
fn what_is_no_rust_is_said_and_looked_at_all_the_same() {
    let all = what("fn a( {\n unsafe { b() } }");
    assert!(all[0].1.contains("no Rust"), "{all:?}");
    let all = what("fn a() { ] }");
    assert!(all[0].1.contains("no Rust"), "{all:?}");
    // an included file may be an expression, or statements
    assert_eq!(what("[1, 2, 3]"), []);
    assert_eq!(what("let a = 1;\nlet b = 2;"), []);
    assert_eq!(one("unsafe { a() }"), "an unsafe block");
}

#[test]
fn roots_modules_includes_and_macros_are_told() {
    assert!(look("//! Docs.\n#![forbid(missing_docs, unsafe_code)]").forbids);
    for text in ["#![deny(unsafe_code)]", "#[forbid(unsafe_code)] mod a {}", "#![cfg_attr(x, forbid(unsafe_code))]"] {
        assert!(!look(text).forbids, "{text}");
    }
    let module = |name: &str, inside: &[&str], paths: &[&str]| Module {
        name: name.to_owned(),
        inside: inside.iter().map(|s| (*s).to_owned()).collect(),
        paths: paths.iter().map(|s| (*s).to_owned()).collect(),
    };
    let text = "mod a; #[path = \"x/y.rs\"] mod b; mod c { mod d; } #[cfg_attr(unix, path = \"u.rs\")] mod r#fn;";
    let expected =
        [module("a", &[], &[]), module("b", &[], &["x/y.rs"]), module("d", &["c"], &[]), module("fn", &[], &["u.rs"])];
    assert_eq!(look(text).modules, expected);
    let all = look("include!(\"a.rs\");\nconst C: u8 = include!(concat!(env!(\"OUT_DIR\"), \"/b.rs\"));");
    assert_eq!(
        all.includes.iter().map(|i| (i.path.as_deref(), i.at.0)).collect::<Vec<_>>(),
        [(Some("a.rs"), 1), (None, 2)]
    );
    let all = look("fn a() { b::c!(d!()); } macro_rules! e { () => { $crate::f! { g } } }");
    let names: Vec<_> = all.macros.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["c", "d", "macro_rules", "f"]);
    let words: Vec<_> = all.words.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(words, [""; 0]);
    let all = look("call!(a, m!(b)); m!(c, call! { d::e });");
    let words: Vec<_> = all.words.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(words, ["a", "b", "d", "e"]);
    // a use that gives another name is as an invocation
    let all = look("use a::{b as c, d, e::{f as _}}; call! { use g as h; }");
    let names: Vec<_> = all.macros.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["b", "f", "call"]);
    assert!(all.words.iter().any(|(name, _)| name == "g"), "{:?}", all.words);
}
