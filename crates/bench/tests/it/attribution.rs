//! Faults planted in a chain or beside the generator: each trial has to name the party at fault.

use crate::HOST;
use bench::{Goal, InProcessDut, Measurer, PreparedTraffic, RunningDut, SyntheticOptions, TrafficSpec};
use bench::{Trial, TrialInput, TrialOutput, search::Outcome};
use config::ChainFile;
use diagnostics::Diagnostic;
use graph::{BuildContext, Context, HoldQueue, Named, Nf, Node, Registry};
use packet::{Batch, clock};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use traffic::{FrameSize, Mix, Order};

/// Loads of every fault, packets per second.
const LOADS: [f64; 4] = [3e5, 6e5, 1e6, 2e6];
const TRIAL_S: f64 = 0.1;
/// Attempts to find a trial in which neither thread was preempted for long.
const ATTEMPTS: usize = 15;

struct Fault;

/// Every n-th packet is affected; 0 for none.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    drop: u64,
    /// The packet takes 5 ms.
    stall: u64,
    /// The packet is sent 1 ms later or more.
    delay: u64,
    /// The packet is sent after the next one.
    swap: u64,
    duplicate: u64,
    corrupt: u64,
    /// All packets are held, up to this number.
    hold: u32,
}

graph::named_enum! {
    /// Drop reasons.
    enum Reason {
        /// By `drop`.
        Planted = "planted",
    }
}

struct FaultNode {
    settings: Settings,
    seen: u64,
    delayed: HoldQueue,
    due: VecDeque<Duration>,
    /// Packets held, or the one to send after the next.
    held: HoldQueue,
}

impl Nf for Fault {
    type Settings = Settings;
    const KIND: &'static str = "fault";
    const ABOUT: &'static str = "A planted fault.";

    fn build(settings: &Settings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        let Settings { drop, stall, delay, swap, duplicate, corrupt, hold } = *settings;
        Ok(FaultNode {
            settings: Settings { drop, stall, delay, swap, duplicate, corrupt, hold },
            seen: 0,
            delayed: HoldQueue::new(1 << 14),
            due: VecDeque::new(),
            held: HoldQueue::new(hold.max(1) as usize),
        })
    }
}

impl Node for FaultNode {
    fn drops(&self) -> &[&'static str] {
        Reason::NAMES
    }

    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        for mut packet in batch.drain() {
            self.seen += 1;
            let seen = self.seen;
            let is_due = |every: u64| every != 0 && seen.is_multiple_of(every);
            if is_due(self.settings.drop) {
                cx.drop(Reason::Planted, packet);
                continue;
            }
            if is_due(self.settings.stall) {
                let start = clock::cycles();
                while clock::cycles() - start < clock::hz() / 200 {}
            }
            if is_due(self.settings.corrupt) {
                *packet.data_mut().last_mut().unwrap() ^= 1;
            }
            if is_due(self.settings.duplicate)
                && let Some(copy) = cx.copy(&packet)
            {
                cx.emit(0, copy);
            }
            if self.settings.hold != 0 {
                if let Err(packet) = cx.hold(&mut self.held, packet) {
                    cx.emit(0, packet);
                }
            } else if is_due(self.settings.delay) {
                match cx.hold(&mut self.delayed, packet) {
                    Ok(()) => self.due.push_back(cx.now() + Duration::from_millis(2)),
                    Err(packet) => cx.emit(0, packet),
                }
            } else if is_due(self.settings.swap) {
                if let Err(packet) = cx.hold(&mut self.held, packet) {
                    cx.emit(0, packet);
                }
            } else {
                cx.emit(0, packet);
                if let Some((path, packet)) = cx.release(&mut self.held) {
                    cx.emit_on_path(path, 0, packet);
                }
            }
        }
    }

    fn interval(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }

    fn on_timer(&mut self, cx: &mut Context<'_>) {
        while self.due.front().is_some_and(|due| *due <= cx.now()) {
            self.due.pop_front();
            if let Some((path, packet)) = cx.release(&mut self.delayed) {
                cx.emit_on_path(path, 0, packet);
            }
        }
    }
}

/// A chain with a fault, measured on the last CPU of this process.
struct Bench {
    dut: RunningDut,
    traffic: PreparedTraffic,
}

impl Bench {
    fn start(settings: &str) -> Bench {
        let cpus = runtime::allowed_cpus();
        let text = format!(
            "bondstone = 1\n[port.a]\ndevice = \"null\"\n[port.b]\ndevice = \"null\"\n[nf.fault]\nkind = \"fault\"\n\
             {settings}\n[[chain]]\npath = [\"a\", \"fault\", \"b\"]\ncores = [{}]\n",
            cpus[0]
        );
        let file = ChainFile::parse(&text, Path::new("fault.toml"), &Registry::new().with::<Fault>()).unwrap();
        let frames = vec![("64".to_owned(), Mix::fixed(FrameSize::new(64).unwrap()))];
        let spec = TrafficSpec::Synthetic {
            frames,
            flows: 64,
            order: Order::RoundRobin,
            options: SyntheticOptions::default(),
        };
        let traffic = spec.prepare(&file, &AtomicBool::new(false)).unwrap().remove(0);
        let dut = InProcessDut::start(&file, &Registry::new().with::<Fault>(), false).unwrap();
        runtime::pin(*cpus.last().unwrap()).unwrap();
        Bench { dut: RunningDut::InProcess(Box::new(dut)), traffic }
    }

    fn trial(&mut self, load_pps: f64) -> TrialOutput {
        let input = TrialInput { verify_payload: true, ..TrialInput::constant(load_pps, TRIAL_S) };
        let output = self.dut.measurer(&self.traffic).trial(&input).unwrap();
        let trial = &output.trial;
        trial.check().unwrap();
        // whatever the host does, only preemption excuses packets lost, for half as long as a queue lasts at least
        if trial.host_interference && trial.lost > trial.lost_by_dut() {
            let longest = trial.dut.off_cpu_max.max(trial.generator.gap_max);
            assert!(longest.as_secs_f64() > 512.0 / load_pps, "{trial:?}");
        }
        output
    }

    /// Returns a trial in which neither thread was preempted for as long as a queue lasts; `None` if the host is too
    /// busy for that. A hypervisor may stop the DUT without a trace but a gap, so that there is none if `no_gaps` is true.
    fn undisturbed_trial(&mut self, load_pps: f64, no_gaps: bool) -> Option<TrialOutput> {
        let lasts = Duration::from_secs_f64(512.0 / load_pps);
        let dut = |t: &Trial| if no_gaps { t.dut.gap_max } else { t.dut.off_cpu_max };
        let is_undisturbed = |t: &Trial| t.generator.gap_max < lasts && dut(t) < lasts;
        (0..ATTEMPTS).map(|_| self.trial(load_pps)).find(|output| is_undisturbed(&output.trial))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let all = runtime::allowed_cpus();
        let _ = runtime::set_affinity(&all);
    }
}

/// A process of another session that uses a CPU; ended on drop.
struct Burner(std::process::Child);

impl Burner {
    fn start(cpu: usize) -> Burner {
        let loop_forever = "while :; do :; done";
        let mut command = std::process::Command::new("taskset");
        command.args(["-c", &cpu.to_string(), "setsid", "sh", "-c", loop_forever]);
        Burner(command.spawn().unwrap())
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Trials to check.
#[derive(Clone, Copy, PartialEq)]
enum Trials {
    /// Those in which both threads polled in time.
    Undisturbed,
    /// Those in which no thread was preempted for long.
    NotPreempted,
    Any,
    /// Any, beside programs that use every CPU.
    Busy,
}

/// Calls `check` with trials of a fault at all loads, from a thread with the priority of measurements.
fn at_all_loads(settings: &str, trials: Trials, check: impl Fn(&TrialOutput) + Sync) {
    let _lock = HOST.write().unwrap_or_else(|e| e.into_inner());
    let busy = runtime::allowed_cpus().into_iter().filter(|_| trials == Trials::Busy);
    let _burners: Vec<Burner> = busy.map(Burner::start).collect();
    let measure = || {
        let _session = runtime::SessionPriority::raise();
        runtime::raise_priority();
        let mut bench = Bench::start(settings);
        for load_pps in LOADS {
            let output = match trials {
                Trials::Undisturbed => bench.undisturbed_trial(load_pps, true),
                Trials::NotPreempted => bench.undisturbed_trial(load_pps, false),
                Trials::Any | Trials::Busy => Some(bench.trial(load_pps)),
            };
            match output {
                Some(output) => check(&output),
                None => {
                    let trial = bench.trial(load_pps).trial;
                    println!(
                        "skipped: {settings} at {load_pps} pps: the host is too busy: {:?}, {:?}, {} unsent",
                        trial.generator, trial.dut, trial.unsent
                    );
                }
            }
        }
    };
    std::thread::scope(|scope| scope.spawn(measure).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
}

fn counts(trial: &Trial) -> bool {
    Outcome::of(trial).counts(&Goal::ndr())
}

#[test]
fn packets_dropped_by_an_nf_are_lost_by_the_dut() {
    at_all_loads("drop = 10000", Trials::Undisturbed, |output| {
        let trial = &output.trial;
        assert!(trial.dropped_by_nfs > 0 && trial.dropped_by_nfs <= output.drops["planted"], "{trial:?}");
        assert_eq!((trial.lost, counts(trial)), (trial.dropped_by_nfs, true));
    });
}

#[test]
fn a_stall_of_the_dut_is_no_host_interference() {
    at_all_loads("stall = 20000", Trials::NotPreempted, |output| {
        let trial = &output.trial;
        assert!(trial.lost > 0 && !trial.host_interference && counts(trial), "{trial:?}");
        assert!(trial.dut.gap_max >= Duration::from_micros(4900), "{trial:?}");
        assert!(trial.device_loss_ratio() > 0.0);
    });
}

#[test]
fn periodic_delay_is_in_the_share_of_samples_that_it_has() {
    for period in [2, 3, 8, 16] {
        at_all_loads(&format!("delay = {period}"), Trials::Any, |output| {
            let delays = output.delays.as_ref().unwrap();
            let late = delays.histogram().count_between(500_000, u64::MAX) as f64 / delays.count() as f64;
            let expected = 1.0 / f64::from(period);
            // preemption makes others late as well
            assert!(late > 0.8 * expected && late < expected + 0.25, "{late} late of every {period}th");
        });
    }
}

#[test]
fn reordering_duplicates_and_damage_are_told_apart() {
    // the last packet may wait for a next one
    at_all_loads("swap = 1000", Trials::Undisturbed, |output| {
        let t = &output.trial;
        assert!(t.reordered > 0 && (t.duplicate, t.corrupt) == (0, 0) && t.lost <= 1, "{t:?}");
    });
    at_all_loads("duplicate = 1000", Trials::Undisturbed, |output| {
        let t = &output.trial;
        assert!(t.duplicate > 0 && (t.lost, t.reordered, t.corrupt) == (0, 0, 0), "{t:?}");
    });
    at_all_loads("corrupt = 1000", Trials::Undisturbed, |output| {
        let t = &output.trial;
        assert!(t.corrupt > 0 && (t.reordered, t.duplicate) == (0, 0) && counts(t), "{t:?}");
        // one that the attempt before has lost may arrive in this one, and nothing in it tells
        assert!(t.corrupt.abs_diff(t.lost) <= 1, "{t:?}");
    });
}

#[test]
fn buffers_held_by_the_dut_are_not_the_limit_of_the_generator() {
    at_all_loads("hold = 1000000", Trials::Undisturbed, |output| {
        let trial = &output.trial;
        assert_eq!(trial.received, 0, "{trial:?}");
        assert!(trial.device_loss_ratio() > 0.99 && counts(trial), "{trial:?}");
        assert!(trial.unsent_no_buffer * 10 >= trial.unsent * 9, "{trial:?}");
    });
}

#[test]
fn faults_of_the_dut_are_its_own_on_a_busy_machine() {
    at_all_loads("drop = 1000", Trials::Busy, |output| {
        let trial = &output.trial;
        assert!(trial.dropped_by_nfs > 0 && trial.lost_by_dut() > 0 && counts(trial), "{trial:?}");
    });
    at_all_loads("hold = 1000000", Trials::Busy, |output| {
        let trial = &output.trial;
        assert!(trial.device_loss_ratio() > 0.9 && counts(trial), "{trial:?}");
    });
    // that loss is excused by proven preemption only is checked in every trial
    at_all_loads("stall = 20000", Trials::Busy, |output| {
        let trial = &output.trial;
        assert!(trial.lost > 0 && (trial.host_interference || counts(trial)), "{trial:?}");
    });
}

#[test]
fn a_generator_without_its_cpu_is_never_the_dut() {
    let _lock = HOST.write().unwrap_or_else(|e| e.into_inner());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            runtime::pin(*runtime::allowed_cpus().last().unwrap()).unwrap();
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let measured = scope.spawn(|| {
            let mut bench = Bench::start("");
            for load_pps in LOADS {
                let trial = bench.trial(load_pps).trial;
                assert!(trial.generator.gap_sum.as_secs_f64() > 0.1 * TRIAL_S, "{trial:?}");
                assert!(trial.lost == 0 || trial.host_interference, "{trial:?}");
            }
        });
        let ended = measured.join();
        stop.store(true, Ordering::Relaxed);
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}
