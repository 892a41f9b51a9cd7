//! A test case of FD.io CSIT: JSON of its unified test interface (UTI), model 1.x.

use super::{cut, wrong};
use crate::Error;
use report::{
    Dut, Environment, Frames, Goal, Histogram, Latency, LimitedBy, Method, Mix, MixPart, NfUse, Port, Quantity, Result,
    Summary, Tool, Traffic, Version, hdr, limit,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// The parts of IMIX as CSIT sends it: bytes with FCS, weight.
const IMIX: [(u16, u32); 3] = [(64, 28), (570, 16), (1518, 4)];
/// Packets a second in each direction of the latency streams at the lowest load.
const LEAST_PPS: f64 = 9000.0;
/// Largest file, members of a file: what a test case has is far below.
const MOST_BYTES: usize = 64 << 20;

/// A value with its place in the file, for messages.
#[derive(Clone)]
struct At<'a> {
    file: &'a Path,
    place: String,
    value: &'a Value,
}

impl<'a> At<'a> {
    fn maybe(&self, name: &str) -> Option<At<'a>> {
        let place = if self.place.is_empty() { name.to_owned() } else { format!("{}.{name}", self.place) };
        self.value.get(name).map(|value| At { file: self.file, place, value })
    }

    fn get(&self, name: &str) -> std::result::Result<At<'a>, Error> {
        self.maybe(name).ok_or_else(|| self.wrong(&format!("no member `{name}`, which the model asks for")))
    }

    fn wrong(&self, problem: &str) -> Error {
        wrong(self.file, &self.place, problem)
    }

    fn text(&self) -> std::result::Result<&'a str, Error> {
        self.value.as_str().ok_or_else(|| self.wrong("not a text"))
    }

    fn number(&self) -> std::result::Result<f64, Error> {
        let number = self.value.as_f64().filter(|x| x.is_finite() && *x >= 0.0);
        number.ok_or_else(|| self.wrong(&format!("{}: not a number of at least 0", cut(&self.value.to_string(), 40))))
    }

    fn list(&self) -> std::result::Result<&'a [Value], Error> {
        self.value.as_array().map(Vec::as_slice).ok_or_else(|| self.wrong("not a list"))
    }
}

/// What a file says of its test, once for all results in it.
struct Case {
    base: Result,
    /// Directions, where the file shows them.
    directions: Option<u8>,
}

impl Case {
    /// A rate of one direction from one of both.
    fn one_way(&self, aggregate: f64) -> f64 {
        aggregate / f64::from(self.directions.unwrap_or(1))
    }
}

/// The results of a test case: two for a search of NDR and PDR, else one.
pub(super) fn read(file: &Path, text: &str) -> std::result::Result<Vec<Result>, Error> {
    if text.len() > MOST_BYTES {
        return Err(wrong(file, "", &format!("more than {} MiB; a test case is smaller", MOST_BYTES >> 20)));
    }
    let value: Value = serde_json::from_str(text).map_err(|e| wrong(file, "", &e.to_string()))?;
    let root = At { file, place: String::new(), value: &value };
    let version = root.get("version")?;
    if !version.text()?.starts_with("1.") {
        return Err(
            version.wrong(&format!("{}: not a model of version 1, which is read here", cut(version.text()?, 40)))
        );
    }
    let result = root.get("result")?;
    let kind = result.get("type")?;
    let case = case(&root)?;
    match kind.text()? {
        "ndrpdr" => {
            let found = [("ndr", 0.0), ("pdr", 0.005)].map(|(name, loss)| search(&case, &result, name, loss));
            found.into_iter().collect()
        }
        "soak" => search(&case, &result, "critical_rate", 1e-7).map(|r| vec![r]),
        "mrr" => receive_rate(&case, &result.get("receive_rate")?).map(|r| vec![r]),
        "reconf" => reconfiguration(&case, &result).map(|r| vec![r]),
        "hoststack" => connections(&case, &result).map(|r| vec![r]),
        other => Err(kind.wrong(&format!(
            "`{}` holds no measurement; those of ndrpdr, mrr, soak, reconf and hoststack do",
            cut(other, 40)
        ))),
    }
}

fn case(root: &At<'_>) -> std::result::Result<Case, Error> {
    let text = |name: &str| root.get(name).and_then(|at| at.text().map(|text| cut(text, limit::NAME)));
    let (long, short) = (text("test_name_long")?, text("test_name_short")?);
    // {nic}-{frame size}-{threads and cores}-{suite}
    let mut parts = long.splitn(4, '-');
    let (nic, size, threads) = (parts.next(), parts.next(), parts.next());
    let frames = size.and_then(frames).ok_or_else(|| {
        let place = root.maybe("test_name_long").map_or(String::new(), |at| at.place);
        wrong(root.file, &place, &format!("{long}: no frame size in its second part, as in nic-64b-2t1c-suite"))
    })?;
    let hosts = root.get("hosts")?.list()?.len();
    let telemetry = root.maybe("telemetry").map_or(Ok(0), |at| at.list().map(<[Value]>::len))?;
    let result = root.get("result")?;
    let directions = match (result.maybe("latency_forward"), result.maybe("latency_reverse")) {
        (_, Some(_)) => Some(2),
        (Some(_), None) => Some(1),
        (None, None) => None,
    };

    let mut deviations = vec![
        "imported from CSIT: no raw trials; trial durations, their sum, the exceed ratio, flows and burst are not in the file \
         and stand as 0; what limited the rate is not told"
            .to_owned(),
        "the file tells neither CPU, kernel, memory nor calibration; host addresses are left out".to_owned(),
    ];
    if directions.is_none() {
        deviations.push(
            "the file does not show how many directions there were: rates are the sum of all, as CSIT has them"
                .to_owned(),
        );
    }
    if telemetry > 0 {
        deviations.push(format!("{telemetry} entries of telemetry are left out"));
    }
    if root.maybe("passed").and_then(|at| at.value.as_bool()) == Some(false) {
        let message = root.maybe("message").and_then(|at| at.value.as_str()).unwrap_or_default();
        deviations.push(cut(&format!("CSIT says that the test failed: {message}"), limit::TEXT));
    }
    let mut cell = BTreeMap::new();
    for (name, value) in [("nic", nic), ("threads", threads)] {
        cell.extend(value.map(|value| (name.to_owned(), value.to_owned())));
    }
    let more = [
        ("traffic generator", cut(&format!("{} {}", text("tg_type")?, text("tg_version")?), limit::NAME)),
        ("hosts", hosts.to_string()),
        ("test", text("test_id")?),
        ("end", text("end_time")?),
    ];
    let protocol = short.split('-').find(|part| part.contains("eth") || part.starts_with("dot1")).unwrap_or("not told");
    let base = Result {
        schema: Version::V1,
        id: String::new(),
        tool: Tool { name: "csit".to_owned(), version: format!("UTI {}", text("version")?), command: None },
        study: cut(&format!("csit/{short}"), limit::NAME),
        cell,
        method: Method::default(),
        dut: Dut {
            kind: text("dut_type")?.to_lowercase(),
            version: Some(text("dut_version")?),
            nfs: vec![NfUse { name: short.clone(), kind: short.clone() }],
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
            directions: directions.unwrap_or(1),
            trace_sha256: None,
            back_sha256: None,
            profile: None,
            seed: None,
        },
        goal: Goal { method: "CSIT's search".to_owned(), ..Goal::default() },
        environment: Environment {
            date: text("start_time")?,
            cpu: "not told".to_owned(),
            kernel: "not told".to_owned(),
            memory: "not told".to_owned(),
            more: more.map(|(name, value)| (name.to_owned(), value)).into(),
            ..Environment::default()
        },
        calibration: None,
        limited_by: LimitedBy::Dut,
        deviations,
        trials: vec![],
        summary: Summary::default(),
        latency: vec![],
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

/// A rate and its unit.
fn rate(at: &At<'_>) -> std::result::Result<(f64, String), Error> {
    let rate = at.get("rate")?;
    Ok((rate.get("value")?.number()?, cut(rate.get("unit")?.text()?, limit::NAME)))
}

/// The bounds of a search.
fn search(case: &Case, result: &At<'_>, name: &str, loss: f64) -> std::result::Result<Result, Error> {
    let bounds = result.get(name)?;
    let (lower_at, upper_at) = (bounds.get("lower")?, bounds.get("upper")?);
    let ((lower, unit), (upper, _)) = (rate(&lower_at)?, rate(&upper_at)?);
    let mut r = case.base.clone();
    r.goal.loss_ratio = loss;
    r.goal.name = Some(if name == "critical_rate" { "critical rate" } else { name }.to_owned());
    if name == "critical_rate" {
        r.method.name = "soak".to_owned();
        r.deviations.push("the bounds are a Bayesian estimate for a loss ratio of 1e-7, no loads of trials".to_owned());
    }
    for (at, which) in [(&lower_at, "lower"), (&upper_at, "upper")] {
        if let Some(bandwidth) = at.maybe("bandwidth") {
            let value = case.one_way(bandwidth.get("value")?.number()?);
            r.quantities.push(Quantity::new(&format!("{which} bandwidth"), "bps", value));
        }
    }
    if unit != "pps" {
        // connections or requests: no packets
        r.method.name = "connections".to_owned();
        r.quantities.push(Quantity::new("lower bound", &unit, lower));
        r.quantities.push(Quantity::new("upper bound", &unit, upper));
        return Ok(r);
    }
    if upper < lower {
        return Err(upper_at.wrong(&format!("{upper}: below the lower bound, {lower}")));
    }
    let (lower, upper) = (case.one_way(lower), case.one_way(upper));
    r.goal.width = if upper > 0.0 { (upper - lower) / upper } else { 0.0 };
    r.summary = Summary { lower_pps: lower, upper_pps: Some(upper), conditional_pps: None };
    // loads of the latency are shares of the PDR
    if name == "pdr" {
        latencies(case, result, &mut r)?;
    }
    Ok(r)
}

/// Latency at the loads at which CSIT measures it, both directions together.
fn latencies(case: &Case, result: &At<'_>, r: &mut Result) -> std::result::Result<(), Error> {
    let _ = case;
    for (name, share) in [("pdr_0", None), ("pdr_10", Some(0.1)), ("pdr_50", Some(0.5)), ("pdr_90", Some(0.9))] {
        let mut all: Option<Histogram<u64>> = None;
        let mut max_ns: f64 = 0.0;
        for direction in ["latency_forward", "latency_reverse"] {
            let Some(at) = result.maybe(direction).and_then(|at| at.maybe(name)) else { continue };
            let unit = at.get("unit")?;
            if unit.text()? != "us" {
                return Err(unit.wrong(&format!("{}: not us", cut(unit.text()?, 20))));
            }
            max_ns = max_ns.max(at.get("max")?.number()? * 1e3);
            let h = histogram(&at.get("hdrh")?)?;
            match &mut all {
                Some(all) => all.add(&h).map_err(|e| at.wrong(&e.to_string()))?,
                None => all = Some(h),
            }
        }
        let Some(h) = all.filter(|h| !h.is_empty()) else { continue };
        // bins are wider than a microsecond; the largest is told exactly
        let max_ns = if max_ns > 0.0 { max_ns } else { h.max() as f64 };
        let at = |q: f64| (h.value_at_quantile(q) as f64).min(max_ns);
        r.latency.push(Latency {
            load_pps: share.map_or(LEAST_PPS, |share| (r.summary.lower_pps * share).max(LEAST_PPS)),
            share_of_throughput: share,
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns,
            samples: h.len(),
            lost: 0,
            machine: false,
            latency_hdr: hdr::encode(&h).ok(),
        });
    }
    if !r.latency.is_empty() {
        r.deviations
            .push("latency is of probe packets, in whole microseconds; probes that were lost are not told".to_owned());
    }
    Ok(())
}

/// A histogram of microseconds, in nanoseconds.
fn histogram(at: &At<'_>) -> std::result::Result<Histogram<u64>, Error> {
    let mut text = at.text()?.trim().trim_end_matches('=').to_owned();
    // some are without their padding
    while text.len() % 4 != 0 {
        text.push('=');
    }
    let us = hdr::decode(&text).map_err(|e| at.wrong(&e.to_string()))?;
    let mut ns = Histogram::<u64>::new(3).map_err(|e| at.wrong(&e.to_string()))?;
    for bucket in us.iter_recorded() {
        let value = bucket.value_iterated_to().saturating_mul(1000).min(limit::COUNT);
        ns.record_n(value, bucket.count_at_value()).map_err(|e| at.wrong(&e.to_string()))?;
    }
    Ok(ns)
}

/// Maximum receive rate: one load, several short trials.
fn receive_rate(case: &Case, at: &At<'_>) -> std::result::Result<Result, Error> {
    let rate = at.get("rate")?;
    let list = rate.get("values")?;
    if list.list()?.is_empty() || list.list()?.len() > limit::TRIALS {
        return Err(list.wrong(&format!("{} values; 1 to {} are read", list.list()?.len(), limit::TRIALS)));
    }
    let values: std::result::Result<Vec<f64>, Error> = (0..)
        .zip(list.list()?)
        .map(|(n, value): (usize, _)| At { file: at.file, place: format!("{}[{n}]", list.place), value }.number())
        .collect();
    let values: Vec<f64> = values?.into_iter().map(|v| case.one_way(v)).collect();
    let mut r = case.base.clone();
    r.method.name = "receive-rate".to_owned();
    r.goal.loss_ratio = 1.0;
    r.limited_by = LimitedBy::Load;
    let unit = rate.get("unit")?;
    r.quantities.extend(Quantity::mean("receive rate", unit.text()?, &values));
    r.deviations
        .push("rates are of frames received while the load was the highest of the link, whatever was lost".to_owned());
    Ok(r)
}

/// What was lost while the DUT was changed.
fn reconfiguration(case: &Case, result: &At<'_>) -> std::result::Result<Result, Error> {
    let loss = result.get("loss")?;
    let (load, unit) = rate(&result.get("aggregate_rate")?)?;
    let mut r = case.base.clone();
    r.method.name = "changes".to_owned();
    let of = |name: &str| loss.get(name).and_then(|at| at.get("value")).and_then(|at| at.number());
    r.quantities = vec![
        Quantity::new("lost while changed", "frames", of("packet")?),
        Quantity::new("time lost while changed", "s", of("time")?),
        Quantity::new("load", &unit, case.one_way(load)),
    ];
    Ok(r)
}

/// Connections of a host stack.
fn connections(case: &Case, result: &At<'_>) -> std::result::Result<Result, Error> {
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
        let Some(at) = result.maybe(member) else { continue };
        let (value, unit) = (at.get("value")?.number()?, at.get("unit")?);
        r.quantities.push(Quantity::new(name, unit.text()?, value));
    }
    if result.maybe("bandwidth").is_none() {
        return Err(result.wrong("no member `bandwidth`, which the model asks for"));
    }
    Ok(r)
}
