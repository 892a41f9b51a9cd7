//! Keeping some packets, dropping the others for a reason.

use super::dropped;
use crate::{Exit, Operator, Reasons, Stack, View};

/// [`Operator::filter`].
pub struct Filter<U, F> {
    up: U,
    name: &'static str,
    f: F,
}

impl<U, F> Filter<U, F> {
    pub(crate) fn new(up: U, name: &'static str, f: F) -> Self {
        Filter { up, name, f }
    }
}

impl<I: Stack, U: Operator<I>, F> Operator<I> for Filter<U, F>
where
    F: FnMut(&View<'_, U::Output>) -> bool + Send,
{
    type Output = U::Output;
    const REASONS: u8 = U::REASONS + 1;

    fn name(&mut self, names: &mut Reasons) {
        self.up.name(names);
        names.drop(self.name);
    }

    #[inline(always)]
    fn run<'p>(&mut self, view: View<'p, I>, first: u8) -> Result<View<'p, Self::Output>, Exit> {
        let view = self.up.run(view, first)?;
        if (self.f)(&view) { Ok(view) } else { Err(dropped::<Self>(first + U::REASONS)) }
    }
}
