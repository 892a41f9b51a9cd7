//! Fixed frequency of CPUs for a measurement (Linux cpufreq). The previous limits are restored afterwards, also after
//! `kill -9`.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Folder of the CPUs in sysfs.
const SYSFS: &str = "/sys/devices/system/cpu";
/// Tolerance for rounding by the kernel, kHz.
const ROUNDING_KHZ: u64 = 50_000;
/// Cleanup process: waits for the end of a pipe that this program holds open, then restores the minimum and maximum of
/// each CPU folder. The kernel rejects a minimum above the maximum, so both are written twice.
const RESTORE: &str = "cat >/dev/null; while [ $# -gt 2 ]; do \
    for n in 1 2; do echo $2 >$1/scaling_min_freq; echo $3 >$1/scaling_max_freq; done; shift 3; done";

/// Reason why a frequency was not set.
#[derive(Debug, thiserror::Error)]
pub enum FrequencyError {
    /// The host has no control of the frequency.
    #[error(
        "cannot set the frequency of CPU {cpu}: {what} does not exist (on a virtual machine the host controls the \
         frequency)"
    )]
    Unsupported {
        /// CPU.
        cpu: usize,
        /// Missing file.
        what: String,
    },
    /// The frequency is out of range.
    #[error("cannot set the frequency of CPU {cpu}: {mhz} MHz is outside {min_mhz} to {max_mhz} MHz")]
    Range {
        /// CPU.
        cpu: usize,
        /// Requested frequency.
        mhz: u32,
        /// Lowest frequency.
        min_mhz: u64,
        /// Highest frequency.
        max_mhz: u64,
    },
    /// The kernel rejected the frequency or set another one.
    #[error("cannot set the frequency of CPU {cpu} to {mhz} MHz: {cause}")]
    Rejected {
        /// CPU.
        cpu: usize,
        /// Requested frequency.
        mhz: u32,
        /// Cause.
        cause: String,
    },
}

/// Frequencies that are fixed until this is dropped or this program ends.
#[derive(Debug)]
pub struct FixedFrequency(Child);

impl FixedFrequency {
    /// Fixes the frequency of these CPUs.
    ///
    /// # Errors
    /// [`FrequencyError`]; all frequencies are as before.
    pub fn fix(cpus: &[usize], mhz: u32) -> Result<FixedFrequency, FrequencyError> {
        FixedFrequency::fix_in(Path::new(SYSFS), cpus, mhz)
    }

    fn fix_in(sysfs: &Path, cpus: &[usize], mhz: u32) -> Result<FixedFrequency, FrequencyError> {
        let khz = u64::from(mhz) * 1000;
        let value = |cpu: usize, name: &str| {
            let file = path(sysfs, cpu, name);
            let number = fs::read_to_string(&file).ok().and_then(|text| text.trim().parse::<u64>().ok());
            number.ok_or_else(|| FrequencyError::Unsupported { cpu, what: file.display().to_string() })
        };
        let mut arguments = vec!["frequency".to_owned()];
        for &cpu in cpus {
            let (min, max) = (value(cpu, "cpuinfo_min_freq")?, value(cpu, "cpuinfo_max_freq")?);
            if !(min..=max).contains(&khz) {
                return Err(FrequencyError::Range { cpu, mhz, min_mhz: min / 1000, max_mhz: max / 1000 });
            }
            let previous = [value(cpu, "scaling_min_freq")?, value(cpu, "scaling_max_freq")?];
            arguments.push(sysfs.join(format!("cpu{cpu}/cpufreq")).display().to_string());
            arguments.extend(previous.map(|khz| khz.to_string()));
        }
        let rejected = |cpu: usize, cause: String| FrequencyError::Rejected { cpu, mhz, cause };
        let first = cpus.first().copied().unwrap_or(0);
        let mut shell = Command::new("sh");
        shell.args(["-c", RESTORE]).args(arguments).process_group(0);
        let child = shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let frequency = FixedFrequency(
            child.map_err(|e| rejected(first, format!("no shell can be started for the cleanup: {e}")))?,
        );
        for &cpu in cpus {
            set(sysfs, cpu, khz).map_err(|e| rejected(cpu, e.to_string()))?;
            let actual = (value(cpu, "scaling_min_freq")?, value(cpu, "scaling_max_freq")?);
            if actual.0.abs_diff(khz) > ROUNDING_KHZ || actual.1.abs_diff(khz) > ROUNDING_KHZ {
                return Err(rejected(cpu, format!("the kernel set {} to {} MHz", actual.0 / 1000, actual.1 / 1000)));
            }
        }
        Ok(frequency)
    }
}

impl Drop for FixedFrequency {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // the cleanup process restores the frequencies, as far as they could be set
        let _ = self.0.wait();
    }
}

fn path(sysfs: &Path, cpu: usize, name: &str) -> PathBuf {
    sysfs.join(format!("cpu{cpu}/cpufreq/{name}"))
}

/// Sets minimum and maximum in the order in which the minimum never exceeds the maximum.
fn set(sysfs: &Path, cpu: usize, khz: u64) -> io::Result<()> {
    let write = |name: &str| fs::write(path(sysfs, cpu, name), khz.to_string());
    let current = fs::read_to_string(path(sysfs, cpu, "scaling_max_freq"))?;
    if current.trim().parse::<u64>().is_ok_and(|max| khz > max) {
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

        fn limits_mhz(&self, cpu: usize) -> (u64, u64) {
            let read =
                |name| fs::read_to_string(path(&self.0, cpu, name)).unwrap().trim().parse::<u64>().unwrap() / 1000;
            (read("scaling_min_freq"), read("scaling_max_freq"))
        }
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn fixes_and_restores_frequencies() {
        let fake = Fake::new("fixed");
        for mhz in [1600, 3400, 1200] {
            let frequency = FixedFrequency::fix_in(&fake.0, &[0, 1], mhz).unwrap();
            assert_eq!([fake.limits_mhz(0), fake.limits_mhz(1)], [(mhz.into(), mhz.into()); 2]);
            drop(frequency);
            assert_eq!([fake.limits_mhz(0), fake.limits_mhz(1)], [(1200, 2600); 2]);
        }
    }

    #[test]
    fn rejects_frequencies_out_of_range() {
        let fake = Fake::new("refused");
        let error = |cpus: &[usize], mhz| FixedFrequency::fix_in(&fake.0, cpus, mhz).unwrap_err().to_string();
        assert!(error(&[0], 5000).contains("1200 to 3400 MHz"));
        assert!(error(&[0, 7], 2000).contains("CPU 7"));
        assert_eq!(fake.limits_mhz(0), (1200, 2600));
    }

    #[test]
    fn restores_frequencies_after_a_kill() {
        let fake = Fake::new("killed");
        let mut frequency = FixedFrequency::fix_in(&fake.0, &[1], 2000).unwrap();
        assert_eq!(fake.limits_mhz(1), (2000, 2000));
        // as after the end of the process that holds the pipe open
        drop(frequency.0.stdin.take());
        frequency.0.wait().unwrap();
        assert_eq!((fake.limits_mhz(0), fake.limits_mhz(1)), ((1200, 2600), (1200, 2600)));
    }
}
