//! Parsing the next header.

use super::dropped;
use crate::headers::ParseError;
use crate::{Exit, HeaderStack, Layer, NextHeader, Operator, OperatorNames, OperatorTrace, View};
use core::marker::PhantomData;

/// Operator returned by [`Operator::parse`].
pub struct Parse<H, U> {
    upstream: U,
    header: PhantomData<fn() -> H>,
}

impl<H, U> Parse<H, U> {
    pub(crate) fn new(upstream: U) -> Self {
        Parse { upstream, header: PhantomData }
    }

    #[inline(always)]
    fn step<'p, S: HeaderStack>(view: View<'p, S>, first: u8) -> Result<View<'p, Layer<H, S>>, Exit>
    where
        H: NextHeader<S>,
    {
        match view.parse::<H>() {
            Ok(view) => Ok(view),
            Err(ParseError::Malformed) => Err(dropped::<(H, U)>(first + 1)),
            Err(ParseError::OtherHeader) => Err(dropped::<(U, H)>(first)),
        }
    }
}

impl<I: HeaderStack, H, U: Operator<I>> Operator<I> for Parse<H, U>
where
    H: NextHeader<U::Output>,
{
    type Output = Layer<H, U::Output>;
    const DROP_REASONS: u8 = U::DROP_REASONS + 2;

    fn register(&mut self, names: &mut OperatorNames) {
        self.upstream.register(names);
        names.drop(H::NOT);
        names.drop(H::MALFORMED);
    }

    #[inline(always)]
    fn run<'p>(&mut self, view: View<'p, I>, first: u8) -> Result<View<'p, Self::Output>, Exit> {
        let view = self.upstream.run(view, first)?;
        Self::step(view, first + U::DROP_REASONS)
    }

    fn run_traced<'p>(
        &mut self,
        view: View<'p, I>,
        first: u8,
        trace: &mut OperatorTrace<'_>,
    ) -> Result<View<'p, Self::Output>, Exit> {
        let view = self.upstream.run_traced(view, first, trace)?;
        trace.step("parse", Some(H::NAME), view, |view| Self::step(view, first + U::DROP_REASONS))
    }
}

/// Operator returned by [`Operator::parse_if`].
pub struct ParseIf<H, U> {
    upstream: U,
    header: PhantomData<fn() -> H>,
}

impl<H, U> ParseIf<H, U> {
    pub(crate) fn new(upstream: U) -> Self {
        ParseIf { upstream, header: PhantomData }
    }

    #[inline(always)]
    fn step<'p, S: HeaderStack>(view: View<'p, S>, malformed: u8) -> Result<View<'p, Layer<H, S>>, Exit>
    where
        H: NextHeader<S>,
    {
        match view.parse::<H>() {
            Ok(view) => Ok(view),
            Err(ParseError::Malformed) => Err(dropped::<(H, U)>(malformed)),
            Err(ParseError::OtherHeader) => Err(Exit::Pass),
        }
    }
}

impl<I: HeaderStack, H, U: Operator<I>> Operator<I> for ParseIf<H, U>
where
    H: NextHeader<U::Output>,
{
    type Output = Layer<H, U::Output>;
    const DROP_REASONS: u8 = U::DROP_REASONS + 1;

    fn register(&mut self, names: &mut OperatorNames) {
        self.upstream.register(names);
        names.drop(H::MALFORMED);
    }

    #[inline(always)]
    fn run<'p>(&mut self, view: View<'p, I>, first: u8) -> Result<View<'p, Self::Output>, Exit> {
        let view = self.upstream.run(view, first)?;
        Self::step(view, first + U::DROP_REASONS)
    }

    fn run_traced<'p>(
        &mut self,
        view: View<'p, I>,
        first: u8,
        trace: &mut OperatorTrace<'_>,
    ) -> Result<View<'p, Self::Output>, Exit> {
        let view = self.upstream.run_traced(view, first, trace)?;
        trace.step("parse_if", Some(H::NAME), view, |view| Self::step(view, first + U::DROP_REASONS))
    }
}
