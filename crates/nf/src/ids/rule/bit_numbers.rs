//! Numbers of the bits that rules name.

use std::collections::{HashMap, HashSet};

/// Numbers of bits by name. A number is never given to another name, so that flows keep their bits when rules are
/// replaced.
#[derive(Clone, Debug, Default)]
pub(in crate::ids) struct BitNumbers {
    numbers: HashMap<String, u32>,
    next: u32,
}

impl BitNumbers {
    /// Returns the number of a bit.
    pub(super) fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        self.next = self.next.wrapping_add(1);
        self.numbers.insert(name.to_owned(), self.next);
        self.next
    }

    /// Removes the names whose numbers are not used.
    pub(in crate::ids) fn retain(&mut self, used: &HashSet<u32>) {
        self.numbers.retain(|_, number| used.contains(number));
    }
}
