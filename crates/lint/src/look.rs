//! One source file: what is refused in it, and where it leads.

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use std::collections::HashSet;
use syn::parse::Parser;
use syn::visit::{self, Visit};
use syn::{
    AttrStyle, Attribute, Expr, ExprUnsafe, ItemForeignMod, ItemImpl, ItemMod, ItemTrait, LitStr, Macro, Meta, Safety,
    Signature, TypeFnPtr, UseRename,
};

/// A place: line from 1, column from 0.
pub(crate) type Spot = (usize, usize);

/// A module in a file of its own.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Module {
    pub(crate) name: String,
    /// The modules in this file around it.
    pub(crate) inside: Vec<String>,
    /// Files that attributes say.
    pub(crate) paths: Vec<String>,
}

/// A file that is included; `None` if that cannot be told.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Include {
    pub(crate) path: Option<String>,
    pub(crate) at: Spot,
}

/// What there is in a file.
#[derive(Default, Debug)]
pub(crate) struct Looked {
    pub(crate) findings: Vec<(Spot, String, &'static str)>,
    pub(crate) modules: Vec<Module>,
    pub(crate) includes: Vec<Include>,
    /// Macros that are invoked, and what a `use` gives another name.
    pub(crate) macros: Vec<(String, Spot)>,
    /// Words in the tokens of macros that call what they are given: any of them may become the name of a macro.
    pub(crate) words: Vec<(String, Spot)>,
    /// Modules that macros name, in files that lie where those of modules lie; where that is depends on who invokes them.
    pub(crate) macro_modules: Vec<Spot>,
    /// Where `path = ` stands in the tokens of macros, which might become an attribute of such a module.
    pub(crate) macro_paths: Vec<Spot>,
    /// Whether it begins with `#![forbid(unsafe_code)]`.
    pub(crate) forbids: bool,
}

/// Attributes that make a symbol the linker's.
pub(crate) const LINKER: [&str; 3] = ["no_mangle", "export_name", "link_section"];
/// Levels that weaken a lint.
const WEAKER: [&str; 3] = ["allow", "expect", "warn"];
pub(crate) const ASSEMBLY: [&str; 3] = ["asm", "global_asm", "naked_asm"];

/// Brackets within brackets that are followed: parsing is recursive.
const DEEPEST: usize = 2000;

const SAFE_CURE: &str = "write it in safe Rust";
const LINKER_CURE: &str = "take it out: an NF needs no symbol of its own";
const LINT_CURE: &str = "take it out: NFs are safe code";
const PARSE_CURE: &str = "does it compile?";
const NAME_CURE: &str = "call it by its own name, so that it can be followed";
pub(crate) const MODULE_CURE: &str = "write mod outside of the macro";

/// Looks at the text of a file: items, or what else is included. Macros of the names `calling` invoke what they are given
/// the name of.
pub(crate) fn look(text: &str, calling: &HashSet<String>) -> Looked {
    let mut looking = Looking { calling, found: Looked::default(), known: HashSet::new(), inside: vec![], given: 0 };
    if let Some(line) = too_deep(text) {
        let what = format!("brackets nested deeper than {DEEPEST}");
        looking.found.findings.push(((line, 0), what, "write it flatter: it is not looked at"));
        return looking.found;
    }
    let parsed = syn::parse_file(text);
    let tokens = match &parsed {
        Ok(file) => {
            looking.found.forbids = file.attrs.iter().any(forbids);
            looking.visit_file(file);
            tokens_of(text)
        }
        Err(why) => {
            // an included file may be an expression, or statements
            match syn::Block::parse_within.parse_str(text) {
                Ok(statements) => statements.iter().for_each(|s| looking.visit_stmt(s)),
                Err(_) => looking.refuse(why.span(), format!("this is no Rust: {why}"), PARSE_CURE),
            }
            tokens_of(text)
        }
    };
    // what is still unsafe stands in a macro, or where the parser has kept tokens
    each_token(tokens, &mut |tree| {
        if let TokenTree::Ident(word) = tree
            && word == "unsafe"
            && !looking.known.contains(&spot(word.span()))
        {
            looking.refuse(word.span(), "unsafe code in a macro".to_owned(), SAFE_CURE);
        }
    });
    looking.found.findings.sort();
    looking.found.findings.dedup();
    // the places of this file are not asked for any more
    proc_macro2::extra::invalidate_current_thread_spans();
    looking.found
}

/// The line from which on brackets are nested too deep. Those in texts and comments count as well, which closes most of them.
fn too_deep(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (n, line) in text.lines().enumerate() {
        for byte in line.bytes() {
            match byte {
                b'(' | b'[' | b'{' => depth += 1,
                b')' | b']' | b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth > DEEPEST {
                return Some(n + 1);
            }
        }
    }
    None
}

fn tokens_of(text: &str) -> TokenStream {
    // a shebang is no token; spaces keep the places
    let text = text.trim_start_matches('\u{feff}');
    match text.strip_prefix("#!").filter(|rest| !rest.trim_start().starts_with('[')) {
        Some(rest) => rest.find('\n').map_or("", |at| &rest[at..]).parse().unwrap_or_default(),
        None => text.parse().unwrap_or_default(),
    }
}

/// Visits all tokens, those in groups behind their group.
fn each_token(tokens: TokenStream, f: &mut impl FnMut(&TokenTree)) {
    for tree in tokens {
        f(&tree);
        if let TokenTree::Group(group) = tree {
            each_token(group.stream(), f);
        }
    }
}

fn spot(span: Span) -> Spot {
    let start = span.start();
    (start.line, start.column)
}

/// Whether an attribute is `#![forbid(unsafe_code)]`, whatever else it forbids.
fn forbids(attribute: &Attribute) -> bool {
    matches!(attribute.style, AttrStyle::Inner(_))
        && attribute.path().is_ident("forbid")
        && matches!(&attribute.meta, Meta::List(list) if has_word(list.tokens.clone(), "unsafe_code"))
}

/// A name as it is meant: `r#peek` is `peek`.
pub(crate) fn plain(name: &proc_macro2::Ident) -> String {
    let name = name.to_string();
    name.strip_prefix("r#").map_or(name.clone(), str::to_owned)
}

fn has_word(tokens: TokenStream, wanted: &str) -> bool {
    let mut found = false;
    each_token(tokens, &mut |tree| found |= matches!(tree, TokenTree::Ident(word) if plain(word) == wanted));
    found
}

struct Looking<'a> {
    /// Macros that invoke what they are given the name of.
    calling: &'a HashSet<String>,
    /// How many of them the tokens are given to.
    given: usize,
    found: Looked,
    /// Places of the word `unsafe` that have been judged.
    known: HashSet<Spot>,
    inside: Vec<String>,
}

impl Looking<'_> {
    fn refuse(&mut self, at: Span, what: String, remedy: &'static str) {
        self.found.findings.push((spot(at), what, remedy));
    }

    fn unsafe_at(&mut self, at: Span, what: &str) {
        self.known.insert(spot(at));
        self.refuse(at, what.to_owned(), SAFE_CURE);
    }

    /// The words of an attribute, also of one within `cfg_attr` or a macro.
    fn attribute(&mut self, tokens: TokenStream) {
        let (mut weaker, mut unsafe_code) = (None, false);
        let mut all = vec![];
        each_token(tokens, &mut |tree| {
            if let TokenTree::Ident(word) = tree {
                all.push(word.clone());
            }
        });
        for word in all {
            match plain(&word).as_str() {
                "unsafe" => _ = self.known.insert(spot(word.span())),
                "unsafe_code" => unsafe_code = true,
                name if WEAKER.contains(&name) => weaker = Some(word),
                name if LINKER.contains(&name) => {
                    self.refuse(word.span(), format!("the attribute {name}"), LINKER_CURE);
                }
                _ => {}
            }
        }
        if let (Some(level), true) = (weaker, unsafe_code) {
            self.refuse(level.span(), format!("#[{level}(unsafe_code)]"), LINT_CURE);
        }
    }

    /// A macro that gets another name, under which it would not be known.
    fn renamed(&mut self, name: &str, at: Span) {
        self.found.macros.push((name.to_owned(), spot(at)));
        if name == "include" || ASSEMBLY.contains(&name) {
            self.refuse(at, format!("{name}! by another name"), NAME_CURE);
        }
    }

    /// An invocation of a macro, also of one within the tokens of another.
    fn invocation(&mut self, name: &str, at: Span, tokens: TokenStream) {
        self.found.macros.push((name.to_owned(), spot(at)));
        if ASSEMBLY.contains(&name) {
            self.refuse(at, format!("assembly ({name}!)"), SAFE_CURE);
        }
        if name == "include" {
            let path = syn::parse2::<LitStr>(tokens.clone()).ok().map(|path| path.value());
            self.found.includes.push(Include { path, at: spot(at) });
        }
        let calls = usize::from(self.calling.contains(name));
        self.given += calls;
        self.within(tokens);
        self.given -= calls;
    }

    /// What stands in the tokens of a macro: invocations, attributes, modules, words.
    fn within(&mut self, tokens: TokenStream) {
        let trees: Vec<TokenTree> = tokens.into_iter().collect();
        let punct = |at: usize, c| matches!(trees.get(at), Some(TokenTree::Punct(p)) if p.as_char() == c);
        let literal = |at: usize| matches!(trees.get(at), Some(TokenTree::Literal(_)));
        for (n, tree) in trees.iter().enumerate() {
            match tree {
                TokenTree::Ident(word) => {
                    let (name, at) = (plain(word), word.span());
                    let after_dot = n.checked_sub(1).is_some_and(|at| punct(at, '.'));
                    if name == "path" && punct(n + 1, '=') && (punct(n + 2, '$') || literal(n + 2)) {
                        self.found.macro_paths.push(spot(at));
                    }
                    match trees.get(n + 2) {
                        Some(TokenTree::Group(group)) if punct(n + 1, '!') => {
                            self.invocation(&name, at, group.stream());
                        }
                        _ if name == "mod" => self.module(&trees, n),
                        // a macro may put it where macros are named
                        _ if (name == "include" && !after_dot) || ASSEMBLY.contains(&name.as_str()) => {
                            self.refuse(at, format!("the name of {name}! in the tokens of a macro"), NAME_CURE);
                        }
                        _ if self.given != 0 => self.found.words.push((name, spot(at))),
                        _ => {}
                    }
                }
                TokenTree::Group(group) => {
                    let hash = n
                        .checked_sub(1)
                        .is_some_and(|at| punct(at, '#') || (punct(at, '!') && n > 1 && punct(n - 2, '#')));
                    let invoked = n > 1 && punct(n - 1, '!') && matches!(trees[n - 2], TokenTree::Ident(_));
                    match () {
                        () if hash && group.delimiter() == Delimiter::Bracket => {
                            if has_path(group.stream()) {
                                self.found.macro_paths.push(spot(group.span_open()));
                            }
                            self.attribute(group.stream());
                        }
                        // done above
                        () if invoked => {}
                        () => self.within(group.stream()),
                    }
                }
                _ => {}
            }
        }
    }

    /// The word `mod` in the tokens of a macro, at `at`.
    fn module(&mut self, trees: &[TokenTree], at: usize) {
        let punct = |at: usize, c| matches!(trees.get(at), Some(TokenTree::Punct(p)) if p.as_char() == c);
        let name = at + 1 + usize::from(punct(at + 1, '$'));
        let named = matches!(trees.get(name), Some(TokenTree::Ident(_)));
        let body = match trees.get(name + 1) {
            Some(TokenTree::Group(body)) if body.delimiter() == Delimiter::Brace => Some(body.stream()),
            _ => None,
        };
        // what stands before it may be attributes, or become such
        let mut from = at;
        while let Some(before) = from.checked_sub(1)
            && match &trees[before] {
                TokenTree::Punct(p) => matches!(p.as_char(), '#' | '$' | '*' | '+' | '?'),
                TokenTree::Group(g) => g.delimiter() != Delimiter::Brace,
                TokenTree::Ident(word) => word == "pub" || word == "unsafe" || (before > 0 && punct(before - 1, '$')),
                TokenTree::Literal(_) => false,
            }
        {
            from = before;
        }
        let before: TokenStream = trees[from..at].iter().cloned().collect();
        let mut variable = false;
        each_token(before.clone(), &mut |tree| variable |= matches!(tree, TokenTree::Punct(p) if p.as_char() == '$'));
        let path = has_path(before);
        let span = trees[at].span();
        match body {
            // attributes of what it is given would move its modules
            Some(body) if named && !path && !(variable && has_word(body.clone(), "mod")) => {}
            None if named && name == at + 1 && punct(name + 1, ';') && !path && !variable => {
                self.found.macro_modules.push(spot(span));
            }
            _ => self.refuse(span, "a module in a macro, whose file cannot be told".to_owned(), MODULE_CURE),
        }
    }
}

impl<'ast> Visit<'ast> for Looking<'_> {
    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        let mut tokens = TokenStream::new();
        // the path of #[no_mangle] and #[unsafe(no_mangle)] is among the words
        tokens.extend(attribute.path().segments.iter().map(|s| TokenTree::Ident(s.ident.clone())));
        match &attribute.meta {
            Meta::Path(_) => {}
            Meta::List(list) => tokens.extend(list.tokens.clone()),
            Meta::NameValue(_) => {}
        }
        if !forbids(attribute) {
            self.attribute(tokens);
        }
        if let Meta::NameValue(pair) = &attribute.meta {
            self.visit_expr(&pair.value);
        }
    }

    /// What the parser has kept as it is.
    fn visit_token_stream(&mut self, tokens: &'ast TokenStream) {
        self.within(tokens.clone());
    }

    fn visit_use_rename(&mut self, renamed: &'ast UseRename) {
        self.renamed(&plain(&renamed.ident), renamed.ident.span());
    }

    fn visit_expr_unsafe(&mut self, expr: &'ast ExprUnsafe) {
        self.unsafe_at(expr.unsafe_token.span, "an unsafe block");
        visit::visit_expr_unsafe(self, expr);
    }

    fn visit_signature(&mut self, signature: &'ast Signature) {
        if let Safety::Unsafe(word) = &signature.safety {
            self.unsafe_at(word.span, &format!("the unsafe function {}", signature.ident));
        }
        visit::visit_signature(self, signature);
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        if let Some(word) = &item.unsafety {
            self.unsafe_at(word.span, "an unsafe impl");
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        if let Some(word) = &item.unsafety {
            self.unsafe_at(word.span, &format!("the unsafe trait {}", item.ident));
        }
        visit::visit_item_trait(self, item);
    }

    fn visit_item_foreign_mod(&mut self, item: &'ast ItemForeignMod) {
        if let Some(word) = &item.unsafety {
            self.known.insert(spot(word.span));
        }
        self.refuse(item.abi.extern_token.span, "an extern block: functions of another language".to_owned(), SAFE_CURE);
        // what it declares is part of it
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if let Some(word) = &item.unsafety {
            self.unsafe_at(word.span, "an unsafe module");
        }
        let name = plain(&item.ident);
        let paths: Vec<String> = item.attrs.iter().flat_map(paths).collect();
        if item.content.is_none() {
            self.found.modules.push(Module { name, inside: self.inside.clone(), paths });
            return visit::visit_item_mod(self, item);
        }
        // the modules in it would lie elsewhere
        if !paths.is_empty() {
            self.refuse(item.ident.span(), "a #[path] on a module with a body".to_owned(), "take the attribute out");
        }
        self.inside.push(name);
        visit::visit_item_mod(self, item);
        self.inside.pop();
    }

    fn visit_type_fn_ptr(&mut self, kind: &'ast TypeFnPtr) {
        // to call one needs an unsafe block
        if let Some(word) = &kind.unsafety {
            self.known.insert(spot(word.span));
        }
        visit::visit_type_fn_ptr(self, kind);
    }

    fn visit_macro(&mut self, invoked: &'ast Macro) {
        if let Some(name) = invoked.path.segments.last() {
            self.invocation(&plain(&name.ident), name.ident.span(), invoked.tokens.clone());
        }
    }
}

/// The files that `#[path = "..."]` names, also within `cfg_attr`.
fn paths(attribute: &Attribute) -> Vec<String> {
    let is = |word| attribute.path().get_ident().is_some_and(|ident| plain(ident) == word);
    match &attribute.meta {
        Meta::NameValue(pair) if is("path") => match &pair.value {
            Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }) => vec![path.value()],
            _ => vec![],
        },
        Meta::List(list) if is("cfg_attr") => conditional_paths(list.tokens.clone()),
        _ => vec![],
    }
}

/// Whether `path =` is among the tokens of attributes.
fn has_path(tokens: TokenStream) -> bool {
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    let here = |pair: &[TokenTree]| matches!(pair, [TokenTree::Ident(word), TokenTree::Punct(is)] if plain(word) == "path" && is.as_char() == '=');
    trees.windows(2).any(here)
        || trees.iter().any(|tree| matches!(tree, TokenTree::Group(group) if has_path(group.stream())))
}

/// All `path = "..."` in the tokens of `cfg_attr`.
fn conditional_paths(tokens: TokenStream) -> Vec<String> {
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    let within = trees.iter().flat_map(|tree| match tree {
        TokenTree::Group(group) => conditional_paths(group.stream()),
        _ => vec![],
    });
    let written = trees.windows(3).filter_map(|three| match three {
        [TokenTree::Ident(word), TokenTree::Punct(_), TokenTree::Literal(path)] if plain(word) == "path" => {
            syn::parse_str::<LitStr>(&path.to_string()).ok().map(|path| path.value())
        }
        _ => None,
    });
    written.chain(within).collect()
}

#[cfg(test)]
mod tests;
