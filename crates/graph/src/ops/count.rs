//! Counting packets.

use crate::{Counter, Exit, Operator, Reasons, Stack, View};
use std::sync::Arc;

/// [`Operator::count`].
pub struct Count<U, F> {
    up: U,
    name: &'static str,
    counter: Arc<Counter>,
    f: F,
}

impl<U, F> Count<U, F> {
    pub(crate) fn new(up: U, name: &'static str, f: F) -> Self {
        Count { up, name, counter: Arc::default(), f }
    }
}

impl<I: Stack, U: Operator<I>, F> Operator<I> for Count<U, F>
where
    F: FnMut(&View<'_, U::Output>) -> bool + Send,
{
    type Output = U::Output;
    const REASONS: u8 = U::REASONS;

    fn name(&mut self, names: &mut Reasons) {
        self.up.name(names);
        names.counter(self.name, &self.counter);
    }

    #[inline(always)]
    fn run<'p>(&mut self, view: View<'p, I>, first: u8) -> Result<View<'p, Self::Output>, Exit> {
        let view = self.up.run(view, first)?;
        if (self.f)(&view) {
            self.counter.add(1);
        }
        Ok(view)
    }
}
