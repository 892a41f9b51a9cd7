//! Labels of results, frame sizes, loads and quantities.

use super::format::{self, printable};
use crate::{Frames, Quantity, Result};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Parameter with which scenarios name DUTs.
const DUT: &str = "dut";
/// Maximum length of a CPU model in a label, characters.
const MAX_CPU_LEN: usize = 32;

/// Returns a label for each result that distinguishes it from the others, without the frame size.
pub(crate) fn labels(results: &[Result]) -> Vec<String> {
    let labeler = Labeler::new(results);
    results.iter().map(|r| labeler.label(r, None)).collect()
}

/// Properties that distinguish results: DUTs and CPUs, if they differ, and the parameters of cells with more than one
/// value.
pub(crate) struct Labeler<'a> {
    duts_differ: bool,
    cpus_differ: bool,
    /// Parameters with more than one value, with the number of values.
    pub(crate) varying: BTreeMap<&'a String, usize>,
}

impl<'a> Labeler<'a> {
    pub(crate) fn new(results: &'a [Result]) -> Self {
        let duts_differ = results.windows(2).any(|w| w[0].dut.label() != w[1].dut.label());
        let cpus_differ = results.windows(2).any(|w| w[0].environment.cpu != w[1].environment.cpu);
        Labeler { duts_differ, cpus_differ, varying: varying(results) }
    }

    /// Returns the label of a result, without the parameter `excluded`.
    pub(crate) fn label(&self, result: &Result, excluded: Option<&String>) -> String {
        let shown = result
            .cell
            .iter()
            .filter(|(parameter, _)| self.varying.contains_key(parameter) && Some(*parameter) != excluded);
        let mut parts: Vec<String> = shown
            .map(|(parameter, value)| if parameter == DUT { value.clone() } else { format!("{parameter} {value}") })
            .collect();
        // a scenario's name of a DUT is more specific than its kind
        let has_name = self.varying.keys().any(|name| *name == DUT);
        if self.duts_differ && !has_name || parts.is_empty() {
            parts.insert(0, result.dut.label());
        }
        if self.cpus_differ {
            parts.push(format!("on {}", format::short(&result.environment.cpu, MAX_CPU_LEN)));
        }
        printable(&parts.join(", "))
    }
}

/// Returns the parameters of cells with more than one value, with the number of values.
fn varying(results: &[Result]) -> BTreeMap<&String, usize> {
    let mut values: BTreeMap<&String, BTreeSet<Option<&String>>> = BTreeMap::new();
    for name in results.iter().flat_map(|r| r.cell.keys()) {
        values.entry(name).or_default();
    }
    for (name, values) in &mut values {
        values.extend(results.iter().map(|r| r.cell.get(*name)));
    }
    values.into_iter().map(|(name, values)| (name, values.len())).filter(|(_, n)| *n > 1).collect()
}

/// Formats the load at which latency was measured, as a share of the throughput if it is known.
pub(crate) fn load(load_pps: f64, share_of_throughput: Option<f64>) -> String {
    share_of_throughput.map_or_else(|| format::pps(load_pps), format::percent)
}

/// Formats a frame size with its unit.
pub(crate) fn frames(frames: &Frames) -> String {
    match frames {
        Frames::FrameBytes(bytes) => format!("{bytes} B"),
        Frames::Mix(_) | Frames::Trace(_) => {
            format!("{} (mean {} B)", printable(&frames.label()), format::significant(frames.mean_bytes(), 4))
        }
    }
}

/// Formats the distinct frame sizes of results.
pub(crate) fn frame_sizes(results: &[&Result]) -> String {
    let all = distinct(results.iter().map(|r| frames(&r.traffic.frames)));
    match all.as_slice() {
        [few @ .., last] if all.len() <= 8 && !few.is_empty() => format!("{} and {last}", few.join(", ")),
        [one] => one.clone(),
        [first, .., last] => format!("{first} to {last}, {} sizes", all.len()),
        [] => String::new(),
    }
}

/// Formats a list of CPU numbers.
pub(crate) fn cpus(cpus: &[u32]) -> String {
    let list = cpus.iter().take(16).map(u32::to_string).collect::<Vec<_>>().join(", ");
    let more = if cpus.len() > 16 { format!(", … ({} in total)", cpus.len()) } else { String::new() };
    format!("{} {list}{more}", if cpus.len() == 1 { "CPU" } else { "CPUs" })
}

/// Removes repeated strings, keeping the order of first appearance.
pub(crate) fn distinct(texts: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut known = HashSet::new();
    texts.into_iter().filter(|text| known.insert(text.clone())).collect()
}

impl Quantity {
    /// Formats the value with its unit; of several values also the minimum, the maximum and their number.
    pub fn display_parts(&self) -> (String, Option<[String; 3]>) {
        let spread = self.spread.filter(|spread| spread.samples > 1);
        let with_unit = |value: f64| with_unit(value, &self.unit);
        (with_unit(self.value), spread.map(|s| [with_unit(s.min), with_unit(s.max), s.samples.to_string()]))
    }
}

/// Formats a value with its unit, scaled to be readable.
fn with_unit(value: f64, unit: &str) -> String {
    let (value, unit) = match unit {
        "ns" if value >= 1e9 => (value / 1e9, "s"),
        "ns" if value >= 1e6 => (value / 1e6, "ms"),
        "ns" if value >= 1e3 => (value / 1e3, "µs"),
        "s" if value == 0.0 || value >= 1.0 => (value, "s"),
        "s" if value >= 1e-3 => (value * 1e3, "ms"),
        "s" => (value * 1e6, "µs"),
        "pps" => return format::pps(value),
        "bps" => (value / 1e9, "Gbit/s"),
        "ratio" => return format::percent(value),
        unit => (value, unit),
    };
    let digits = if value.fract() == 0.0 || value >= 1e4 { 0 } else { 3 };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_scaled_to_readable_units() {
        let display = |unit: &str, value: f64| Quantity::new("x", unit, value).display_parts().0;
        assert_eq!(display("ns", 1500.0), "1.500 µs");
        assert_eq!(display("s", 0.00025), "250 µs");
        assert_eq!(display("frames", 4096.0), "4096 frames");
        assert_eq!(display("ratio", 0.5), "50 %");
        let (mean, spread) = Quantity::mean("x", "s", &[1.0, 3.0]).unwrap().display_parts();
        assert_eq!((&*mean, spread.unwrap()), ("2 s", ["1 s", "3 s", "2"].map(str::to_owned)));
        assert_eq!(Quantity::mean("x", "s", &[1.0]).unwrap().display_parts().1, None);
    }
}
