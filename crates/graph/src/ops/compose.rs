//! A chain of operators as a node.

use crate::{Context, Counter, Exit, Node, Operator, OperatorNames, Raw, View};
use packet::Batch;
use std::sync::Arc;

/// Node returned by [`Operator::compose`].
pub struct Composed<O> {
    chain: O,
    names: OperatorNames,
}

impl<O: Operator<Raw>> Composed<O> {
    pub(crate) fn new(mut chain: O) -> Self {
        let mut names = OperatorNames { outputs: vec!["out"], ..OperatorNames::default() };
        chain.register(&mut names);
        debug_assert_eq!(names.drops.len(), usize::from(O::DROP_REASONS));
        Composed { chain, names }
    }
}

impl<O: Operator<Raw> + 'static> Node for Composed<O> {
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
        let now = cx.now();
        batch.extract_if(
            #[inline(always)]
            |packet| {
                let (meta, bytes) = packet.split_mut();
                self.process_packet(View { meta, bytes, stack: Raw, now })
            },
            #[inline(always)]
            |exit, packet| cx.exit(exit, packet),
        );
    }

    fn is_per_packet(&self) -> bool {
        true
    }

    #[inline(always)]
    fn process_packet(&mut self, frame: View<'_, Raw>) -> Option<Exit> {
        match self.chain.run(frame, 0) {
            Ok(_) | Err(Exit::Pass) => None,
            Err(exit) => Some(exit),
        }
    }
}
