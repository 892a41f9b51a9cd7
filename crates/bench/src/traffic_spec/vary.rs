//! Header fields that change from packet to packet, as written.

use super::script::new_engine;
use rhai::{Dynamic, Scope};
use std::fmt;
use std::str::FromStr;
use traffic::FieldSpec;
use traffic::fields::MAX_VALUES;

/// Maximum length of a field with its values, characters.
const MAX_LEN: usize = report::limit::TEXT;

/// A field and its values: `ipv4.dscp=0-63`, or `udp.dst=expr:COUNT:EXPRESSION` with the values of an expression in
/// Rhai for `n` from 0 to COUNT - 1, repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariedField {
    text: String,
    spec: FieldSpec,
}

impl VariedField {
    /// Returns the parsed field.
    pub(crate) fn spec(&self) -> &FieldSpec {
        &self.spec
    }
}

impl fmt::Display for VariedField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for VariedField {
    type Err = String;

    /// Parses a field; an error is a sentence about it.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.len() > MAX_LEN {
            return Err(format!("has {} characters, and at most {MAX_LEN} are allowed; use a range", text.len()));
        }
        let (name, values) = text.split_once('=').map_or((text, ""), |(name, values)| (name.trim(), values.trim()));
        let spec = match values.strip_prefix("expr:") {
            Some(expression) => FieldSpec::list(name, &evaluate(expression)?).map_err(|e| e.to_string())?,
            None => text.parse().map_err(|e: traffic::NotField| e.to_string())?,
        };
        Ok(VariedField { text: text.to_owned(), spec })
    }
}

/// Evaluates `COUNT:EXPRESSION`.
fn evaluate(text: &str) -> Result<Vec<u64>, String> {
    let syntax = format!("write expr:COUNT:EXPRESSION, with a count of 1 to {MAX_VALUES}, such as expr:100:n * n % 7");
    let (count, expression) = text.split_once(':').ok_or(&syntax)?;
    let count = count.trim().parse().ok().filter(|count| (1..=MAX_VALUES).contains(count)).ok_or(&syntax)?;
    let (engine, _) = new_engine();
    let script = engine.compile(expression).map_err(|e| format!("{e} in {expression:?}"))?;
    let value = |n: usize| {
        let mut scope = Scope::new();
        scope.push("n", n as i64);
        let value: Dynamic =
            engine.eval_ast_with_scope(&mut scope, &script).map_err(|e| format!("for n = {n}: {e}"))?;
        let number = value.as_int().ok().and_then(|number| u64::try_from(number).ok());
        number.ok_or_else(|| format!("for n = {n} the expression is {value}, and not a whole number from 0"))
    };
    (0..count).map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_evaluated_for_each_packet() {
        let list = |text: &str| text.parse::<VariedField>().unwrap();
        let field = list("udp.dst=expr:4:if n % 3 == 0 { 53 } else { 1000 + n * n }");
        assert_eq!(field.spec(), &FieldSpec::list("udp.dst", &[53, 1001, 1004, 53]).unwrap());
        assert_eq!(field.to_string(), "udp.dst=expr:4:if n % 3 == 0 { 53 } else { 1000 + n * n }");
        assert_eq!(list("ipv4.ttl=3|4").spec(), &FieldSpec::list("ipv4.ttl", &[3, 4]).unwrap());
        assert_eq!(
            list("udp.src=expr:65536:n").spec(),
            &FieldSpec::list("udp.src", &(0..65_536).collect::<Vec<_>>()).unwrap()
        );
    }

    #[test]
    fn errors_name_the_cause() {
        for (text, words) in [
            ("ipv4.dscp", "`ipv4.dscp` is no field"),
            ("ipv4.name=1", "`ipv4.name=1` is no field"),
            ("udp.dst=expr:5", "expr:COUNT:EXPRESSION"),
            ("udp.dst=expr:0:n", "1 to 65536"),
            ("udp.dst=expr:65537:n", "1 to 65536"),
            ("udp.dst=expr:2:n +", "n +"),
            ("udp.dst=expr:5:3 - n", "for n = 4 the expression is -1"),
            ("udp.dst=expr:5:n * 0.5", "for n = 0"),
            ("udp.dst=expr:5:m", "m"),
            ("udp.dst=expr:5:loop {}", "operations"),
            ("udp.dst=expr:5:import \"x\" as y; 1", "'import' is"),
            ("other=expr:5:n", "other"),
            (&format!("udp.dst={}1", "1|".repeat(3000)), "6009 characters"),
        ] {
            let e = text.parse::<VariedField>().unwrap_err();
            assert!(e.contains(words), "{text}: {e}");
        }
    }
}
