//! Sending some packets out of a named output.

use crate::{Exit, Operator, Reasons, Stack, View};

/// [`Operator::divert`].
pub struct Divert<U, F> {
    up: U,
    name: &'static str,
    output: u8,
    f: F,
}

impl<U, F> Divert<U, F> {
    pub(crate) fn new(up: U, name: &'static str, f: F) -> Self {
        Divert { up, name, output: 0, f }
    }
}

impl<I: Stack, U: Operator<I>, F> Operator<I> for Divert<U, F>
where
    F: FnMut(&View<'_, U::Output>) -> bool + Send,
{
    type Output = U::Output;
    const REASONS: u8 = U::REASONS;

    fn name(&mut self, names: &mut Reasons) {
        self.up.name(names);
        self.output = names.output(self.name);
    }

    #[inline(always)]
    fn run<'p>(&mut self, view: View<'p, I>, first: u8) -> Result<View<'p, Self::Output>, Exit> {
        let view = self.up.run(view, first)?;
        if (self.f)(&view) { Err(Exit::Emit(self.output)) } else { Ok(view) }
    }
}
