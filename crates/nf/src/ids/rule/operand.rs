//! Numbers and variables of payload options.

use super::number::parse_number;
use std::collections::HashMap;

/// A number or a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ids) enum Operand {
    Number(i64),
    Variable(usize),
}

impl Operand {
    pub(in crate::ids) fn value(self, variables: &[u64]) -> i64 {
        match self {
            Operand::Number(n) => n,
            Operand::Variable(n) => variables.get(n).map_or(0, |n| i64::try_from(*n).unwrap_or(i64::MAX)),
        }
    }
}

/// Names of the variables of a rule.
pub(super) type VariableNames = HashMap<String, usize>;

pub(super) fn operand(text: &str, names: &VariableNames) -> Result<Operand, String> {
    let text = text.trim();
    if let Some(n) = names.get(text) {
        return Ok(Operand::Variable(*n));
    }
    let parsed = text.parse::<i64>().ok().or_else(|| parse_number(text).and_then(|n| i64::try_from(n).ok()));
    parsed.map(Operand::Number).ok_or_else(|| format!("{text}: neither a number nor a variable of this rule"))
}
