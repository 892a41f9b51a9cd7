//! Changing packets.

use crate::{Exit, HeaderStack, Operator, OperatorNames, OperatorTrace, View};

/// Operator returned by [`Operator::transform`].
pub struct Transform<U, F> {
    upstream: U,
    f: F,
}

impl<U, F> Transform<U, F> {
    pub(crate) fn new(upstream: U, f: F) -> Self {
        Transform { upstream, f }
    }

    #[inline(always)]
    fn step<'p, S>(&mut self, mut view: View<'p, S>) -> Result<View<'p, S>, Exit>
    where
        F: FnMut(&mut View<'_, S>),
    {
        (self.f)(&mut view);
        Ok(view)
    }
}

impl<I: HeaderStack, U: Operator<I>, F> Operator<I> for Transform<U, F>
where
    F: FnMut(&mut View<'_, U::Output>) + Send,
{
    type Output = U::Output;
    const DROP_REASONS: u8 = U::DROP_REASONS;

    fn register(&mut self, names: &mut OperatorNames) {
        self.upstream.register(names);
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
        trace.step("transform", None, view, |view| self.step(view))
    }
}
