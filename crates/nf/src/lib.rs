//! The network functions that Bondstone ships, one per file.
#![forbid(unsafe_code)]

mod bridge;
mod cells;
mod count;
mod discard;
mod exact;
mod firewall;
mod fragments;
mod impair;
pub mod import;
mod l2fwd;
mod l3fwd;
mod lines;
mod mac;
mod maglev;
mod monitor;
mod nat44;
mod nat64;
mod net;
mod ports;
mod spread;
mod substitute;
mod tee;
mod ttl;
mod work;

pub use bridge::Bridge;
pub use cells::Cells;
pub use count::Count;
pub use discard::Discard;
pub use firewall::Firewall;
pub use impair::Impair;
pub use l2fwd::L2fwd;
pub use l3fwd::L3fwd;
pub use mac::Mac;
pub use maglev::Maglev;
pub use monitor::Monitor;
pub use nat44::Nat44;
pub use nat64::Nat64;
pub use net::Net;
pub use spread::Spread;
pub use substitute::Substitute;
pub use tee::Tee;
pub use ttl::{Ttl, age};
pub use work::Work;

/// All of them.
pub fn registry() -> graph::Registry {
    graph::Registry::new()
        .with::<Bridge>()
        .with::<Cells>()
        .with::<Count>()
        .with::<Discard>()
        .with::<Firewall>()
        .with::<Impair>()
        .with::<L2fwd>()
        .with::<L3fwd>()
        .with::<Maglev>()
        .with::<Monitor>()
        .with::<Nat44>()
        .with::<Nat64>()
        .with::<Spread>()
        .with::<Substitute>()
        .with::<Tee>()
        .with::<Ttl>()
        .with::<Work>()
}

#[cfg(test)]
mod tests {
    use testkit::proptest::prelude::*;
    use testkit::{Setup, packets};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn every_kind_survives_whatever_comes_and_loses_nothing(frames in packets::mixed(100)) {
            for kind in crate::registry().iter() {
                let mut bench = Setup::of_kind(kind, kind.example).build().unwrap();
                (0..bench.inputs()).for_each(|input| drop(bench.feed_by(input, &frames)));
                bench.advance(std::time::Duration::from_millis(5));
            }
        }
    }

    #[test]
    fn every_kind_documents_its_settings_and_refuses_unknown_ones() {
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
