//! The cells of a scenario: all combinations of the values of its matrix.

use super::MeasurementSettings;
use crate::dut::DutSpec;
use crate::simulated::Simulated;
use crate::{Generator, TrafficSpec};
use config::{ChainFile, Host, Hosts, Source};
use diagnostics::Diagnostic;
use graph::Registry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Largest number of cells.
pub(super) const MAX_CELLS: usize = 256;

/// One combination of the values of the matrix.
pub struct Cell {
    /// Values by parameter.
    pub parameters: BTreeMap<String, String>,
    /// Device under test.
    pub dut: CellDut,
    /// Traffic.
    pub traffic: TrafficSpec,
    /// Measurement settings.
    pub settings: MeasurementSettings,
    /// Generator.
    pub generator: Generator,
    /// Fixed clock frequency of the device's CPUs, MHz.
    pub clock_mhz: Option<u32>,
}

/// The device under test of a cell. Devices other than a chain come with the chain file whose `[traffic]` table
/// applies.
pub enum CellDut {
    /// A chain in this process; parameters are substituted in the file.
    InProcess(Box<ChainFile>),
    /// Another program.
    External(Box<(DutSpec, ChainFile)>),
    /// A simulated device.
    Simulated(Box<(Simulated, ChainFile)>),
    /// A device that this program cannot measure, for this reason.
    Unavailable(String),
}

impl Cell {
    /// Returns the parameters as text.
    pub fn label(&self) -> String {
        let all: Vec<_> = self.parameters.iter().map(|(name, value)| format!("{name} {value}")).collect();
        if all.is_empty() { "all".to_owned() } else { all.join(", ") }
    }
}

/// Returns all combinations; the last parameter changes fastest.
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

/// A `${name}` that is not a parameter or not terminated.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnknownParameter<'a> {
    /// Byte offset.
    pub(super) at: usize,
    /// Text in the file.
    pub(super) text: &'a str,
}

/// Replaces `${name}` by the value of the parameter. Adds the parameters found to `used`.
pub(super) fn substitute<'a>(
    text: &'a str,
    parameters: &BTreeMap<String, String>,
    used: &mut BTreeSet<String>,
) -> Result<String, UnknownParameter<'a>> {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(from) = text[at..].find("${").map(|n| at + n) {
        out += &text[at..from];
        let line = text[from..].lines().next().unwrap_or_default();
        let Some(end) = line.find('}') else { return Err(UnknownParameter { at: from, text: line }) };
        let name = &line[2..end];
        let Some(value) = parameters.get(name) else {
            return Err(UnknownParameter { at: from, text: &line[..=end] });
        };
        used.insert(name.to_owned());
        out += value;
        at = from + end + 1;
    }
    out += &text[at..];
    Ok(out)
}

/// Returns the remedy for an unknown parameter.
pub(super) fn parameter_remedy(parameters: &BTreeMap<String, String>) -> String {
    match parameters.keys().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => "the scenario's [matrix] has no parameter; add one".to_owned(),
        ref known => format!("use one of the scenario's parameters: {}", known.join(", ")),
    }
}

/// Reads a chain file and substitutes parameters. Of a file that describes several hosts, returns the part of the one that
/// the generator sends to.
pub(super) fn chain_file(
    path: &Path,
    parameters: &BTreeMap<String, String>,
    used: &mut BTreeSet<String>,
    registry: &Registry,
) -> Result<ChainFile, Vec<Diagnostic>> {
    let text = config::read(path, "chain file").map_err(|d| vec![d])?;
    // numbers of copies, which the chain file repeats
    let mut with_copy = parameters.clone();
    for name in config::COPY_PARAMETERS {
        with_copy.entry(name.to_owned()).or_insert_with(|| format!("${{{name}}}"));
    }
    let text_with_values = substitute(&text, &with_copy, used).map_err(|e| {
        let d = Diagnostic::new("unknown parameter").value(e.text).remedy(parameter_remedy(parameters));
        vec![Source { text: &text, file: path }.locate(e.at..e.at, d)]
    })?;
    if text_with_values.len() > report::limit::CHAIN {
        let problem =
            format!("has {} bytes, more than a result can hold ({})", text_with_values.len(), report::limit::CHAIN);
        let d = Diagnostic { file: Some(path.to_owned()), ..Diagnostic::new(problem) };
        return Err(vec![d.remedy("move large parts to separate files, such as a file of routes")]);
    }
    match Hosts::parse(&text_with_values, path, registry)? {
        // the generator sends to the host that receives the packets of its traffic
        Some(Hosts { mut hosts, .. }) => Ok(hosts.swap_remove(hosts.iter().position(receives).unwrap_or(0)).part),
        None => ChainFile::parse(&text_with_values, path, registry),
    }
}

fn receives(host: &Host) -> bool {
    let into = host.part.traffic.into.as_ref();
    into.is_some_and(|into| host.part.ports.iter().any(|port| port.name == *into))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        all.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn combines_all_values_with_the_last_parameter_fastest() {
        let matrix = [("a", ["1", "2"]), ("b", ["x", "y"])]
            .map(|(n, v)| (n.to_owned(), v.iter().map(|v| (*v).to_owned()).collect()));
        let all: Vec<_> = combinations(&matrix).iter().map(|c| format!("{}{}", c["a"], c["b"])).collect();
        assert_eq!(all, ["1x", "1y", "2x", "2y"]);
        assert_eq!(combinations(&[]), [BTreeMap::new()]);
    }

    #[test]
    fn substitutes_parameters_and_reports_unknown_ones() {
        let known = parameters(&[("n", "8"), ("kind", "ttl")]);
        let mut used = BTreeSet::new();
        assert_eq!(substitute("n = ${n}, ${kind}-${n}$ {n}", &known, &mut used).unwrap(), "n = 8, ttl-8$ {n}");
        assert_eq!(used.len(), 2);
        let wrong = |text| substitute(text, &known, &mut BTreeSet::new()).map_err(|e| (e.at, e.text.to_owned()));
        assert_eq!(wrong("x = ${m}"), Err((4, "${m}".to_owned())));
        assert_eq!(wrong("x = ${n\n}"), Err((4, "${n".to_owned())));
        assert_eq!(wrong("ü ${}"), Err((3, "${}".to_owned())));
    }

    #[test]
    fn substitution_is_not_recursive() {
        let known = parameters(&[("a", "${b}"), ("b", "1")]);
        assert_eq!(substitute("${a}", &known, &mut BTreeSet::new()).unwrap(), "${b}");
    }
}
