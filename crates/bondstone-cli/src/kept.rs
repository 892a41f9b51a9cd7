//! A run in a process of its own, which is started again when that is gone.

use crate::exit::Exit;
use crate::interrupt::on_interrupt;
use anyhow::Context;
use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The option of the process that is kept, which nobody else gives.
const KEPT: &str = "--kept";
/// Its status when the run has failed and yet come to its end, with a summary.
const ENDED: u8 = 44;
/// How long it is left alone after its end: as often as it ends at once, twice as long each time.
const SOON: Duration = Duration::from_millis(10);
const LATE: Duration = Duration::from_secs(5);
/// Whoever ran for so long has not ended at once.
const LONG: Duration = Duration::from_secs(10);

/// Whether the status tells of a run that came to its end; others are those of a process that something took down.
fn is_end(status: ExitStatus) -> Option<ExitCode> {
    const CRASHED: i32 = Exit::Failed as i32;
    match status.code()? {
        CRASHED => None,
        code if code == i32::from(ENDED) => Some(Exit::Failed.into()),
        code => Some(ExitCode::from(u8::try_from(code).unwrap_or(Exit::Failed as u8))),
    }
}

/// Runs this program's own command again, `kept`, until that comes to its end; how it ended.
pub(crate) fn keep() -> anyhow::Result<ExitCode> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let seen = interrupted.clone();
    on_interrupt(move || seen.store(true, Ordering::Relaxed))?;
    let own = std::env::current_exe().context("own program")?;
    let mut soon = SOON;
    loop {
        let mut command = Command::new(&own);
        // the terminal's Ctrl-C is handed on, once
        command.args(std::env::args_os().skip(1)).args([KEPT, &std::process::id().to_string()]).process_group(0);
        let mut child = command.spawn().context("its process")?;
        let began = Instant::now();
        let mut told = false;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if interrupted.load(Ordering::Relaxed) && !std::mem::replace(&mut told, true) {
                // errors: it has just ended
                let _ = Pid::from_raw(child.id() as i32).map(|pid| kill_process(pid, Signal::INT));
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        if let Some(code) = is_end(status) {
            return Ok(code);
        }
        if interrupted.load(Ordering::Relaxed) {
            return Ok(Exit::Interrupted.into());
        }
        soon = if began.elapsed() > LONG { SOON } else { soon };
        eprintln!("warning: the run has ended ({status}), with all that it counted; it is started again in {soon:?}");
        std::thread::sleep(soon);
        soon = (soon * 2).min(LATE);
    }
}

/// In the process that is kept: it ends with the one that keeps it.
///
/// # Errors
/// That one has ended already.
pub(crate) fn end_with(keeper: i32) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    anyhow::ensure!(getppid() == Pid::from_raw(keeper), "process {keeper}, which keeps it, has ended");
    Ok(())
}

/// The status of a kept run that failed and came to its end.
pub(crate) fn ended(exit: Exit) -> ExitCode {
    if exit == Exit::Failed { ExitCode::from(ENDED) } else { exit.into() }
}
