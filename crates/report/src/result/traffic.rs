//! The traffic that is offered to the device under test.

use super::Profile;
use crate::{limit, rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The traffic of all trials of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Traffic {
    /// Frame sizes.
    pub frames: Frames,
    /// Flows: distinct five-tuples in one direction.
    pub flows: u64,
    /// Headers of the frames, such as `udp4`; `as captured` for a replay.
    pub protocol: String,
    /// Frames sent back to back; 1 is even spacing.
    pub burst: u32,
    /// Number of directions that carry traffic at the same time, 1 or 2. All rates in the document are per direction.
    #[serde(default = "one_direction")]
    #[schemars(range(min = 1, max = 2))]
    pub directions: u8,
    /// SHA-256 of the trace file, hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    pub trace_sha256: Option<String>,
    /// SHA-256 of the trace file of the reverse direction, if it is another file, hexadecimal.
    #[serde(default, alias = "back_sha256", skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    pub reverse_trace_sha256: Option<String>,
    /// Header fields that change from packet to packet, with their values, such as `ipv4.dscp=0-63`.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "limit::list::<_, _, { limit::FIELDS }>"
    )]
    #[schemars(length(max = limit::FIELDS))]
    pub vary: Vec<String>,
    /// TCP connections with client and server, such as `request=64,response=1024`. Rates are then those of the frames that
    /// the clients send if nothing is lost; `frames` are the sizes of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<String>,
    /// Profile, of traffic that changes from second to second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// Seed of the random numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

fn one_direction() -> u8 {
    1
}

/// Frame sizes in bytes, with the FCS.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Frames {
    /// One size.
    FrameBytes(u16),
    /// A mix of sizes.
    Mix(Mix),
    /// Sizes of a trace.
    Trace(Trace),
}

/// A mix of frame sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Mix {
    /// Its name.
    pub name: String,
    /// Its sizes.
    #[serde(deserialize_with = "limit::list::<_, _, { limit::SIZES }>")]
    #[schemars(length(min = 1, max = limit::SIZES))]
    pub parts: Vec<MixPart>,
}

/// One size of a mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct MixPart {
    /// Bytes of a frame, with the FCS.
    pub frame_bytes: u16,
    /// Relative frequency.
    #[schemars(range(min = 1))]
    pub weight: u32,
}

/// The frames of a trace, sent repeatedly.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Trace {
    /// Name of its file, without the folder; of both directions, separated by a comma.
    pub name: String,
    /// Number of its frames that are sent.
    #[schemars(range(min = 1))]
    pub frames: u64,
    /// Mean frame size in bytes, with the FCS.
    pub mean_frame_bytes: f64,
}

impl Frames {
    /// Returns the mean frame size in bytes, with the FCS.
    pub fn mean_bytes(&self) -> f64 {
        match self {
            Frames::FrameBytes(bytes) => f64::from(*bytes),
            Frames::Trace(trace) => trace.mean_frame_bytes,
            Frames::Mix(mix) => {
                let sum = |f: fn(&MixPart) -> f64| mix.parts.iter().map(f).sum::<f64>();
                let weight = sum(|p| f64::from(p.weight));
                if weight > 0.0 { sum(|p| f64::from(p.weight) * f64::from(p.frame_bytes)) / weight } else { 0.0 }
            }
        }
    }

    /// Returns the size, or the name of the mix or trace, for display.
    pub fn label(&self) -> String {
        match self {
            Frames::FrameBytes(bytes) => bytes.to_string(),
            Frames::Mix(mix) => mix.name.clone(),
            Frames::Trace(trace) => trace.name.clone(),
        }
    }
}

impl Traffic {
    /// Returns the layer-1 rate at `pps`, bits per second, with preamble and gap.
    pub fn l1_bps(&self, pps: f64) -> f64 {
        rate::l1_bps(pps, self.frames.mean_bytes())
    }

    /// Returns the layer-2 rate at `pps`, bits per second.
    pub fn l2_bps(&self, pps: f64) -> f64 {
        rate::l2_bps(pps, self.frames.mean_bytes())
    }

    /// Returns the line rate of 10-Gigabit Ethernet, frames per second.
    pub fn line_pps(&self) -> f64 {
        rate::line_pps(rate::TEN_GBE_BPS, self.frames.mean_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_of_a_mix_is_weighted() {
        // 7:4:1 of 64, 594, 1518, as in NFVbench
        let parts = [(64, 7), (594, 4), (1518, 1)].map(|(frame_bytes, weight)| MixPart { frame_bytes, weight });
        let mix = Frames::Mix(Mix { name: "imix".to_owned(), parts: parts.to_vec() });
        assert!((mix.mean_bytes() - 361.833).abs() < 1e-3);
        assert_eq!(Frames::Mix(Mix { name: String::new(), parts: Vec::new() }).mean_bytes(), 0.0);
    }
}
