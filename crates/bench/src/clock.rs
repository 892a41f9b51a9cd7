//! The clock of CPUs, where the machine lets it be set: fixed for a measurement, and given back as it was, also when this
//! program is killed.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Where the kernel has the clocks of CPUs (cpufreq).
const SYSFS: &str = "/sys/devices/system/cpu";
/// By as much a kernel may round, kHz.
const ROUNDING_KHZ: u64 = 50_000;
/// Waits for the end of a pipe whose other side only this program has, and gives clocks back then: folders of CPUs, each with
/// its slowest and fastest. A slowest one above the fastest is refused, so it is tried before and after.
const GIVE_BACK: &str = "cat >/dev/null; while [ $# -gt 2 ]; do \
    for n in 1 2; do echo $2 >$1/scaling_min_freq; echo $3 >$1/scaling_max_freq; done; shift 3; done";

/// Why a clock was not set.
#[derive(Debug, thiserror::Error)]
pub enum ClockError {
    /// There is nothing that sets it.
    #[error(
        "the clock of CPU {cpu} cannot be set on this machine: it has no {what} (a virtual machine's is its host's)"
    )]
    Fixed {
        /// Which.
        cpu: usize,
        /// The file that is missing.
        what: String,
    },
    /// The CPU cannot have it.
    #[error("CPU {cpu} can have {least_mhz} to {most_mhz} MHz, not {mhz}")]
    Range {
        /// Which.
        cpu: usize,
        /// What was asked for.
        mhz: u32,
        /// Its slowest clock.
        least_mhz: u64,
        /// Its fastest.
        most_mhz: u64,
    },
    /// It was refused, or something else was set.
    #[error("the clock of CPU {cpu} was not set to {mhz} MHz: {why}")]
    Refused {
        /// Which.
        cpu: usize,
        /// What was asked for.
        mhz: u32,
        /// What came of it.
        why: String,
    },
}

/// Clocks that are fixed until this is dropped, or this program is gone.
#[derive(Debug)]
pub struct Clock(Child);

impl Clock {
    /// Fixes the clock of these CPUs.
    ///
    /// # Errors
    /// [`ClockError`]; all are as they were then.
    pub fn fix(cpus: &[usize], mhz: u32) -> Result<Clock, ClockError> {
        Clock::fix_in(Path::new(SYSFS), cpus, mhz)
    }

    fn fix_in(sysfs: &Path, cpus: &[usize], mhz: u32) -> Result<Clock, ClockError> {
        let khz = u64::from(mhz) * 1000;
        let value = |cpu: usize, name: &str| {
            let path = place(sysfs, cpu, name);
            let number = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse::<u64>().ok());
            number.ok_or_else(|| ClockError::Fixed { cpu, what: path.display().to_string() })
        };
        let mut words = vec!["clock".to_owned()];
        for &cpu in cpus {
            let (least, most) = (value(cpu, "cpuinfo_min_freq")?, value(cpu, "cpuinfo_max_freq")?);
            if !(least..=most).contains(&khz) {
                return Err(ClockError::Range { cpu, mhz, least_mhz: least / 1000, most_mhz: most / 1000 });
            }
            let was = [value(cpu, "scaling_min_freq")?, value(cpu, "scaling_max_freq")?];
            words.push(sysfs.join(format!("cpu{cpu}/cpufreq")).display().to_string());
            words.extend(was.map(|khz| khz.to_string()));
        }
        let refused = |cpu: usize, why: String| ClockError::Refused { cpu, mhz, why };
        let first = cpus.first().copied().unwrap_or(0);
        let mut shell = Command::new("sh");
        shell.args(["-c", GIVE_BACK]).args(words).process_group(0);
        let child = shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let clock = Clock(child.map_err(|e| refused(first, format!("no shell can be run to give it back: {e}")))?);
        for &cpu in cpus {
            set(sysfs, cpu, khz).map_err(|e| refused(cpu, e.to_string()))?;
            let is = (value(cpu, "scaling_min_freq")?, value(cpu, "scaling_max_freq")?);
            if is.0.abs_diff(khz) > ROUNDING_KHZ || is.1.abs_diff(khz) > ROUNDING_KHZ {
                return Err(refused(cpu, format!("the kernel has made it {} to {} MHz", is.0 / 1000, is.1 / 1000)));
            }
        }
        Ok(clock)
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // errors: what cannot be given back could not have been taken
        let _ = self.0.wait();
    }
}

fn place(sysfs: &Path, cpu: usize, name: &str) -> PathBuf {
    sysfs.join(format!("cpu{cpu}/cpufreq/{name}"))
}

/// Sets slowest and fastest, in the order in which the one never passes the other.
fn set(sysfs: &Path, cpu: usize, khz: u64) -> io::Result<()> {
    let write = |name: &str| fs::write(place(sysfs, cpu, name), khz.to_string());
    let is_now = fs::read_to_string(place(sysfs, cpu, "scaling_max_freq"))?;
    if is_now.trim().parse::<u64>().is_ok_and(|now| khz > now) {
        write("scaling_max_freq")?;
        write("scaling_min_freq")
    } else {
        write("scaling_min_freq")?;
        write("scaling_max_freq")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake(PathBuf);

    impl Fake {
        fn new(name: &str) -> Fake {
            let root = std::env::temp_dir().join(format!("bondstone-fake-{name}-{}", std::process::id()));
            for cpu in 0..2 {
                let folder = root.join(format!("cpu{cpu}/cpufreq"));
                fs::create_dir_all(&folder).unwrap();
                for (file, khz) in [
                    ("cpuinfo_min_freq", 1_200_000),
                    ("cpuinfo_max_freq", 3_400_000),
                    ("scaling_min_freq", 1_200_000),
                    ("scaling_max_freq", 2_600_000),
                ] {
                    fs::write(folder.join(file), format!("{khz}\n")).unwrap();
                }
            }
            Fake(root)
        }

        fn is(&self, cpu: usize) -> (u64, u64) {
            let read =
                |name| fs::read_to_string(place(&self.0, cpu, name)).unwrap().trim().parse::<u64>().unwrap() / 1000;
            (read("scaling_min_freq"), read("scaling_max_freq"))
        }
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn clocks_are_fixed_and_given_back() {
        let fake = Fake::new("fixed");
        for mhz in [1600, 3400, 1200] {
            let clock = Clock::fix_in(&fake.0, &[0, 1], mhz).unwrap();
            assert_eq!([fake.is(0), fake.is(1)], [(mhz.into(), mhz.into()); 2]);
            drop(clock);
            assert_eq!([fake.is(0), fake.is(1)], [(1200, 2600); 2]);
        }
    }

    #[test]
    fn what_cannot_be_is_refused_and_nothing_is_changed() {
        let fake = Fake::new("refused");
        let said = |cpus: &[usize], mhz| Clock::fix_in(&fake.0, cpus, mhz).unwrap_err().to_string();
        assert!(said(&[0], 5000).contains("1200 to 3400 MHz"));
        assert!(said(&[0, 7], 2000).contains("CPU 7"));
        assert_eq!(fake.is(0), (1200, 2600));
    }

    #[test]
    fn who_is_killed_gives_back_as_well() {
        let fake = Fake::new("killed");
        let mut clock = Clock::fix_in(&fake.0, &[1], 2000).unwrap();
        assert_eq!(fake.is(1), (2000, 2000));
        // as it is when nobody has the pipe any more
        drop(clock.0.stdin.take());
        clock.0.wait().unwrap();
        assert_eq!((fake.is(0), fake.is(1)), ((1200, 2600), (1200, 2600)));
    }
}
