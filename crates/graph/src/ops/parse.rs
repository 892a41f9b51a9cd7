//! Parsing one header more.

use super::dropped;
use crate::{Exit, On, Operator, Over, Reasons, Stack, View};
use core::marker::PhantomData;

/// [`Operator::parse`].
pub struct Parse<H, U> {
    up: U,
    header: PhantomData<fn() -> H>,
}

impl<H, U> Parse<H, U> {
    pub(crate) fn new(up: U) -> Self {
        Parse { up, header: PhantomData }
    }
}

impl<I: Stack, H, U: Operator<I>> Operator<I> for Parse<H, U>
where
    H: On<U::Output>,
{
    type Output = Over<H, U::Output>;
    const REASONS: u8 = U::REASONS + 2;

    fn name(&mut self, names: &mut Reasons) {
        self.up.name(names);
        names.drop(H::NOT);
        names.drop(H::MALFORMED);
    }

    #[inline(always)]
    fn run<'p>(&mut self, view: View<'p, I>, first: u8) -> Result<View<'p, Self::Output>, Exit> {
        match self.up.run(view, first)?.parse::<H>() {
            Ok(view) => Ok(view),
            Err(true) => Err(dropped::<(H, U)>(first + U::REASONS + 1)),
            Err(false) => Err(dropped::<(U, H)>(first + U::REASONS)),
        }
    }
}

/// [`Operator::parse_if`].
pub struct ParseIf<H, U> {
    up: U,
    header: PhantomData<fn() -> H>,
}

impl<H, U> ParseIf<H, U> {
    pub(crate) fn new(up: U) -> Self {
        ParseIf { up, header: PhantomData }
    }
}

impl<I: Stack, H, U: Operator<I>> Operator<I> for ParseIf<H, U>
where
    H: On<U::Output>,
{
    type Output = Over<H, U::Output>;
    const REASONS: u8 = U::REASONS + 1;

    fn name(&mut self, names: &mut Reasons) {
        self.up.name(names);
        names.drop(H::MALFORMED);
    }

    #[inline(always)]
    fn run<'p>(&mut self, view: View<'p, I>, first: u8) -> Result<View<'p, Self::Output>, Exit> {
        match self.up.run(view, first)?.parse::<H>() {
            Ok(view) => Ok(view),
            Err(true) => Err(dropped::<(H, U)>(first + U::REASONS)),
            Err(false) => Err(Exit::Pass),
        }
    }
}
