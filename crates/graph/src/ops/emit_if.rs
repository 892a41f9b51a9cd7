//! Emitting packets to a named output.

use crate::{Exit, HeaderStack, Operator, OperatorNames, View};

/// Operator returned by [`Operator::emit_if`].
pub struct EmitIf<U, F> {
    upstream: U,
    name: &'static str,
    output: u8,
    f: F,
}

impl<U, F> EmitIf<U, F> {
    pub(crate) fn new(upstream: U, name: &'static str, f: F) -> Self {
        EmitIf { upstream, name, output: 0, f }
    }
}

impl<I: HeaderStack, U: Operator<I>, F> Operator<I> for EmitIf<U, F>
where
    F: FnMut(&View<'_, U::Output>) -> bool + Send,
{
    type Output = U::Output;
    const DROP_REASONS: u8 = U::DROP_REASONS;

    fn register(&mut self, names: &mut OperatorNames) {
        self.upstream.register(names);
        self.output = names.output(self.name);
    }

    #[inline(always)]
    fn run<'p>(&mut self, view: View<'p, I>, first: u8) -> Result<View<'p, Self::Output>, Exit> {
        let view = self.upstream.run(view, first)?;
        if (self.f)(&view) { Err(Exit::Emit(self.output)) } else { Ok(view) }
    }
}
