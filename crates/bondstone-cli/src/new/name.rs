//! Names of new crates.

use diagnostics::Diagnostic;
use graph::Registry;

/// The name of a crate in three forms.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Name {
    /// Package and kind of NF: `my-nf`.
    pub(super) package: String,
    /// Library: `my_nf`.
    library: String,
    /// Type: `MyNf`. It always ends with `Nf`, unlike all other types in the templates.
    type_name: String,
}

/// Maximum length of a name, characters; keeps lines of the templates within 100 characters.
const MAX_LEN: usize = 32;

/// Libraries and modules that the templates use, names reserved by Cargo, keywords and primitive types: a library with
/// such a name would hide them.
const RESERVED: &str = "\
    alloc bench bondstone build capture core cycles deps ethernet examples graph incremental ipv4 lint model \
    named_enum nf testkit diagnostics packet packets pcap proc_macro prop proptest schemars self serde std streams \
    tables test tests wire abstract as async await become box break const continue crate do dyn else enum extern \
    false final fn for gen if impl in let loop macro match mod move mut override priv pub ref return static struct \
    super trait true try type typeof union unsafe unsized use virtual where while yield bool char f16 f32 f64 f128 \
    i8 i16 i32 i64 i128 isize str u8 u16 u32 u64 u128 usize";

impl Name {
    pub(super) fn parse(given: &str, registry: &Registry) -> Result<Self, Diagnostic> {
        let error = |problem: &str| Diagnostic::new(problem).value(given);
        let words: Vec<String> = given
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|word| !word.is_empty())
            .map(str::to_ascii_lowercase)
            .collect();
        let normalised = words.join("-");
        let valid = given.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_'))
            && given.split(['-', '_']).all(|word| !word.is_empty());
        let starts_with_letter = normalised.starts_with(|c: char| c.is_ascii_lowercase());
        if !valid || !starts_with_letter {
            let remedy = "use lower-case letters, digits, and - or _ between words, starting with a letter";
            let remedy_with_name = if starts_with_letter && normalised != given {
                format!("{remedy}: {normalised}")
            } else {
                remedy.to_owned()
            };
            return Err(error("invalid crate name").remedy(remedy_with_name));
        }
        if given.len() > MAX_LEN {
            return Err(error("name too long").remedy(format!("use at most {MAX_LEN} characters")));
        }
        let library = given.replace('-', "_");
        if RESERVED.split(' ').any(|word| word == library) || library.starts_with("bondstone_") {
            return Err(error("reserved name").remedy(format!("for example {given}-nf")));
        }
        if registry.get(given).is_some() {
            let remedy = format!("for example my-{given}");
            return Err(error("name of an existing NF, which would be hidden").remedy(remedy));
        }
        let capitalise = |word: &String| word[..1].to_ascii_uppercase() + &word[1..];
        let mut type_name: String = words.iter().map(capitalise).collect();
        if !type_name.ends_with("Nf") {
            type_name += "Nf";
        }
        Ok(Name { package: given.to_owned(), library, type_name })
    }

    /// Returns the placeholders in the templates with their values.
    pub(super) fn placeholders(&self) -> [(&str, &str); 3] {
        [("my-nf", &self.package), ("my_nf", &self.library), ("MyNf", &self.type_name)]
    }
}

#[cfg(test)]
mod tests {
    use super::super::FILES;
    use super::*;
    use crate::template::fill;
    use std::collections::HashSet;

    fn name(given: &str) -> Result<Name, Diagnostic> {
        Name::parse(given, &nf::registry())
    }

    #[test]
    fn converts_names() {
        for (given, library, kind) in [
            ("my-nf", "my_nf", "MyNf"),
            ("my_nf2", "my_nf2", "MyNf2Nf"),
            ("dummy_nf", "dummy_nf", "DummyNf"),
            ("not-my-nf", "not_my_nf", "NotMyNf"),
            ("nat_64", "nat_64", "Nat64Nf"),
            ("vec", "vec", "VecNf"),
            ("ipv4-addr", "ipv4_addr", "Ipv4AddrNf"),
            ("n-f", "n_f", "NFNf"),
            ("a", "a", "ANf"),
        ] {
            let all = name(given).unwrap();
            assert_eq!((all.package.as_str(), all.library.as_str(), all.type_name.as_str()), (given, library, kind));
            let text = fill("my-nf my_nf::MyNf", &all.placeholders());
            assert_eq!(text, format!("{given} {library}::{kind}"));
        }
    }

    /// Returns the lines of Rust code in the templates, without comments.
    fn code() -> impl Iterator<Item = &'static str> {
        let files = FILES.iter().filter(|(file, ..)| file.ends_with(".rs"));
        let lines = files.flat_map(|(_, text, _)| text.lines());
        lines.map(|line| line.split("//").next().unwrap_or_default())
    }

    fn is_word(c: char) -> bool {
        c.is_ascii_alphanumeric() || c == '_'
    }

    /// The type of the NF ends with `Nf`, and no other type in the templates does.
    #[test]
    fn type_names_do_not_collide() {
        let words: HashSet<&str> = code().flat_map(|line| line.split(|c| !is_word(c))).collect();
        assert!(["Vec", "Deserialize", "Ipv4Addr", "Strategy", "MyNf", "Nf"].iter().all(|w| words.contains(w)));
        assert!(words.iter().all(|word| !word.ends_with("Nf") || ["MyNf", "Nf"].contains(word)), "{words:?}");
        for word in &words {
            // Ipv4Addr would be the type of ipv4-addr
            let given: String = word
                .char_indices()
                .flat_map(|(n, c)| [(n != 0 && c.is_ascii_uppercase()).then_some('-'), Some(c.to_ascii_lowercase())])
                .flatten()
                .collect();
            let Ok(name) = name(&given) else { continue };
            assert!(
                name.type_name == "MyNf" || !words.contains(name.type_name.as_str()),
                "{given}: {}",
                name.type_name
            );
        }
    }

    /// The library does not hide a library, module or primitive type in the templates.
    #[test]
    fn library_names_do_not_collide() {
        let mut used: Vec<String> = vec![];
        for line in code() {
            // first segments of paths
            for (at, _) in line.match_indices("::") {
                let before = &line[..at];
                let begins = before.trim_end_matches(is_word);
                if !begins.ends_with(['.', ':']) {
                    used.push(before[begins.len()..].to_owned());
                }
            }
            // imported names
            if let Some((path, last)) = line.strip_prefix("use ").and_then(|line| line.rsplit_once("::")) {
                used.extend(last.split(|c| !is_word(c)).map(str::to_owned));
                assert!(
                    last != "*;" || ["testkit::proptest::prelude", "bondstone::prelude", "super"].contains(&path),
                    "unknown imports: {line}"
                );
            }
            // primitive types
            let primitive = ["u8", "u16", "u32", "u64", "usize", "i32", "bool", "str", "char"];
            used.extend(line.split(|c| !is_word(c)).filter(|word| primitive.contains(word)).map(str::to_owned));
        }
        let manifest = FILES.iter().find(|(file, ..)| *file == "Cargo.toml").unwrap().1;
        used.extend(
            manifest.lines().filter_map(|line| Some(line.strip_prefix("name = \"")?.split('"').next()?.to_owned())),
        );
        let (_, depends) = manifest.split_once("[dependencies]").unwrap();
        let depends = depends.split("\n[lib]").next().unwrap().lines();
        used.extend(depends.filter_map(|line| Some(line.split_once(" = ")?.0.to_owned())));
        used.retain(|word| word.starts_with(|c: char| c.is_ascii_lowercase()) && word != "my_nf" && word != "my-nf");
        for expected in ["testkit", "prop", "ethernet", "u32", "schemars", "cycles", "bondstone"] {
            assert!(used.iter().any(|word| word == expected), "{expected}: {used:?}");
        }
        for word in used {
            assert!(name(&word).is_err(), "{word}");
        }
    }

    #[test]
    fn rejects_invalid_names_with_a_proposal() {
        for (given, remedy) in [
            ("My NF", "my-nf"),
            ("my--nf", "my-nf"),
            ("-nf", "letter"),
            ("7up", "letter"),
            ("", "letter"),
            ("naïve", "na-ve"),
            ("../up", "up"),
            ("fn", "fn-nf"),
            ("graph", "graph-nf"),
            ("bondstone-nat", "bondstone-nat-nf"),
            ("ttl", "my-ttl"),
            ("a-name-that-is-longer-than-any-need-be", "32"),
        ] {
            let error = name(given).unwrap_err();
            assert_eq!(error.value.as_deref(), Some(given));
            assert!(error.remedy.as_ref().is_some_and(|c| c.contains(remedy)), "{given}: {error}");
        }
    }
}
