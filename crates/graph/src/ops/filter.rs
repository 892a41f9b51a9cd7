//! Keeping packets that satisfy a condition.

use super::dropped;
use crate::{Exit, HeaderStack, Operator, OperatorNames, OperatorTrace, View};

/// Operator returned by [`Operator::filter`].
pub struct Filter<U, F> {
    upstream: U,
    name: &'static str,
    f: F,
}

impl<U, F> Filter<U, F> {
    pub(crate) fn new(upstream: U, name: &'static str, f: F) -> Self {
        Filter { upstream, name, f }
    }

    #[inline(always)]
    fn step<'p, S>(&mut self, view: View<'p, S>, reason: u8) -> Result<View<'p, S>, Exit>
    where
        F: FnMut(&View<'_, S>) -> bool,
    {
        if (self.f)(&view) { Ok(view) } else { Err(dropped::<Self>(reason)) }
    }
}

impl<I: HeaderStack, U: Operator<I>, F> Operator<I> for Filter<U, F>
where
    F: FnMut(&View<'_, U::Output>) -> bool + Send,
{
    type Output = U::Output;
    const DROP_REASONS: u8 = U::DROP_REASONS + 1;

    fn register(&mut self, names: &mut OperatorNames) {
        self.upstream.register(names);
        names.drop(self.name);
    }

    #[inline(always)]
    fn run<'p>(&mut self, view: View<'p, I>, first: u8) -> Result<View<'p, Self::Output>, Exit> {
        let view = self.upstream.run(view, first)?;
        self.step(view, first + U::DROP_REASONS)
    }

    fn run_traced<'p>(
        &mut self,
        view: View<'p, I>,
        first: u8,
        trace: &mut OperatorTrace<'_>,
    ) -> Result<View<'p, Self::Output>, Exit> {
        let view = self.upstream.run_traced(view, first, trace)?;
        trace.step("filter", Some(self.name), view, |view| self.step(view, first + U::DROP_REASONS))
    }
}
