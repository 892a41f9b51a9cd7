//! Changing packets.

use crate::{Exit, HeaderStack, Operator, OperatorNames, View};

/// Operator returned by [`Operator::transform`].
pub struct Transform<U, F> {
    upstream: U,
    f: F,
}

impl<U, F> Transform<U, F> {
    pub(crate) fn new(upstream: U, f: F) -> Self {
        Transform { upstream, f }
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
        let mut view = self.upstream.run(view, first)?;
        (self.f)(&mut view);
        Ok(view)
    }
}
