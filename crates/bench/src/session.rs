//! Measurement sessions: runs chains and scenarios, reports progress, can be cancelled and resumed, and stores results.
//!
//! A [`Session`] measures [cells](SessionCell) one after the other. It reports every step as an [`Event`] to an
//! [`Observer`], adds every result to a [`Store`] at once, and stops at the end of the current trial when its
//! [`CancelHandle`] is used. A later session with the same cells resumes from what the store has of the last one.
//!
//! ```no_run
//! use bench::session::{Event, MemoryStore, Run, Session, SessionCell};
//!
//! # let registry = graph::Registry::default();
//! let file = config::ChainFile::read("router.toml".as_ref(), &registry).map_err(diagnostics::Diagnostics)?;
//! let cells = [SessionCell::new(Run::new(&file))];
//! let mut store = MemoryStore::default();
//! let mut session = Session::new(&registry);
//! session.run(&cells, &mut store, &mut |event: &Event<'_>| match event {
//!     Event::MethodDone(method, _) => println!("{}: {:?}", method.name, method.output.summary),
//!     _ => {}
//! })?;
//! print!("{}", report::table(store.results()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cell;
mod dut;
mod error;
mod event;
mod live;
mod matrix;
mod measurement;
mod method_run;
mod result;
mod reuse;
mod run_method;
mod store;

pub use cell::{CellResult, Run, SessionCell, Target};
pub use error::{SessionEnd, SessionError};
pub use event::{Event, Observer, TrialSecond};
pub use method_run::MethodRun;
pub use store::{MemoryStore, Store, StoreError};

use graph::Registry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Measures cells one after the other.
pub struct Session {
    registry: Registry,
    cancel: CancelHandle,
    generator_cpus: Vec<usize>,
    command: Option<String>,
    repetitions: u32,
    resume: bool,
    host_checked: bool,
    goal_reported: bool,
}

/// Cancels a session from another thread or a signal handler.
#[derive(Clone, Debug, Default)]
pub struct CancelHandle(Arc<AtomicBool>);

impl CancelHandle {
    /// Ends the session after the current trial. Results so far are stored.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns true if the session was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }
}

impl Session {
    /// Creates a session for chains of the NFs in `registry`.
    pub fn new(registry: &Registry) -> Session {
        Session {
            registry: registry.clone(),
            cancel: CancelHandle::default(),
            generator_cpus: vec![],
            command: None,
            repetitions: 1,
            resume: false,
            host_checked: false,
            goal_reported: false,
        }
    }

    /// Sets the CPUs of the generator, one for each of its threads; if empty, the last one that the DUT does not use.
    #[must_use]
    pub fn with_generator_cpus(mut self, cpus: Vec<usize>) -> Session {
        self.generator_cpus = cpus;
        self
    }

    /// Sets the command that results name as their origin.
    #[must_use]
    pub fn with_command(mut self, command: String) -> Session {
        self.command = Some(command);
        self
    }

    /// Measures all cells this many times, in rounds, so that slow changes of the host do not affect a single cell.
    pub fn set_repetitions(&mut self, repetitions: u32) {
        self.repetitions = repetitions.max(1);
    }

    /// Resumes the last session with the same cells: its results are not measured again.
    pub fn set_resume(&mut self, resume: bool) {
        self.resume = resume;
    }

    /// Returns a handle that cancels this session.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.cancel.clone()
    }
}
