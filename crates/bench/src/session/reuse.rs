//! Results of an earlier session that need not be measured again.

use super::{CellResult, Run};
use crate::traffic_spec::PreparedTraffic;

/// Result with the index of its traffic.
pub(super) type IndexedResult = (usize, report::Result);

/// Results of an earlier session that belong to a run.
pub(super) struct ReusableResults(Vec<IndexedResult>);

impl ReusableResults {
    /// Selects the results with the traffic and the methods of a run.
    pub(super) fn select(earlier: Vec<report::Result>, run: &Run<'_>, traffic: &[PreparedTraffic]) -> ReusableResults {
        let documents: Vec<_> = traffic.iter().map(|traffic| run.generator.traffic(traffic.document())).collect();
        let index = |result: &report::Result| {
            let index = documents.iter().position(|document| *document == result.traffic);
            index.filter(|_| run.settings.methods.contains(&result.method.name))
        };
        ReusableResults(earlier.into_iter().filter_map(|result| Some((index(&result)?, result))).collect())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn results(&self) -> impl Iterator<Item = &report::Result> {
        self.0.iter().map(|(_, result)| result)
    }

    /// Finds the result of a method with traffic `index`.
    pub(super) fn find(&self, index: usize, method: &str) -> Option<&report::Result> {
        self.0.iter().find(|(n, result)| *n == index && result.method.name == method).map(|(_, result)| result)
    }

    pub(super) fn into_cell_results(self, traffic: &[PreparedTraffic]) -> Vec<CellResult> {
        cell_results(self.0, traffic)
    }
}

/// Adds the written frame sizes to results.
pub(super) fn cell_results(results: Vec<IndexedResult>, traffic: &[PreparedTraffic]) -> Vec<CellResult> {
    results.into_iter().map(|(n, result)| CellResult { frames: traffic[n].name().to_owned(), result }).collect()
}
