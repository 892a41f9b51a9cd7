//! Trees of both IP versions.

use super::tree::Tree;

/// Trees of either version.
#[derive(Default)]
pub(super) struct Trees {
    pub(super) v4: Vec<Tree<1>>,
    pub(super) v6: Vec<Tree<4>>,
}

impl Trees {
    pub(super) fn v4(&self) -> &[Tree<1>] {
        &self.v4
    }

    pub(super) fn v6(&self) -> &[Tree<4>] {
        &self.v6
    }

    pub(super) fn bytes(&self) -> usize {
        self.v4.iter().map(Tree::bytes).sum::<usize>() + self.v6.iter().map(Tree::bytes).sum::<usize>()
    }
}
