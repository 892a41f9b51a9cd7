//! Checks of a scenario file.

mod captures;
mod claims;
mod dut;
mod generator;
mod goal;
mod profile;

use super::cells::{self, Cell, CellDut, MAX_CELLS, UnknownParameter};
use super::file::{Any, File, Invalid, Traffic};
use super::{MeasurementSettings, NativeBench, Published, Scenario, Study};
use crate::dut::registry;
use crate::{Generator, SyntheticOptions, TrafficSpec};
use config::{ChainFile, MAX_ERRORS, Reader, Source};
use diagnostics::Diagnostic;
use graph::Registry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use toml::de::DeTable;
use toml::{Spanned, Value};
use traffic::Order;
use traffic::flows::MAX_FLOWS;

/// Largest number of values of a parameter, of published results, of claims and of devices.
const MAX_ITEMS: usize = 64;
/// Longest value of the matrix, bytes.
const MAX_VALUE_BYTES: usize = 64;
/// Range of the clock frequency of a CPU, MHz.
const CLOCK_RANGE_MHZ: std::ops::RangeInclusive<u32> = 100..=10_000;
/// Pairs of samples per row of `native-bench`.
const DEFAULT_PAIRS: u32 = 500;
const PAIRS_RANGE: std::ops::RangeInclusive<u32> = 20..=100_000;
/// Frame sizes and number of flows by default.
const DEFAULT_FRAMES: &str = "64";
/// Labels of every measurement in a cell, reserved as names of parameters.
const CELL_LABELS: [&str; 2] = ["frames", FLOWS_LABEL];
const FLOWS_LABEL: &str = "flows";
/// Label that distinguishes several devices.
const DUT_LABEL: &str = "dut";

type Errors = Vec<Diagnostic>;
type Matrix = Vec<(String, Vec<String>)>;

/// Parses and checks a scenario file.
pub(super) fn check(text: &str, path: &Path, registry: &Registry) -> Result<Scenario, Errors> {
    let source = Source { text, file: path };
    let mut errors = vec![];
    let (file, invalid) = file(source, &mut errors)?;
    let mut checker = Checker { source, registry, errors, errors_elsewhere: vec![], invalid };
    let scenario = checker.scenario(&file);
    let Checker { mut errors, errors_elsewhere, .. } = checker;
    errors.sort_by_key(|d| (d.line, d.column));
    errors.extend(errors_elsewhere);
    // those of a chain file are found in every cell
    diagnostics::remove_duplicates(&mut errors);
    errors.truncate(MAX_ERRORS);
    if errors.is_empty() { Ok(scenario) } else { Err(errors) }
}

/// Parses a scenario file and returns its title.
pub(super) fn title(text: &str, path: &Path) -> Result<String, Diagnostic> {
    let mut errors = vec![];
    let parsed = file(Source { text, file: path }, &mut errors);
    let first = |errors: Errors| errors.into_iter().next().unwrap_or_default();
    let (file, _) = parsed.map_err(first)?;
    if errors.is_empty() { Ok(file.scenario.title.into_inner()) } else { Err(first(errors)) }
}

fn file(source: Source<'_>, errors: &mut Errors) -> Result<(File, Invalid), Errors> {
    let (table, syntax) = DeTable::parse_recoverable(source.text);
    if !syntax.is_empty() {
        return Err(source.syntax_errors(&syntax));
    }
    Ok(File::read(table.into_inner(), &mut Reader { source, errors }))
}

struct Checker<'a> {
    source: Source<'a>,
    registry: &'a Registry,
    errors: Errors,
    /// Errors of other files.
    errors_elsewhere: Errors,
    /// Tables with errors.
    invalid: Invalid,
}

impl Checker<'_> {
    /// Reports an error of a value in the scenario file.
    fn error(&mut self, span: Range<usize>, value: &str, problem: impl Into<String>, remedy: impl Into<String>) {
        if self.errors.len() < MAX_ERRORS {
            let d = Diagnostic::new(problem).value(value).remedy(remedy);
            self.errors.push(self.source.locate(span, d));
        }
    }

    fn scenario(&mut self, file: &File) -> Scenario {
        if !self.invalid.version {
            self.version(file);
        }
        let (folder, name) = self.name();
        let (matrix, valid) = self.checked(|checker| checker.matrix(file));
        self.invalid.matrix |= !valid;
        let (mut settings, valid) = self.checked(|checker| checker.goal(&file.goal, file.traffic.keeps_gaps()));
        self.invalid.goal |= !valid;
        let (traffic, valid) = self.checked(|checker| checker.traffic(file, &folder, &settings));
        self.invalid.traffic |= !valid;
        if !self.invalid.traffic && !self.invalid.goal {
            self.profile_methods(file, &mut settings);
        }
        let native = self.native(file);
        let (published, valid) = self.checked(|checker| checker.published(file));
        self.invalid.published |= !valid;
        let names = file.dut.0.iter().filter_map(|d| Some(d.name.as_ref()?.get_ref().clone())).collect();
        let labels: Matrix = matrix.iter().cloned().chain([(DUT_LABEL.to_owned(), names)]).collect();
        let claims = self.claims(file, &published, &labels, &traffic);
        let quick = self.quick(file, &labels, &traffic);
        let study = Study::read(&folder).unwrap_or_else(|d| {
            self.errors_elsewhere.push(d);
            None
        });
        let cells = self.cells(file, &folder, &matrix, &traffic, &settings);
        Scenario {
            file: self.source.file.to_owned(),
            name,
            title: file.scenario.title.get_ref().clone(),
            figure: file.scenario.figure.clone(),
            study,
            settings,
            cells,
            varied: varied(file),
            native,
            quick,
            published,
            claims,
        }
    }

    /// Returns the result of a check, and true if it found no error.
    fn checked<T>(&mut self, check: impl FnOnce(&mut Self) -> T) -> (T, bool) {
        let before = self.errors.len() + self.errors_elsewhere.len();
        let result = check(self);
        (result, self.errors.len() + self.errors_elsewhere.len() == before)
    }

    fn version(&mut self, file: &File) {
        match &file.bondstone {
            None => {
                self.error(0..0, "bondstone", "missing format version", "add as the first line: bondstone = 1");
            }
            Some(v) if *v.get_ref() != 1 => {
                self.error(v.span(), &v.get_ref().to_string(), "unknown format version", "write bondstone = 1");
            }
            Some(_) => {}
        }
    }

    /// Returns the directory of the file, and the name of the scenario.
    fn name(&self) -> (PathBuf, String) {
        let folder = match self.source.file.parent() {
            Some(folder) if folder != Path::new("") => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        let words = |name: Option<&std::ffi::OsStr>| name.unwrap_or_default().to_string_lossy().into_owned();
        let study = folder.canonicalize().ok().map(|f| words(f.file_name())).unwrap_or_default();
        let name = format!("{study}/{}", words(self.source.file.file_stem()));
        (folder, name.chars().take(report::limit::NAME).collect())
    }

    /// Parses a value, and returns the default if it is missing or invalid.
    fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(&mut self, text: Option<&Spanned<String>>, default: T) -> T {
        let Some(text) = text else { return default };
        text.get_ref().parse().unwrap_or_else(|e: T::Err| {
            self.error(text.span(), text.get_ref(), e.to_string(), "write another value");
            default
        })
    }

    /// Returns a number or string as text.
    fn value_text(&mut self, value: &Value, span: Range<usize>) -> Option<String> {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Integer(n) => n.to_string(),
            Value::Float(x) if x.is_finite() => x.to_string(),
            _ => {
                let written = self.source_text(span.clone());
                self.error(span, &written, "must be a number or a string", "write one of these");
                return None;
            }
        };
        if text.is_empty()
            || text.len() > MAX_VALUE_BYTES
            || text.contains(['"', '\\', '$'])
            || text.contains(char::is_control)
        {
            let remedy = format!("write 1 to {MAX_VALUE_BYTES} characters other than quotes, \\ and $");
            self.error(span, &text, "invalid value", remedy);
            return None;
        }
        Some(text)
    }

    /// Returns the start of the first line of the file at a location.
    fn source_text(&self, span: Range<usize>) -> String {
        let text = self.source.text.get(span).unwrap_or_default();
        text.lines().next().unwrap_or_default().chars().take(80).collect()
    }

    /// Returns the values of a list, or a single value.
    fn value_texts(&mut self, value: &Any) -> Vec<String> {
        match value.get_ref() {
            Value::Array(all) if !all.is_empty() && all.len() <= MAX_ITEMS => {
                all.iter().filter_map(|v| self.value_text(v, value.span())).collect()
            }
            Value::Array(all) => {
                let problem = format!("invalid number of values: {}", all.len());
                let written = self.source_text(value.span());
                self.error(value.span(), &written, problem, format!("write 1 to {MAX_ITEMS} values"));
                vec![]
            }
            one => self.value_text(one, value.span()).into_iter().collect(),
        }
    }

    /// Returns the parameters with their values in the order of the file.
    fn matrix(&mut self, file: &File) -> Matrix {
        let mut written: Vec<_> = file.matrix.iter().collect();
        written.sort_by_key(|(name, _)| name.span().start);
        let mut matrix = vec![];
        let mut cells = 1usize;
        for (name, values) in written {
            let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
            if name.get_ref().len() > 32 || !name.get_ref().bytes().all(plain) {
                let remedy = "use up to 32 letters, digits, - and _";
                self.error(name.span(), name.get_ref(), "invalid name of a parameter", remedy);
            }
            let is_flows = name.get_ref() == FLOWS_LABEL && has_parameter(file.traffic.flows.as_ref());
            if name.get_ref() == DUT_LABEL || !is_flows && CELL_LABELS.contains(&name.get_ref().as_str()) {
                let remedy = "set it in [traffic], or the name in [[dut]]";
                self.error(name.span(), name.get_ref(), "reserved name: a label of every measurement", remedy);
            }
            let texts = self.value_texts(values);
            let different: BTreeSet<_> = texts.iter().collect();
            if different.len() != texts.len() {
                let all = self.source_text(values.span());
                self.error(values.span(), &all, "duplicate value", "write each value once");
            }
            cells = cells.saturating_mul(texts.len().max(1));
            if cells > MAX_CELLS {
                let problem = format!("more than {MAX_CELLS} cells");
                self.error(name.span(), name.get_ref(), problem, "write fewer values");
                break;
            }
            matrix.push((name.get_ref().clone(), texts));
        }
        matrix
    }

    /// Returns the traffic of all cells.
    fn traffic(&mut self, file: &File, folder: &Path, settings: &MeasurementSettings) -> TrafficSpec {
        let traffic = &file.traffic;
        if let Some(profile) = self.profile(traffic, folder, settings) {
            return profile;
        }
        if let Some(captures) = self.captures(traffic, folder) {
            return captures;
        }
        let order = self.parse(traffic.order.as_ref(), Order::default());
        let (text, span) = match &traffic.frames {
            Some(text) => (text.get_ref().as_str(), text.span()),
            None => (DEFAULT_FRAMES, 0..0),
        };
        let remedy = "write sizes with FCS or mixes, such as \"64,512,imix\"";
        let mut frames = vec![];
        match crate::parse_frame_sizes(text) {
            Ok(all) if (1..=MAX_ITEMS).contains(&all.len()) => frames = all,
            Ok(_) => self.error(span, text, "invalid list of frame sizes", remedy),
            Err((wrong, e)) => self.error(span, &wrong, e.to_string(), remedy),
        }
        // a parameter is checked in every cell
        let written = traffic.flows.as_ref().filter(|flows| !has_parameter(Some(flows)));
        let flows = written.and_then(|flows| self.flows(&as_text(flows), flows.span()));
        let options = self.synthetic_options(traffic);
        TrafficSpec::Synthetic { frames, flows: flows.unwrap_or(options.default_flows()), order, options }
    }

    /// Parses a number of flows.
    fn flows(&mut self, text: &str, span: Range<usize>) -> Option<u32> {
        let flows = text.parse().ok().filter(|n| (1..=MAX_FLOWS).contains(n));
        if flows.is_none() {
            self.error(span, text, "invalid number of flows", format!("write 1 to {MAX_FLOWS}"));
        }
        flows
    }

    /// Returns the options of synthetic traffic.
    fn synthetic_options(&mut self, traffic: &Traffic) -> SyntheticOptions {
        let text = |text: &Option<Spanned<String>>| text.as_ref().map(|text| text.get_ref().clone());
        let (trace, stack, short) = (text(&traffic.trace), text(&traffic.stack), text(&traffic.short));
        let tcp = text(&traffic.tcp);
        if let (Some(frames), Some(_)) = (&traffic.frames, &tcp) {
            let remedy = "remove it: TCP connections have frames of their own";
            self.error(frames.span(), frames.get_ref(), "sizes of frames with tcp", remedy);
        }
        // a parameter is checked in every cell
        let trace = trace.filter(|trace| !trace.contains("${"));
        let vary = traffic.vary.as_ref().map_or(&[][..], |vary| vary.get_ref());
        let options =
            SyntheticOptions::parse(trace.as_deref(), stack.as_deref(), short.as_deref(), tcp.as_deref(), vary);
        let bidirectional = traffic.bidirectional.as_ref().is_some_and(|both| *both.get_ref());
        let options = options.map(|options| SyntheticOptions { bidirectional, ..options });
        options.and_then(|options| options.checked(traffic.flows.is_some(), traffic.order.is_some())).unwrap_or_else(
            |(name, d)| {
                let written = [
                    ("trace", &traffic.trace),
                    ("stack", &traffic.stack),
                    ("short", &traffic.short),
                    ("tcp", &traffic.tcp),
                ];
                let span = written.into_iter().find(|(known, _)| *known == name).and_then(|(_, text)| text.as_ref());
                let vary = traffic.vary.as_ref().filter(|_| name == "vary").map(Spanned::span);
                let span = span
                    .map(Spanned::span)
                    .or(vary)
                    .or(traffic.bidirectional.as_ref().map(Spanned::span))
                    .unwrap_or(0..0);
                self.error(span, d.value.as_deref().unwrap_or_default(), d.problem, d.remedy.unwrap_or_default());
                SyntheticOptions::default()
            },
        )
    }

    fn native(&mut self, file: &File) -> Option<NativeBench> {
        let native = file.native.as_ref()?;
        let pairs = native.pairs.as_ref().map_or(DEFAULT_PAIRS, |p| *p.get_ref());
        if let Some(written) = native.pairs.as_ref().filter(|_| !PAIRS_RANGE.contains(&pairs)) {
            let remedy = format!("write {} to {}", PAIRS_RANGE.start(), PAIRS_RANGE.end());
            self.error(written.span(), &pairs.to_string(), "number of pairs out of range", remedy);
        }
        if native.filter.get_ref().is_empty() {
            self.error(native.filter.span(), "", "empty filter", "write a part of the name of a row, such as \"ttl\"");
        }
        Some(NativeBench { filter: native.filter.get_ref().clone(), pairs })
    }

    fn published(&mut self, file: &File) -> Vec<Published> {
        let mut seen = BTreeSet::new();
        for (n, p) in file.published.iter().enumerate() {
            let (span, p) = (p.span(), p.get_ref());
            let id = p.id.get_ref();
            if n == MAX_ITEMS {
                self.error(span, id, "too many results", format!("write up to {MAX_ITEMS}"));
                break;
            }
            if id.is_empty() || id.contains(['/', ' ']) || !seen.insert(id) {
                self.error(p.id.span(), id, "invalid or duplicate id", "use letters, digits and -; each id once");
            }
            let kinds = [p.value.is_some(), !p.values.is_empty(), p.statement.is_some(), p.image];
            // a statement may accompany numbers
            let numbers = kinds[0] || kinds[1];
            let one_kind =
                kinds.iter().filter(|k| **k).count() == 1 || numbers && kinds[2] && !kinds[3] && kinds[0] != kinds[1];
            // a key with an invalid value was left out
            let complete = !self.invalid.published;
            if complete && !one_kind {
                let remedy = "set value to a number or list, or values = { NAME = NUMBER } and x, and unit; or \
                              statement; or image = true";
                self.error(p.id.span(), id, "needs numbers, a statement or image = true", remedy);
            }
            if complete && numbers != p.unit.is_some() {
                self.error(p.id.span(), id, "number and unit belong together", "write both");
            }
            if complete && p.values.is_empty() == p.x.is_some() {
                self.error(p.id.span(), id, "values and x belong together", "write both");
            }
            let wrong = p.value.iter().chain(p.values.values()).find(|v| numbers_of(v).is_none());
            if let Some(wrong) = wrong {
                let written = self.source_text(wrong.span());
                self.error(wrong.span(), &written, "not a finite number", "write another");
            }
        }
        let published = |p: &super::file::Published| Published {
            id: p.id.get_ref().clone(),
            figure: p.figure.clone(),
            table: p.table.clone(),
            values: values(p),
            x: p.x.clone(),
            unit: p.unit.clone(),
            conditions: p.conditions.clone(),
            statement: p.statement.clone(),
            image: p.image,
        };
        file.published.iter().map(|p| published(p.get_ref())).collect()
    }

    /// Returns the path of a file in the scenario's directory.
    fn file_name(&mut self, name: &str, span: Range<usize>, folder: &Path, remedy: &str) -> Option<PathBuf> {
        if Path::new(name).file_name().is_none_or(|n| n.to_str() != Some(name)) {
            self.error(span, name, "must be a file name without a directory", remedy);
            return None;
        }
        let path = folder.join(name);
        if !path.is_file() {
            self.error(span, name, format!("file not found: {}", path.display()), remedy);
            return None;
        }
        Some(path)
    }

    /// Substitutes parameters in a value of the scenario file.
    fn substitute(
        &mut self,
        text: &Spanned<String>,
        parameters: &BTreeMap<String, String>,
        used: &mut BTreeSet<String>,
    ) -> Option<String> {
        match cells::substitute(text.get_ref(), parameters, used) {
            Ok(text) => Some(text),
            Err(UnknownParameter { text: unknown, .. }) => {
                self.error(text.span(), unknown, "unknown parameter", cells::parameter_remedy(parameters));
                None
            }
        }
    }

    fn cells(
        &mut self,
        file: &File,
        folder: &Path,
        matrix: &Matrix,
        traffic: &TrafficSpec,
        settings: &MeasurementSettings,
    ) -> Vec<Cell> {
        if self.invalid.matrix || self.invalid.dut {
            // cells would lack parameters
            return vec![];
        }
        let mut used = BTreeSet::new();
        let mut all = vec![];
        if !self.dut_names(&file.dut.0) {
            return all;
        }
        for device in &file.dut.0 {
            for parameters in cells::combinations(matrix) {
                all.extend(self.cell(file, device, folder, parameters, (traffic, settings), &mut used));
                diagnostics::remove_duplicates(&mut self.errors);
                diagnostics::remove_duplicates(&mut self.errors_elsewhere);
                if self.errors.len() + self.errors_elsewhere.len() >= MAX_ERRORS {
                    return all;
                }
            }
        }
        if !self.errors.is_empty() || !self.errors_elsewhere.is_empty() {
            return all;
        }
        // chain files of unavailable devices were not read
        let complete = !all.iter().any(|c| matches!(c.dut, CellDut::Unavailable(_)));
        for (name, _) in file.matrix.iter().filter(|(name, _)| complete && !used.contains(name.get_ref())) {
            let problem = "unused parameter: its cells would be identical";
            let remedy = format!(
                "use ${{{}}} in the chain file, in [dut], as trace or flows in [traffic] or as rate in [goal]",
                name.get_ref()
            );
            self.error(name.span(), name.get_ref(), problem, remedy);
        }
        all
    }

    fn cell(
        &mut self,
        file: &File,
        device: &super::file::Dut,
        folder: &Path,
        mut parameters: BTreeMap<String, String>,
        (traffic, settings): (&TrafficSpec, &MeasurementSettings),
        used: &mut BTreeSet<String>,
    ) -> Option<Cell> {
        let (mut traffic, mut settings) = (traffic.clone(), settings.clone());
        if let Some(written) = file.traffic.trace.as_ref().filter(|trace| trace.get_ref().contains("${"))
            && let TrafficSpec::Synthetic { options, .. } = &mut traffic
        {
            let name = self.substitute(written, &parameters, used)?;
            match name.parse() {
                Ok(trace) => options.trace = Some(trace),
                Err(e) => self.error(written.span(), &name, e.to_string(), "use names of traces in [matrix]"),
            }
        }
        if let Some(written) = file.traffic.flows.as_ref().filter(|flows| has_parameter(Some(flows)))
            && let TrafficSpec::Synthetic { flows, .. } = &mut traffic
        {
            let span = written.span();
            let text = self.substitute(&Spanned::new(span.clone(), as_text(written)), &parameters, used)?;
            *flows = self.flows(&text, span)?;
        }
        if let Some(written) = file.goal.rate.as_ref().filter(|rate| has_parameter(Some(rate))) {
            let span = written.span();
            let text = self.substitute(&Spanned::new(span.clone(), as_text(written)), &parameters, used)?;
            settings.rate_pps = Some(self.rate(&text, span, &settings.goal)?);
        }
        let clock_mhz = match &device.clock_mhz {
            None => None,
            Some(written) => {
                let span = written.span();
                let text = self.substitute(&Spanned::new(span.clone(), as_text(written)), &parameters, used)?;
                let mhz = text.parse().ok().filter(|mhz| CLOCK_RANGE_MHZ.contains(mhz));
                if mhz.is_none() {
                    let remedy = format!("write {} to {}", CLOCK_RANGE_MHZ.start(), CLOCK_RANGE_MHZ.end());
                    self.error(span, &text, "clock frequency in MHz out of range", remedy);
                }
                mhz
            }
        };
        let generator = self.generator(file, &parameters, &traffic, &settings, used)?;
        let dut = self.dut(device, folder, &parameters, &traffic, used)?;
        if let Some(written) = &device.clock_mhz
            && !has_local_cpus(&dut)
        {
            let remedy = "remove it, or measure a chain or a program on this host";
            self.error(written.span(), &as_text(written), "cannot fix the clock of CPUs of another host", remedy);
        }
        if generator != Generator::Bondstone && !matches!(dut, CellDut::External(_) | CellDut::Unavailable(_)) {
            let kind = file.generator.kind.as_ref();
            let remedy = "use an external device: kind = \"bondstone\" in [dut], or another kind";
            self.error(kind.map_or(0..0, Spanned::span), generator.name(), "needs an external device", remedy);
        }
        if let Some(name) = &device.name {
            parameters.insert(DUT_LABEL.to_owned(), name.get_ref().clone());
        }
        Some(Cell { parameters, dut, traffic, settings, generator, clock_mhz })
    }
}

/// Returns a finite number, or those of a list.
fn numbers_of(value: &Any) -> Option<Vec<f64>> {
    let number = |v: &Value| v.as_float().or(v.as_integer().map(|n| n as f64)).filter(|n| n.is_finite());
    match value.get_ref() {
        Value::Array(all) if (1..=MAX_ITEMS).contains(&all.len()) => all.iter().map(number).collect(),
        one => Some(vec![number(one)?]),
    }
}

/// Returns the numbers of a published result with their names.
fn values(p: &super::file::Published) -> Vec<(String, f64)> {
    let mut all = vec![];
    match p.value.as_ref().map(|v| numbers_of(v).unwrap_or_default()).unwrap_or_default()[..] {
        [one] => all.push((String::new(), one)),
        ref many => all.extend(many.iter().enumerate().map(|(n, v)| (n.to_string(), *v))),
    }
    for (name, value) in p.values.iter().take(MAX_ITEMS) {
        all.extend(numbers_of(value).into_iter().flatten().map(|v| (name.get_ref().clone(), v)));
    }
    all
}

/// Returns true if the CPUs of a device belong to this host.
fn has_local_cpus(dut: &CellDut) -> bool {
    match dut {
        CellDut::InProcess(_) | CellDut::Unavailable(_) => true,
        CellDut::Simulated(_) => false,
        CellDut::External(external) => {
            let spec = &external.0;
            spec.remote.is_none() && !registry::driver(&spec.kind).is_some_and(|driver| driver.is_external())
        }
    }
}

/// Returns the traffic and goal keys that the matrix varies.
fn varied(file: &File) -> Vec<&'static str> {
    let trace = file.traffic.trace.as_ref().is_some_and(|trace| trace.get_ref().contains("${"));
    let keys = [
        ("flows", has_parameter(file.traffic.flows.as_ref())),
        ("rate", has_parameter(file.goal.rate.as_ref())),
        ("trace", trace),
    ];
    keys.into_iter().filter(|(_, varies)| *varies).map(|(name, _)| name).collect()
}

/// Returns true if a value contains a parameter.
fn has_parameter(value: Option<&Any>) -> bool {
    value.is_some_and(|value| value.get_ref().as_str().is_some_and(|text| text.contains("${")))
}

/// Returns a value as text.
fn as_text(value: &Any) -> String {
    match value.get_ref() {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Checks that the traffic can be built with the `[traffic]` table of a chain file.
fn check_traffic(chain: &ChainFile, traffic: &TrafficSpec) -> Result<(), Diagnostic> {
    match traffic {
        TrafficSpec::Synthetic { .. } | TrafficSpec::Profile(_) => {
            let ready = crate::dut::entry_ports(chain, traffic.is_bidirectional())
                .and_then(|_| traffic.prepare(chain, &AtomicBool::new(false)))
                .map(drop);
            ready.map_err(|d| Diagnostic { file: d.file.or(Some(chain.file.clone())), ..d })
        }
        // captures were checked before
        TrafficSpec::Capture(_) => {
            let ready = crate::dut::entry_ports(chain, traffic.is_bidirectional())
                .and_then(|_| crate::traffic_spec::mac_addresses(chain))
                .map(drop);
            ready.map_err(|d| Diagnostic { file: d.file.or(Some(chain.file.clone())), ..d })
        }
    }
}

#[cfg(test)]
mod tests;
