//! What has to be done at the end, also when this program is killed.

use super::program::{self, Line};
use super::{DutError, Site};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A script that is run when this is dropped, or when this program is gone, however it ended: a shell waits for the end
/// of a pipe of which only this program has the other side.
pub(crate) struct Guard(Child);

impl Guard {
    /// Waits with a script, whose `$1`, … are `words`. Of `first`, all is done at once; it is done when this returns.
    ///
    /// # Errors
    /// When no shell can be started, or `first` fails.
    pub(crate) fn start(site: &mut Site, first: &str, last: &str, words: &[&str]) -> Result<Guard, DutError> {
        let script = format!("{{ {first}\n}} && echo ready && cat >/dev/null; {last}");
        let line = Line::new("sh").args(["-c", &script, "guard"]).args(words.iter().copied());
        let log = site.path("guard.log");
        let out = std::fs::File::create(&log).map_err(|e| site.file_error(&log, &e))?;
        let also = out.try_clone().map_err(|e| site.file_error(&log, &e))?;
        let mut command = program::in_a_group(&line);
        let child = command.current_dir("/").stdin(Stdio::piped()).stdout(out).stderr(also).spawn();
        let mut guard = Guard(child.map_err(|e| site.wrong(format!("no shell can be run: {e}"), "install one"))?);
        let end = Instant::now() + PATIENCE;
        let said = || std::fs::read_to_string(&log).unwrap_or_default();
        while !said().lines().any(|line| line == "ready") {
            if Instant::now() > end || !matches!(guard.0.try_wait(), Ok(None)) {
                let problem = format!("what has to be done first failed: {}", said().trim());
                return Err(site.wrong(problem, "look at what it says"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(guard)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let end = Instant::now() + PATIENCE;
        while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(2));
        }
        // errors: it has ended
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
