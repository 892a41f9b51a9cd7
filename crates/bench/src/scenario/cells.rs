//! The cells of a matrix: every combination of its parameters' values.

use super::How;
use crate::dut::Plan;
use crate::simulated::Simulated;
use crate::{Generator, Sent};
use config::{ChainFile, Source};
use diagnostics::Diagnostic;
use graph::Registry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Cells that a matrix may have.
pub(super) const MOST: usize = 256;

/// One combination of the parameters' values.
pub struct Cell {
    /// The values by parameter.
    pub parameters: BTreeMap<String, String>,
    /// What is measured.
    pub dut: Dut,
    /// What it is offered.
    pub sent: Sent,
    /// How it is measured.
    pub how: How,
    /// Who sends.
    pub generator: Generator,
    /// What the clock of the device's CPUs is fixed to, MHz.
    pub clock_mhz: Option<u32>,
}

/// The device under test of a cell.
pub enum Dut {
    /// A chain file, with the parameters' values put in.
    Chain(Box<ChainFile>),
    /// Another program, and the chain file whose `[traffic]` says what it is sent.
    Rig(Box<(Plan, ChainFile)>),
    /// A device that exists only as numbers, and the chain file whose `[traffic]` says what it is sent.
    Simulated(Box<(Simulated, ChainFile)>),
    /// Not here yet: what it needs and this program has not.
    Absent(String),
}

impl Cell {
    /// Its parameters in words.
    pub fn label(&self) -> String {
        let all: Vec<_> = self.parameters.iter().map(|(name, value)| format!("{name} {value}")).collect();
        if all.is_empty() { "all".to_owned() } else { all.join(", ") }
    }
}

/// Every combination, the last parameter changing first.
pub(super) fn combinations(matrix: &[(String, Vec<String>)]) -> Vec<BTreeMap<String, String>> {
    let mut all = vec![BTreeMap::new()];
    for (name, values) in matrix {
        all = all
            .into_iter()
            .flat_map(|cell: BTreeMap<String, String>| {
                values.iter().map(move |value| {
                    let mut cell = cell.clone();
                    cell.insert(name.clone(), value.clone());
                    cell
                })
            })
            .collect();
    }
    all
}

/// A `${name}` that is no parameter, or has no end: the byte at which it begins, and what is written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoParameter<'a> {
    pub(super) at: usize,
    pub(super) written: &'a str,
}

/// The text with `${name}` replaced by the parameter's value; the parameters found are added to `used`.
pub(super) fn substitute<'a>(
    text: &'a str,
    parameters: &BTreeMap<String, String>,
    used: &mut BTreeSet<String>,
) -> Result<String, NoParameter<'a>> {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(from) = text[at..].find("${").map(|n| at + n) {
        out += &text[at..from];
        let line = text[from..].lines().next().unwrap_or_default();
        let Some(end) = line.find('}') else { return Err(NoParameter { at: from, written: line }) };
        let name = &line[2..end];
        let Some(value) = parameters.get(name) else {
            return Err(NoParameter { at: from, written: &line[..=end] });
        };
        used.insert(name.to_owned());
        out += value;
        at = from + end + 1;
    }
    out += &text[at..];
    Ok(out)
}

/// What to do about a stranger.
pub(super) fn parameters_cure(parameters: &BTreeMap<String, String>) -> String {
    match parameters.keys().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => "the scenario's [matrix] has no parameter; add one".to_owned(),
        ref known => format!("use one of the scenario's parameters: {}", known.join(", ")),
    }
}

/// Reads a chain file with parameters in it.
pub(super) fn chain_file(
    path: &Path,
    parameters: &BTreeMap<String, String>,
    used: &mut BTreeSet<String>,
    registry: &Registry,
) -> Result<ChainFile, Vec<Diagnostic>> {
    let text = config::read(path, "chain file").map_err(|d| vec![d])?;
    let whole = substitute(&text, parameters, used).map_err(|e| {
        let d = Diagnostic::new("is no parameter of the scenario").value(e.written).remedy(parameters_cure(parameters));
        vec![Source { text: &text, file: path }.at(e.at..e.at, d)]
    })?;
    if whole.len() > report::limit::CHAIN {
        let problem = format!("has {} bytes, more than a result can hold ({})", whole.len(), report::limit::CHAIN);
        let d = Diagnostic { file: Some(path.to_owned()), ..Diagnostic::new(problem) };
        return Err(vec![d.remedy("put what is long into files of its own, such as one of routes")]);
    }
    ChainFile::parse(&whole, path, registry)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        all.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn every_combination_once_and_the_last_parameter_first() {
        let matrix = [("a", ["1", "2"]), ("b", ["x", "y"])]
            .map(|(n, v)| (n.to_owned(), v.iter().map(|v| (*v).to_owned()).collect()));
        let all: Vec<_> = combinations(&matrix).iter().map(|c| format!("{}{}", c["a"], c["b"])).collect();
        assert_eq!(all, ["1x", "1y", "2x", "2y"]);
        assert_eq!(combinations(&[]), [BTreeMap::new()]);
    }

    #[test]
    fn parameters_are_put_in_and_strangers_named() {
        let known = parameters(&[("n", "8"), ("kind", "ttl")]);
        let mut used = BTreeSet::new();
        assert_eq!(substitute("n = ${n}, ${kind}-${n}$ {n}", &known, &mut used).unwrap(), "n = 8, ttl-8$ {n}");
        assert_eq!(used.len(), 2);
        let wrong = |text| substitute(text, &known, &mut BTreeSet::new()).map_err(|e| (e.at, e.written.to_owned()));
        assert_eq!(wrong("x = ${m}"), Err((4, "${m}".to_owned())));
        assert_eq!(wrong("x = ${n\n}"), Err((4, "${n".to_owned())));
        assert_eq!(wrong("ü ${}"), Err((3, "${}".to_owned())));
    }

    #[test]
    fn a_value_is_not_substituted_again() {
        let known = parameters(&[("a", "${b}"), ("b", "1")]);
        assert_eq!(substitute("${a}", &known, &mut BTreeSet::new()).unwrap(), "${b}");
    }
}
