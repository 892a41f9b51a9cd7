//! The name of a new crate.

use graph::{Diagnostic, Registry};

/// A name in its three forms.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Name {
    /// Of the package and of the kind of NF, as in `my-nf`.
    pub(super) package: String,
    /// Of the library, as in `my_nf`.
    library: String,
    /// Of the type, as in `MyNf`.
    kind: String,
}

/// Longest name: lines of the templates stay within a hundred characters.
const LONGEST: usize = 32;

/// Libraries and modules that the crate uses, what Cargo keeps for itself, and words of the language.
const TAKEN: &str = "\
    alloc bench bondstone build capture core cycles deps ethernet examples graph incremental ipv4 kit lint model nf \
    packet packets pcap proc_macro proptest schemars self serde std test tests wire abstract as async await become \
    box break const continue crate do dyn else enum extern false final fn for gen if impl in let loop macro match \
    mod move mut override priv pub ref return static struct super trait true try type typeof union unsafe";

/// Types that the templates use: a kind of this name is called after it and `Nf`.
const TYPES: &str = "\
    Arc Batch Bench BuildCx Counter Cx Cycles Default Diagnostic Duration Err EtherType Event ExitCode HashMap \
    JsonSchema Limiting Malformed Model Nf Node None Ok Option Path Reason Result Settings Some String";

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
            let cure = "write small letters, digits, - and _ between words; a letter comes first";
            let better = if begins && plain != given { format!("{cure}: {plain}") } else { cure.to_owned() };
            return Err(fault("is no name for a crate").cure(better));
        }
        if given.len() > LONGEST {
            return Err(fault("is too long a name").cure(format!("write at most {LONGEST} characters")));
        }
        let library = given.replace('-', "_");
        if TAKEN.split(' ').any(|word| word == library) || given.starts_with("bondstone-") {
            return Err(fault("is the name of something that the crate needs").cure(format!("say more: {given}-nf")));
        }
        if registry.get(given).is_some() {
            let cure = format!("say what is different: my-{given}");
            return Err(fault("is an NF that is there already, and would be hidden").cure(cure));
        }
        let capital = |word: &String| word[..1].to_ascii_uppercase() + &word[1..];
        let mut kind: String = words.iter().map(capital).collect();
        if TYPES.split(' ').any(|word| word == kind) {
            kind += "Nf";
        }
        Ok(Name { package: given.to_owned(), library, kind })
    }

    /// Puts the name into a template.
    pub(super) fn put_into(&self, template: &str) -> String {
        template.replace("my-nf", &self.package).replace("my_nf", &self.library).replace("MyNf", &self.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(given: &str) -> Result<Name, Diagnostic> {
        Name::of(given, &nf::registry())
    }

    #[test]
    fn a_name_has_three_forms() {
        for (given, library, kind) in
            [("my-nf", "my_nf", "MyNf"), ("nat_64", "nat_64", "Nat64"), ("batch", "batch", "BatchNf"), ("a", "a", "A")]
        {
            let all = name(given).unwrap();
            assert_eq!((all.package.as_str(), all.library.as_str(), all.kind.as_str()), (given, library, kind));
            let text = all.put_into("my-nf my_nf::MyNf");
            assert_eq!(text, format!("{given} {library}::{kind}"));
        }
    }

    #[test]
    fn what_is_no_name_is_refused_with_one_that_is() {
        for (given, cure) in [
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
            assert!(fault.cure.as_ref().is_some_and(|c| c.contains(cure)), "{given}: {fault}");
        }
    }
}
