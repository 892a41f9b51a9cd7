//! Result documents.

use super::dut::SessionDut;
use super::run_method::KnownThroughput;
use super::{MethodRun, Run, Session};
use crate::generator::Generator;
use crate::method::LoadChoice;
use crate::search::SearchKind;
use crate::traffic_spec::PreparedTraffic;
use config::ChainFile;
use report::{Tool, Vnf};

/// Name of the repetition in a result's environment.
pub(super) const REPETITION: &str = "repetition";
/// Deviation of a result that was ended early.
const ENDED_EARLY: &str = "the measurement was ended early";

/// Returns true if a result was ended early.
pub(super) fn is_partial(result: &report::Result) -> bool {
    result.deviations.iter().any(|deviation| deviation == ENDED_EARLY)
}

/// Marks a method that was ended early.
pub(super) fn mark_partial(method: &mut MethodRun) {
    method.output.deviations.insert(0, ENDED_EARLY.to_owned());
}

impl Session {
    /// Returns the result document of a method, without an id.
    pub(super) fn result(
        &self,
        run: &Run<'_>,
        dut: &SessionDut,
        method: &MethodRun,
        traffic: &PreparedTraffic,
        throughput: Option<KnownThroughput>,
    ) -> report::Result {
        let MethodRun { output, nodes, environment, .. } = method;
        let goal = output.goal;
        // a profile is one trial with its own duration
        let duration_s = traffic.timetable().map(|timetable| f64::from(timetable.seconds()));
        let searches = method.method.properties.load == LoadChoice::Search;
        let mut cell = run.cell.clone();
        cell.extend(traffic.cell());
        if run.generator != Generator::Bondstone {
            cell.insert("generator".to_owned(), run.generator.to_string());
        }
        let (mut latency, mut quantities) = (output.latency.clone(), output.quantities.clone());
        if let Some(last) = latency.last_mut() {
            add_cycles(&mut last.vnfs, run.target.file(), nodes);
            quantities.extend(Vnf::quantities(&last.vnfs));
        }
        report::Result {
            schema: report::Version::V2,
            id: String::new(),
            tool: Tool {
                name: "bondstone".to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                command: self.command.clone(),
            },
            study: run.study.clone(),
            cell,
            method: output.method.clone(),
            dut: dut.document(run),
            traffic: run.generator.traffic(traffic.document()),
            goal: report::Goal {
                name: goal.name().map(str::to_owned),
                trial_duration_s: duration_s.unwrap_or(goal.final_s()),
                duration_sum_s: duration_s.unwrap_or(goal.sum_s()),
                loss_ratio: goal.loss_ratio(),
                exceed_ratio: goal.exceed_ratio(),
                width: goal.width(),
                search: search_description(method, run.settings.search),
                initial_trial_duration_s: searches.then(|| goal.initial_s()),
                min_load_pps: searches.then(|| method.limits.min_pps()),
                max_load_pps: searches.then(|| method.limits.max_pps()),
            },
            environment: environment.clone(),
            calibration: None,
            limited_by: throughput.map_or_else(|| output.limited_by.into(), |known| known.limited_by),
            deviations: deviations(run, dut, method, traffic),
            trials: output.trials.iter().map(Into::into).collect(),
            // a known throughput has both bounds
            summary: match throughput {
                Some(known) if known.summary.lower_pps == output.summary.lower_pps => known.summary,
                _ => output.summary,
            },
            latency,
            anatomy: output.anatomy.clone(),
            quantities,
            series: output.series.clone(),
            streams: traffic.stream_documents(&output.streams),
            nodes: nodes.clone(),
        }
    }
}

/// Sets the cycles of each VNF to those of the NFs that are its copy, if the chain file has a copy for each VNF; `nodes` are
/// those of the last trial.
fn add_cycles(vnfs: &mut [Vnf], file: &ChainFile, nodes: &[report::Node]) {
    if file.copies.is_none_or(|copies| copies as usize != vnfs.len()) {
        return;
    }
    for nf in &file.nfs {
        let vnf = nf.copy.and_then(|copy| vnfs.get_mut(copy as usize - 1));
        let cycles = nodes.iter().find(|node| node.name == nf.name).and_then(|node| node.cycles_per_packet);
        if let (Some(vnf), Some(cycles)) = (vnf, cycles) {
            *vnf.cycles_per_packet.get_or_insert(0.0) += cycles;
        }
    }
}

fn search_description(method: &MethodRun, search: SearchKind) -> String {
    match method.method.properties.load.description() {
        Some(description) => description.to_owned(),
        None if search == SearchKind::Mlr => "MLRsearch (RFC 9971)".to_owned(),
        None => format!("{} ({})", search.name(), search.standard()),
    }
}

fn deviations(run: &Run<'_>, dut: &SessionDut, method: &MethodRun, traffic: &PreparedTraffic) -> Vec<String> {
    let mut deviations = method.output.deviations.clone();
    if method.method.properties.relative_to_line_rate && run.settings.line_rate_bps.is_none() {
        let line_mpps = method.line_pps.unwrap_or_default() / 1e6;
        deviations.push(format!("the line rate is not set (--line): 100 % is {line_mpps:.3} Mpps"));
    }
    deviations.extend(dut.deviations());
    deviations.extend(traffic.deviations());
    deviations.truncate(report::limit::DEVIATIONS);
    deviations
}
