//! Import of a test case of FD.io CSIT: JSON of its unified test interface (UTI), model 1.x.

use super::{invalid, truncate};
use crate::Error;
use report::{
    Dut, Environment, Frames, Goal, Histogram, Latency, LimitedBy, Method, Mix, MixPart, NfInstance, Port, Quantity,
    Result, Summary, Tool, Traffic, Version, hdr, limit,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// IMIX as sent by CSIT: bytes with FCS, weight.
const IMIX: [(u16, u32); 3] = [(64, 28), (570, 16), (1518, 4)];
/// Rate of the latency streams at the lowest load, packets per second and direction.
const MIN_LATENCY_PPS: f64 = 9000.0;
/// Directions of a packet test whose file does not show them: the default of CSIT's tests.
const DEFAULT_DIRECTIONS: u8 = 2;
/// Maximum size of a file, bytes; test cases are far smaller.
const MAX_BYTES: usize = 64 << 20;

/// A value with its path in the file, for messages.
#[derive(Clone)]
struct Member<'a> {
    file: &'a Path,
    path: String,
    value: &'a Value,
}

impl<'a> Member<'a> {
    fn optional(&self, name: &str) -> Option<Member<'a>> {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        self.value.get(name).map(|value| Member { file: self.file, path, value })
    }

    fn get(&self, name: &str) -> std::result::Result<Member<'a>, Error> {
        self.optional(name).ok_or_else(|| self.invalid(&format!("missing member `{name}`")))
    }

    fn invalid(&self, problem: &str) -> Error {
        invalid(self.file, &self.path, problem)
    }

    fn text(&self) -> std::result::Result<&'a str, Error> {
        self.value.as_str().ok_or_else(|| self.invalid("not a string"))
    }

    fn number(&self) -> std::result::Result<f64, Error> {
        let number = self.value.as_f64().filter(|x| x.is_finite() && *x >= 0.0);
        number.ok_or_else(|| {
            self.invalid(&format!("{}: not a number of at least 0", truncate(&self.value.to_string(), 40)))
        })
    }

    fn list(&self) -> std::result::Result<&'a [Value], Error> {
        self.value.as_array().map(Vec::as_slice).ok_or_else(|| self.invalid("not a list"))
    }
}

/// The common part of all results of a file.
struct Case {
    base: Result,
    /// Number of directions.
    directions: u8,
}

impl Case {
    /// Converts an aggregate rate to the rate of one direction.
    fn per_direction(&self, aggregate: f64) -> f64 {
        aggregate / f64::from(self.directions)
    }
}

/// Reads the results of a test case: two for a search of NDR and PDR, else one.
pub(super) fn read(file: &Path, text: &str) -> std::result::Result<Vec<Result>, Error> {
    if text.len() > MAX_BYTES {
        return Err(invalid(file, "", &format!("more than {} MiB", MAX_BYTES >> 20)));
    }
    let value: Value = serde_json::from_str(text).map_err(|e| invalid(file, "", &e.to_string()))?;
    let root = Member { file, path: String::new(), value: &value };
    let version = root.get("version")?;
    if !version.text()?.starts_with("1.") {
        return Err(version.invalid(&format!(
            "{}: unsupported version; version 1 of the model is supported",
            truncate(version.text()?, 40)
        )));
    }
    let result = root.get("result")?;
    let test_type = result.get("type")?;
    let case = case(&root)?;
    match test_type.text()? {
        "ndrpdr" => {
            let bounds = [("ndr", 0.0), ("pdr", 0.005)].map(|(name, loss)| search(&case, &result, name, loss));
            bounds.into_iter().collect()
        }
        "soak" => search(&case, &result, "critical_rate", 1e-7).map(|r| vec![r]),
        "mrr" => receive_rate(&case, &result.get("receive_rate")?).map(|r| vec![r]),
        "reconf" => reconfiguration(&case, &result).map(|r| vec![r]),
        "hoststack" => connections(&case, &result).map(|r| vec![r]),
        other => Err(test_type.invalid(&format!(
            "unsupported type `{}`; supported: ndrpdr, mrr, soak, reconf and hoststack",
            truncate(other, 40)
        ))),
    }
}

fn case(root: &Member<'_>) -> std::result::Result<Case, Error> {
    let text = |name: &str| root.get(name).and_then(|at| at.text().map(|text| truncate(text, limit::NAME)));
    let (long, short) = (text("test_name_long")?, text("test_name_short")?);
    // {nic}-{frame size}-{threads and cores}-{suite}
    let mut parts = long.splitn(4, '-');
    let (nic, size, threads) = (parts.next(), parts.next(), parts.next());
    let frames = size.and_then(frames).ok_or_else(|| {
        let path = root.optional("test_name_long").map_or(String::new(), |at| at.path);
        invalid(root.file, &path, &format!("{long}: no frame size in the second part, as in nic-64b-2t1c-suite"))
    })?;
    let hosts = root.get("hosts")?.list()?.len();
    let telemetry = root.optional("telemetry").map_or(Ok(0), |at| at.list().map(<[Value]>::len))?;
    let result = root.get("result")?;
    let sends_packets = result.get("type")?.text()? != "hoststack";
    let is_assumed =
        sends_packets && result.optional("latency_forward").or(result.optional("latency_reverse")).is_none();
    let directions = match result.optional("latency_reverse") {
        Some(_) => 2,
        None if is_assumed => DEFAULT_DIRECTIONS,
        None => 1,
    };

    let mut deviations = vec![
        "imported from CSIT: no raw trials; trial durations, their sum, exceed ratio, flows and burst are not in the \
         file and set to 0; what limited the rate is not recorded"
            .to_owned(),
        "CPU, kernel, memory and calibration are not in the file; host addresses are left out".to_owned(),
    ];
    if is_assumed {
        deviations.push(
            "the number of directions is not in the file: rates are halved, as CSIT's tests send in both directions \
             by default"
                .to_owned(),
        );
    }
    if telemetry > 0 {
        deviations.push(format!("{telemetry} telemetry entries are left out"));
    }
    if root.optional("passed").and_then(|at| at.value.as_bool()) == Some(false) {
        let message = root.optional("message").and_then(|at| at.value.as_str()).unwrap_or_default();
        deviations.push(truncate(&format!("the test failed in CSIT: {message}"), limit::TEXT));
    }
    let mut cell = BTreeMap::new();
    for (name, value) in [("nic", nic), ("threads", threads)] {
        cell.extend(value.map(|value| (name.to_owned(), value.to_owned())));
    }
    let extra = [
        ("traffic generator", truncate(&format!("{} {}", text("tg_type")?, text("tg_version")?), limit::NAME)),
        ("hosts", hosts.to_string()),
        ("test", text("test_id")?),
        ("end", text("end_time")?),
    ];
    let protocol =
        short.split('-').find(|part| part.contains("eth") || part.starts_with("dot1")).unwrap_or("not recorded");
    let base = Result {
        schema: Version::V2,
        id: String::new(),
        tool: Tool { name: "csit".to_owned(), version: format!("UTI {}", text("version")?), command: None },
        study: truncate(&format!("csit/{short}"), limit::NAME),
        cell,
        method: Method::default(),
        dut: Dut {
            kind: text("dut_type")?.to_lowercase(),
            version: Some(text("dut_version")?),
            nfs: vec![NfInstance { name: short.clone(), kind: short.clone() }],
            ports: nic
                .map(|nic| Port { name: "nic".to_owned(), device: nic.to_owned(), driver: None })
                .into_iter()
                .collect(),
            ..Dut::default()
        },
        traffic: Traffic {
            frames,
            flows: 0,
            protocol: protocol.to_owned(),
            burst: 0,
            directions,
            trace_sha256: None,
            reverse_trace_sha256: None,
            vary: vec![],
            tcp: None,
            profile: None,
            seed: None,
        },
        goal: Goal { search: "CSIT's search".to_owned(), ..Goal::default() },
        environment: Environment {
            date: text("start_time")?,
            cpu: "not recorded".to_owned(),
            kernel: "not recorded".to_owned(),
            memory: "not recorded".to_owned(),
            extra: extra.map(|(name, value)| (name.to_owned(), value)).into(),
            ..Environment::default()
        },
        calibration: None,
        limited_by: LimitedBy::Dut,
        deviations,
        trials: vec![],
        summary: Summary::default(),
        latency: vec![],
        anatomy: vec![],
        quantities: vec![],
        series: vec![],
        streams: vec![],
        nodes: vec![],
    };
    Ok(Case { base, directions })
}

fn frames(size: &str) -> Option<Frames> {
    if size.eq_ignore_ascii_case("imix") {
        let parts = IMIX.map(|(frame_bytes, weight)| MixPart { frame_bytes, weight });
        return Some(Frames::Mix(Mix { name: "IMIX".to_owned(), parts: parts.to_vec() }));
    }
    let bytes = size.strip_suffix(['b', 'B'])?.parse().ok()?;
    (bytes > 0).then_some(Frames::FrameBytes(bytes))
}

/// Reads a rate and its unit.
fn rate(at: &Member<'_>) -> std::result::Result<(f64, String), Error> {
    let rate = at.get("rate")?;
    Ok((rate.get("value")?.number()?, truncate(rate.get("unit")?.text()?, limit::NAME)))
}

/// Reads the bounds of a search.
fn search(case: &Case, result: &Member<'_>, name: &str, loss: f64) -> std::result::Result<Result, Error> {
    let bounds = result.get(name)?;
    let (lower_at, upper_at) = (bounds.get("lower")?, bounds.get("upper")?);
    let ((lower, unit), (upper, _)) = (rate(&lower_at)?, rate(&upper_at)?);
    let mut r = case.base.clone();
    r.goal.loss_ratio = loss;
    r.goal.name = Some(if name == "critical_rate" { "critical rate" } else { name }.to_owned());
    if name == "critical_rate" {
        r.method.name = "soak".to_owned();
        r.deviations
            .push("the bounds are a Bayesian estimate for a loss ratio of 1e-7, not loads of trials".to_owned());
    }
    for (at, which) in [(&lower_at, "lower"), (&upper_at, "upper")] {
        if let Some(bandwidth) = at.optional("bandwidth") {
            let value = case.per_direction(bandwidth.get("value")?.number()?);
            r.quantities.push(Quantity::new(&format!("{which} bandwidth"), "bps", value));
        }
    }
    if unit != "pps" {
        // connections or requests, not packets
        r.method.name = "connections".to_owned();
        r.quantities.push(Quantity::new("lower bound", &unit, lower));
        r.quantities.push(Quantity::new("upper bound", &unit, upper));
        return Ok(r);
    }
    if upper < lower {
        return Err(upper_at.invalid(&format!("{upper}: below the lower bound {lower}")));
    }
    let (lower, upper) = (case.per_direction(lower), case.per_direction(upper));
    r.goal.width = if upper > 0.0 { (upper - lower) / upper } else { 0.0 };
    r.summary = Summary { lower_pps: lower, upper_pps: Some(upper), conditional_pps: None };
    // loads of the latency are shares of the PDR
    if name == "pdr" {
        latencies(result, &mut r)?;
    }
    Ok(r)
}

/// Reads the latency at each load, both directions together.
fn latencies(result: &Member<'_>, r: &mut Result) -> std::result::Result<(), Error> {
    for (name, share) in [("pdr_0", None), ("pdr_10", Some(0.1)), ("pdr_50", Some(0.5)), ("pdr_90", Some(0.9))] {
        let mut all: Option<Histogram<u64>> = None;
        let mut max_ns: f64 = 0.0;
        for direction in ["latency_forward", "latency_reverse"] {
            let Some(at) = result.optional(direction).and_then(|at| at.optional(name)) else { continue };
            let unit = at.get("unit")?;
            if unit.text()? != "us" {
                return Err(unit.invalid(&format!("{}: not us", truncate(unit.text()?, 20))));
            }
            max_ns = max_ns.max(at.get("max")?.number()? * 1e3);
            let h = histogram(&at.get("hdrh")?)?;
            match &mut all {
                Some(all) => all.add(&h).map_err(|e| at.invalid(&e.to_string()))?,
                None => all = Some(h),
            }
        }
        let Some(h) = all.filter(|h| !h.is_empty()) else { continue };
        // bins are wider than a microsecond; the maximum is exact
        let max_ns = if max_ns > 0.0 { max_ns } else { h.max() as f64 };
        let at = |q: f64| (h.value_at_quantile(q) as f64).min(max_ns);
        r.latency.push(Latency {
            load_pps: share.map_or(MIN_LATENCY_PPS, |share| (r.summary.lower_pps * share).max(MIN_LATENCY_PPS)),
            share_of_throughput: share,
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns,
            samples: h.len(),
            lost: 0,
            host_interference: false,
            latency_hdr: hdr::encode(&h).ok(),
            vnfs: vec![],
        });
    }
    if !r.latency.is_empty() {
        r.deviations.push("latency of probe packets, in whole microseconds; lost probes are not recorded".to_owned());
    }
    Ok(())
}

/// Converts a histogram from microseconds to nanoseconds.
fn histogram(at: &Member<'_>) -> std::result::Result<Histogram<u64>, Error> {
    let mut text = at.text()?.trim().trim_end_matches('=').to_owned();
    // some lack the padding
    while text.len() % 4 != 0 {
        text.push('=');
    }
    let us = hdr::decode(&text).map_err(|e| at.invalid(&e.to_string()))?;
    let mut ns = Histogram::<u64>::new(3).map_err(|e| at.invalid(&e.to_string()))?;
    for bucket in us.iter_recorded() {
        let value = bucket.value_iterated_to().saturating_mul(1000).min(limit::COUNT);
        ns.record_n(value, bucket.count_at_value()).map_err(|e| at.invalid(&e.to_string()))?;
    }
    Ok(ns)
}

/// Reads a maximum receive rate: one load, several short trials.
fn receive_rate(case: &Case, at: &Member<'_>) -> std::result::Result<Result, Error> {
    let rate = at.get("rate")?;
    let list = rate.get("values")?;
    if list.list()?.is_empty() || list.list()?.len() > limit::TRIALS {
        return Err(list.invalid(&format!("{} values; 1 to {} are supported", list.list()?.len(), limit::TRIALS)));
    }
    let values: std::result::Result<Vec<f64>, Error> = (0..)
        .zip(list.list()?)
        .map(|(n, value): (usize, _)| Member { file: at.file, path: format!("{}[{n}]", list.path), value }.number())
        .collect();
    let values: Vec<f64> = values?.into_iter().map(|v| case.per_direction(v)).collect();
    let mut r = case.base.clone();
    r.method.name = "receive-rate".to_owned();
    r.goal.loss_ratio = 1.0;
    r.limited_by = LimitedBy::MaxLoad;
    let unit = rate.get("unit")?;
    r.quantities.extend(Quantity::mean("receive rate", unit.text()?, &values));
    r.deviations.push("rates of received frames at line rate, regardless of loss".to_owned());
    Ok(r)
}

/// Reads the loss during a reconfiguration of the DUT.
fn reconfiguration(case: &Case, result: &Member<'_>) -> std::result::Result<Result, Error> {
    let loss = result.get("loss")?;
    let (load, unit) = rate(&result.get("aggregate_rate")?)?;
    let mut r = case.base.clone();
    r.method.name = "changes".to_owned();
    let of = |name: &str| loss.get(name).and_then(|at| at.get("value")).and_then(|at| at.number());
    r.quantities = vec![
        Quantity::new("lost while changed", "frames", of("packet")?),
        Quantity::new("time lost while changed", "s", of("time")?),
        Quantity::new("load", &unit, case.per_direction(load)),
    ];
    Ok(r)
}

/// Reads the metrics of connections of a host stack.
fn connections(case: &Case, result: &Member<'_>) -> std::result::Result<Result, Error> {
    let mut r = case.base.clone();
    r.method.name = "connections".to_owned();
    for (member, name) in [
        ("bandwidth", "goodput"),
        ("rate", "rate"),
        ("latency", "latency"),
        ("completed_requests", "completed requests"),
        ("failed_requests", "failed requests"),
        ("retransmits", "retransmits"),
        ("duration", "duration"),
    ] {
        let Some(at) = result.optional(member) else { continue };
        let (value, unit) = (at.get("value")?.number()?, at.get("unit")?);
        r.quantities.push(Quantity::new(name, unit.text()?, value));
    }
    if result.optional("bandwidth").is_none() {
        return Err(result.invalid("missing member `bandwidth`"));
    }
    Ok(r)
}
