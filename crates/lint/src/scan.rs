//! Scanning one source file for forbidden code, modules, includes and macros.

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use std::collections::HashSet;
use syn::parse::Parser;
use syn::visit::{self, Visit};
use syn::{
    AttrStyle, Attribute, Expr, ExprUnsafe, ItemForeignMod, ItemImpl, ItemMod, ItemTrait, LitStr, Macro, Meta, Safety,
    Signature, TypeFnPtr, UseRename,
};

/// A position: line from 1, column from 0.
pub(crate) type Position = (usize, usize);

/// An external module.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Module {
    pub(crate) name: String,
    /// The enclosing inline modules.
    pub(crate) parents: Vec<String>,
    /// Files in `path` attributes.
    pub(crate) paths: Vec<String>,
}

/// An included file; `None` if its path is not a literal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Include {
    pub(crate) path: Option<String>,
    pub(crate) at: Position,
}

/// The result of scanning a file.
#[derive(Default, Debug)]
pub(crate) struct Scan {
    pub(crate) findings: Vec<(Position, String, &'static str)>,
    pub(crate) modules: Vec<Module>,
    pub(crate) includes: Vec<Include>,
    /// Invoked macros, and originals of `use ... as`.
    pub(crate) macros: Vec<(String, Position)>,
    /// Identifiers in the tokens of macros that invoke arguments: any of them may become the name of a macro.
    pub(crate) possible_macros: Vec<(String, Position)>,
    /// External modules in macros. The location of their files depends on the invocation.
    pub(crate) macro_modules: Vec<Position>,
    /// Positions of `path =` in the tokens of macros, which may become an attribute of such a module.
    pub(crate) macro_paths: Vec<Position>,
    /// True if it begins with `#![forbid(unsafe_code)]`.
    pub(crate) forbids: bool,
}

/// Attributes that change linker symbols.
pub(crate) const LINKER_ATTRIBUTES: [&str; 3] = ["no_mangle", "export_name", "link_section"];
/// Attributes that weaken a lint.
const WEAKENING: [&str; 3] = ["allow", "expect", "warn"];
pub(crate) const ASSEMBLY_MACROS: [&str; 3] = ["asm", "global_asm", "naked_asm"];

/// Maximum nesting of brackets: parsing is recursive.
const MAX_NESTING: usize = 2000;

const SAFE_REMEDY: &str = "write it in safe Rust";
const LINKER_REMEDY: &str = "remove it: an NF needs no linker symbol";
const LINT_REMEDY: &str = "remove it: NFs must be safe code";
const PARSE_REMEDY: &str = "check that it compiles";
const NAME_REMEDY: &str = "use its original name, so that it can be followed";
pub(crate) const MODULE_REMEDY: &str = "declare the module outside of the macro";

/// Scans the text of a file: items, or an included expression or statements. Macros in `argument_invokers` invoke
/// macros that are named by their arguments.
pub(crate) fn scan(text: &str, argument_invokers: &HashSet<String>) -> Scan {
    let mut scanner =
        Scanner { argument_invokers, scan: Scan::default(), judged: HashSet::new(), parents: vec![], depth: 0 };
    if let Some(line) = too_deep(text) {
        let what = format!("brackets nested deeper than {MAX_NESTING}");
        scanner.scan.findings.push(((line, 0), what, "reduce the nesting: this file is not checked"));
        return scanner.scan;
    }
    let parsed = syn::parse_file(text);
    let tokens = match &parsed {
        Ok(file) => {
            scanner.scan.forbids = file.attrs.iter().any(forbids);
            scanner.visit_file(file);
            tokens_of(text)
        }
        Err(why) => {
            // an included file may be an expression, or statements
            match syn::Block::parse_within.parse_str(text) {
                Ok(statements) => statements.iter().for_each(|s| scanner.visit_stmt(s)),
                Err(_) => scanner.report(why.span(), format!("not valid Rust: {why}"), PARSE_REMEDY),
            }
            tokens_of(text)
        }
    };
    // the remaining `unsafe` is in macros, or in tokens that the parser did not parse
    for_each_token(tokens, &mut |tree| {
        if let TokenTree::Ident(word) = tree
            && word == "unsafe"
            && !scanner.judged.contains(&position(word.span()))
        {
            scanner.report(word.span(), "unsafe code in a macro".to_owned(), SAFE_REMEDY);
        }
    });
    scanner.scan.findings.sort();
    scanner.scan.findings.dedup();
    // frees the source text kept for spans
    proc_macro2::extra::invalidate_current_thread_spans();
    scanner.scan
}

/// Returns the line at which brackets are nested too deep. Brackets in strings and comments count as well.
fn too_deep(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (n, line) in text.lines().enumerate() {
        for byte in line.bytes() {
            match byte {
                b'(' | b'[' | b'{' => depth += 1,
                b')' | b']' | b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth > MAX_NESTING {
                return Some(n + 1);
            }
        }
    }
    None
}

fn tokens_of(text: &str) -> TokenStream {
    // a shebang is not a token; the line break keeps positions
    let text = text.trim_start_matches('\u{feff}');
    match text.strip_prefix("#!").filter(|rest| !rest.trim_start().starts_with('[')) {
        Some(rest) => rest.find('\n').map_or("", |at| &rest[at..]).parse().unwrap_or_default(),
        None => text.parse().unwrap_or_default(),
    }
}

/// Visits all tokens, those in groups after their group.
fn for_each_token(tokens: TokenStream, f: &mut impl FnMut(&TokenTree)) {
    for tree in tokens {
        f(&tree);
        if let TokenTree::Group(group) = tree {
            for_each_token(group.stream(), f);
        }
    }
}

fn position(span: Span) -> Position {
    let start = span.start();
    (start.line, start.column)
}

/// Returns true for `#![forbid(unsafe_code)]`, also with other lints.
fn forbids(attribute: &Attribute) -> bool {
    matches!(attribute.style, AttrStyle::Inner(_))
        && attribute.path().is_ident("forbid")
        && matches!(&attribute.meta, Meta::List(list) if contains_ident(list.tokens.clone(), "unsafe_code"))
}

/// Returns an identifier without the prefix `r#`.
pub(crate) fn ident_name(name: &proc_macro2::Ident) -> String {
    let name = name.to_string();
    name.strip_prefix("r#").map_or(name.clone(), str::to_owned)
}

fn contains_ident(tokens: TokenStream, name: &str) -> bool {
    let mut found = false;
    for_each_token(tokens, &mut |tree| found |= matches!(tree, TokenTree::Ident(word) if ident_name(word) == name));
    found
}

struct Scanner<'a> {
    /// Macros that invoke macros named by their arguments.
    argument_invokers: &'a HashSet<String>,
    /// Number of enclosing invocations of these macros.
    depth: usize,
    scan: Scan,
    /// Positions of `unsafe` that were processed.
    judged: HashSet<Position>,
    /// Enclosing inline modules.
    parents: Vec<String>,
}

impl Scanner<'_> {
    fn report(&mut self, at: Span, problem: String, remedy: &'static str) {
        self.scan.findings.push((position(at), problem, remedy));
    }

    fn report_unsafe(&mut self, at: Span, problem: &str) {
        self.judged.insert(position(at));
        self.report(at, problem.to_owned(), SAFE_REMEDY);
    }

    /// Checks the identifiers of an attribute, also within `cfg_attr` or a macro.
    fn attribute(&mut self, tokens: TokenStream) {
        let (mut weakening, mut unsafe_code) = (None, false);
        let mut all = vec![];
        for_each_token(tokens, &mut |tree| {
            if let TokenTree::Ident(word) = tree {
                all.push(word.clone());
            }
        });
        for word in all {
            match ident_name(&word).as_str() {
                "unsafe" => _ = self.judged.insert(position(word.span())),
                "unsafe_code" => unsafe_code = true,
                name if WEAKENING.contains(&name) => weakening = Some(word),
                name if LINKER_ATTRIBUTES.contains(&name) => {
                    self.report(word.span(), format!("the attribute {name}"), LINKER_REMEDY);
                }
                _ => {}
            }
        }
        if let (Some(level), true) = (weakening, unsafe_code) {
            self.report(level.span(), format!("#[{level}(unsafe_code)]"), LINT_REMEDY);
        }
    }

    /// Records a renamed import.
    fn renamed(&mut self, name: &str, at: Span) {
        self.scan.macros.push((name.to_owned(), position(at)));
        if name == "include" || ASSEMBLY_MACROS.contains(&name) {
            self.report(at, format!("{name}! imported under another name"), NAME_REMEDY);
        }
    }

    /// Processes an invocation of a macro, also within the tokens of another.
    fn invocation(&mut self, name: &str, at: Span, tokens: TokenStream) {
        self.scan.macros.push((name.to_owned(), position(at)));
        if ASSEMBLY_MACROS.contains(&name) {
            self.report(at, format!("assembly ({name}!)"), SAFE_REMEDY);
        }
        if name == "include" {
            let path = syn::parse2::<LitStr>(tokens.clone()).ok().map(|path| path.value());
            self.scan.includes.push(Include { path, at: position(at) });
        }
        let invokes = usize::from(self.argument_invokers.contains(name));
        self.depth += invokes;
        self.macro_tokens(tokens);
        self.depth -= invokes;
    }

    /// Processes the tokens of a macro: invocations, attributes, modules, identifiers.
    fn macro_tokens(&mut self, tokens: TokenStream) {
        let trees: Vec<TokenTree> = tokens.into_iter().collect();
        let punct = |at: usize, c| matches!(trees.get(at), Some(TokenTree::Punct(p)) if p.as_char() == c);
        let literal = |at: usize| matches!(trees.get(at), Some(TokenTree::Literal(_)));
        for (n, tree) in trees.iter().enumerate() {
            match tree {
                TokenTree::Ident(word) => {
                    let (name, at) = (ident_name(word), word.span());
                    let after_dot = n.checked_sub(1).is_some_and(|at| punct(at, '.'));
                    if name == "path" && punct(n + 1, '=') && (punct(n + 2, '$') || literal(n + 2)) {
                        self.scan.macro_paths.push(position(at));
                    }
                    match trees.get(n + 2) {
                        Some(TokenTree::Group(group)) if punct(n + 1, '!') => {
                            self.invocation(&name, at, group.stream());
                        }
                        _ if name == "mod" => self.module(&trees, n),
                        // a macro may use it as the name of a macro
                        _ if (name == "include" && !after_dot) || ASSEMBLY_MACROS.contains(&name.as_str()) => {
                            self.report(at, format!("the name {name}! in the tokens of a macro"), NAME_REMEDY);
                        }
                        _ if self.depth != 0 => self.scan.possible_macros.push((name, position(at))),
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
                                self.scan.macro_paths.push(position(group.span_open()));
                            }
                            self.attribute(group.stream());
                        }
                        // processed with its name
                        () if invoked => {}
                        () => self.macro_tokens(group.stream()),
                    }
                }
                _ => {}
            }
        }
    }

    /// Processes `mod` at index `at` in the tokens of a macro.
    fn module(&mut self, trees: &[TokenTree], at: usize) {
        let punct = |at: usize, c| matches!(trees.get(at), Some(TokenTree::Punct(p)) if p.as_char() == c);
        let name = at + 1 + usize::from(punct(at + 1, '$'));
        let named = matches!(trees.get(name), Some(TokenTree::Ident(_)));
        let body = match trees.get(name + 1) {
            Some(TokenTree::Group(body)) if body.delimiter() == Delimiter::Brace => Some(body.stream()),
            _ => None,
        };
        // the tokens before it may be attributes, or become attributes
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
        for_each_token(before.clone(), &mut |tree| {
            variable |= matches!(tree, TokenTree::Punct(p) if p.as_char() == '$')
        });
        let path = has_path(before);
        let span = trees[at].span();
        match body {
            // attributes from arguments could change the files of its modules
            Some(body) if named && !path && !(variable && contains_ident(body.clone(), "mod")) => {}
            None if named && name == at + 1 && punct(name + 1, ';') && !path && !variable => {
                self.scan.macro_modules.push(position(span));
            }
            _ => self.report(span, "a module in a macro whose file cannot be determined".to_owned(), MODULE_REMEDY),
        }
    }
}

impl<'ast> Visit<'ast> for Scanner<'_> {
    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        let mut tokens = TokenStream::new();
        // for #[no_mangle], whose name is the path
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

    /// Tokens that the parser does not parse.
    fn visit_token_stream(&mut self, tokens: &'ast TokenStream) {
        self.macro_tokens(tokens.clone());
    }

    fn visit_use_rename(&mut self, renamed: &'ast UseRename) {
        self.renamed(&ident_name(&renamed.ident), renamed.ident.span());
    }

    fn visit_expr_unsafe(&mut self, expr: &'ast ExprUnsafe) {
        self.report_unsafe(expr.unsafe_token.span, "an unsafe block");
        visit::visit_expr_unsafe(self, expr);
    }

    fn visit_signature(&mut self, signature: &'ast Signature) {
        if let Safety::Unsafe(word) = &signature.safety {
            self.report_unsafe(word.span, &format!("the unsafe function {}", signature.ident));
        }
        visit::visit_signature(self, signature);
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        if let Some(word) = &item.unsafety {
            self.report_unsafe(word.span, "an unsafe impl");
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        if let Some(word) = &item.unsafety {
            self.report_unsafe(word.span, &format!("the unsafe trait {}", item.ident));
        }
        visit::visit_item_trait(self, item);
    }

    fn visit_item_foreign_mod(&mut self, item: &'ast ItemForeignMod) {
        if let Some(word) = &item.unsafety {
            self.judged.insert(position(word.span));
        }
        self.report(item.abi.extern_token.span, "an extern block".to_owned(), SAFE_REMEDY);
        // its items need no separate report
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if let Some(word) = &item.unsafety {
            self.report_unsafe(word.span, "an unsafe module");
        }
        let name = ident_name(&item.ident);
        let paths: Vec<String> = item.attrs.iter().flat_map(paths).collect();
        if item.content.is_none() {
            self.scan.modules.push(Module { name, parents: self.parents.clone(), paths });
            return visit::visit_item_mod(self, item);
        }
        // it would change the files of its modules
        if !paths.is_empty() {
            self.report(item.ident.span(), "a #[path] on a module with a body".to_owned(), "remove the attribute");
        }
        self.parents.push(name);
        visit::visit_item_mod(self, item);
        self.parents.pop();
    }

    fn visit_type_fn_ptr(&mut self, pointer: &'ast TypeFnPtr) {
        // calling it needs an unsafe block
        if let Some(word) = &pointer.unsafety {
            self.judged.insert(position(word.span));
        }
        visit::visit_type_fn_ptr(self, pointer);
    }

    fn visit_macro(&mut self, invoked: &'ast Macro) {
        if let Some(name) = invoked.path.segments.last() {
            self.invocation(&ident_name(&name.ident), name.ident.span(), invoked.tokens.clone());
        }
    }
}

/// Returns the files named by `#[path = "..."]`, also within `cfg_attr`.
fn paths(attribute: &Attribute) -> Vec<String> {
    let is = |word| attribute.path().get_ident().is_some_and(|ident| ident_name(ident) == word);
    match &attribute.meta {
        Meta::NameValue(pair) if is("path") => match &pair.value {
            Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }) => vec![path.value()],
            _ => vec![],
        },
        Meta::List(list) if is("cfg_attr") => conditional_paths(list.tokens.clone()),
        _ => vec![],
    }
}

/// Returns true if the tokens of attributes contain `path =`.
fn has_path(tokens: TokenStream) -> bool {
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    let here = |pair: &[TokenTree]| matches!(pair, [TokenTree::Ident(word), TokenTree::Punct(is)] if ident_name(word) == "path" && is.as_char() == '=');
    trees.windows(2).any(here)
        || trees.iter().any(|tree| matches!(tree, TokenTree::Group(group) if has_path(group.stream())))
}

/// Returns the values of all `path = "..."` in the tokens of `cfg_attr`.
fn conditional_paths(tokens: TokenStream) -> Vec<String> {
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    let within = trees.iter().flat_map(|tree| match tree {
        TokenTree::Group(group) => conditional_paths(group.stream()),
        _ => vec![],
    });
    let written = trees.windows(3).filter_map(|three| match three {
        [TokenTree::Ident(word), TokenTree::Punct(_), TokenTree::Literal(path)] if ident_name(word) == "path" => {
            syn::parse_str::<LitStr>(&path.to_string()).ok().map(|path| path.value())
        }
        _ => None,
    });
    written.chain(within).collect()
}

#[cfg(test)]
mod tests;
