//! The name of a new crate.

use diagnostics::Diagnostic;
use graph::Registry;

/// A name in its three forms.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Name {
    /// Of the package and of the kind of NF, as in `my-nf`.
    pub(super) package: String,
    /// Of the library, as in `my_nf`.
    library: String,
    /// Of the type, as in `MyNf`; it always ends so, and no other type that the templates use does.
    kind: String,
}

/// Longest name: lines of the templates stay within a hundred characters.
const LONGEST: usize = 32;

/// Libraries and modules that the crate uses, what Cargo keeps for itself, words of the language and its simple types: a
/// library would stand before them.
const TAKEN: &str = "\
    alloc bench bondstone build capture core cycles deps ethernet examples graph incremental ipv4 lint model nf testkit \
    diagnostics packet packets pcap proc_macro prop proptest schemars self serde std streams tables test tests wire abstract as async await \
    become box break const continue crate do dyn else enum extern false final fn for gen if impl in let loop macro \
    match mod move mut override priv pub ref return static struct super trait true try type typeof union unsafe \
    unsized use virtual where while yield bool char f16 f32 f64 f128 i8 i16 i32 i64 i128 isize str u8 u16 u32 u64 \
    u128 usize";

impl Name {
    pub(super) fn of(given: &str, registry: &Registry) -> Result<Self, Diagnostic> {
        let fault = |problem: &str| Diagnostic::new(problem).value(given);
        let words: Vec<String> = given
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|word| !word.is_empty())
            .map(str::to_ascii_lowercase)
            .collect();
        let plain = words.join("-");
        let sound = given.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_'))
            && given.split(['-', '_']).all(|word| !word.is_empty());
        let begins = plain.starts_with(|c: char| c.is_ascii_lowercase());
        if !sound || !begins {
            let remedy = "write small letters, digits, - and _ between words; a letter comes first";
            let better = if begins && plain != given { format!("{remedy}: {plain}") } else { remedy.to_owned() };
            return Err(fault("is no name for a crate").remedy(better));
        }
        if given.len() > LONGEST {
            return Err(fault("is too long a name").remedy(format!("write at most {LONGEST} characters")));
        }
        let library = given.replace('-', "_");
        if TAKEN.split(' ').any(|word| word == library) || library.starts_with("bondstone_") {
            return Err(fault("is the name of something that the crate needs").remedy(format!("say more: {given}-nf")));
        }
        if registry.get(given).is_some() {
            let remedy = format!("say what is different: my-{given}");
            return Err(fault("is an NF that is there already, and would be hidden").remedy(remedy));
        }
        let capital = |word: &String| word[..1].to_ascii_uppercase() + &word[1..];
        let mut kind: String = words.iter().map(capital).collect();
        if !kind.ends_with("Nf") {
            kind += "Nf";
        }
        Ok(Name { package: given.to_owned(), library, kind })
    }

    /// What stands for it in the templates, each with what it is.
    pub(super) fn marks(&self) -> [(&str, &str); 3] {
        [("my-nf", &self.package), ("my_nf", &self.library), ("MyNf", &self.kind)]
    }
}

/// Puts values in the places of their marks, all at once: a value may look like a mark.
pub(super) fn fill(template: &str, marks: &[(&str, &str)]) -> String {
    let (mut made, mut rest) = (String::with_capacity(template.len()), template);
    let next = |rest: &str| {
        let found = marks.iter().filter_map(|&(mark, value)| Some((rest.find(mark)?, mark.len(), value)));
        found.min_by_key(|(at, ..)| *at)
    };
    while let Some((at, len, value)) = next(rest) {
        made.push_str(&rest[..at]);
        made.push_str(value);
        rest = &rest[at + len..];
    }
    made + rest
}

#[cfg(test)]
mod tests {
    use super::super::FILES;
    use super::*;
    use std::collections::HashSet;

    fn name(given: &str) -> Result<Name, Diagnostic> {
        Name::of(given, &nf::registry())
    }

    #[test]
    fn a_name_has_three_forms() {
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
            assert_eq!((all.package.as_str(), all.library.as_str(), all.kind.as_str()), (given, library, kind));
            let text = fill("my-nf my_nf::MyNf", &all.marks());
            assert_eq!(text, format!("{given} {library}::{kind}"));
        }
        let marks = [("@a@", "@b@"), ("@b@", "c")];
        assert_eq!(fill("@a@ @b@@", &marks), "@b@ c@");
    }

    /// The Rust of the templates, without comments.
    fn code() -> impl Iterator<Item = &'static str> {
        let files = FILES.iter().filter(|(file, ..)| file.ends_with(".rs"));
        let lines = files.flat_map(|(_, text, _)| text.lines());
        lines.map(|line| line.split("//").next().unwrap_or_default())
    }

    fn is_word(c: char) -> bool {
        c.is_ascii_alphanumeric() || c == '_'
    }

    /// A type of the templates cannot be the NF's: whatever the name, that ends with `Nf`, and no other does.
    #[test]
    fn no_name_gives_a_type_that_the_templates_use() {
        let words: HashSet<&str> = code().flat_map(|line| line.split(|c| !is_word(c))).collect();
        assert!(["Vec", "Deserialize", "Ipv4Addr", "Strategy", "MyNf", "Nf"].iter().all(|w| words.contains(w)));
        assert!(words.iter().all(|word| !word.ends_with("Nf") || ["MyNf", "Nf"].contains(word)), "{words:?}");
        for word in &words {
            // Ipv4Addr is what ipv4-addr would be
            let given: String = word
                .char_indices()
                .flat_map(|(n, c)| [(n != 0 && c.is_ascii_uppercase()).then_some('-'), Some(c.to_ascii_lowercase())])
                .flatten()
                .collect();
            let Ok(name) = name(&given) else { continue };
            assert!(name.kind == "MyNf" || !words.contains(name.kind.as_str()), "{given}: {}", name.kind);
        }
    }

    /// Nor a library that would be taken for another, or for a module or a simple type.
    #[test]
    fn no_name_gives_a_library_that_the_templates_use() {
        let mut used: Vec<String> = vec![];
        for line in code() {
            // what a path begins with
            for (at, _) in line.match_indices("::") {
                let before = &line[..at];
                let begins = before.trim_end_matches(is_word);
                if !begins.ends_with(['.', ':']) {
                    used.push(before[begins.len()..].to_owned());
                }
            }
            // what a use brings
            if let Some((path, last)) = line.strip_prefix("use ").and_then(|line| line.rsplit_once("::")) {
                used.extend(last.split(|c| !is_word(c)).map(str::to_owned));
                assert!(
                    last != "*;" || ["testkit::proptest::prelude", "bondstone::prelude", "super"].contains(&path),
                    "what does {line} bring?"
                );
            }
            // simple types
            let simple = ["u8", "u16", "u32", "u64", "usize", "i32", "bool", "str", "char"];
            used.extend(line.split(|c| !is_word(c)).filter(|word| simple.contains(word)).map(str::to_owned));
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
    fn what_is_no_name_is_refused_with_one_that_is() {
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
            let fault = name(given).unwrap_err();
            assert_eq!(fault.value.as_deref(), Some(given));
            assert!(fault.remedy.as_ref().is_some_and(|c| c.contains(remedy)), "{given}: {fault}");
        }
    }
}
