//! The largest of many queues.

use std::collections::BTreeSet;

/// Finds the largest of numbered queues. Sizes are kept in order only while that is needed: from the first call of
/// [`find`](Self::find) to [`forget`](Self::forget). Each change then takes O(log n).
#[derive(Debug, Default)]
pub(in crate::qos) struct Largest {
    /// Sizes and numbers of the queues that are not empty.
    order: Option<BTreeSet<(u64, u32)>>,
}

impl Largest {
    /// Returns the number of the largest queue, `None` if all are empty. `all` returns the sizes and numbers of all
    /// queues that are not empty; it is called if they are not in order yet.
    pub(in crate::qos) fn find<I: Iterator<Item = (u64, u32)>>(&mut self, all: impl FnOnce() -> I) -> Option<u32> {
        let order = self.order.get_or_insert_with(|| all().filter(|(size, _)| *size != 0).collect());
        order.last().map(|(_, number)| *number)
    }

    /// Changes the size of a queue.
    #[inline]
    pub(in crate::qos) fn update(&mut self, number: u32, before: u64, after: u64) {
        if let Some(order) = &mut self.order
            && before != after
        {
            order.remove(&(before, number));
            if after != 0 {
                order.insert((after, number));
            }
        }
    }

    /// Frees the order. The next call of [`find`](Self::find) needs all sizes.
    #[inline]
    pub(in crate::qos) fn forget(&mut self) {
        self.order = None;
    }

    /// Returns true if sizes are kept in order.
    #[cfg(test)]
    pub(in crate::qos) fn is_ordered(&self) -> bool {
        self.order.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_search(
            steps in proptest::collection::vec((0..20_usize, 0..50_u64, any::<bool>(), 0..20_u32), 1..200),
        ) {
            let (mut largest, mut sizes) = (Largest::default(), [0_u64; 20]);
            for (at, size, finds, forgets) in steps {
                let before = std::mem::replace(&mut sizes[at], size);
                largest.update(at as u32, before, size);
                if forgets == 0 {
                    largest.forget();
                }
                if finds {
                    let found = largest.find(|| sizes.iter().copied().zip(0..)).map(|number| sizes[number as usize]);
                    prop_assert_eq!(found.unwrap_or(0), sizes.iter().copied().max().unwrap());
                }
            }
        }
    }
}
