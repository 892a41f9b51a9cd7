//! How much unsafe code there is in a crate that may have some.

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
    /// Names of exported macros with unsafe code in them, or in macros of the same crate that they invoke.
    pub(crate) macros: HashSet<String>,
}

/// A macro by example: whether there is unsafe code in it, and what it invokes.
#[derive(Default)]
struct Defined {
    exported: bool,
    has_unsafe: bool,
    invokes: HashSet<String>,
}

impl Counted {
    pub(crate) fn of(files: &[PathBuf]) -> Self {
        let mut counted = Counted::default();
        let mut defined: HashMap<String, Defined> = HashMap::new();
        for file in files {
            match read(file).ok().and_then(|text| text.trim_start_matches('\u{feff}').parse::<TokenStream>().ok()) {
                Some(tokens) => counted.walk(tokens, None, &mut defined),
                None => counted.unread += 1,
            }
            // the places of this file are not asked for any more
            proc_macro2::extra::invalidate_current_thread_spans();
        }
        let mut known: HashSet<String> =
            defined.iter().filter(|(_, d)| d.has_unsafe).map(|(name, _)| name.clone()).collect();
        loop {
            let more: Vec<_> = defined
                .iter()
                .filter(|(name, d)| !known.contains(*name) && !d.invokes.is_disjoint(&known))
                .map(|(name, _)| name.clone())
                .collect();
            if more.is_empty() {
                break;
            }
            known.extend(more);
        }
        known.retain(|name| defined.get(name).is_some_and(|d| d.exported));
        counted.macros = known;
        counted
    }

    /// Counts in tokens, which are within the macro `within`.
    fn walk(&mut self, tokens: TokenStream, within: Option<&str>, defined: &mut HashMap<String, Defined>) {
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
                TokenTree::Ident(name) => {
                    let name = name.to_string();
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
                        if let Some(within) = within {
                            defined.entry(within.to_owned()).or_default().has_unsafe = true;
                        }
                    }
                    if let Some(within) = within.filter(|_| punct(n + 1, '!') && group(n + 2)) {
                        defined.entry(within.to_owned()).or_default().invokes.insert(name);
                    }
                }
                TokenTree::Group(inner) => {
                    // macro_rules! name { ... }
                    let defines = n > 2 && punct(n - 2, '!') && word(n - 3).as_deref() == Some("macro_rules");
                    let name = if defines { word(n - 1) } else { None };
                    if let Some(name) = name.as_ref().filter(|_| exported(&trees[..n - 3])) {
                        defined.entry(name.clone()).or_default().exported = true;
                    }
                    self.walk(inner.stream(), name.as_deref().or(within), defined);
                }
                _ => {}
            }
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
        let counted = Counted::of(&[path.clone(), "nowhere.rs".into()]);
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
        assert_eq!(all.macros, HashSet::from(["other".to_owned(), "outer".to_owned()]));
    }
}
