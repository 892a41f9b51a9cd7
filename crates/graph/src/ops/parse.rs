//! Parsing the next header.

use super::dropped;
use crate::headers::ParseError;
use crate::{Exit, HeaderStack, Layer, NextHeader, Operator, OperatorNames, View};
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
        match self.upstream.run(view, first)?.parse::<H>() {
            Ok(view) => Ok(view),
            Err(ParseError::Malformed) => Err(dropped::<(H, U)>(first + U::DROP_REASONS + 1)),
            Err(ParseError::OtherHeader) => Err(dropped::<(U, H)>(first + U::DROP_REASONS)),
        }
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
        match self.upstream.run(view, first)?.parse::<H>() {
            Ok(view) => Ok(view),
            Err(ParseError::Malformed) => Err(dropped::<(H, U)>(first + U::DROP_REASONS)),
            Err(ParseError::OtherHeader) => Err(Exit::Pass),
        }
    }
}
