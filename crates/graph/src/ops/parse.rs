//! Parsing one header more.

use super::dropped;
use crate::{Exit, On, Operator, Over, Reasons, Stack, View};
use core::marker::PhantomData;

/// [`Operator::parse`].
pub struct Parse<H, U> {
    up: U,
    not: u8,
    malformed: u8,
    header: PhantomData<fn() -> H>,
}

impl<H, U> Parse<H, U> {
    pub(crate) fn new(up: U) -> Self {
        Parse { up, not: 0, malformed: 0, header: PhantomData }
    }
}

impl<I: Stack, H, U: Operator<I>> Operator<I> for Parse<H, U>
where
    H: On<U::Output>,
{
    type Output = Over<H, U::Output>;

    fn name(&mut self, names: &mut Reasons) {
        self.up.name(names);
        self.not = names.drop(H::NOT);
        self.malformed = names.drop(H::MALFORMED);
    }

    #[inline(always)]
    fn run<'p>(&mut self, view: View<'p, I>) -> Result<View<'p, Self::Output>, Exit> {
        match self.up.run(view)?.parse::<H>() {
            Ok(view) => Ok(view),
            Err(true) => Err(dropped::<(H, U)>(&self.malformed)),
            Err(false) => Err(dropped::<(U, H)>(&self.not)),
        }
    }
}

/// [`Operator::parse_if`].
pub struct ParseIf<H, U> {
    up: U,
    malformed: u8,
    header: PhantomData<fn() -> H>,
}

impl<H, U> ParseIf<H, U> {
    pub(crate) fn new(up: U) -> Self {
        ParseIf { up, malformed: 0, header: PhantomData }
    }
}

impl<I: Stack, H, U: Operator<I>> Operator<I> for ParseIf<H, U>
where
    H: On<U::Output>,
{
    type Output = Over<H, U::Output>;

    fn name(&mut self, names: &mut Reasons) {
        self.up.name(names);
        self.malformed = names.drop(H::MALFORMED);
    }

    #[inline(always)]
    fn run<'p>(&mut self, view: View<'p, I>) -> Result<View<'p, Self::Output>, Exit> {
        match self.up.run(view)?.parse::<H>() {
            Ok(view) => Ok(view),
            Err(true) => Err(dropped::<(H, U)>(&self.malformed)),
            Err(false) => Err(Exit::Pass),
        }
    }
}
