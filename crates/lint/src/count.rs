//! How much unsafe code there is in a crate that may have some.

use crate::look::{ASSEMBLY, LINKER, plain};
use crate::source::read;
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

/// What there is in the sources of a crate. Counted by token: sources may be of any edition, and use what no parser knows yet.
#[derive(Default, Debug)]
pub(crate) struct Counted {
    pub(crate) unsafe_code: usize,
    pub(crate) in_macros: usize,
    pub(crate) unread: usize,
    /// Macros by example, by name; what a `use` gives another name is as one that invokes what it was.
    defined: HashMap<String, Defined>,
}

/// A macro by example: what in it `forbid(unsafe_code)` does not see, and what it invokes.
#[derive(Default, Debug)]
struct Defined {
    exported: bool,
    has: Option<&'static str>,
    invokes: HashSet<String>,
    /// Whether it invokes what it is given the name of.
    calls: bool,
    /// Whether it puts things side by side that it is given: one may be a name, and the next `!`.
    joins: bool,
}

impl Counted {
    pub(crate) fn of(files: &[PathBuf]) -> Self {
        let mut counted = Counted::default();
        for file in files {
            match read(file).ok().and_then(|text| text.trim_start_matches('\u{feff}').parse::<TokenStream>().ok()) {
                Some(tokens) => counted.walk(tokens, None),
                None => counted.unread += 1,
            }
            // the places of this file are not asked for any more
            proc_macro2::extra::invalidate_current_thread_spans();
        }
        counted
    }

    /// What the exported macro `name` has in it that `forbid(unsafe_code)` does not see, if it does; see [`spread`].
    pub(crate) fn hides(&self, name: &str) -> Option<&'static str> {
        self.defined.get(name).filter(|defined| defined.exported).and_then(|defined| defined.has)
    }

    /// Names of its macros that invoke what they are given the name of; see [`spread`].
    pub(crate) fn calling(&self) -> impl Iterator<Item = &String> {
        self.defined.iter().filter(|(_, defined)| defined.calls).map(|(name, _)| name)
    }

    /// Takes its macros for such as are there to hide something.
    pub(crate) fn distrust(&mut self) {
        self.defined.values_mut().for_each(|defined| defined.calls |= defined.joins);
    }

    /// Forgets its macros: they may be used.
    pub(crate) fn trust(&mut self) {
        self.defined.clear();
    }

    /// Notes what the macro `within` has.
    fn note(&mut self, within: Option<&str>, has: &'static str) {
        if let Some(within) = within {
            self.defined.entry(within.to_owned()).or_default().has.get_or_insert(has);
        }
    }

    /// Notes that a macro, or a `use` that gives another name, leads to the macro `to`.
    fn leads(&mut self, from: &str, to: String) {
        if to == "include" {
            self.note(Some(from), "an include!");
        } else if ASSEMBLY.contains(&to.as_str()) {
            self.note(Some(from), "assembly");
        }
        self.defined.entry(from.to_owned()).or_default().invokes.insert(to);
    }

    /// A word of the language, and what follows it.
    fn word(&mut self, word: &str, rest: &[TokenTree], within: Option<&str>) {
        match (word, rest) {
            // not that of `impl Trait + use<'a>`
            ("use", [first, ..]) if !matches!(first, TokenTree::Punct(open) if open.as_char() == '<') => {
                let mut found = vec![];
                renames(rest, &mut found);
                for (is, was) in found {
                    self.defined.entry(is.clone()).or_default().exported = true;
                    self.leads(&is, was);
                }
            }
            ("mod", [TokenTree::Ident(_), TokenTree::Punct(end), ..]) if end.as_char() == ';' => {
                self.note(within, "a module of a file");
            }
            ("mod", [TokenTree::Punct(_), TokenTree::Ident(_), TokenTree::Punct(end), ..]) if end.as_char() == ';' => {
                self.note(within, "a module of a file");
            }
            _ => {}
        }
    }

    /// Counts in tokens, which are within the macro `within`.
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
                    self.word(&name, &trees[n + 1..], within);
                    // `unsafe extern "C" fn`: where the kind of thing is said
                    let mut at = n + 1;
                    if name == "unsafe" && word(at).as_deref() == Some("extern") {
                        at += 1 + usize::from(literal(at + 1));
                    }
                    let counts = match name.as_str() {
                        // a pointer to a function has no name, and an attribute has no code
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
                        self.note(within, "unsafe code");
                    }
                    let name = plain(ident);
                    if let Some(within) = within.filter(|_| n > 0 && punct(n - 1, '$')) {
                        let defined = self.defined.entry(within.to_owned()).or_default();
                        defined.calls |= punct(n + 1, '!') && !punct(n + 2, '=');
                        defined.joins |= punct(n + 1, '$');
                    }
                    if LINKER.contains(&name.as_str()) {
                        self.note(within, "an attribute for the linker");
                    }
                    if let Some(within) = within.filter(|_| punct(n + 1, '!') && (group(n + 2) || punct(n + 2, '$'))) {
                        self.leads(within, name);
                    }
                }
                TokenTree::Group(inner) => {
                    if let Some(within) = within.filter(|_| n > 0 && punct(n - 1, '$')) {
                        // $(...)* and what follows, behind a separator
                        let after = (n + 1..n + 4).find(|&at| ['*', '+', '?'].iter().any(|&c| punct(at, c)));
                        let after = after.map_or(n + 1, |at| at + 1);
                        let defined = self.defined.entry(within.to_owned()).or_default();
                        defined.calls |= punct(after, '!') && !punct(after + 1, '=');
                        defined.joins |= punct(after, '$');
                    }
                    // macro_rules! name { ... }
                    let defines = n > 2 && punct(n - 2, '!') && word(n - 3).as_deref() == Some("macro_rules");
                    let name =
                        if defines { word(n - 1).map(|name| name.trim_start_matches("r#").to_owned()) } else { None };
                    if let Some(name) = name.as_ref().filter(|_| exported(&trees[..n - 3])) {
                        self.defined.entry(name.clone()).or_default().exported = true;
                    }
                    self.walk(inner.stream(), name.as_deref().or(within));
                }
                _ => {}
            }
        }
    }
}

/// Spreads what macros have in them to those that invoke them, in whatever crate, since a macro may name one that only
/// whoever invokes it has.
pub(crate) fn spread<'a>(crates: impl Iterator<Item = &'a mut Counted>) {
    let mut crates: Vec<&mut Counted> = crates.collect();
    loop {
        let known = |counted: &Counted, all: bool| -> HashMap<String, &'static str> {
            let those = counted.defined.iter().filter(|(_, d)| all || d.exported);
            those.filter_map(|(name, d)| Some((name.clone(), d.has?))).collect()
        };
        let exported: HashMap<_, _> = crates.iter().flat_map(|counted| known(counted, false)).collect();
        let calling: HashSet<String> = crates.iter().flat_map(|counted| counted.calling().cloned()).collect();
        let mut more = false;
        for counted in &mut crates {
            let own = known(counted, true);
            for defined in counted.defined.values_mut().filter(|d| !d.calls) {
                defined.calls = !defined.invokes.is_disjoint(&calling);
                more |= defined.calls;
            }
            for defined in counted.defined.values_mut().filter(|d| d.has.is_none()) {
                defined.has = defined.invokes.iter().find_map(|name| own.get(name).or(exported.get(name)).copied());
                more |= defined.has.is_some();
            }
        }
        if !more {
            break;
        }
    }
}

/// The names that a `use` gives, each with what it was, in the tokens behind the word.
fn renames(trees: &[TokenTree], found: &mut Vec<(String, String)>) {
    for (n, tree) in trees.iter().enumerate() {
        match (tree, trees.get(n + 1), trees.get(n + 2)) {
            (TokenTree::Ident(was), Some(TokenTree::Ident(word)), Some(TokenTree::Ident(is)))
                if word == "as" && is != "_" =>
            {
                found.push((plain(is), plain(was)));
            }
            (TokenTree::Group(group), ..) => renames(&group.stream().into_iter().collect::<Vec<_>>(), found),
            (TokenTree::Punct(end), ..) if end.as_char() == ';' => break,
            _ => {}
        }
    }
}

/// Whether `#[macro_export]` is among the attributes at the end of these tokens.
fn exported(before: &[TokenTree]) -> bool {
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

    fn counted(text: &str) -> Counted {
        let path = std::env::temp_dir().join(format!("lint-count-{}-{}.rs", std::process::id(), text.len()));
        std::fs::write(&path, text).unwrap();
        let mut counted = Counted::of(&[path.clone(), "nowhere.rs".into()]);
        spread([&mut counted].into_iter());
        std::fs::remove_file(path).unwrap();
        assert_eq!(counted.unread, 1);
        counted
    }

    #[test]
    fn each_kind_counts_once() {
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
    fn macros_are_told_also_those_that_invoke_others() {
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
        let hide: Vec<_> = ["inner", "middle", "outer", "safe", "other"].map(|name| all.hides(name).is_some()).into();
        assert_eq!(hide, [false, false, true, false, true]);
    }
}
