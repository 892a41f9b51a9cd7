//! Sources with and without findings.

use super::*;

/// Scans with `call` as a macro that invokes an argument.
fn scan(text: &str) -> Scan {
    super::scan(text, &HashSet::from(["call".to_owned()]))
}

fn problems(text: &str) -> Vec<(usize, String)> {
    scan(text).findings.into_iter().map(|((line, _), problem, _)| (line, problem)).collect()
}

fn one(text: &str) -> String {
    let all = problems(text);
    assert!(all.len() == 1, "{text}: {all:?}");
    all.into_iter().next().unwrap().1
}

#[test]
fn finds_unsafe_code_everywhere() {
    assert_eq!(scan("fn a() {\n    unsafe { b() }\n}").findings[0].0, (2, 4));
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
    assert_eq!(problems("unsafe fn a() { unsafe { b() } }").len(), 2);
}

#[test]
fn ignores_strings_comments_and_declarations() {
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
        assert_eq!(problems(text), [], "{text}");
    }
}

#[test]
fn finds_attributes_also_in_macros() {
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
fn scans_invalid_sources() {
    let all = problems("fn a( {\n unsafe { b() } }");
    assert!(all[0].1.contains("not valid Rust"), "{all:?}");
    let all = problems("fn a() { ] }");
    assert!(all[0].1.contains("not valid Rust"), "{all:?}");
    // an included file may be an expression, or statements
    assert_eq!(problems("[1, 2, 3]"), []);
    assert_eq!(problems("let a = 1;\nlet b = 2;"), []);
    assert_eq!(one("unsafe { a() }"), "an unsafe block");
}

#[test]
fn finds_roots_modules_includes_and_macros() {
    assert!(scan("//! Docs.\n#![forbid(missing_docs, unsafe_code)]").forbids);
    for text in ["#![deny(unsafe_code)]", "#[forbid(unsafe_code)] mod a {}", "#![cfg_attr(x, forbid(unsafe_code))]"] {
        assert!(!scan(text).forbids, "{text}");
    }
    let module = |name: &str, parents: &[&str], paths: &[&str]| Module {
        name: name.to_owned(),
        parents: parents.iter().map(|s| (*s).to_owned()).collect(),
        paths: paths.iter().map(|s| (*s).to_owned()).collect(),
    };
    let text = "mod a; #[path = \"x/y.rs\"] mod b; mod c { mod d; } #[cfg_attr(unix, path = \"u.rs\")] mod r#fn;";
    let expected =
        [module("a", &[], &[]), module("b", &[], &["x/y.rs"]), module("d", &["c"], &[]), module("fn", &[], &["u.rs"])];
    assert_eq!(scan(text).modules, expected);
    let all = scan("include!(\"a.rs\");\nconst C: u8 = include!(concat!(env!(\"OUT_DIR\"), \"/b.rs\"));");
    assert_eq!(
        all.includes.iter().map(|i| (i.path.as_deref(), i.at.0)).collect::<Vec<_>>(),
        [(Some("a.rs"), 1), (None, 2)]
    );
    let all = scan("fn a() { b::c!(d!()); } macro_rules! e { () => { $crate::f! { g } } }");
    let names: Vec<_> = all.macros.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["c", "d", "macro_rules", "f"]);
    let words: Vec<_> = all.possible_macros.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(words, [""; 0]);
    let all = scan("call!(a, m!(b)); m!(c, call! { d::e });");
    let words: Vec<_> = all.possible_macros.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(words, ["a", "b", "d", "e"]);
    // a renaming use counts as an invocation
    let all = scan("use a::{b as c, d, e::{f as _}}; call! { use g as h; }");
    let names: Vec<_> = all.macros.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["b", "f", "call"]);
    assert!(all.possible_macros.iter().any(|(name, _)| name == "g"), "{:?}", all.possible_macros);
}
