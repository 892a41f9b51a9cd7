//! SIGINT (Ctrl-C), SIGTERM and SIGHUP.

use crate::exit::Exit;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::time::{Duration, Instant};

/// Time after the first interrupt in which others count as the same one: `timeout` signals a process and then its
/// group, a terminal the group, of which a parent passes the signal on.
const SAME_INTERRUPT: Duration = Duration::from_millis(500);

/// The effect of an interrupt.
#[derive(Debug, PartialEq, Eq)]
enum Effect {
    Stop,
    Ignore,
    Terminate,
}

/// Returns the effect of an interrupt at `now`; `first` is the time of the first one.
fn effect(first: &mut Option<Instant>, now: Instant) -> Effect {
    match *first {
        None => {
            *first = Some(now);
            Effect::Stop
        }
        Some(first) if now.saturating_duration_since(first) < SAME_INTERRUPT => Effect::Ignore,
        Some(_) => Effect::Terminate,
    }
}

/// Calls `stop` at the first SIGINT, SIGTERM or SIGHUP; one that follows later than [`SAME_INTERRUPT`] terminates the
/// program immediately.
pub(crate) fn on_interrupt(stop: impl Fn() + Send + 'static) -> anyhow::Result<()> {
    on_signals(move |signal| match signal {
        Signal::Interrupt | Signal::Hangup => stop(),
    })
}

/// A signal that the program handles.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGINT or SIGTERM.
    Interrupt,
    Hangup,
}

/// Calls `handle` at the first SIGINT or SIGTERM, as [`on_interrupt`] does, and at every SIGHUP.
pub(crate) fn on_signals(handle: impl Fn(Signal) + Send + 'static) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let wait = move || {
        let mut first = None;
        for signal in signals.forever() {
            if signal == SIGHUP {
                handle(Signal::Hangup);
                continue;
            }
            match effect(&mut first, Instant::now()) {
                Effect::Stop => {
                    tracing::info!(target: "run", "interrupted: stopping; interrupt again to terminate immediately");
                    handle(Signal::Interrupt);
                }
                Effect::Ignore => {}
                Effect::Terminate => {
                    tracing::info!(target: "run", "interrupted again: terminating");
                    logger::flush();
                    std::process::exit(Exit::Interrupted as i32);
                }
            }
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_in_quick_succession_are_one() {
        let (mut first, start) = (None, Instant::now());
        let mut at = |ms: u64| effect(&mut first, start + Duration::from_millis(ms));
        assert_eq!([at(0), at(0), at(20), at(499)], [Effect::Stop, Effect::Ignore, Effect::Ignore, Effect::Ignore]);
        assert_eq!([at(500), at(9000)], [Effect::Terminate, Effect::Terminate]);
    }
}
