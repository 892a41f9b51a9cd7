//! Finding everything that is wrong with a scenario.

mod captures;
mod claims;
mod device;
mod generator;
mod how;
mod profile;

use super::cells::{self, Cell, Dut, MOST, NoParameter};
use super::file::{Any, File, Traffic};
use super::{How, Native, Published, Scenario, Study};
use crate::dut::Kind;
use crate::{Generator, Sent, Shape};
use config::{ChainFile, Source};
use diagnostics::Diagnostic;
use graph::Registry;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use toml::de::DeTable;
use toml::{Spanned, Value};
use traffic::Order;
use traffic::flows::MAX_FLOWS;

/// Values of one parameter, published results, claims.
const MOST_OF_A_KIND: usize = 64;
/// Characters of a value of the matrix.
const LONGEST: usize = 64;
/// Clocks that a CPU may have.
const CLOCKS_MHZ: std::ops::RangeInclusive<u32> = 100..=10_000;
/// Faults that are reported of a scenario.
const MOST_FAULTS: usize = 100;
/// Pairs of samples of a row, and the most that there may be.
const PAIRS: (u32, u32) = (500, 100_000);
/// Frames and flows where the file says nothing.
const FRAMES: &str = "64";
const FLOWS: u32 = 1024;
/// Facts of every measurement in a cell, which no parameter may be called.
const OF_EVERY_CELL: [&str; 2] = ["frames", FLOWS_OF_A_CELL];
const FLOWS_OF_A_CELL: &str = "flows";
/// What tells one device of several.
const DUT: &str = "dut";

type Faults = Vec<Diagnostic>;
type Matrix = Vec<(String, Vec<String>)>;

pub(super) fn check(text: &str, path: &Path, registry: &Registry) -> Result<Scenario, Faults> {
    let source = Source { text, file: path };
    let file = file(&source).map_err(|d| vec![d])?;
    let mut checker = Checker { source, registry, faults: vec![], others: vec![] };
    let scenario = checker.scenario(&file);
    let Checker { mut faults, others, .. } = checker;
    faults.sort_by_key(|d| (d.line, d.column));
    faults.extend(others);
    faults.truncate(MOST_FAULTS);
    if faults.is_empty() { Ok(scenario) } else { Err(faults) }
}

pub(super) fn title(text: &str, path: &Path) -> Result<String, Diagnostic> {
    file(&Source { text, file: path }).map(|file| file.scenario.title.into_inner())
}

fn file(source: &Source<'_>) -> Result<File, Diagnostic> {
    let table = DeTable::parse(source.text).map_err(|e| source.toml(&e))?;
    File::deserialize(table.into_deserializer()).map_err(|e| source.toml(&e))
}

struct Checker<'a> {
    source: Source<'a>,
    registry: &'a Registry,
    faults: Faults,
    /// Those of other files.
    others: Faults,
}

impl Checker<'_> {
    fn fault(&mut self, span: Range<usize>, value: &str, problem: impl Into<String>, remedy: impl Into<String>) {
        if self.faults.len() < MOST_FAULTS {
            let d = Diagnostic::new(problem).value(value).remedy(remedy);
            self.faults.push(self.source.at(span, d));
        }
    }

    fn scenario(&mut self, file: &File) -> Scenario {
        self.version(file);
        let (folder, name) = self.name();
        let matrix = self.matrix(file);
        let mut how = self.how(&file.goal, file.traffic.keeps_gaps());
        let sent = self.sent(file, &folder, &how);
        self.methods_of_profile(file, &mut how);
        let native = self.native(file);
        let published = self.published(file);
        // the devices' names tell cells apart as well
        let names = file.dut.0.iter().filter_map(|d| Some(d.name.as_ref()?.get_ref().clone())).collect();
        let facts: Matrix = matrix.iter().cloned().chain([(DUT.to_owned(), names)]).collect();
        let claims = self.claims(file, &published, &facts, &sent);
        let study = Study::of(&folder).unwrap_or_else(|d| {
            self.others.push(d);
            None
        });
        let cells = self.cells(file, &folder, &matrix, &sent, &how);
        Scenario {
            file: self.source.file.to_owned(),
            name,
            title: file.scenario.title.get_ref().clone(),
            figure: file.scenario.figure.clone(),
            study,
            how,
            cells,
            changed: changed(file),
            native,
            published,
            claims,
        }
    }

    fn version(&mut self, file: &File) {
        match &file.bondstone {
            None => {
                let remedy = "begin it with: bondstone = 1";
                self.fault(0..0, "bondstone", "the file does not say which format it has", remedy);
            }
            Some(v) if *v.get_ref() != 1 => {
                self.fault(v.span(), &v.get_ref().to_string(), "this format is not known", "write bondstone = 1");
            }
            Some(_) => {}
        }
    }

    /// The folder, and its name with the file's.
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

    /// What a text stands for, or what is taken when there is none or a wrong one.
    fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(&mut self, text: Option<&Spanned<String>>, or: T) -> T {
        let Some(text) = text else { return or };
        text.get_ref().parse().unwrap_or_else(|e: T::Err| {
            self.fault(text.span(), text.get_ref(), e.to_string(), "write another");
            or
        })
    }

    fn text(&mut self, value: &Value, span: Range<usize>) -> Option<String> {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Integer(n) => n.to_string(),
            Value::Float(x) if x.is_finite() => x.to_string(),
            _ => {
                let written = self.written(span.clone());
                self.fault(span, &written, "is neither a number nor a text", "write one of these");
                return None;
            }
        };
        if text.is_empty() || text.len() > LONGEST || text.contains(['"', '\\', '$']) || text.contains(char::is_control)
        {
            let remedy = format!("write 1 to {LONGEST} characters without quotes, \\ and $");
            self.fault(span, &text, "cannot be a value", remedy);
            return None;
        }
        Some(text)
    }

    /// What the file has there, if it is short.
    fn written(&self, span: Range<usize>) -> String {
        let text = self.source.text.get(span).unwrap_or_default();
        text.lines().next().unwrap_or_default().chars().take(80).collect()
    }

    /// A list of values, or one.
    fn texts(&mut self, value: &Any) -> Vec<String> {
        match value.get_ref() {
            Value::Array(all) if !all.is_empty() && all.len() <= MOST_OF_A_KIND => {
                all.iter().filter_map(|v| self.text(v, value.span())).collect()
            }
            Value::Array(all) => {
                let problem = format!("{} values are not 1 to {MOST_OF_A_KIND}", all.len());
                let written = self.written(value.span());
                self.fault(value.span(), &written, problem, "write fewer, or some");
                vec![]
            }
            one => self.text(one, value.span()).into_iter().collect(),
        }
    }

    /// The parameters with their values, in the file's order.
    fn matrix(&mut self, file: &File) -> Matrix {
        let mut written: Vec<_> = file.matrix.iter().collect();
        written.sort_by_key(|(name, _)| name.span().start);
        let mut matrix = vec![];
        let mut cells = 1usize;
        for (name, values) in written {
            let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
            if name.get_ref().len() > 32 || !name.get_ref().bytes().all(plain) {
                let remedy = "name the parameter in up to 32 letters, digits, - and _";
                self.fault(name.span(), name.get_ref(), "is not a name", remedy);
            }
            let is_flows = name.get_ref() == FLOWS_OF_A_CELL && is_put_in(file.traffic.flows.as_ref());
            if name.get_ref() == DUT || !is_flows && OF_EVERY_CELL.contains(&name.get_ref().as_str()) {
                let remedy = "write it into [traffic], or a name into [[dut]]";
                self.fault(name.span(), name.get_ref(), "is what every measurement has, and no parameter", remedy);
            }
            let texts = self.texts(values);
            let different: BTreeSet<_> = texts.iter().collect();
            if different.len() != texts.len() {
                let all = self.written(values.span());
                self.fault(values.span(), &all, "has a value twice", "write each once");
            }
            cells = cells.saturating_mul(texts.len().max(1));
            if cells > MOST {
                let problem = format!("makes more than {MOST} cells");
                self.fault(name.span(), name.get_ref(), problem, "write fewer values");
                break;
            }
            matrix.push((name.get_ref().clone(), texts));
        }
        matrix
    }

    /// What every cell is offered.
    fn sent(&mut self, file: &File, folder: &Path, how: &How) -> Sent {
        let traffic = &file.traffic;
        if let Some(sent) = self.profile(traffic, folder, how) {
            return sent;
        }
        if let Some(captures) = self.captures(traffic, folder) {
            return captures;
        }
        let order = self.parsed(traffic.order.as_ref(), Order::default());
        let (text, span) = match &traffic.frames {
            Some(text) => (text.get_ref().as_str(), text.span()),
            None => (FRAMES, 0..0),
        };
        let remedy = "write sizes with FCS or mixes, such as \"64,512,imix\"";
        let mut frames = vec![];
        match crate::frames(text) {
            Ok(all) if (1..=MOST_OF_A_KIND).contains(&all.len()) => frames = all,
            Ok(_) => self.fault(span, text, "is no list of frames", remedy),
            Err((wrong, e)) => self.fault(span, &wrong, e.to_string(), remedy),
        }
        // a number that the matrix has is looked at in every cell
        let written = traffic.flows.as_ref().filter(|flows| !is_put_in(Some(flows)));
        let flows = written.and_then(|flows| self.flows(&plain(flows), flows.span())).unwrap_or(FLOWS);
        Sent::Made { frames, flows, order, shape: self.shape(traffic) }
    }

    /// A number of flows.
    fn flows(&mut self, text: &str, span: Range<usize>) -> Option<u32> {
        let flows = text.parse().ok().filter(|n| (1..=MAX_FLOWS).contains(n));
        if flows.is_none() {
            self.fault(span, text, "is no number of flows", format!("write 1 to {MAX_FLOWS}"));
        }
        flows
    }

    /// What made frames are beyond their sizes.
    fn shape(&mut self, traffic: &Traffic) -> Shape {
        let text = |text: &Option<Spanned<String>>| text.as_ref().map(|text| text.get_ref().clone());
        let (trace, stack, short) = (text(&traffic.trace), text(&traffic.stack), text(&traffic.short));
        // one that the matrix has is looked at in every cell
        let trace = trace.filter(|trace| !trace.contains("${"));
        let shape = Shape::parse(trace.as_deref(), stack.as_deref(), short.as_deref());
        let both_ways = traffic.both_ways.as_ref().is_some_and(|both| *both.get_ref());
        let shape = shape.map(|shape| Shape { both_ways, ..shape });
        shape.and_then(|shape| shape.checked(traffic.flows.is_some(), traffic.order.is_some())).unwrap_or_else(
            |(name, d)| {
                let written = [("trace", &traffic.trace), ("stack", &traffic.stack), ("short", &traffic.short)];
                let span = written.into_iter().find(|(known, _)| *known == name).and_then(|(_, text)| text.as_ref());
                let span = span.map(Spanned::span).or(traffic.both_ways.as_ref().map(Spanned::span)).unwrap_or(0..0);
                self.fault(span, d.value.as_deref().unwrap_or_default(), d.problem, d.remedy.unwrap_or_default());
                Shape::default()
            },
        )
    }

    fn native(&mut self, file: &File) -> Option<Native> {
        let native = file.native.as_ref()?;
        let pairs = native.pairs.as_ref().map_or(PAIRS.0, |p| *p.get_ref());
        if let Some(written) = native.pairs.as_ref().filter(|_| !(20..=PAIRS.1).contains(&pairs)) {
            let remedy = format!("write 20 to {}", PAIRS.1);
            self.fault(written.span(), &pairs.to_string(), "is no number of pairs", remedy);
        }
        if native.only.get_ref().is_empty() {
            self.fault(native.only.span(), "", "names no rows", "write part of a row's name, such as \"ttl\"");
        }
        Some(Native { only: native.only.get_ref().clone(), pairs })
    }

    fn published(&mut self, file: &File) -> Vec<Published> {
        let mut seen = BTreeSet::new();
        for (n, p) in file.published.iter().enumerate() {
            let (span, p) = (p.span(), p.get_ref());
            let id = p.id.get_ref();
            if n == MOST_OF_A_KIND {
                self.fault(span, id, "is one result too many", format!("write {MOST_OF_A_KIND} at most"));
                break;
            }
            if id.is_empty() || id.contains(['/', ' ']) || !seen.insert(id) {
                self.fault(p.id.span(), id, "is no id, or that of another result too", "write letters, digits and -");
            }
            let kinds = [p.value.is_some(), !p.values.is_empty(), p.statement.is_some(), p.image];
            // a statement may stand beside a number
            let numbers = kinds[0] || kinds[1];
            if kinds.iter().filter(|k| **k).count() != 1 && !(numbers && kinds[2] && !kinds[3] && kinds[0] != kinds[1])
            {
                let remedy = "write value = NUMBER or a list of them, or values = { NAME = NUMBER } and x = WHAT, and unit; or \
                            statement = TEXT; or image = true";
                self.fault(p.id.span(), id, "has to be one of numbers, a statement and an image", remedy);
            }
            if numbers != p.unit.is_some() {
                self.fault(p.id.span(), id, "has a number without a unit, or a unit without a number", "write both");
            }
            if p.values.is_empty() == p.x.is_some() {
                self.fault(p.id.span(), id, "has values without x, or x without values", "write both");
            }
            let wrong = p.value.iter().chain(p.values.values()).find(|v| numbers_of(v).is_none());
            if let Some(wrong) = wrong {
                let written = self.written(wrong.span());
                self.fault(wrong.span(), &written, "is no finite number", "write another");
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

    /// Whether a name is that of a file in the scenario's folder, and leads nowhere else.
    fn file_name(&mut self, name: &str, span: Range<usize>, folder: &Path, remedy: &str) -> Option<PathBuf> {
        if Path::new(name).file_name().is_none_or(|n| n.to_str() != Some(name)) {
            self.fault(span, name, "is no name of a file, without folders", remedy);
            return None;
        }
        let path = folder.join(name);
        if !path.is_file() {
            self.fault(span, name, format!("there is no file {}", path.display()), remedy);
            return None;
        }
        Some(path)
    }

    /// Puts parameters into one of the scenario's own texts.
    fn put_in(
        &mut self,
        text: &Spanned<String>,
        parameters: &BTreeMap<String, String>,
        used: &mut BTreeSet<String>,
    ) -> Option<String> {
        match cells::substitute(text.get_ref(), parameters, used) {
            Ok(text) => Some(text),
            Err(NoParameter { written, .. }) => {
                self.fault(text.span(), written, "is no parameter", cells::parameters_cure(parameters));
                None
            }
        }
    }

    fn cells(&mut self, file: &File, folder: &Path, matrix: &Matrix, sent: &Sent, how: &How) -> Vec<Cell> {
        if !self.faults.is_empty() {
            // what the matrix lacks would be missed again in every cell
            return vec![];
        }
        let mut used = BTreeSet::new();
        let mut all = vec![];
        if !self.names(&file.dut.0) {
            return all;
        }
        for device in &file.dut.0 {
            for parameters in cells::combinations(matrix) {
                all.extend(self.cell(file, device, folder, parameters, (sent, how), &mut used));
                if !self.faults.is_empty() || !self.others.is_empty() {
                    return all;
                }
            }
        }
        // an NF that is not here has no chain file to put anything into
        let whole = !all.iter().any(|c| matches!(c.dut, Dut::Absent(_)));
        for (name, _) in file.matrix.iter().filter(|(name, _)| whole && !used.contains(name.get_ref())) {
            let problem = "is put in nowhere: all its cells would be alike";
            let remedy = format!(
                "write ${{{}}} in the chain file, in [dut], as trace or flows in [traffic], as rate in [goal]",
                name.get_ref()
            );
            self.fault(name.span(), name.get_ref(), problem, remedy);
        }
        all
    }

    fn cell(
        &mut self,
        file: &File,
        device: &super::file::Dut,
        folder: &Path,
        mut parameters: BTreeMap<String, String>,
        (sent, how): (&Sent, &How),
        used: &mut BTreeSet<String>,
    ) -> Option<Cell> {
        let (mut sent, mut how) = (sent.clone(), how.clone());
        if let Some(written) = file.traffic.trace.as_ref().filter(|trace| trace.get_ref().contains("${"))
            && let Sent::Made { shape, .. } = &mut sent
        {
            let name = self.put_in(written, &parameters, used)?;
            match name.parse() {
                Ok(trace) => shape.trace = Some(trace),
                Err(e) => self.fault(written.span(), &name, e.to_string(), "write names of traces in [matrix]"),
            }
        }
        if let Some(written) = file.traffic.flows.as_ref().filter(|flows| is_put_in(Some(flows)))
            && let Sent::Made { flows, .. } = &mut sent
        {
            let span = written.span();
            let text = self.put_in(&Spanned::new(span.clone(), plain(written)), &parameters, used)?;
            *flows = self.flows(&text, span)?;
        }
        if let Some(written) = file.goal.rate.as_ref().filter(|rate| is_put_in(Some(rate))) {
            let span = written.span();
            let text = self.put_in(&Spanned::new(span.clone(), plain(written)), &parameters, used)?;
            how.rate_pps = Some(self.rate(&text, span, &how.goal)?);
        }
        let clock_mhz = match &device.clock_mhz {
            None => None,
            Some(written) => {
                let span = written.span();
                let text = self.put_in(&Spanned::new(span.clone(), plain(written)), &parameters, used)?;
                let mhz = text.parse().ok().filter(|mhz| CLOCKS_MHZ.contains(mhz));
                if mhz.is_none() {
                    let remedy = format!("write {} to {}", CLOCKS_MHZ.start(), CLOCKS_MHZ.end());
                    self.fault(span, &text, "is no clock in MHz", remedy);
                }
                mhz
            }
        };
        let sent = &sent;
        let generator = self.generator(file, &parameters, sent, &how, used)?;
        let dut = self.dut(device, folder, &parameters, sent, used)?;
        if let Some(written) = &device.clock_mhz
            && !matches!(&dut, Dut::Chain(_) | Dut::Absent(_))
            && !matches!(&dut, Dut::Rig(rig) if rig.0.elsewhere.is_none() && rig.0.kind != Kind::External)
        {
            let remedy = "remove it, or measure a chain or a program on this machine";
            self.fault(written.span(), &plain(written), "is the clock of CPUs that this program does not have", remedy);
        }
        if generator != Generator::Bondstone && !matches!(dut, Dut::Rig(_) | Dut::Absent(_)) {
            let kind = file.generator.kind.as_ref();
            let remedy = "give the device ports of its own: kind = \"bondstone\" in [dut], or another kind";
            self.fault(kind.map_or(0..0, Spanned::span), generator.name(), "sends into other programs only", remedy);
        }
        if let Some(name) = &device.name {
            parameters.insert(DUT.to_owned(), name.get_ref().clone());
        }
        Some(Cell { parameters, dut, sent: sent.clone(), how, generator, clock_mhz })
    }
}

/// A finite number, or those of a list.
fn numbers_of(value: &Any) -> Option<Vec<f64>> {
    let number = |v: &Value| v.as_float().or(v.as_integer().map(|n| n as f64)).filter(|n| n.is_finite());
    match value.get_ref() {
        Value::Array(all) if (1..=MOST_OF_A_KIND).contains(&all.len()) => all.iter().map(number).collect(),
        one => Some(vec![number(one)?]),
    }
}

/// The numbers of a published result with their names.
fn values(p: &super::file::Published) -> Vec<(String, f64)> {
    let mut all = vec![];
    match p.value.as_ref().map(|v| numbers_of(v).unwrap_or_default()).unwrap_or_default()[..] {
        [one] => all.push((String::new(), one)),
        ref many => all.extend(many.iter().enumerate().map(|(n, v)| (n.to_string(), *v))),
    }
    for (name, value) in p.values.iter().take(MOST_OF_A_KIND) {
        all.extend(numbers_of(value).into_iter().flatten().map(|v| (name.get_ref().clone(), v)));
    }
    all
}

/// What of traffic and goal the matrix changes.
fn changed(file: &File) -> Vec<&'static str> {
    let trace = file.traffic.trace.as_ref().is_some_and(|trace| trace.get_ref().contains("${"));
    let is = [
        ("flows", is_put_in(file.traffic.flows.as_ref())),
        ("rate", is_put_in(file.goal.rate.as_ref())),
        ("trace", trace),
    ];
    is.into_iter().filter(|(_, is)| *is).map(|(name, _)| name).collect()
}

/// Whether a value is put in by the matrix.
fn is_put_in(value: Option<&Any>) -> bool {
    value.is_some_and(|value| value.get_ref().as_str().is_some_and(|text| text.contains("${")))
}

/// A value as a text.
fn plain(value: &Any) -> String {
    match value.get_ref() {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Whether a chain's `[traffic]` makes the flows and frames that it is to be offered.
fn sendable(chain: &ChainFile, sent: &Sent) -> Result<(), Diagnostic> {
    match sent {
        Sent::Made { .. } | Sent::Profile(_) => {
            let ready = crate::wired::entries(chain, sent.is_both_ways())
                .and_then(|_| sent.ready(chain, &AtomicBool::new(false)))
                .map(drop);
            ready.map_err(|d| Diagnostic { file: d.file.or(Some(chain.file.clone())), ..d })
        }
        // they were looked at once for all
        Sent::Capture(_) => {
            let ready =
                crate::wired::entries(chain, sent.is_both_ways()).and_then(|_| crate::offer::macs(chain)).map(drop);
            ready.map_err(|d| Diagnostic { file: d.file.or(Some(chain.file.clone())), ..d })
        }
    }
}

#[cfg(test)]
mod tests;
