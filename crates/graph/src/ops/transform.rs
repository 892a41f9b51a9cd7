//! Changing a packet.

use crate::{Exit, Operator, Reasons, Stack, View};

/// [`Operator::transform`].
pub struct Transform<U, F> {
    up: U,
    f: F,
}

impl<U, F> Transform<U, F> {
    pub(crate) fn new(up: U, f: F) -> Self {
        Transform { up, f }
    }
}

impl<I: Stack, U: Operator<I>, F> Operator<I> for Transform<U, F>
where
    F: FnMut(&mut View<'_, U::Output>) + Send,
{
    type Output = U::Output;
    const REASONS: u8 = U::REASONS;

    fn name(&mut self, names: &mut Reasons) {
        self.up.name(names);
    }

    #[inline(always)]
    fn run<'p>(&mut self, view: View<'p, I>, first: u8) -> Result<View<'p, Self::Output>, Exit> {
        let mut view = self.up.run(view, first)?;
        (self.f)(&mut view);
        Ok(view)
    }
}
