//! Errors that occur during a run, reported at its end.

use std::sync::{Arc, Mutex, PoisonError};

/// Most distinct errors that are kept.
const MAX_DISTINCT: usize = 100;

/// A list of distinct errors with their counts. Clones share the list.
#[derive(Clone, Default)]
pub(crate) struct RunErrors(Arc<Mutex<List>>);

#[derive(Default)]
struct List {
    distinct: Vec<(String, u64)>,
    others: u64,
}

impl RunErrors {
    /// Adds an error.
    pub(crate) fn report(&self, error: String) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let List { distinct, others } = &mut *list;
        if let Some((_, times)) = distinct.iter_mut().find(|(known, _)| *known == error) {
            *times += 1;
        } else if distinct.len() < MAX_DISTINCT {
            distinct.push((error, 1));
        } else {
            *others += 1;
        }
    }

    /// Returns the errors in the order of their first occurrence, with counts.
    pub(crate) fn messages(&self) -> Vec<String> {
        let list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let message = |(error, times): &(String, u64)| match times {
            1 => error.clone(),
            times => format!("{error} ({times} times)"),
        };
        let others = (list.others != 0).then(|| format!("{} more errors", list.others));
        list.distinct.iter().map(message).chain(others).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_errors_are_counted_and_distinct_errors_limited() {
        let errors = RunErrors::default();
        for n in 0..1000 {
            errors.report("the same".into());
            errors.clone().report(format!("number {}", n / 2));
        }
        let messages = errors.messages();
        assert_eq!(messages.len(), MAX_DISTINCT + 1);
        assert_eq!(messages[..2], ["the same (1000 times)", "number 0 (2 times)"]);
        assert_eq!(messages[MAX_DISTINCT], format!("{} more errors", 1000 - 2 * (MAX_DISTINCT - 1)));
    }
}
