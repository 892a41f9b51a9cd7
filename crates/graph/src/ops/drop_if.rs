//! Dropping packets for one of several reasons.

use super::dropped;
use crate::{Exit, HeaderStack, Named, Operator, OperatorNames, OperatorTrace, View};
use core::marker::PhantomData;

/// Operator returned by [`Operator::drop_if`].
pub struct DropIf<R, U, F> {
    upstream: U,
    f: F,
    reason: PhantomData<fn() -> R>,
}

impl<R: Named, U, F> DropIf<R, U, F> {
    pub(crate) fn new(upstream: U, f: F) -> Self {
        const { assert!(R::NAMES.len() < 128, "at most 127 reasons") };
        DropIf { upstream, f, reason: PhantomData }
    }

    #[inline(always)]
    fn step<'p, S>(&mut self, view: View<'p, S>, first: u8) -> Result<View<'p, S>, Exit>
    where
        F: FnMut(&View<'_, S>) -> Option<R>,
    {
        match (self.f)(&view) {
            None => Ok(view),
            Some(reason) => Err(dropped::<Self>(first + reason.number())),
        }
    }
}

impl<R: Named, I: HeaderStack, U: Operator<I>, F> Operator<I> for DropIf<R, U, F>
where
    F: FnMut(&View<'_, U::Output>) -> Option<R> + Send,
{
    type Output = U::Output;
    const DROP_REASONS: u8 = U::DROP_REASONS + R::NAMES.len() as u8;

    fn register(&mut self, names: &mut OperatorNames) {
        self.upstream.register(names);
        R::NAMES.iter().for_each(|name| names.drop(name));
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
        trace.step("drop_if", None, view, |view| self.step(view, first + U::DROP_REASONS))
    }
}
