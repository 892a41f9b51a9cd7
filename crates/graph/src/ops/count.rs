//! Counting packets.

use crate::operator_trace::OperatorResult;
use crate::{Counter, Exit, HeaderStack, Operator, OperatorNames, OperatorTrace, View};
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

    #[inline(always)]
    fn step<'p, S>(&mut self, view: View<'p, S>) -> Result<View<'p, S>, Exit>
    where
        F: FnMut(&View<'_, S>) -> bool,
    {
        if (self.f)(&view) {
            self.counter.add(1);
        }
        Ok(view)
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
        self.step(view)
    }

    fn run_traced<'p>(
        &mut self,
        view: View<'p, I>,
        first: u8,
        trace: &mut OperatorTrace<'_>,
    ) -> Result<View<'p, Self::Output>, Exit> {
        let view = self.upstream.run_traced(view, first, trace)?;
        let before = self.counter.get();
        let view = trace.step("count", Some(self.name), view, |view| self.step(view))?;
        if self.counter.get() != before {
            trace.passed_as(OperatorResult::Counted);
        }
        Ok(view)
    }
}
