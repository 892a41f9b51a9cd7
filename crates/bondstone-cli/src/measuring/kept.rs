//! Results of a job that a run before has left.

use super::{Job, Measured};
use bench::Offered;

/// Results with the number of their frames.
pub(super) struct Kept(pub(super) Vec<(usize, report::Result)>);

impl Kept {
    /// Those of these results that are of these frames and the job's methods.
    pub(super) fn of(before: Vec<report::Result>, job: &Job<'_>, offered: &[Offered]) -> Kept {
        let traffic: Vec<_> = offered.iter().map(|offered| job.generator.traffic(offered.document())).collect();
        let number = |result: &report::Result| {
            let number = traffic.iter().position(|t| *t == result.traffic);
            number.filter(|_| job.how.methods.contains(&result.method.name))
        };
        Kept(before.into_iter().filter_map(|result| Some((number(&result)?, result))).collect())
    }

    /// That of a method with these frames.
    pub(super) fn find(&self, number: usize, method: &str) -> Option<&report::Result> {
        self.0.iter().find(|(n, result)| *n == number && result.method.name == method).map(|(_, result)| result)
    }
}

/// Results with what was written of their frames.
pub(super) fn named(results: Vec<(usize, report::Result)>, offered: &[Offered]) -> Vec<Measured> {
    results.into_iter().map(|(n, result)| Measured { frames: offered[n].name().to_owned(), result }).collect()
}
