//! Counting unsafe code in dependencies.

use crate::scan::{ASSEMBLY_MACROS, LINKER_ATTRIBUTES, ident_name};
use crate::source::read;
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

/// Unsafe code in the sources of a crate. UnsafeCount by tokens: sources may be of any edition and use syntax unknown
/// to the parser.
#[derive(Default, Debug)]
pub(crate) struct UnsafeCount {
    pub(crate) unsafe_code: usize,
    pub(crate) in_macros: usize,
    pub(crate) unreadable_files: usize,
    /// Declarative macros by name; a `use ... as` counts as a macro that invokes the original.
    macros: HashMap<String, MacroFacts>,
}

/// Facts about a declarative macro.
#[derive(Default, Debug)]
struct MacroFacts {
    exported: bool,
    /// Code in it that `forbid(unsafe_code)` does not cover.
    forbidden: Option<&'static str>,
    invokes: HashSet<String>,
    /// True if it invokes a macro whose name is an argument.
    invokes_argument: bool,
    /// True if it emits two arguments in a row: one may be a name, and the next `!`.
    joins_arguments: bool,
}

impl UnsafeCount {
    pub(crate) fn count(files: &[PathBuf]) -> Self {
        let mut counted = UnsafeCount::default();
        for file in files {
            match read(file).ok().and_then(|text| text.trim_start_matches('\u{feff}').parse::<TokenStream>().ok()) {
                Some(tokens) => counted.walk(tokens, None),
                None => counted.unreadable_files += 1,
            }
            // frees the source text kept for spans
            proc_macro2::extra::invalidate_current_thread_spans();
        }
        counted
    }

    /// Returns the code in the exported macro `name` that `forbid(unsafe_code)` does not cover; see [`propagate`].
    pub(crate) fn forbidden_in(&self, name: &str) -> Option<&'static str> {
        self.macros.get(name).filter(|facts| facts.exported).and_then(|facts| facts.forbidden)
    }

    /// Returns the macros that invoke a macro named by an argument; see [`propagate`].
    pub(crate) fn argument_invokers(&self) -> impl Iterator<Item = &String> {
        self.macros.iter().filter(|(_, facts)| facts.invokes_argument).map(|(name, _)| name)
    }

    /// Treats macros that join arguments as macros that invoke an argument.
    pub(crate) fn distrust(&mut self) {
        self.macros.values_mut().for_each(|facts| facts.invokes_argument |= facts.joins_arguments);
    }

    /// Removes its macros, which allows their use.
    pub(crate) fn trust(&mut self) {
        self.macros.clear();
    }

    /// Records forbidden code in the macro `within`.
    fn record(&mut self, within: Option<&str>, forbidden: &'static str) {
        if let Some(within) = within {
            self.macros.entry(within.to_owned()).or_default().forbidden.get_or_insert(forbidden);
        }
    }

    /// Records that a macro, or a `use ... as`, invokes the macro `to`.
    fn record_invocation(&mut self, from: &str, to: String) {
        if to == "include" {
            self.record(Some(from), "an include!");
        } else if ASSEMBLY_MACROS.contains(&to.as_str()) {
            self.record(Some(from), "assembly");
        }
        self.macros.entry(from.to_owned()).or_default().invokes.insert(to);
    }

    /// Processes a keyword and the tokens after it.
    fn keyword(&mut self, word: &str, rest: &[TokenTree], within: Option<&str>) {
        match (word, rest) {
            // not the `use` of `impl Trait + use<'a>`
            ("use", [first, ..]) if !matches!(first, TokenTree::Punct(open) if open.as_char() == '<') => {
                let mut found = vec![];
                collect_renames(rest, &mut found);
                for (is, was) in found {
                    self.macros.entry(is.clone()).or_default().exported = true;
                    self.record_invocation(&is, was);
                }
            }
            ("mod", [TokenTree::Ident(_), TokenTree::Punct(end), ..]) if end.as_char() == ';' => {
                self.record(within, "an external module");
            }
            ("mod", [TokenTree::Punct(_), TokenTree::Ident(_), TokenTree::Punct(end), ..]) if end.as_char() == ';' => {
                self.record(within, "an external module");
            }
            _ => {}
        }
    }

    /// Counts unsafe code in tokens, which are inside the macro `within`.
    fn walk(&mut self, tokens: TokenStream, within: Option<&str>) {
        let trees: Vec<TokenTree> = tokens.into_iter().collect();
        let word = |at: usize| match trees.get(at) {
            Some(TokenTree::Ident(word)) => Some(word.to_string()),
            _ => None,
        };
        let punct = |at: usize, c| matches!(trees.get(at), Some(TokenTree::Punct(p)) if p.as_char() == c);
        let group = |at: usize| matches!(trees.get(at), Some(TokenTree::Group(_)));
        let literal = |at: usize| matches!(trees.get(at), Some(TokenTree::Literal(_)));
        for (n, tree) in trees.iter().enumerate() {
            match tree {
                TokenTree::Ident(ident) => {
                    let name = ident.to_string();
                    self.keyword(&name, &trees[n + 1..], within);
                    // `unsafe extern "C" fn`: the position after the ABI
                    let mut at = n + 1;
                    if name == "unsafe" && word(at).as_deref() == Some("extern") {
                        at += 1 + usize::from(literal(at + 1));
                    }
                    let counts = match name.as_str() {
                        // not a function pointer, which has no name, nor an attribute
                        "unsafe" => match word(at).as_deref() {
                            Some("fn") => !group(at + 1),
                            _ => {
                                !matches!(trees.get(at), Some(TokenTree::Group(g)) if g.delimiter() == proc_macro2::Delimiter::Parenthesis)
                            }
                        },
                        // extern "C" { ... } of older editions
                        "extern" if n == 0 || word(n - 1).as_deref() != Some("unsafe") => {
                            let at = n + 1 + usize::from(literal(n + 1));
                            matches!(trees.get(at), Some(TokenTree::Group(g)) if g.delimiter() == proc_macro2::Delimiter::Brace)
                        }
                        _ => false,
                    };
                    if counts {
                        self.unsafe_code += 1;
                        self.in_macros += usize::from(within.is_some());
                        self.record(within, "unsafe code");
                    }
                    let name = ident_name(ident);
                    if let Some(within) = within.filter(|_| n > 0 && punct(n - 1, '$')) {
                        let facts = self.macros.entry(within.to_owned()).or_default();
                        facts.invokes_argument |= punct(n + 1, '!') && !punct(n + 2, '=');
                        facts.joins_arguments |= punct(n + 1, '$');
                    }
                    if LINKER_ATTRIBUTES.contains(&name.as_str()) {
                        self.record(within, "a linker attribute");
                    }
                    if let Some(within) = within.filter(|_| punct(n + 1, '!') && (group(n + 2) || punct(n + 2, '$'))) {
                        self.record_invocation(within, name);
                    }
                }
                TokenTree::Group(inner) => {
                    if let Some(within) = within.filter(|_| n > 0 && punct(n - 1, '$')) {
                        // $(...)* with an optional separator, and the next token
                        let after = (n + 1..n + 4).find(|&at| ['*', '+', '?'].iter().any(|&c| punct(at, c)));
                        let after = after.map_or(n + 1, |at| at + 1);
                        let facts = self.macros.entry(within.to_owned()).or_default();
                        facts.invokes_argument |= punct(after, '!') && !punct(after + 1, '=');
                        facts.joins_arguments |= punct(after, '$');
                    }
                    // macro_rules! name { ... }
                    let defines = n > 2 && punct(n - 2, '!') && word(n - 3).as_deref() == Some("macro_rules");
                    let name =
                        if defines { word(n - 1).map(|name| name.trim_start_matches("r#").to_owned()) } else { None };
                    if let Some(name) = name.as_ref().filter(|_| is_exported(&trees[..n - 3])) {
                        self.macros.entry(name.clone()).or_default().exported = true;
                    }
                    self.walk(inner.stream(), name.as_deref().or(within));
                }
                _ => {}
            }
        }
    }
}

/// Propagates facts from macros to the macros that invoke them, across all crates, because a macro may name one that
/// only its caller has.
pub(crate) fn propagate<'a>(crates: impl Iterator<Item = &'a mut UnsafeCount>) {
    let mut crates: Vec<&mut UnsafeCount> = crates.collect();
    loop {
        let forbidden_macros = |counted: &UnsafeCount, all: bool| -> HashMap<String, &'static str> {
            let those = counted.macros.iter().filter(|(_, d)| all || d.exported);
            those.filter_map(|(name, d)| Some((name.clone(), d.forbidden?))).collect()
        };
        let exported: HashMap<_, _> = crates.iter().flat_map(|counted| forbidden_macros(counted, false)).collect();
        let argument_invokers: HashSet<String> =
            crates.iter().flat_map(|counted| counted.argument_invokers().cloned()).collect();
        let mut changed = false;
        for counted in &mut crates {
            let own = forbidden_macros(counted, true);
            for facts in counted.macros.values_mut().filter(|d| !d.invokes_argument) {
                facts.invokes_argument = !facts.invokes.is_disjoint(&argument_invokers);
                changed |= facts.invokes_argument;
            }
            for facts in counted.macros.values_mut().filter(|d| d.forbidden.is_none()) {
                facts.forbidden = facts.invokes.iter().find_map(|name| own.get(name).or(exported.get(name)).copied());
                changed |= facts.forbidden.is_some();
            }
        }
        if !changed {
            break;
        }
    }
}

/// Collects the renames of a `use` from the tokens after it: new name, original name.
fn collect_renames(trees: &[TokenTree], found: &mut Vec<(String, String)>) {
    for (n, tree) in trees.iter().enumerate() {
        match (tree, trees.get(n + 1), trees.get(n + 2)) {
            (TokenTree::Ident(was), Some(TokenTree::Ident(word)), Some(TokenTree::Ident(is)))
                if word == "as" && is != "_" =>
            {
                found.push((ident_name(is), ident_name(was)));
            }
            (TokenTree::Group(group), ..) => collect_renames(&group.stream().into_iter().collect::<Vec<_>>(), found),
            (TokenTree::Punct(end), ..) if end.as_char() == ';' => break,
            _ => {}
        }
    }
}

/// Returns true if these tokens end with attributes that include `#[macro_export]`.
fn is_exported(before: &[TokenTree]) -> bool {
    before
        .rchunks(2)
        .map_while(|pair| match pair {
            [TokenTree::Punct(hash), TokenTree::Group(attribute)] if hash.as_char() == '#' => Some(attribute.stream()),
            _ => None,
        })
        .any(|attribute| attribute.to_string().contains("macro_export"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(text: &str) -> UnsafeCount {
        let path = std::env::temp_dir().join(format!("lint-count-{}-{}.rs", std::process::id(), text.len()));
        std::fs::write(&path, text).unwrap();
        let mut counted = UnsafeCount::count(&[path.clone(), "nowhere.rs".into()]);
        propagate([&mut counted].into_iter());
        std::fs::remove_file(path).unwrap();
        assert_eq!(counted.unreadable_files, 1);
        counted
    }

    #[test]
    fn each_construct_counts_once() {
        let text = r#"
            unsafe fn a() {}
            fn b() { unsafe { a() } }
            unsafe impl Send for X {}
            unsafe trait T {}
            unsafe extern "C" fn c() {}
            extern "C" { fn d(); }
            unsafe extern "C" { fn e(); }
            extern crate alloc;
            extern "C" fn harmless() {}
            type P = unsafe extern "C" fn(u8); type Q = unsafe fn();
            #[unsafe(no_mangle)] fn f() {}
            const S: &str = "unsafe { }"; // unsafe {}
        "#;
        let all = counted(text);
        assert_eq!((all.unsafe_code, all.in_macros), (7, 0));
    }

    #[test]
    fn finds_macros_that_invoke_unsafe_macros() {
        let text = r#"
            macro_rules! inner { ($p:expr) => { unsafe { *$p } } }
            macro_rules! middle { ($p:expr) => { inner!($p) } }
            /// Docs.
            #[macro_export]
            #[doc(hidden)]
            macro_rules! outer { ($p:expr) => { $crate::middle!($p) } }
            #[macro_export]
            macro_rules! safe { () => { println!("unsafe") } }
            #[cfg_attr(all(), macro_export)]
            macro_rules! other { () => { unsafe {} } }
        "#;
        let all = counted(text);
        assert_eq!((all.unsafe_code, all.in_macros), (2, 2));
        let forbidden: Vec<_> =
            ["inner", "middle", "outer", "safe", "other"].map(|name| all.forbidden_in(name).is_some()).into();
        assert_eq!(forbidden, [false, false, true, false, true]);
    }
}
