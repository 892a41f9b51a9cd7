//! Stepping back out of a header.

use crate::{Exit, Layered, Operator, Reasons, Stack, View};

/// [`Operator::deparse`].
pub struct Deparse<U> {
    up: U,
}

impl<U> Deparse<U> {
    pub(crate) fn new(up: U) -> Self {
        Deparse { up }
    }
}

impl<I: Stack, U: Operator<I>> Operator<I> for Deparse<U>
where
    U::Output: Layered,
{
    type Output = <U::Output as Layered>::Below;
    const REASONS: u8 = U::REASONS;

    fn name(&mut self, names: &mut Reasons) {
        self.up.name(names);
    }

    #[inline(always)]
    fn run<'p>(&mut self, view: View<'p, I>, first: u8) -> Result<View<'p, Self::Output>, Exit> {
        let view = self.up.run(view, first)?;
        let below = view.stack.below();
        Ok(view.with(below))
    }
}
