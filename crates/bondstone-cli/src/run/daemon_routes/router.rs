//! The router of a routing daemon.

use nf::live::{LiveRoutes, LiveVrf};
use runtime::LiveNfs;
use std::fmt::{Display, Formatter};

/// A router, or one of its tenants, and settings of its routing daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::run) struct Router<S> {
    pub(in crate::run) nf: String,
    pub(in crate::run) tenant: Option<String>,
    pub(in crate::run) settings: S,
}

impl<S> Router<S> {
    /// Returns its routes, which a reload replaces.
    pub(in crate::run) fn live(&self, nfs: &LiveNfs) -> Option<LiveVrf> {
        nfs.shared::<LiveRoutes>(&self.nf)?.vrf(self.tenant.as_deref())
    }
}

impl<S> Display for Router<S> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match &self.tenant {
            Some(tenant) => write!(f, "tenant {tenant} of {}", self.nf),
            None => write!(f, "{}", self.nf),
        }
    }
}
