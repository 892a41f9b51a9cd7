//! Goals of results, and notes on their validity.

use super::format::{self, plural, printable};
use super::labels::{cpus, distinct, frame_sizes};
use crate::{Goal, LimitedBy, Result, Trial};

/// Describes a goal.
fn goal(goal: &Goal) -> String {
    let name = goal.name.as_deref().map_or(String::new(), |name| format!("{}: ", printable(name)));
    let loss = format!("loss ratio {}", format::percent(goal.loss_ratio));
    let seconds = |seconds| format!("{} s", format::significant(seconds, 3));
    let trials = if goal.trial_duration_s == 0.0 {
        "trial duration not recorded".to_owned()
    } else if goal.duration_sum_s <= goal.trial_duration_s {
        format!("one trial of {}", seconds(goal.trial_duration_s))
    } else {
        format!("trials of {}, {} in total", seconds(goal.trial_duration_s), seconds(goal.duration_sum_s))
    };
    let exceed = match goal.exceed_ratio {
        0.0 => String::new(),
        ratio => format!(", exceed ratio {}", format::percent(ratio)),
    };
    let search = printable(&goal.search);
    format!("{name}{loss}{exceed}, {trials}; searched by {search} to a width of {}", format::percent(goal.width))
}

/// Describes the distinct goals of results.
pub(crate) fn goals(results: &[Result]) -> Vec<String> {
    distinct(results.iter().map(|r| goal(&r.goal)))
}

/// Returns what limits the throughput, with the frame sizes of the results.
pub(crate) fn verdicts(results: &[Result]) -> Vec<String> {
    let verdict = |(limit, text): (LimitedBy, &str)| {
        let limited: Vec<_> = results.iter().filter(|r| r.limited_by == limit).collect();
        (!limited.is_empty()).then(|| format!("{text}: {}", frame_sizes(&limited)))
    };
    let all = [
        (LimitedBy::Dut, "limited by the DUT"),
        (LimitedBy::LineRate, "limited by the line rate"),
        (LimitedBy::Generator, "limited by the generator, the throughput of the DUT may be higher"),
        (LimitedBy::HostInterference, "limited by host interference, the throughput of the DUT may be higher"),
        (LimitedBy::MaxLoad, "limited by the highest load offered, the throughput of the DUT may be higher"),
        (LimitedBy::Budget, "the search ended before its bounds were close enough, as trials or time ran out"),
    ];
    all.into_iter().filter_map(verdict).collect()
}

/// Returns notes on the validity of the numbers, each once.
pub(crate) fn notes(results: &[Result]) -> Vec<String> {
    let mut out = Vec::new();
    let quick: Vec<_> = results.iter().filter(|r| !r.goal.is_rfc2544()).collect();
    if !quick.is_empty() {
        let which = if quick.len() == results.len() { String::new() } else { format!(" ({})", frame_sizes(&quick)) };
        out.push(format!("quick goal: not RFC 2544, which requires trials of 60 s without loss{which}"));
    }
    for r in results {
        let e = &r.environment;
        if let Some(hypervisor) = &e.hypervisor {
            out.push(format!(
                "virtual machine ({}): CPUs can be preempted for milliseconds; absolute numbers are valid for this \
                 host only",
                printable(hypervisor)
            ));
        }
        let shared = e.shared_cpus();
        if !shared.is_empty() {
            out.push(format!("{} not isolated: other programs may run there", cpus(&shared)));
        }
        if e.memory.starts_with("ordinary") {
            out.push("packet memory in ordinary pages, not in huge pages".to_owned());
        }
    }
    let steal = results.iter().filter_map(|r| r.environment.steal_share).fold(0.0, f64::max);
    if steal > 0.0 {
        out.push(format!(
            "steal time: the hypervisor gave up to {} of the CPU time to other guests",
            format::percent(steal)
        ));
    }
    let trials = results.iter().map(|r| r.trials.len()).sum::<usize>();
    let disturbed = results.iter().filter_map(Result::excluded).map(|(trials, _)| trials).sum::<usize>();
    if disturbed > 0 {
        out.push(format!(
            "{disturbed} of {} invalidated by host interference: a CPU was preempted",
            plural(trials, "trial", "trials")
        ));
    }
    let sum = |of: fn(&Trial) -> u64| results.iter().flat_map(|r| &r.trials).map(of).fold(0, u64::saturating_add);
    for (count, problem) in [
        (sum(|t| t.duplicate), "received more than once"),
        (sum(|t| t.reordered), "received out of order"),
        (sum(|t| t.corrupt), "received damaged; counted as lost"),
        (sum(|t| t.late), "received too late to be distinguished from copies; counted as lost"),
    ] {
        if count != 0 {
            out.push(format!("{} {} {problem}", format::count(count), if count == 1 { "packet" } else { "packets" }));
        }
    }
    let disturbed: Vec<_> = results.iter().filter(|r| r.latency.iter().any(|l| l.host_interference)).collect();
    if !disturbed.is_empty() {
        out.push(format!("latency includes host interference: {}", frame_sizes(&disturbed)));
    }
    out.extend(results.iter().flat_map(|r| &r.deviations).map(|d| format!("deviation: {}", printable(d))));
    distinct(out)
}
