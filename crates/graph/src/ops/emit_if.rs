//! Emitting packets to a named output.

use crate::{Exit, HeaderStack, Operator, OperatorNames, OperatorTrace, View};

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

    #[inline(always)]
    fn step<'p, S>(&mut self, view: View<'p, S>) -> Result<View<'p, S>, Exit>
    where
        F: FnMut(&View<'_, S>) -> bool,
    {
        if (self.f)(&view) { Err(Exit::Emit(self.output)) } else { Ok(view) }
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
        self.step(view)
    }

    fn run_traced<'p>(
        &mut self,
        view: View<'p, I>,
        first: u8,
        trace: &mut OperatorTrace<'_>,
    ) -> Result<View<'p, Self::Output>, Exit> {
        let view = self.upstream.run_traced(view, first, trace)?;
        trace.step("emit_if", Some(self.name), view, |view| self.step(view))
    }
}
