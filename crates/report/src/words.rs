//! What results say, in words.

use crate::format::{self, plain, plural};
use crate::{Frames, Goal, Latency, LimitedBy, Result, Trial};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Parameter by which scenarios name devices.
const DUT: &str = "dut";
/// Characters of a machine's CPU in a name.
const MACHINE: usize = 32;

/// What tells each result from the others, but for the frame size.
pub(crate) fn names(results: &[Result]) -> Vec<String> {
    let naming = Naming::new(results);
    results.iter().map(|r| naming.name(r, None)).collect()
}

/// How results are told from each other: by their devices and machines, if they are not all alike, and by the parameters of
/// their cells that have more than one value.
pub(crate) struct Naming<'a> {
    devices: bool,
    machines: bool,
    /// With the number of values.
    pub(crate) varying: BTreeMap<&'a String, usize>,
}

impl<'a> Naming<'a> {
    pub(crate) fn new(results: &'a [Result]) -> Self {
        let devices = results.windows(2).any(|w| w[0].dut.label() != w[1].dut.label());
        let machines = results.windows(2).any(|w| w[0].environment.cpu != w[1].environment.cpu);
        Naming { devices, machines, varying: varying(results) }
    }

    /// The name of a result, without the parameter `but`.
    pub(crate) fn name(&self, result: &Result, but: Option<&String>) -> String {
        let told =
            result.cell.iter().filter(|(parameter, _)| self.varying.contains_key(parameter) && Some(*parameter) != but);
        let mut parts: Vec<String> = told
            .map(|(parameter, value)| if parameter == DUT { value.clone() } else { format!("{parameter} {value}") })
            .collect();
        // a scenario's own name for a device says more than its kind
        let is_named = self.varying.keys().any(|name| *name == DUT);
        if self.devices && !is_named || parts.is_empty() {
            parts.insert(0, result.dut.label());
        }
        if self.machines {
            parts.push(format!("on {}", format::short(&result.environment.cpu, MACHINE)));
        }
        plain(&parts.join(", "))
    }
}

/// Parameters of the cells that have more than one value, with how many.
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

/// A load at which latency was measured.
pub(crate) fn load(latency: &Latency) -> String {
    latency.share_of_throughput.map_or_else(|| format::pps(latency.load_pps), format::percent)
}

/// A frame size with its unit.
pub(crate) fn frames(frames: &Frames) -> String {
    match frames {
        Frames::FrameBytes(bytes) => format!("{bytes} B"),
        Frames::Mix(_) | Frames::Trace(_) => {
            format!("{} (mean {} B)", plain(&frames.label()), format::significant(frames.mean_bytes(), 4))
        }
    }
}

/// A goal.
pub(crate) fn goal(goal: &Goal) -> String {
    let name = goal.name.as_deref().map_or(String::new(), |name| format!("{}: ", plain(name)));
    let loss = match goal.loss_ratio {
        0.0 => "no packet lost".to_owned(),
        ratio => format!("at most {} of the packets lost", format::percent(ratio)),
    };
    let s = |seconds| format!("{} s", format::significant(seconds, 3));
    let trials = if goal.trial_s == 0.0 {
        "in trials whose duration is not told".to_owned()
    } else if goal.sum_s <= goal.trial_s {
        format!("in a trial of {}", s(goal.trial_s))
    } else {
        format!("in {} of trials of {}", s(goal.sum_s), s(goal.trial_s))
    };
    let exceed = match goal.exceed_ratio {
        0.0 => String::new(),
        ratio => format!(", of which {} may lose more", format::percent(ratio)),
    };
    let method = plain(&goal.method);
    format!("{name}{loss} {trials}{exceed}; found by {method} to within {}", format::percent(goal.width))
}

/// The goals of a set of results, each once.
pub(crate) fn goals(results: &[Result]) -> Vec<String> {
    distinct(results.iter().map(|r| goal(&r.goal)))
}

/// What to know before believing the numbers, each once.
pub(crate) fn warnings(results: &[Result]) -> Vec<String> {
    let mut out = Vec::new();
    let quick: Vec<_> = results.iter().filter(|r| !r.goal.is_rfc2544()).collect();
    if !quick.is_empty() {
        let which = if quick.len() == results.len() { String::new() } else { format!(" ({})", sizes(&quick)) };
        out.push(format!("quick goal: not RFC 2544, which asks for no loss in trials of 60 s{which}"));
    }
    for r in results {
        let e = &r.environment;
        if let Some(hypervisor) = &e.hypervisor {
            out.push(format!(
                "virtual machine ({}): cores can be taken away for milliseconds; absolute numbers hold for it alone",
                plain(hypervisor)
            ));
        }
        let shared = e.shared_cpus();
        if !shared.is_empty() {
            out.push(format!("{} not isolated: others may run there too", cpus(&shared)));
        }
        if e.memory.starts_with("ordinary") {
            out.push("packets were kept in ordinary pages, not in huge pages".to_owned());
        }
    }
    let steal = results.iter().filter_map(|r| r.environment.steal_share).fold(0.0, f64::max);
    if steal > 0.0 {
        out.push(format!("up to {} of the CPU time was given to others by the hypervisor", format::percent(steal)));
    }
    let trials = results.iter().map(|r| r.trials.len()).sum::<usize>();
    let disturbed = results.iter().flat_map(|r| &r.trials).filter(|t| t.machine).count();
    if disturbed > 0 {
        let are = if disturbed == 1 { "is" } else { "are" };
        out.push(format!(
            "{disturbed} of {} {are} marked: the machine paused, not the DUT",
            plural(trials, "trial", "trials")
        ));
    }
    let all = |of: fn(&Trial) -> u64| results.iter().flat_map(|r| &r.trials).map(of).fold(0, u64::saturating_add);
    for (count, what) in [
        (all(|t| t.duplicate), "came back more than once"),
        (all(|t| t.reordered), "came back behind a later one"),
        (all(|t| t.corrupt), "came back damaged, and count as lost"),
        (all(|t| t.late), "came back so late that they may be copies, and count as lost"),
    ] {
        if count != 0 {
            out.push(format!("{} {} {what}", format::count(count), if count == 1 { "packet" } else { "packets" }));
        }
    }
    let late: Vec<_> = results.iter().filter(|r| r.latency.iter().any(|l| l.machine)).collect();
    if !late.is_empty() {
        out.push(format!("latency holds pauses of the machine, not only the DUT's: {}", sizes(&late)));
    }
    for (limit, by) in [
        (LimitedBy::Generator, "limited by the generator, not by the DUT, which may do more"),
        (LimitedBy::Machine, "limited by the machine, not by the DUT, which may do more"),
        (LimitedBy::Budget, "the search ran out of trials or time before its bounds were near enough"),
        (LimitedBy::Load, "no higher load was offered: the DUT may do more"),
    ] {
        let limited: Vec<_> = results.iter().filter(|r| r.limited_by == limit).collect();
        if !limited.is_empty() {
            out.push(format!("{by}: {}", sizes(&limited)));
        }
    }
    out.extend(results.iter().flat_map(|r| &r.deviations).map(|d| format!("deviation: {}", plain(d))));
    distinct(out)
}

/// The frame sizes of some results, each once.
pub(crate) fn sizes(results: &[&Result]) -> String {
    let all = distinct(results.iter().map(|r| frames(&r.traffic.frames)));
    match all.as_slice() {
        [few @ .., last] if all.len() <= 8 && !few.is_empty() => format!("{} and {last}", few.join(", ")),
        [one] => one.clone(),
        [first, .., last] => format!("{first} to {last}, {} sizes", all.len()),
        [] => String::new(),
    }
}

/// Numbers of CPUs.
pub(crate) fn cpus(cpus: &[u32]) -> String {
    let list = cpus.iter().take(16).map(u32::to_string).collect::<Vec<_>>().join(", ");
    let more = if cpus.len() > 16 { format!(", … ({} in all)", cpus.len()) } else { String::new() };
    format!("{} {list}{more}", if cpus.len() == 1 { "CPU" } else { "CPUs" })
}

/// Each text once, in the order of its first appearance.
pub(crate) fn distinct(texts: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut seen = HashSet::new();
    texts.into_iter().filter(|text| seen.insert(text.clone())).collect()
}
