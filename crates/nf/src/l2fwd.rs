//! Forwarding by rewriting MAC addresses.

use crate::Mac;
use graph::{BuildCx, Diagnostic, Nf, Node, Operator, frame};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wire::Ethernet;

/// `l2fwd`: swaps source and destination MAC address, or writes the ones that are set.
pub struct L2fwd;

/// Settings of [`L2fwd`].
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Source address to write. Without src and dst the two addresses are swapped.
    src: Option<Mac>,
    /// Destination address to write.
    dst: Option<Mac>,
}

impl Nf for L2fwd {
    type Settings = Settings;
    const KIND: &'static str = "l2fwd";
    const ABOUT: &'static str = "Swaps the MAC addresses of every frame, or writes the ones that are set.";
    const EXAMPLE: &'static str = "src = \"02:00:00:00:00:01\"\ndst = \"02:00:00:00:00:02\"";

    fn build(settings: &Settings, _: &BuildCx) -> Result<impl Node + 'static, Diagnostic> {
        let (src, dst) = (settings.src.map(|m| m.0), settings.dst.map(|m| m.0));
        let swap = src.is_none() && dst.is_none();
        Ok(frame()
            .parse::<Ethernet>()
            .transform(move |ethernet| {
                let header = ethernet.header_mut();
                if swap {
                    return header.swap_addrs();
                }
                if let Some(src) = src {
                    header.set_src(src);
                }
                if let Some(dst) = dst {
                    header.set_dst(dst);
                }
            })
            .compose())
    }
}

#[cfg(test)]
mod tests {
    use crate::kit::Bench;

    const FRAME: [u8; 16] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];

    #[test]
    fn swaps() {
        let mut nf = Bench::of("l2fwd", "");
        let out = nf.one(&FRAME).unwrap();
        assert_eq!(out[..6], FRAME[6..12]);
        assert_eq!(out[6..12], FRAME[..6]);
        assert_eq!(out[12..], FRAME[12..]);
    }

    #[test]
    fn writes_only_what_is_set() {
        let mut nf = Bench::of("l2fwd", "dst = \"0a:0b:0c:0d:0e:0f\"");
        let out = nf.one(&FRAME).unwrap();
        assert_eq!(out[..6], [10, 11, 12, 13, 14, 15]);
        assert_eq!(out[6..], FRAME[6..]);
    }

    #[test]
    fn a_runt_is_dropped_with_its_reason() {
        let mut nf = Bench::of("l2fwd", "");
        assert_eq!(nf.one(&FRAME[..13]), Err("malformed_ethernet"));
    }

    #[test]
    fn a_wrong_address_is_refused() {
        let e = Bench::try_of("l2fwd", "src = \"02:00:00:00:00\"").err().unwrap();
        assert!(e.contains("02:00:00:00:00") && e.contains("MAC"), "{e}");
    }
}
