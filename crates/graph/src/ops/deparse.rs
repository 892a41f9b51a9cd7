//! Returning to the previous header.

use crate::{Exit, HeaderStack, NonEmptyStack, Operator, OperatorNames, OperatorTrace, View};

/// Operator returned by [`Operator::deparse`].
pub struct Deparse<U> {
    upstream: U,
}

impl<U> Deparse<U> {
    pub(crate) fn new(upstream: U) -> Self {
        Deparse { upstream }
    }
}

impl<I: HeaderStack, U: Operator<I>> Operator<I> for Deparse<U>
where
    U::Output: NonEmptyStack,
{
    type Output = <U::Output as NonEmptyStack>::Below;
    const DROP_REASONS: u8 = U::DROP_REASONS;

    fn register(&mut self, names: &mut OperatorNames) {
        self.upstream.register(names);
    }

    #[inline(always)]
    fn run<'p>(&mut self, view: View<'p, I>, first: u8) -> Result<View<'p, Self::Output>, Exit> {
        let view = self.upstream.run(view, first)?;
        let below = view.stack.below();
        Ok(view.with_stack(below))
    }

    fn run_traced<'p>(
        &mut self,
        view: View<'p, I>,
        first: u8,
        trace: &mut OperatorTrace<'_>,
    ) -> Result<View<'p, Self::Output>, Exit> {
        let view = self.upstream.run_traced(view, first, trace)?;
        trace.step("deparse", None, view, |view| {
            let below = view.stack.below();
            Ok(view.with_stack(below))
        })
    }
}
