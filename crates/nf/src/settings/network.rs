//! IP networks.

use ipnet::IpNet;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::borrow::Cow;
use std::net::IpAddr;

/// An IP address with a prefix length, written `"10.0.0.1/24"`. Without a prefix length it is a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net(pub IpNet);

impl<'de> Deserialize<'de> for Net {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(d)?;
        text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).map(Net).map_err(|_| {
            Error::custom(format!(
                "invalid value: {text:?} is not a network, expected one such as 10.0.0.0/24 or 2001:db8::/32"
            ))
        })
    }
}

impl Serialize for Net {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&self.0)
    }
}

impl JsonSchema for Net {
    fn schema_name() -> Cow<'static, str> {
        "Net".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9a-fA-F:.]+(/[0-9]{1,3})?$" })
    }
}
