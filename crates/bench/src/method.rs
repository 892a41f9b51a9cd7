//! Methods: what is asked of a [`Bed`], and what the answers come to.
//!
//! A method is a state machine: it asks for a trial, is told what came of it, and has [findings](Findings) at any time,
//! also when it is ended early. It sends nothing and knows no clock, so all of them are proved on simulated devices.
//! [`by_name`] makes one, [`ALL`] says what there is.
//!
//! ```
//! use bench::method::{self, Form, Settings};
//! use bench::{Goal, Limits, simulated::Simulated};
//!
//! let mut device: Simulated = "capacity=3e6,buffer=900,jitter=300".parse()?;
//! let settings = Settings {
//!     line_pps: Some(4e6),
//!     ..Settings::new(Form::Quick, Goal::quick(), Limits::new(1e3, 4e6)?)
//! };
//! let mut method = method::by_name("back-to-back", &settings)?;
//! method::carry_out(&mut *method, &mut device, |_| true, |_seconds| ())?;
//! let findings = method.findings();
//! let time = findings.quantities.iter().find(|q| q.name == "corrected buffer time").unwrap();
//! assert!((time.value - 900.0 / 4e6).abs() < 2e-5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod back_to_back;
mod changes;
mod connections;
mod course;
mod delay_variation;
mod displaced;
mod latency;
mod load;
mod loss;
mod measured;
mod names;
mod profile;
mod receive_rate;
mod recovery;
mod reset;
mod soak;
mod throughput;

pub(crate) use measured::percentile;
pub use names::{ALL, About, Refused, by_name};
pub use profile::Outline;

use crate::bed::{Ask, Bed, BedError, Seen, StreamSeen};
use crate::goal::Goal;
use crate::search::{LimitedBy, Limits, SearchError, SearchKind};
use crate::trial::Trial;
use report::{Latency, Quantity, Series, Summary};

/// What a method wants.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    /// A trial.
    Trial(Ask),
    /// A pause without traffic, seconds (RFC 2544 §23: the device restabilises).
    Pause(f64),
    /// Nothing: it is over.
    Done,
}

/// How thoroughly.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Form {
    /// Seconds, for daily work; says where it deviates.
    #[default]
    Quick,
    /// As the standard has it.
    Standard,
}

/// What methods are told before they begin.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// How thoroughly.
    pub form: Form,
    /// What counts as a throughput.
    pub goal: Goal,
    /// Loads to choose from.
    pub limits: Limits,
    /// What the medium carries of these frames, packets a second, where that is known.
    pub line_pps: Option<f64>,
    /// The throughput, packets a second, where that is known; else a method that needs it searches for it first.
    pub throughput_pps: Option<f64>,
    /// The load of `load`, packets a second.
    pub rate_pps: Option<f64>,
    /// What the profile of `profile` comes to.
    pub profile: Option<Outline>,
    /// How a throughput is searched for.
    pub search: SearchKind,
    /// Packets of a connection, both directions, for `connections`.
    pub packets_per_connection: f64,
    /// How long a `soak` lasts, seconds; else 10 s, or 2 h as a standard one.
    pub soak_s: Option<f64>,
    /// Load of a `soak` as a share of the throughput.
    pub soak_share: f64,
}

impl Settings {
    /// With MLRsearch, no line rate or throughput known, 10 packets a connection, a soak at 90 % of the throughput.
    pub fn new(form: Form, goal: Goal, limits: Limits) -> Settings {
        Settings {
            form,
            goal,
            limits,
            line_pps: None,
            throughput_pps: None,
            rate_pps: None,
            profile: None,
            search: SearchKind::Mlr,
            packets_per_connection: 10.0,
            soak_s: None,
            soak_share: 0.9,
        }
    }

    /// What counts as 100 %: what the medium carries, or the highest load, whichever is less.
    pub fn top_pps(&self) -> f64 {
        self.line_pps.unwrap_or(f64::INFINITY).min(self.limits.max_pps())
    }

    /// One of two, by the form.
    pub(crate) fn pick<T>(&self, quick: T, standard: T) -> T {
        match self.form {
            Form::Quick => quick,
            Form::Standard => standard,
        }
    }
}

/// A way to measure.
pub trait Method {
    /// What to do next. Says the same until it is told of the trial, or that the pause is over.
    fn next(&mut self) -> Step;

    /// Takes in what came of the trial that was asked for.
    ///
    /// # Errors
    /// [`SearchError`] if none was asked for, another was, or its counts contradict each other; the method is as before.
    fn tell(&mut self, seen: Seen) -> Result<(), SearchError>;

    /// The pause asked for is over.
    fn paused(&mut self);

    /// What is known so far.
    fn findings(&self) -> Findings;
}

/// What a method has found.
#[derive(Clone, PartialEq, Debug)]
pub struct Findings {
    /// Which method, and which standard.
    pub method: report::Method,
    /// What counted as a throughput.
    pub goal: Goal,
    /// Bounds of the throughput, where one was looked for; the lower one is 0 where none was found.
    pub summary: Summary,
    /// What set them.
    pub limited_by: LimitedBy,
    /// Latency, at the loads at which it was measured.
    pub latency: Vec<Latency>,
    /// What else it comes to.
    pub quantities: Vec<Quantity>,
    /// Its curves.
    pub series: Vec<Series>,
    /// What became of the streams of a profile; of each the seconds, or one that is the sum of all.
    pub streams: Vec<StreamSeen>,
    /// What differs from the standard, and what makes the findings doubtful.
    pub deviations: Vec<String>,
    /// All trials, in order.
    pub trials: Vec<Trial>,
}

/// Why a measurement ended early.
#[derive(Debug, thiserror::Error)]
pub enum Stopped {
    /// The bed.
    #[error(transparent)]
    Bed(#[from] BedError),
    /// The search.
    #[error(transparent)]
    Search(#[from] SearchError),
}

/// Carries a method out. `told` sees every trial and ends the measurement by returning false; `pause` waits.
///
/// # Errors
/// [`Stopped`]; the method has its findings up to there.
pub fn carry_out(
    method: &mut dyn Method,
    bed: &mut dyn Bed,
    mut told: impl FnMut(&Seen) -> bool,
    mut pause: impl FnMut(f64),
) -> Result<(), Stopped> {
    loop {
        match method.next() {
            Step::Done => return Ok(()),
            Step::Pause(seconds) => {
                pause(seconds);
                method.paused();
            }
            Step::Trial(ask) => {
                let seen = bed.trial(&ask)?;
                if !told(&seen) {
                    return Err(BedError::Interrupted.into());
                }
                method.tell(seen)?;
            }
        }
    }
}

#[cfg(test)]
mod tests;
