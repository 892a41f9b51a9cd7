//! The network functions that Bondstone ships, one per file.
#![forbid(unsafe_code)]

mod cells;
mod count;
mod discard;
mod firewall;
mod l2fwd;
mod l3fwd;
mod mac;
mod monitor;
mod net;
mod tee;
mod ttl;
mod work;

pub use cells::Cells;
pub use count::Count;
pub use discard::Discard;
pub use firewall::Firewall;
pub use l2fwd::L2fwd;
pub use l3fwd::L3fwd;
pub use mac::Mac;
pub use monitor::Monitor;
pub use net::Net;
pub use tee::Tee;
pub use ttl::{Ttl, age};
pub use work::Work;

#[cfg(test)]
mod kit;

/// All of them.
pub fn registry() -> graph::Registry {
    graph::Registry::new()
        .with::<Cells>()
        .with::<Count>()
        .with::<Discard>()
        .with::<Firewall>()
        .with::<L2fwd>()
        .with::<L3fwd>()
        .with::<Monitor>()
        .with::<Tee>()
        .with::<Ttl>()
        .with::<Work>()
}

#[cfg(test)]
mod tests {
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
