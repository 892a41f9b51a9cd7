//! A chain of operators as a node.

use crate::{Counter, Context, Exit, Node, Operator, Raw, Reasons, View};
use packet::Batch;
use std::sync::Arc;

/// [`Operator::compose`].
pub struct Composed<O> {
    chain: O,
    names: Reasons,
}

impl<O: Operator<Raw>> Composed<O> {
    pub(crate) fn new(mut chain: O) -> Self {
        let mut names = Reasons { outputs: vec!["out"], ..Reasons::default() };
        chain.name(&mut names);
        debug_assert_eq!(names.drops.len(), usize::from(O::REASONS));
        Composed { chain, names }
    }
}

impl<O: Operator<Raw>> Node for Composed<O> {
    fn drops(&self) -> &[&'static str] {
        &self.names.drops
    }

    fn outputs(&self) -> &[&'static str] {
        &self.names.outputs
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        Counter::named(self.names.counters.iter().map(|(name, count)| (*name, count)))
    }

    #[inline]
    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        let chain = &mut self.chain;
        batch.extract_if(
            #[inline(always)]
            |packet| {
                let (meta, bytes) = packet.split_mut();
                match chain.run(View { meta, bytes, stack: Raw }, 0) {
                    Ok(_) | Err(Exit::Pass) => None,
                    Err(exit) => Some(exit),
                }
            },
            #[inline(always)]
            |exit, packet| match exit {
                Exit::Drop(reason) => cx.drop(reason, packet),
                Exit::Emit(output) => cx.emit(output, packet),
                Exit::Pass => drop(packet),
            },
        );
    }
}
