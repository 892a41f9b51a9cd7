//! The network functions that Bondstone ships, one per module.
#![forbid(unsafe_code)]

// network functions
mod dpi;
mod firewall;
mod ids;
mod l2;
mod l3fwd;
mod maglev;
mod monitor;
mod nat;
mod qos;
mod substitute;
mod util;

// shared by several of them
mod bits;
mod checksum_delta;
mod classification;
mod export;
mod fragment_queue;
mod large_table;
mod link;
mod random;
mod saved_flows;
mod settings;
mod traffic_class;
mod visits;

pub use classification::Classification;
pub use dpi::{Application, Dpi};
pub use firewall::{Firewall, import};
pub use ids::Ids;
pub use l2::{Bridge, L2fwd};
pub use l3fwd::L3fwd;
pub use maglev::Maglev;
pub use monitor::Monitor;
pub use nat::{Nat44, Nat64};
pub use qos::{Police, Schedule, Shape};
pub use settings::{Mac, Net};
pub use substitute::Substitute;
pub use util::{Cells, Count, DropAll, Impair, Spread, Tee, Ttl, Work, decrement_ttl};

/// State of NFs that is read and changed while they run. The copies of an NF share it.
pub mod live {
    pub use crate::firewall::LiveRules;
    pub use crate::l3fwd::{
        FpmSettings, InstalledHop, InstalledTarget, KernelRoutesSettings, LiveRoutes, LiveVrf, Refused, RouteSource,
    };
    pub use crate::maglev::LiveBackends;
    pub use crate::nat::LiveSessions;
}

macro_rules! kinds {
    ($($nf:ident)*) => {
        /// Returns the registry of all kinds.
        pub fn registry() -> graph::Registry {
            graph::Registry::new()$(.with::<$nf>())*
        }

        /// Returns the name in this crate of the type of a kind: `Ttl` for `ttl`.
        pub fn type_name(kind: &str) -> Option<&'static str> {
            let all = [$((<$nf as graph::Nf>::KIND, stringify!($nf))),*];
            all.into_iter().find(|(own, _)| *own == kind).map(|(_, name)| name)
        }
    };
}

kinds! {
    Bridge Cells Count Dpi DropAll Firewall Ids Impair L2fwd L3fwd Maglev Monitor Nat44 Nat64 Police Schedule Shape Spread
    Substitute Tee Ttl Work
}

#[cfg(test)]
mod tests {
    use testkit::proptest::prelude::*;
    use testkit::{HarnessBuilder, packets};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn every_kind_survives_arbitrary_frames_and_accounts_for_them(frames in packets::mixed(100)) {
            for kind in crate::registry().iter() {
                let mut bench = HarnessBuilder::from_kind(kind, kind.example).build().unwrap();
                (0..bench.inputs()).for_each(|input| drop(bench.feed_input(input, &frames)));
                bench.advance(std::time::Duration::from_millis(5));
            }
        }
    }

    #[test]
    fn every_kind_documents_its_settings_and_rejects_unknown_ones() {
        for kind in crate::registry().iter() {
            let schema = kind.schema();
            assert_eq!(schema["additionalProperties"], false, "{}", kind.name);
            for (name, setting) in schema["properties"].as_object().into_iter().flatten() {
                assert!(setting["description"].is_string(), "{}.{name}", kind.name);
                assert!(setting.get("default").is_some(), "{}.{name}", kind.name);
            }
            assert!(kind.about.ends_with('.'), "{}", kind.name);
        }
    }
}
