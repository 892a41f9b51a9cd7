//! Counting packets.

use crate::{Counter, Exit, HeaderStack, Operator, OperatorNames, View};
use std::sync::Arc;

/// Operator returned by [`Operator::count`].
pub struct Count<U, F> {
    upstream: U,
    name: &'static str,
    counter: Arc<Counter>,
    f: F,
}

impl<U, F> Count<U, F> {
    pub(crate) fn new(upstream: U, name: &'static str, f: F) -> Self {
        Count { upstream, name, counter: Arc::default(), f }
    }
}

impl<I: HeaderStack, U: Operator<I>, F> Operator<I> for Count<U, F>
where
    F: FnMut(&View<'_, U::Output>) -> bool + Send,
{
    type Output = U::Output;
    const DROP_REASONS: u8 = U::DROP_REASONS;

    fn register(&mut self, names: &mut OperatorNames) {
        self.upstream.register(names);
        names.counter(self.name, &self.counter);
    }

    #[inline(always)]
    fn run<'p>(&mut self, view: View<'p, I>, first: u8) -> Result<View<'p, Self::Output>, Exit> {
        let view = self.upstream.run(view, first)?;
        if (self.f)(&view) {
            self.counter.add(1);
        }
        Ok(view)
    }
}
