//! List of numbers in order of insertion or last use.

/// Absent, or no neighbour.
const NONE: u32 = u32::MAX;

/// A doubly linked list of distinct small numbers with time stamps. Insertion, removal and moving to the end take
/// constant time.
#[derive(Default)]
pub(crate) struct Order {
    nodes: Vec<Node>,
    ends: Ends,
    len: usize,
}

#[derive(Clone, Copy)]
struct Node {
    before: u32,
    behind: u32,
    /// In ms; wraps.
    since: u32,
    there: bool,
}

struct Ends {
    first: u32,
    last: u32,
}

impl Default for Ends {
    fn default() -> Self {
        Ends { first: NONE, last: NONE }
    }
}

impl Order {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the number at the front.
    pub(crate) fn first(&self) -> Option<u32> {
        (self.ends.first != NONE).then_some(self.ends.first)
    }

    /// Returns the first number other than `but`.
    pub(crate) fn first_but(&self, but: u32) -> Option<u32> {
        let first = self.first()?;
        if first != but {
            return Some(first);
        }
        let next = self.nodes.get(first as usize)?.behind;
        (next != NONE).then_some(next)
    }

    /// Returns the first number if it was moved `ms` ago or earlier.
    pub(crate) fn due(&self, now: u32, ms: u32) -> Option<u32> {
        let first = self.first()?;
        let since = self.nodes.get(first as usize)?.since;
        (now.wrapping_sub(since) >= ms).then_some(first)
    }

    /// Inserts a number at the end, or moves it there.
    pub(crate) fn push(&mut self, number: u32, now: u32) {
        self.remove(number);
        let at = number as usize;
        if at >= self.nodes.len() {
            self.nodes.resize(at + 1, Node { before: NONE, behind: NONE, since: 0, there: false });
        }
        let last = core::mem::replace(&mut self.ends.last, number);
        self.nodes[at] = Node { before: last, behind: NONE, since: now, there: true };
        match self.nodes.get_mut(last as usize) {
            Some(before) => before.behind = number,
            None => self.ends.first = number,
        }
        self.len += 1;
    }

    /// Moves a number to the end unless it was moved within the last `ms`, so that frequent use stays cheap and the
    /// order is exact to `ms`.
    pub(crate) fn touch(&mut self, number: u32, now: u32, ms: u32) {
        if let Some(node) = self.nodes.get(number as usize)
            && node.there
            && now.wrapping_sub(node.since) >= ms
        {
            self.push(number, now);
        }
    }

    /// Removes a number, if it is in the list.
    pub(crate) fn remove(&mut self, number: u32) {
        let Some(node) = self.nodes.get_mut(number as usize) else { return };
        if !node.there {
            return;
        }
        node.there = false;
        let Node { before, behind, .. } = *node;
        match self.nodes.get_mut(before as usize) {
            Some(node) => node.behind = behind,
            None => self.ends.first = behind,
        }
        match self.nodes.get_mut(behind as usize) {
            Some(node) => node.before = before,
            None => self.ends.last = before,
        }
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(order: &Order) -> Vec<u32> {
        let mut all = vec![];
        let mut at = order.ends.first;
        while at != NONE {
            all.push(at);
            at = order.nodes[at as usize].behind;
        }
        all
    }

    proptest! {
        #[test]
        fn is_a_list(steps in prop::collection::vec((0..4u8, 0..12u32), 0..60)) {
            let mut order = Order::default();
            let mut model: Vec<(u32, u32)> = vec![];
            for (now, (what, n)) in (0..).zip(steps) {
                match what {
                    0 | 1 => {
                        model.retain(|x| x.0 != n);
                        model.push((n, now));
                        order.push(n, now);
                    }
                    2 => {
                        model.retain(|x| x.0 != n);
                        order.remove(n);
                    }
                    _ => {
                        if let Some(at) = model.iter().position(|x| x.0 == n && now - x.1 >= 5) {
                            model.remove(at);
                            model.push((n, now));
                        }
                        order.touch(n, now, 5);
                    }
                }
                prop_assert_eq!(all(&order), model.iter().map(|x| x.0).collect::<Vec<_>>());
                prop_assert_eq!(order.len(), model.len());
                prop_assert_eq!(order.first(), model.first().map(|x| x.0));
                prop_assert_eq!(order.first_but(3), model.iter().map(|x| x.0).find(|x| *x != 3));
                let due = model.first().filter(|x| now - x.1 >= 3).map(|x| x.0);
                prop_assert_eq!(order.due(now, 3), due);
            }
        }
    }
}
