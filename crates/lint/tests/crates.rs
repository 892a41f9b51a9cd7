//! Checks of whole crates. Nothing is built or fetched.

use lint::{Error, Report, check};
use std::path::{Path, PathBuf};

/// Crates in a temporary folder.
struct Crates(PathBuf);

impl Crates {
    fn new(name: &str) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("lint-{}-{name}", std::process::id()));
        drop(std::fs::remove_dir_all(&dir));
        Crates(dir)
    }

    fn write(&self, path: &str, text: &str) -> &Self {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }

    /// Writes a crate that depends on other crates in the folder.
    fn package(&self, name: &str, depends: &[&str], lib: &str) -> &Self {
        let depends: String = depends.iter().map(|d| format!("{d} = {{ path = \"../{d}\" }}\n")).collect();
        let manifest = format!(
            "[package]\nname = \"{name}\"\nversion = \"1.2.3\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n{depends}"
        );
        self.write(&format!("{name}/Cargo.toml"), &manifest).write(&format!("{name}/src/lib.rs"), lib)
    }

    fn check(&self, name: &str, allow: &[&str]) -> Report {
        let allow: Vec<String> = allow.iter().map(|a| (*a).to_owned()).collect();
        check(&self.0.join(name), &allow).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Returns positions and problems of the findings, with paths relative to the folder.
    fn findings(&self, name: &str, allow: &[&str]) -> Vec<String> {
        let report = self.check(name, allow);
        assert_eq!(report.ok, report.findings.is_empty());
        let folder = self.0.canonicalize().unwrap();
        let relative = |file: &Path| file.canonicalize().unwrap().strip_prefix(&folder).unwrap().display().to_string();
        report.findings.iter().map(|f| format!("{}:{} {}", relative(&f.file), f.line, f.problem)).collect()
    }
}

impl Drop for Crates {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

const FORBID: &str = "#![forbid(unsafe_code)]\n";

#[test]
fn scans_all_files_and_requires_forbid_in_roots() {
    let crates = Crates::new("files");
    let lib =
        format!("{FORBID}mod a;\n#[path = \"../other/b.rs\"]\nmod b;\nmod c {{\n    mod d;\n}}\ninclude!(\"e.in\");\n");
    crates.package("one", &[], &lib);
    for (file, text) in [
        ("src/a.rs", "mod deep;"),
        ("src/a/deep.rs", "fn a() { unsafe { x() } }"),
        ("other/b.rs", "mod beside;"),
        ("other/beside.rs", "\nunsafe fn b() {}"),
        ("src/c/d.rs", "\n\nunsafe impl Send for D {}"),
        ("src/e.in", "\n\n\nextern \"C\" {}"),
        ("src/named_by_a_macro.rs", "#[no_mangle]\nfn f() {}"),
        ("src/main.rs", "fn main() {}"),
        ("examples/x.rs", "#![forbid(unsafe_code)]\nfn main() {}"),
        ("tests/t.rs", "#[test]\nfn t() { unsafe { x() } }"),
        ("build.rs", "fn main() {}"),
        ("target/debug/generated.rs", "unsafe fn generated() {}"),
    ] {
        crates.write(&format!("one/{file}"), text);
    }
    assert_eq!(
        crates.findings("one", &[]),
        [
            "one/build.rs".to_owned(),
            "one/other/beside.rs:2 the unsafe function b".to_owned(),
            "one/src/a/deep.rs:1 an unsafe block".to_owned(),
            "one/src/c/d.rs:3 an unsafe impl".to_owned(),
            "one/src/e.in:4 an extern block".to_owned(),
            "one/src/main.rs:1 a crate root without #![forbid(unsafe_code)]".to_owned(),
            "one/src/named_by_a_macro.rs:1 the attribute no_mangle".to_owned(),
            "one/tests/t.rs:2 an unsafe block".to_owned(),
        ][1..]
    );
    let report = crates.check("one", &[]);
    let [script] = &report.build_time[..] else { panic!("{:?}", report.build_time) };
    assert!(script.kind == "build script" && script.file.ends_with("build.rs"), "{script:?}");
    assert_eq!((report.name.as_str(), report.version.as_str(), report.files), ("one", "1.2.3", 12));
}

#[test]
fn reports_sources_that_cannot_be_followed() {
    let crates = Crates::new("follow");
    crates.package(
        "one",
        &[],
        &format!("{FORBID}include!(concat!(env!(\"OUT_DIR\"), \"/a.rs\"));\ninclude!(\"absent.rs\");"),
    );
    let findings = crates.findings("one", &[]);
    assert_eq!(findings[0], "one/src/lib.rs:2 an include! whose file cannot be determined");
    assert!(
        findings[1].starts_with("one/src/lib.rs:3 the source ") && findings[1].contains("absent.rs"),
        "{findings:?}"
    );
    // cyclic includes
    crates.package("two", &[], &format!("{FORBID}include!(\"a.rs\");")).write("two/src/a.rs", "include!(\"lib.rs\");");
    assert_eq!(crates.findings("two", &[]), [""; 0]);
}

#[test]
fn deeply_nested_sources_do_not_crash() {
    let crates = Crates::new("deep");
    let nested =
        |open: &str, n: usize, close: &str| format!("{FORBID}\nfn a() {{ {}1{} }}", open.repeat(n), close.repeat(n));
    crates.package("one", &[], &nested("(", 100_000, ")"));
    let findings = crates.findings("one", &[]);
    assert!(findings.contains(&"one/src/lib.rs:3 brackets nested deeper than 2000".to_owned()), "{findings:?}");
    crates.package("two", &[], &nested("(", 1_900, ")"));
    assert_eq!(crates.findings("two", &[]), [""; 0]);
    crates.package("three", &[], &nested("!", 20_000, ""));
    assert_eq!(crates.findings("three", &[]), [""; 0]);
}

#[test]
fn checks_nf_crates_and_counts_in_others() {
    let crates = Crates::new("below");
    let code = "pub unsafe fn a() {}\npub fn b() { unsafe { a() } }";
    crates.package("bondstone-wire", &[], code);
    crates.package("bondstone-graph", &["bondstone-wire"], "");
    crates.package("ordinary", &[], code);
    crates.package("vendor-nat", &["bondstone-graph", "ordinary"], &format!("{FORBID}{code}"));
    crates.package("mine", &["bondstone-graph", "vendor-nat"], FORBID);
    assert_eq!(
        crates.findings("mine", &[]),
        ["vendor-nat/src/lib.rs:2 the unsafe function a", "vendor-nat/src/lib.rs:3 an unsafe block"]
    );
    assert_eq!(crates.findings("mine", &["vendor-nat"]), [""; 0]);
    let report = crates.check("mine", &[]);
    assert_eq!(report.nf_crates, ["vendor-nat 1.2.3"]);
    let row = |name: &str| report.dependencies.iter().find(|d| d.name == name).unwrap();
    for (name, n, nf, own) in [
        ("bondstone-wire", 2, false, true),
        ("bondstone-graph", 0, false, true),
        ("ordinary", 2, false, false),
        ("vendor-nat", 2, true, false),
    ] {
        let d = row(name);
        assert_eq!(
            (d.unsafe_code, d.nf, d.bondstone, d.unreadable_files, d.build_only),
            (n, nf, own, 0, false),
            "{name}"
        );
    }
    assert!(report.dependencies.is_sorted_by(|a, b| a.unsafe_code >= b.unsafe_code));
}

#[test]
fn reports_use_of_macros_with_unsafe_code() {
    let crates = Crates::new("macros");
    let helper = "#[macro_export]\nmacro_rules! peek { ($p:expr) => { unsafe { *$p } } }\n#[macro_export]\nmacro_rules! fine { () => {} }";
    crates.package("helper", &[], helper);
    crates.package("between", &["helper"], "pub use helper::peek;");
    let lib =
        format!("{FORBID}pub fn a(p: *const u8) -> u8 {{\n    between::peek!(p)\n}}\nfn b() {{ helper::fine!() }}");
    crates.package("mine", &["between", "helper"], &lib);
    let expected = "mine/src/lib.rs:3 the macro peek! of helper contains unsafe code, which forbid does not cover";
    assert_eq!(crates.findings("mine", &[]), [expected]);
    assert_eq!(crates.findings("mine", &["helper"]), [""; 0]);
    assert_eq!(crates.check("mine", &[]).dependencies[0].in_macros, 1);
}

/// A macro with unsafe code, of an ordinary crate.
const PEEK: &str = "#[macro_export]\nmacro_rules! peek { ($p:expr) => { unsafe { *$p } } }";

#[test]
fn follows_renamed_and_nested_macros() {
    let crates = Crates::new("names");
    crates.package("helper", &[], PEEK);
    let through = "#[macro_export]\nmacro_rules! look { ($p:expr) => { $crate::hidden::peek!($p) } }\n\
        #[doc(hidden)]\npub mod hidden { pub use helper::peek; }\npub use helper::peek as harmless;";
    crates.package("through", &["helper"], through);
    let again = "#[macro_export]\nmacro_rules! twice { ($p:expr) => { $crate::x::look! { $p } } }\n\
        pub mod x { pub use through::{look, harmless as sound}; }\n\
        #[macro_export]\nmacro_rules! fine { () => {} }";
    crates.package("again", &["through"], again);
    let contains = |name: &str, of: &str, line: usize| {
        format!("mine/src/lib.rs:{line} the macro {name}! of {of} contains unsafe code, which forbid does not cover")
    };
    let word = |line: usize| {
        format!(
            "mine/src/lib.rs:{line} peek in the tokens of a macro may become the macro peek! of helper, which contains \
             unsafe code"
        )
    };
    for (body, expected) in [
        ("use helper::peek as fine;\npub fn a(p: *const u8) -> u8 { fine!(p) }", contains("peek", "helper", 2)),
        ("use helper::{self as h, peek as _};", contains("peek", "helper", 2)),
        ("pub fn a(p: *const u8) -> u8 { helper::r#peek!(p) }", contains("peek", "helper", 2)),
        ("pub fn a(p: *const u8) -> u8 { through::look!(p) }", contains("look", "through", 2)),
        ("pub fn a(p: *const u8) -> u8 { through::harmless!(p) }", contains("harmless", "through", 2)),
        ("pub fn a(p: *const u8) -> u8 { again::twice!(p) }", contains("twice", "again", 2)),
        ("pub fn a(p: *const u8) -> u8 { again::x::sound!(p) }", contains("sound", "again", 2)),
        (
            "macro_rules! call { ($m:ident $p:tt) => { helper::$m! $p } }\nfn a(p: *const u8) -> u8 { call!(peek (p)) }",
            word(3),
        ),
        (
            "macro_rules! join { ([$($a:tt)*] [$($b:tt)*]) => { $($a)* $($b)* } }\n\
             fn a(p: *const u8) -> u8 { join!([helper::peek] [!(p)]) }",
            word(3),
        ),
        (
            "macro_rules! call { ($($m:ident)::* $p:tt) => { $($m)::*! $p } }\nmacro_rules! pass { ($($t:tt)*) => { call!($($t)*) } }\n\
             fn a(p: *const u8) -> u8 { pass!(helper::peek (p)) }",
            word(4),
        ),
    ] {
        crates.package("mine", &["helper", "through", "again"], &format!("{FORBID}{body}"));
        assert_eq!(crates.findings("mine", &[]), [expected], "{body}");
        assert_eq!(crates.findings("mine", &["helper", "through", "again"]), [""; 0], "{body}");
    }
    // an identifier that is not the name of a macro is accepted
    let body = "struct X;\nimpl X { fn peek() -> u8 { 1 } }\nfn a() { assert_eq!(X::peek(), 1); }";
    crates.package("mine", &["helper", "through", "again"], &format!("{FORBID}{body}"));
    assert_eq!(crates.findings("mine", &[]), [""; 0]);
    // allowing the macro allows those that invoke it
    let body = "pub fn a(p: *const u8) -> u8 { again::twice!(p); again::fine!() }";
    crates.package("mine", &["again"], &format!("{FORBID}{body}"));
    assert_eq!(crates.findings("mine", &["helper"]), [""; 0]);
}

#[test]
fn reports_macros_with_other_forbidden_code() {
    let crates = Crates::new("hides");
    for (inner, code) in [
        ("core::arch::global_asm!(\"nop\");", "assembly"),
        ("include!($x);", "an include!"),
        ("#[unsafe(no_mangle)] pub fn $x() {}", "a linker attribute"),
        ("#[path = \"../hidden/evil.rs\"] mod evil;", "an external module"),
        ("mod $x;", "an external module"),
    ] {
        crates.package("helper", &[], &format!("#[macro_export]\nmacro_rules! m {{ ($x:tt) => {{ {inner} }} }}"));
        crates.package("mine", &["helper"], &format!("{FORBID}helper::m!(x);"));
        let expected = format!("mine/src/lib.rs:2 the macro m! of helper contains {code}, which forbid does not cover");
        assert_eq!(crates.findings("mine", &[]), [expected], "{inner}");
    }
    crates.package("helper", &[], "pub use core::include as inc;");
    crates.package("mine", &["helper"], &format!("{FORBID}helper::inc!(\"evil.in\");"));
    assert_eq!(
        crates.findings("mine", &[]),
        ["mine/src/lib.rs:2 the macro inc! of helper contains an include!, which forbid does not cover"]
    );
}

#[test]
fn files_declared_by_macros_are_scanned_or_reported() {
    let crates = Crates::new("unread");
    let named = |n: &str| format!("macro_rules! m {{ () => {{ {n} }} }}\nm!();");
    let unknown = "a module in a macro whose file cannot be determined";
    for (lib, expected) in [
        (named("#[path = \"../hidden/evil.rs\"] pub mod evil;"), format!("mine/src/lib.rs:2 {unknown}")),
        (named("#[cfg_attr(all(), path = \"../hidden/evil.rs\")] mod evil;"), format!("mine/src/lib.rs:2 {unknown}")),
        (named("#[path = \"../hidden\"] mod a { mod evil; }"), format!("mine/src/lib.rs:2 {unknown}")),
        (
            "macro_rules! m { ($n:ident #[$a:meta]) => { #[$a] mod $n; } }\nm!(evil #[path = \"../hidden/evil.rs\"]);"
                .to_owned(),
            format!("mine/src/lib.rs:2 {unknown}"),
        ),
        (
            "macro_rules! m { ($($t:tt)*) => { #[path = \"../hidden/evil.rs\"] $($t)* } }\nm!(mod evil;);".to_owned(),
            "mine/src/lib.rs:2 `path =` in a macro, in a crate whose macros declare modules".to_owned(),
        ),
        (
            "use core::include as inc;\ninc!(\"evil.in\");".to_owned(),
            "mine/src/lib.rs:2 include! imported under another name".to_owned(),
        ),
        (
            "use core::arch::{global_asm as fine};\nfine!(\"nop\");".to_owned(),
            "mine/src/lib.rs:2 global_asm! imported under another name".to_owned(),
        ),
        (
            "macro_rules! m { ($m:ident $a:tt) => { $m! $a; } }\nm!(include (\"evil.in\"));".to_owned(),
            "mine/src/lib.rs:3 the name include! in the tokens of a macro".to_owned(),
        ),
        (
            "#[path = \"../hidden\"]\nmod a { mod evil; }".to_owned(),
            "mine/src/lib.rs:3 a #[path] on a module with a body".to_owned(),
        ),
        // these are scanned
        (
            "#[cfg_attr(all(), cfg_attr(true, path = \"../hidden/evil.rs\"))]\nmod evil;".to_owned(),
            "mine/hidden/evil.rs:1 an unsafe block".to_owned(),
        ),
        (
            "#[path = \"../other/fine.rs\"]\nmod a;\nmacro_rules! m { () => { mod beside; } }".to_owned(),
            "mine/other/beside.rs:2 an unsafe block".to_owned(),
        ),
        (
            named("#[cfg(all())] pub(crate) mod linked { mod evil; }"),
            "mine/hidden/evil.rs:1 an unsafe block".to_owned(),
        ),
    ] {
        let linked = lib.contains("linked");
        crates.package("mine", &[], &format!("{FORBID}{lib}"));
        crates.write("mine/hidden/evil.rs", "pub fn a(p: *const u8) -> u8 { unsafe { *p } }");
        crates.write("mine/src/evil.in", "fn a(p: *const u8) -> u8 { unsafe { *p } }");
        crates.write("mine/other/fine.rs", "m!();");
        crates.write("mine/other/beside.rs", "\npub fn a(p: *const u8) -> u8 { unsafe { *p } }");
        let link = crates.0.join("mine/src/linked");
        drop(std::fs::remove_file(&link));
        if linked {
            std::os::unix::fs::symlink("../hidden", link).unwrap();
        }
        let findings = crates.findings("mine", &[]);
        assert!(findings.contains(&expected), "{lib}: {findings:?}");
    }
    // the folder of the manifest is not scanned
    let manifest =
        "[package]\nname = \"flat\"\nversion = \"1.0.0\"\nedition = \"2024\"\n[workspace]\n[lib]\npath = \"lib.rs\"";
    crates.write("flat/Cargo.toml", manifest).write("flat/lib.rs", &format!("{FORBID}{}", named("mod evil;")));
    let expected = ["flat/lib.rs:2 a module in a macro in the folder of Cargo.toml, where its file is not followed"];
    assert_eq!(crates.findings("flat", &[]), expected);
    // inline modules are accepted
    let lib = named("mod here { pub fn path() {} } #[cfg(test)] mod tests;");
    crates.package("plain", &[], &format!("{FORBID}{lib}")).write("plain/src/tests.rs", "");
    crates.write("plain/build.rs", "fn main() {}");
    assert_eq!(crates.findings("plain", &[]), [""; 0]);
}

#[test]
fn crates_of_bondstone_are_identified_by_source() {
    let crates = Crates::new("own");
    let code = "pub fn a(p: *const u8) -> u8 { unsafe { *p } }";
    crates.package("bondstone-wire", &[], code).package("bondstone-graph", &["bondstone-wire"], "");
    // a foreign crate with a similar name
    let manifest = |name: &str, depends: &str| {
        format!(
            "[package]\nname = \"{name}\"\nversion = \"1.2.3\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n{depends}"
        )
    };
    let depends = "bondstone-graph = { path = \"../../bondstone-graph\" }\nvendor2 = { path = \"../../vendor2\" }";
    crates.write("sold/pcap/Cargo.toml", &manifest("bondstone-pcap", depends)).write("sold/pcap/src/lib.rs", FORBID);
    crates.package("vendor2", &["bondstone-graph"], code);
    // re-exports the graph crate
    crates.package("prelude", &["bondstone-graph"], &format!("{FORBID}pub use bondstone_graph as graph;"));
    crates.package("vendor3", &["prelude"], code);
    let depends = "bondstone-graph = { path = \"../bondstone-graph\" }\nvendor3 = { path = \"../vendor3\" }\n\
        bondstone-pcap = { path = \"../sold/pcap\" }";
    crates.write("mine/Cargo.toml", &manifest("mine", depends)).write("mine/src/lib.rs", FORBID);
    assert_eq!(
        crates.findings("mine", &[]),
        [
            "vendor2/src/lib.rs:1 a crate root without #![forbid(unsafe_code)]",
            "vendor2/src/lib.rs:1 an unsafe block",
            "vendor3/src/lib.rs:1 a crate root without #![forbid(unsafe_code)]",
            "vendor3/src/lib.rs:1 an unsafe block",
        ]
    );
    let report = crates.check("mine", &[]);
    let bondstone: Vec<_> = report.dependencies.iter().filter(|d| d.bondstone).map(|d| d.name.as_str()).collect();
    assert_eq!(bondstone, ["bondstone-wire", "bondstone-graph"]);
    let mut checked = report.nf_crates.clone();
    checked.sort();
    assert_eq!(checked, ["bondstone-pcap 1.2.3", "prelude 1.2.3", "vendor2 1.2.3", "vendor3 1.2.3"]);
}

#[test]
fn lists_build_scripts_and_procedural_macros() {
    let crates = Crates::new("building");
    crates.package("derives", &[], "").write("derives/build.rs", "fn main() {}");
    let manifest = "[package]\nname = \"derives\"\nversion = \"1.0.0\"\nedition = \"2024\"\nlinks = \"z\"\n[workspace]\n[lib]\nproc-macro = true\n";
    crates.write("derives/Cargo.toml", manifest);
    crates.package("mine", &["derives"], FORBID);
    let report = crates.check("mine", &[]);
    let named: Vec<_> = report.build_time.iter().map(|b| (b.name.as_str(), b.kind)).collect();
    assert_eq!(named, [("derives", "build script"), ("derives", "procedural macro")]);
    let d = &report.dependencies[0];
    assert!(d.build_only && d.build_script && d.proc_macro && d.links.as_deref() == Some("z"), "{d:?}");
}

#[test]
fn reports_missing_crates() {
    let crates = Crates::new("none");
    crates
        .write("work/Cargo.toml", "[workspace]\nmembers = [\"*\"]\n")
        .write("broken/Cargo.toml", "[package]\nnam = 1\n");
    let member = "[package]\nname = \"member\"\n";
    crates.write("work/member/Cargo.toml", member).write("work/member/src/lib.rs", "");
    let error = |name: &str| check(&crates.0.join(name), &[]).unwrap_err();
    assert!(matches!(error("absent"), Error::NoCrate(_)));
    assert!(matches!(error("work"), Error::Workspace(_)), "{}", error("work"));
    let Error::Cargo(why) = error("broken") else { panic!("{:?}", error("broken")) };
    assert!(why.contains("nam"), "{why}");
}
