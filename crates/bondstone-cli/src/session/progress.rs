//! Progress of a session on standard error.

use bench::method::LoadChoice;
use bench::session::{Event, MethodRun, TrialSecond};
use bench::{DirectionCounts, HostCheck, LimitedBy, PreparedTraffic, SearchBounds, Trial};
use logger::{eprint, eprintln};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Interval of progress lines where standard error is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Prints events; on a terminal the line of the current trial is overwritten.
pub(super) struct Progress {
    is_terminal: bool,
    /// Label of the current cell, with its position.
    cell: String,
    /// Name of the current method.
    method: String,
    /// Load, duration and search bounds of the current trial.
    trial: String,
    trials: usize,
    /// Trials with host interference.
    interfered_trials: usize,
    last_line: Instant,
    /// Number of times that each note occurred.
    notes: BTreeMap<String, u32>,
}

impl Progress {
    pub(super) fn new() -> Progress {
        Progress {
            is_terminal: std::io::stderr().is_terminal(),
            cell: String::new(),
            method: String::new(),
            trial: String::new(),
            trials: 0,
            interfered_trials: 0,
            last_line: Instant::now(),
            notes: BTreeMap::new(),
        }
    }

    pub(super) fn on_event(&mut self, event: &Event<'_>) {
        match event {
            Event::HostChecked(check) => print_host_check(check),
            Event::Goal(goal) => eprintln!("goal: {goal}"),
            Event::Resumed { session_run, results } => eprintln!("{session_run}: {results} results are reused"),
            Event::NothingToResume => {
                eprintln!("nothing to resume: these cells were not measured before, or have changed since");
            }
            Event::CellStarted { label, number, count, remaining } => {
                self.cell = format!("{}{label}", position(*number, *count, *remaining));
            }
            Event::CellReused => eprintln!("{}: measured before", self.cell),
            Event::DutStarted { cpus: None, .. } => eprintln!("{}: simulated DUT, in virtual time", self.cell),
            Event::DutStarted { in_process, cpus: Some((dut_cpus, generator_cpus)) } => {
                let dut = if *in_process { "chains" } else { "DUT" };
                let (dut_cpus, generator_cpus) = (cpu_list(dut_cpus), cpu_list(generator_cpus));
                eprintln!("{}: {dut} on CPU {dut_cpus}, generator on CPU {generator_cpus}", self.cell);
            }
            Event::TrafficPrepared(traffic) => print_traffic(traffic),
            Event::MethodStarted(name) => {
                (self.method, self.trials, self.interfered_trials) = ((*name).to_owned(), 0, 0);
                self.last_line = Instant::now();
            }
            Event::TrialStarted { load_pps, duration_s, bounds } => {
                self.trial = describe_trial(*load_pps, *duration_s, bounds);
            }
            Event::TrialSecond(second) => self.print_second(second),
            Event::Trial(trial) => self.print_trial(trial),
            Event::TrialsDone if self.is_terminal => eprint!("\r\x1b[K"),
            Event::MethodDone(method, traffic) => print_method(method, traffic),
            Event::MethodSkipped { name, reason } => eprintln!("{name}: not measured: {reason}"),
            Event::Note(text) => self.print_note(text),
            Event::Warning(text) => eprintln!("warning: {text}"),
            Event::Error(text) => eprintln!("error: {text}"),
            Event::Cancelled { number, count } => {
                eprintln!("interrupted in cell {number} of {count}; add --resume to the same command to continue");
            }
            _ => {}
        }
    }

    /// Prints the number of repeated notes.
    pub(super) fn finish(&self) {
        for (text, count) in self.notes.iter().filter(|(_, count)| **count > 1) {
            eprintln!("note (printed once, occurred {count} times): {text}");
        }
    }

    fn print_note(&mut self, text: &str) {
        let count = self.notes.entry(text.to_owned()).or_default();
        *count += 1;
        if *count == 1 {
            eprintln!("note: {text}");
        }
    }

    /// Returns true if a progress line is to be printed now.
    fn is_line_due(&mut self) -> bool {
        let is_due = self.is_terminal || self.last_line.elapsed() >= LINE_INTERVAL;
        if is_due {
            self.last_line = Instant::now();
        }
        is_due
    }

    fn print_second(&mut self, second: &TrialSecond) {
        if !self.is_line_due() {
            return;
        }
        let latency = second.latency_mean_ns.map(|ns| format!(", mean latency {:.1} µs", ns / 1e3)).unwrap_or_default();
        let line = format!(
            "{}: trial {} of {}; sent {:.3} Mpps, received {:.3} Mpps, missing {}{latency}",
            self.method,
            self.trials + 1,
            self.trial,
            second.sent_pps / 1e6,
            second.received_pps / 1e6,
            second.missing.max(0)
        );
        if self.is_terminal { eprint!("\r\x1b[K{line}") } else { eprintln!("{line}") }
    }

    fn print_trial(&mut self, trial: &Trial) {
        self.trials += 1;
        self.interfered_trials += usize::from(trial.host_interference);
        if !self.is_line_due() {
            return;
        }
        let verdict = match trial.host_interference {
            true => "CPU preempted".to_owned(),
            false => format!("loss {:.4} %", 100.0 * trial.loss_ratio()),
        };
        let line = format!("{}: trial {}, {:.3} Mpps, {verdict}", self.method, self.trials, trial.load_pps / 1e6);
        match self.interfered_trials {
            _ if self.is_terminal => eprint!("\r\x1b[K{line}"),
            0 => eprintln!("{line}"),
            interfered => eprintln!("{line}; host interference in {interfered} trials so far"),
        }
    }
}

/// Describes a trial: `3.000 Mpps for 60 s, bounds 2.500 to 3.500 Mpps`.
fn describe_trial(load_pps: f64, duration_s: f64, bounds: &SearchBounds) -> String {
    let mpps = |pps: f64| format!("{:.3}", pps / 1e6);
    let bounds = match (bounds.lower_pps, bounds.upper_pps) {
        (None, None) => String::new(),
        (Some(lower), None) => format!(", bounds {} Mpps and more", mpps(lower)),
        (None, Some(upper)) => format!(", bounds 0 to {} Mpps", mpps(upper)),
        (Some(lower), Some(upper)) => format!(", bounds {} to {} Mpps", mpps(lower), mpps(upper)),
    };
    format!("{} Mpps for {duration_s} s{bounds}", mpps(load_pps))
}

/// Returns the position of a cell and the estimated time left, as a prefix.
fn position(number: usize, count: usize, remaining: Option<Duration>) -> String {
    match remaining {
        _ if count < 2 => String::new(),
        None => format!("[{number}/{count}] "),
        Some(left) => format!("[{number}/{count}, about {} left] ", humantime::format_duration(left)),
    }
}

/// Prints what a busy host means for the results.
fn print_host_check(check: &HostCheck) {
    if let Some((impact, remedy)) = check.advice() {
        eprintln!("warning: host {}: {}\n  {impact}\n  help: {remedy}", check.fitness.name(), check.summary());
    }
}

fn print_traffic(traffic: &PreparedTraffic) {
    for trace in traffic.captures() {
        let capture = trace.capture();
        eprintln!(
            "{}: {} frames, mean size {:.0} bytes, {} flows",
            trace.name(),
            capture.len(),
            capture.mean_size(),
            capture.flows()
        );
        if let Some(omissions) = trace.omissions() {
            eprintln!("  {omissions}");
        }
    }
    if let Some(pps) = traffic.captured_pps() {
        eprintln!("  sent with its own gaps: {pps:.1} packets/s unless another load is set");
    }
    match traffic.rewritten() {
        Some((text, true)) => eprintln!("  {text}"),
        Some((text, false)) => eprintln!("warning: {text}"),
        None => {}
    }
    if let Some(timetable) = traffic.timetable() {
        eprintln!("{timetable}");
    }
}

/// Prints the rate of a method, or why there is none.
fn print_method(method: &MethodRun, traffic: &PreparedTraffic) {
    let MethodRun { name, output, drops, directions, .. } = method;
    let trials = output.trials.len();
    let is_forwarded = output.trials.iter().any(|trial| trial.received != 0);
    match output.summary.lower_pps {
        _ if method.method.properties.load == LoadChoice::Given => print_given_load(method),
        _ if !method.method.properties.requires_rate && is_forwarded => eprintln!("{name}: {trials} trials"),
        lower if lower > 0.0 => eprintln!("{name}: {:.3} Mpps, {trials} trials", lower / 1e6),
        _ if output.limited_by == LimitedBy::HostInterference => {
            let interfered = output.trials.iter().filter(|trial| trial.host_interference).count();
            eprintln!("{name}: no rate could be judged: {interfered} of {trials} trials had host interference");
            eprintln!("  help: stop other programs, or measure on CPUs of their own (isolcpus)");
        }
        _ if !drops.is_empty() => {
            eprintln!("{name}: no rate meets the goal; packets dropped by the chain: {}", drop_list(drops));
            if let Some(remedy) = drop_remedy(traffic, is_forwarded) {
                eprintln!("  help: {remedy}");
            }
        }
        _ => eprintln!("{name}: no rate meets the goal"),
    }
    for (direction, DirectionCounts { sent, received }) in ["forward", "reverse"].iter().zip(directions) {
        let numbered = if traffic.captures().is_empty() { "" } else { " numbered" };
        eprintln!("  {direction}: received {received} of {sent}{numbered} packets");
    }
}

/// Prints what became of the packets of a given load.
fn print_given_load(method: &MethodRun) {
    let MethodRun { name, output, drops, .. } = method;
    let value = |name: &str| output.quantities.iter().find(|q| q.name == name).map_or(0.0, |q| q.value);
    let mpps = |name: &str| format!("{:.3} Mpps {name}", value(name) / 1e6);
    let verdict = match (output.summary.lower_pps > 0.0, output.limited_by) {
        (true, _) => "meets the goal",
        (false, LimitedBy::HostInterference) => "not judged: every trial was invalidated by host interference",
        (false, LimitedBy::Generator) => "does not meet the goal: the generator did not keep the load",
        (false, _) => "does not meet the goal",
    };
    eprintln!(
        "{name}: {verdict}; {}, {}, {}, loss {:.4} %, {} trials",
        mpps("offered"),
        mpps("sent"),
        mpps("received"),
        100.0 * value("loss"),
        output.trials.len()
    );
    if !drops.is_empty() {
        eprintln!("  packets dropped by the chain: {}", drop_list(drops));
    }
}

fn drop_list(drops: &BTreeMap<String, u64>) -> String {
    drops.iter().map(|(reason, n)| format!("{n} {reason}")).collect::<Vec<_>>().join(", ")
}

/// Returns the remedy for drops at every load. A chain that forwards other packets accepts the traffic, and drops for
/// other reasons.
fn drop_remedy(traffic: &PreparedTraffic, is_forwarded: bool) -> Option<&'static str> {
    if !traffic.captures().is_empty() {
        return Some(
            "frames of a capture keep their destination: set dst_mac in [traffic] to the router's address, add routes \
             for the captured addresses or map them to others (--rewrite), or allow the loss (--loss)",
        );
    }
    (!is_forwarded).then_some(
        "the table [traffic] of the chain file describes the packets; a router accepts only those to its MAC address \
         (dst_mac)",
    )
}

/// Formats a list of CPUs.
pub(crate) fn cpu_list(cpus: &[usize]) -> String {
    cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
