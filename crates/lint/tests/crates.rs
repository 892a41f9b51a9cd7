//! Whole crates, as Cargo sees them. Nothing is built, and nothing is fetched.

use lint::{Error, Verdict, check};
use std::path::{Path, PathBuf};

/// Crates in a folder of a test's own.
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

    /// A crate that depends on others of the folder.
    fn package(&self, name: &str, depends: &[&str], lib: &str) -> &Self {
        let depends: String = depends.iter().map(|d| format!("{d} = {{ path = \"../{d}\" }}\n")).collect();
        let manifest = format!(
            "[package]\nname = \"{name}\"\nversion = \"1.2.3\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n{depends}"
        );
        self.write(&format!("{name}/Cargo.toml"), &manifest).write(&format!("{name}/src/lib.rs"), lib)
    }

    fn check(&self, name: &str, allow: &[&str]) -> Verdict {
        let allow: Vec<String> = allow.iter().map(|a| (*a).to_owned()).collect();
        check(&self.0.join(name), &allow).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Where and what is refused, with paths seen from the folder.
    fn refused(&self, name: &str, allow: &[&str]) -> Vec<String> {
        let verdict = self.check(name, allow);
        assert_eq!(verdict.ok, verdict.refused.is_empty());
        let folder = self.0.canonicalize().unwrap();
        let place = |file: &Path| file.canonicalize().unwrap().strip_prefix(&folder).unwrap().display().to_string();
        verdict.refused.iter().map(|f| format!("{}:{} {}", place(&f.file), f.line, f.what)).collect()
    }
}

impl Drop for Crates {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

const FORBID: &str = "#![forbid(unsafe_code)]\n";

#[test]
fn every_file_of_a_crate_is_read_and_every_root_forbids() {
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
        ("target/debug/generated.rs", "unsafe fn nobody() {}"),
    ] {
        crates.write(&format!("one/{file}"), text);
    }
    assert_eq!(
        crates.refused("one", &[]),
        [
            "one/build.rs".to_owned(),
            "one/other/beside.rs:2 the unsafe function b".to_owned(),
            "one/src/a/deep.rs:1 an unsafe block".to_owned(),
            "one/src/c/d.rs:3 an unsafe impl".to_owned(),
            "one/src/e.in:4 an extern block: functions of another language".to_owned(),
            "one/src/main.rs:1 a crate root without #![forbid(unsafe_code)]".to_owned(),
            "one/src/named_by_a_macro.rs:1 the attribute no_mangle".to_owned(),
            "one/tests/t.rs:2 an unsafe block".to_owned(),
        ][1..]
    );
    let verdict = crates.check("one", &[]);
    let [script] = &verdict.build_time[..] else { panic!("{:?}", verdict.build_time) };
    assert!(script.what == "build script" && script.file.ends_with("build.rs"), "{script:?}");
    assert_eq!((verdict.name.as_str(), verdict.version.as_str(), verdict.files), ("one", "1.2.3", 12));
}

#[test]
fn what_cannot_be_followed_is_refused() {
    let crates = Crates::new("follow");
    crates.package(
        "one",
        &[],
        &format!("{FORBID}include!(concat!(env!(\"OUT_DIR\"), \"/a.rs\"));\ninclude!(\"absent.rs\");"),
    );
    let refused = crates.refused("one", &[]);
    assert_eq!(refused[0], "one/src/lib.rs:2 an include! whose file cannot be told");
    assert!(refused[1].starts_with("one/src/lib.rs:3 the source ") && refused[1].contains("absent.rs"), "{refused:?}");
    // round and round
    crates.package("two", &[], &format!("{FORBID}include!(\"a.rs\");")).write("two/src/a.rs", "include!(\"lib.rs\");");
    assert_eq!(crates.refused("two", &[]), [""; 0]);
}

#[test]
fn sources_that_are_nested_too_deep_end_nothing() {
    let crates = Crates::new("deep");
    let nested =
        |open: &str, n: usize, close: &str| format!("{FORBID}\nfn a() {{ {}1{} }}", open.repeat(n), close.repeat(n));
    crates.package("one", &[], &nested("(", 100_000, ")"));
    let refused = crates.refused("one", &[]);
    assert!(refused.contains(&"one/src/lib.rs:3 brackets nested deeper than 2000".to_owned()), "{refused:?}");
    crates.package("two", &[], &nested("(", 1_900, ")"));
    assert_eq!(crates.refused("two", &[]), [""; 0]);
    crates.package("three", &[], &nested("!", 20_000, ""));
    assert_eq!(crates.refused("three", &[]), [""; 0]);
}

#[test]
fn nf_crates_below_are_held_to_the_same_and_others_counted() {
    let crates = Crates::new("below");
    let code = "pub unsafe fn a() {}\npub fn b() { unsafe { a() } }";
    crates.package("bondstone-wire", &[], code);
    crates.package("bondstone-graph", &["bondstone-wire"], "");
    crates.package("ordinary", &[], code);
    crates.package("vendor-nat", &["bondstone-graph", "ordinary"], &format!("{FORBID}{code}"));
    crates.package("mine", &["bondstone-graph", "vendor-nat"], FORBID);
    assert_eq!(
        crates.refused("mine", &[]),
        ["vendor-nat/src/lib.rs:2 the unsafe function a", "vendor-nat/src/lib.rs:3 an unsafe block"]
    );
    assert_eq!(crates.refused("mine", &["vendor-nat"]), [""; 0]);
    let verdict = crates.check("mine", &[]);
    assert_eq!(verdict.nf_crates, ["vendor-nat 1.2.3"]);
    let row = |name: &str| verdict.dependencies.iter().find(|d| d.name == name).unwrap();
    for (name, n, nf, own) in [
        ("bondstone-wire", 2, false, true),
        ("bondstone-graph", 0, false, true),
        ("ordinary", 2, false, false),
        ("vendor-nat", 2, true, false),
    ] {
        let d = row(name);
        assert_eq!((d.unsafe_code, d.nf, d.own, d.unread, d.build_only), (n, nf, own, 0, false), "{name}");
    }
    assert!(verdict.dependencies.is_sorted_by(|a, b| a.unsafe_code >= b.unsafe_code));
}

#[test]
fn a_macro_with_unsafe_code_of_another_crate_is_refused_where_it_is_used() {
    let crates = Crates::new("macros");
    let helper = "#[macro_export]\nmacro_rules! peek { ($p:expr) => { unsafe { *$p } } }\n#[macro_export]\nmacro_rules! fine { () => {} }";
    crates.package("helper", &[], helper);
    crates.package("between", &["helper"], "pub use helper::peek;");
    let lib =
        format!("{FORBID}pub fn a(p: *const u8) -> u8 {{\n    between::peek!(p)\n}}\nfn b() {{ helper::fine!() }}");
    crates.package("mine", &["between", "helper"], &lib);
    let expected = "mine/src/lib.rs:3 the macro peek! of helper has unsafe code in it, which forbid does not see";
    assert_eq!(crates.refused("mine", &[]), [expected]);
    assert_eq!(crates.refused("mine", &["helper"]), [""; 0]);
    assert_eq!(crates.check("mine", &[]).dependencies[0].in_macros, 1);
}

/// A macro with unsafe code in it, as in a crate that is no NF's.
const PEEK: &str = "#[macro_export]\nmacro_rules! peek { ($p:expr) => { unsafe { *$p } } }";

#[test]
fn a_macro_is_known_by_whatever_name_and_through_whatever_macro() {
    let crates = Crates::new("names");
    crates.package("helper", &[], PEEK);
    let through = "#[macro_export]\nmacro_rules! look { ($p:expr) => { $crate::hidden::peek!($p) } }\n\
        #[doc(hidden)]\npub mod hidden { pub use helper::peek; }\npub use helper::peek as harmless;";
    crates.package("through", &["helper"], through);
    let again = "#[macro_export]\nmacro_rules! twice { ($p:expr) => { $crate::x::look! { $p } } }\n\
        pub mod x { pub use through::{look, harmless as sound}; }\n\
        #[macro_export]\nmacro_rules! fine { () => {} }";
    crates.package("again", &["through"], again);
    let hides = |name: &str, of: &str, line: usize| {
        format!("mine/src/lib.rs:{line} the macro {name}! of {of} has unsafe code in it, which forbid does not see")
    };
    let word = |line: usize| {
        format!(
            "mine/src/lib.rs:{line} peek, in the tokens of a macro, may become the macro peek! of helper, which has \
             unsafe code in it"
        )
    };
    for (body, expected) in [
        ("use helper::peek as fine;\npub fn a(p: *const u8) -> u8 { fine!(p) }", hides("peek", "helper", 2)),
        ("use helper::{self as h, peek as _};", hides("peek", "helper", 2)),
        ("pub fn a(p: *const u8) -> u8 { helper::r#peek!(p) }", hides("peek", "helper", 2)),
        ("pub fn a(p: *const u8) -> u8 { through::look!(p) }", hides("look", "through", 2)),
        ("pub fn a(p: *const u8) -> u8 { through::harmless!(p) }", hides("harmless", "through", 2)),
        ("pub fn a(p: *const u8) -> u8 { again::twice!(p) }", hides("twice", "again", 2)),
        ("pub fn a(p: *const u8) -> u8 { again::x::sound!(p) }", hides("sound", "again", 2)),
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
        assert_eq!(crates.refused("mine", &[]), [expected], "{body}");
        assert_eq!(crates.refused("mine", &["helper", "through", "again"]), [""; 0], "{body}");
    }
    // a word that is no macro's is none
    let body = "struct X;\nimpl X { fn peek() -> u8 { 1 } }\nfn a() { assert_eq!(X::peek(), 1); }";
    crates.package("mine", &["helper", "through", "again"], &format!("{FORBID}{body}"));
    assert_eq!(crates.refused("mine", &[]), [""; 0]);
    // who has read the macro itself may use those that invoke it
    let body = "pub fn a(p: *const u8) -> u8 { again::twice!(p); again::fine!() }";
    crates.package("mine", &["again"], &format!("{FORBID}{body}"));
    assert_eq!(crates.refused("mine", &["helper"]), [""; 0]);
}

#[test]
fn a_macro_with_other_things_that_forbid_does_not_see_is_refused() {
    let crates = Crates::new("hides");
    for (inner, has) in [
        ("core::arch::global_asm!(\"nop\");", "assembly"),
        ("include!($x);", "an include!"),
        ("#[unsafe(no_mangle)] pub fn $x() {}", "an attribute for the linker"),
        ("#[path = \"../hidden/evil.rs\"] mod evil;", "a module of a file"),
        ("mod $x;", "a module of a file"),
    ] {
        crates.package("helper", &[], &format!("#[macro_export]\nmacro_rules! m {{ ($x:tt) => {{ {inner} }} }}"));
        crates.package("mine", &["helper"], &format!("{FORBID}helper::m!(x);"));
        let expected = format!("mine/src/lib.rs:2 the macro m! of helper has {has} in it, which forbid does not see");
        assert_eq!(crates.refused("mine", &[]), [expected], "{inner}");
    }
    crates.package("helper", &[], "pub use core::include as inc;");
    crates.package("mine", &["helper"], &format!("{FORBID}helper::inc!(\"evil.in\");"));
    assert_eq!(
        crates.refused("mine", &[]),
        ["mine/src/lib.rs:2 the macro inc! of helper has an include! in it, which forbid does not see"]
    );
}

#[test]
fn files_that_only_macros_name_are_read_or_refused() {
    let crates = Crates::new("unread");
    let named = |n: &str| format!("macro_rules! m {{ () => {{ {n} }} }}\nm!();");
    let unknown = "a module in a macro, whose file cannot be told";
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
            "mine/src/lib.rs:2 path = in a macro, in a crate in which macros name modules".to_owned(),
        ),
        (
            "use core::include as inc;\ninc!(\"evil.in\");".to_owned(),
            "mine/src/lib.rs:2 include! by another name".to_owned(),
        ),
        (
            "use core::arch::{global_asm as fine};\nfine!(\"nop\");".to_owned(),
            "mine/src/lib.rs:2 global_asm! by another name".to_owned(),
        ),
        (
            "macro_rules! m { ($m:ident $a:tt) => { $m! $a; } }\nm!(include (\"evil.in\"));".to_owned(),
            "mine/src/lib.rs:3 the name of include! in the tokens of a macro".to_owned(),
        ),
        (
            "#[path = \"../hidden\"]\nmod a { mod evil; }".to_owned(),
            "mine/src/lib.rs:3 a #[path] on a module with a body".to_owned(),
        ),
        // these are read
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
        let refused = crates.refused("mine", &[]);
        assert!(refused.contains(&expected), "{lib}: {refused:?}");
    }
    // beside the manifest there is everything
    let manifest =
        "[package]\nname = \"flat\"\nversion = \"1.0.0\"\nedition = \"2024\"\n[workspace]\n[lib]\npath = \"lib.rs\"";
    crates.write("flat/Cargo.toml", manifest).write("flat/lib.rs", &format!("{FORBID}{}", named("mod evil;")));
    let expected = ["flat/lib.rs:2 a module in a macro, whose file is not looked for beside Cargo.toml"];
    assert_eq!(crates.refused("flat", &[]), expected);
    // and what is no file's is nothing to refuse
    let lib = named("mod here { pub fn path() {} } #[cfg(test)] mod tests;");
    crates.package("plain", &[], &format!("{FORBID}{lib}")).write("plain/src/tests.rs", "");
    crates.write("plain/build.rs", "fn main() {}");
    assert_eq!(crates.refused("plain", &[]), [""; 0]);
}

#[test]
fn what_is_bondstones_own_is_not_a_question_of_names() {
    let crates = Crates::new("own");
    let code = "pub fn a(p: *const u8) -> u8 { unsafe { *p } }";
    crates.package("bondstone-wire", &[], code).package("bondstone-graph", &["bondstone-wire"], "");
    // another's crate, with a name like ours
    let manifest = |name: &str, depends: &str| {
        format!(
            "[package]\nname = \"{name}\"\nversion = \"1.2.3\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n{depends}"
        )
    };
    let depends = "bondstone-graph = { path = \"../../bondstone-graph\" }\nvendor2 = { path = \"../../vendor2\" }";
    crates.write("sold/pcap/Cargo.toml", &manifest("bondstone-pcap", depends)).write("sold/pcap/src/lib.rs", FORBID);
    crates.package("vendor2", &["bondstone-graph"], code);
    // gets the graph from another
    crates.package("prelude", &["bondstone-graph"], &format!("{FORBID}pub use bondstone_graph as graph;"));
    crates.package("vendor3", &["prelude"], code);
    let depends = "bondstone-graph = { path = \"../bondstone-graph\" }\nvendor3 = { path = \"../vendor3\" }\n\
        bondstone-pcap = { path = \"../sold/pcap\" }";
    crates.write("mine/Cargo.toml", &manifest("mine", depends)).write("mine/src/lib.rs", FORBID);
    assert_eq!(
        crates.refused("mine", &[]),
        [
            "vendor2/src/lib.rs:1 a crate root without #![forbid(unsafe_code)]",
            "vendor2/src/lib.rs:1 an unsafe block",
            "vendor3/src/lib.rs:1 a crate root without #![forbid(unsafe_code)]",
            "vendor3/src/lib.rs:1 an unsafe block",
        ]
    );
    let verdict = crates.check("mine", &[]);
    let own: Vec<_> = verdict.dependencies.iter().filter(|d| d.own).map(|d| d.name.as_str()).collect();
    assert_eq!(own, ["bondstone-wire", "bondstone-graph"]);
    let mut held = verdict.nf_crates.clone();
    held.sort();
    assert_eq!(held, ["bondstone-pcap 1.2.3", "prelude 1.2.3", "vendor2 1.2.3", "vendor3 1.2.3"]);
}

#[test]
fn what_runs_while_it_is_built_is_named() {
    let crates = Crates::new("building");
    crates.package("derives", &[], "").write("derives/build.rs", "fn main() {}");
    let manifest = "[package]\nname = \"derives\"\nversion = \"1.0.0\"\nedition = \"2024\"\nlinks = \"z\"\n[workspace]\n[lib]\nproc-macro = true\n";
    crates.write("derives/Cargo.toml", manifest);
    crates.package("mine", &["derives"], FORBID);
    let verdict = crates.check("mine", &[]);
    let named: Vec<_> = verdict.build_time.iter().map(|b| (b.name.as_str(), b.what)).collect();
    assert_eq!(named, [("derives", "build script"), ("derives", "procedural macro")]);
    let d = &verdict.dependencies[0];
    assert!(d.build_only && d.build_script && d.proc_macro && d.links.as_deref() == Some("z"), "{d:?}");
}

#[test]
fn what_is_no_crate_is_said() {
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
