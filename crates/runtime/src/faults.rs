//! What goes wrong while it runs, to be told at the end.

use std::sync::{Arc, Mutex, PoisonError};

/// Different faults that are kept.
const MOST: usize = 100;

/// Faults, each once, with how often it came. Clones are the same list.
#[derive(Clone, Default)]
pub(crate) struct Faults(Arc<Mutex<List>>);

#[derive(Default)]
struct List {
    kept: Vec<(String, u64)>,
    others: u64,
}

impl Faults {
    /// One more.
    pub(crate) fn report(&self, fault: String) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let List { kept, others } = &mut *list;
        if let Some((_, times)) = kept.iter_mut().find(|(known, _)| *known == fault) {
            *times += 1;
        } else if kept.len() < MOST {
            kept.push((fault, 1));
        } else {
            *others += 1;
        }
    }

    /// All of them, in the order in which they first came.
    pub(crate) fn told(&self) -> Vec<String> {
        let list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let told = |(fault, times): &(String, u64)| match times {
            1 => fault.clone(),
            times => format!("{fault} ({times} times)"),
        };
        let others = (list.others != 0).then(|| format!("{} faults more", list.others));
        list.kept.iter().map(told).chain(others).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_often_is_told_once() {
        let faults = Faults::default();
        for n in 0..1000 {
            faults.report("the same".into());
            faults.clone().report(format!("number {}", n / 2));
        }
        let told = faults.told();
        assert_eq!(told.len(), MOST + 1);
        assert_eq!(told[..2], ["the same (1000 times)", "number 0 (2 times)"]);
        assert_eq!(told[MOST], format!("{} faults more", 1000 - 2 * (MOST - 1)));
    }
}
