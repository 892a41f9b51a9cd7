//! Priority over other processes.

use crate::cleanup::CleanupProcess;
use std::fmt;
use std::fs::{read_to_string, write};

/// The lowest nice value, which is the highest priority.
const HIGHEST: i32 = -20;
/// Nice value of the autogroup of this process: that of its session.
const AUTOGROUP: &str = "/proc/self/autogroup";
const AUTOGROUP_ENABLED: &str = "/proc/sys/kernel/sched_autogroup_enabled";

/// Raises the priority of the calling thread and of the threads and processes that it starts; returns true if
/// permitted.
pub fn raise_priority() -> bool {
    rustix::process::setpriority_process(None, HIGHEST).is_ok()
}

/// The raised priority of the session that this process belongs to.
///
/// With autogroups (sched(7)) the nice value of a thread has an effect within its session only, and sessions have equal
/// shares of a CPU. The nice value of the autogroup is that of the session, so it is restored when this is dropped, and
/// also if the process is killed.
pub struct SessionPriority {
    achieved: Achieved,
    _restore: Option<CleanupProcess>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Achieved {
    Raised,
    /// Nice values have an effect across sessions.
    NotNeeded,
    Refused,
}

impl SessionPriority {
    /// Raises the priority as far as permitted.
    pub fn raise() -> SessionPriority {
        let is_enabled = read_to_string(AUTOGROUP_ENABLED).is_ok_and(|on| on.trim() == "1");
        let before = is_enabled.then(nice_of_autogroup).flatten();
        let (achieved, restore) = match before {
            None => (Achieved::NotNeeded, None),
            Some(HIGHEST) => (Achieved::Raised, None),
            Some(before) => {
                // the shell is of the same session
                let restore = CleanupProcess::start(&format!("echo \"$1\" >{AUTOGROUP}"), [before.to_string()], None);
                match restore {
                    Ok(restore) if write(AUTOGROUP, HIGHEST.to_string()).is_ok() => (Achieved::Raised, Some(restore)),
                    _ => (Achieved::Refused, None),
                }
            }
        };
        SessionPriority { achieved, _restore: restore }
    }
}

impl fmt::Display for SessionPriority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.achieved {
            Achieved::Raised => "session (autogroup) nice -20",
            Achieved::NotNeeded => "no autogroups",
            Achieved::Refused => "session (autogroup) not raised: no effect on other sessions",
        })
    }
}

/// Returns the nice value of the autogroup of this process, if it has one.
fn nice_of_autogroup() -> Option<i32> {
    // `/autogroup-5 nice 0`
    read_to_string(AUTOGROUP).ok()?.trim().rsplit_once("nice ")?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OffCpuMeter;
    use packet::clock;
    use std::process::Command;

    /// Returns the share of 300 ms that a busy thread does not run on this CPU.
    fn off_cpu_share(cpu: usize) -> f64 {
        crate::pin(cpu).unwrap();
        let (mut meter, start) = (OffCpuMeter::start(), clock::cycles());
        while clock::cycles() - start < clock::hz() * 3 / 10 {
            std::hint::spin_loop();
        }
        let now = clock::cycles();
        meter.lap(now) as f64 / (now - start) as f64
    }

    #[test]
    fn a_session_has_priority_over_another_and_loses_it_at_the_end() {
        let Some(before) = nice_of_autogroup() else { return println!("skipped: the kernel has no autogroups") };
        let cpu = crate::allowed_cpus()[0];
        let mut other = Command::new("setsid")
            .args(["taskset", "-c", &cpu.to_string(), "sh", "-c", "while :; do :; done"])
            .spawn()
            .unwrap();
        let raised = SessionPriority::raise();
        let (text, nice) = (raised.to_string(), nice_of_autogroup());
        let share = std::thread::spawn(move || {
            raise_priority();
            off_cpu_share(cpu)
        });
        let share = share.join().unwrap();
        other.kill().unwrap();
        other.wait().unwrap();
        drop(raised);
        assert_eq!(nice_of_autogroup(), Some(before));
        match text.as_str() {
            "session (autogroup) nice -20" => {
                assert_eq!(nice, Some(HIGHEST));
                assert!(share < 0.25, "{share} of the time for another session");
            }
            _ => println!("skipped: {text}"),
        }
    }
}
