//! Rules that may match an input.

/// Numbers of rules, each once.
#[derive(Default)]
pub(super) struct Candidates {
    list: Vec<u32>,
    /// Number of the last input of which each rule was a candidate.
    last: Vec<u32>,
    input: u32,
}

impl Candidates {
    pub(super) fn new(rules: usize) -> Self {
        Candidates { list: vec![], last: vec![0; rules], input: 0 }
    }

    /// Removes all.
    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.input = self.input.wrapping_add(1);
        if self.input == 0 {
            self.last.fill(0);
            self.input = 1;
        }
    }

    /// Adds a rule.
    pub(super) fn insert(&mut self, rule: u32) {
        if let Some(last) = self.last.get_mut(rule as usize)
            && *last != self.input
        {
            *last = self.input;
            self.list.push(rule);
        }
    }

    pub(super) fn contains(&self, rule: u32) -> bool {
        self.last.get(rule as usize).is_some_and(|last| *last == self.input)
    }

    /// Returns the rules in the order in which they were added.
    pub(super) fn as_slice(&self) -> &[u32] {
        &self.list
    }

    /// Sorts the rules in the order of evaluation and returns them.
    pub(super) fn sorted(&mut self) -> &[u32] {
        self.list.sort_unstable();
        &self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_candidates_once() {
        let mut candidates = Candidates::new(3);
        for _ in 0..2 {
            candidates.clear();
            assert!(candidates.as_slice().is_empty() && !candidates.contains(1));
            [2, 1, 2, 9].into_iter().for_each(|rule| candidates.insert(rule));
            assert_eq!(candidates.sorted(), [1, 2]);
            assert!(candidates.contains(1) && !candidates.contains(0));
        }
        candidates.input = u32::MAX;
        candidates.clear();
        assert!(!candidates.contains(1));
    }
}
