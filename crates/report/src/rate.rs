//! Packet and bit rates of Ethernet.

/// Bit rate of 10-Gigabit Ethernet, bits per second.
pub const TEN_GBE_BPS: f64 = 10e9;
/// Bytes per frame on the wire besides the frame: preamble, start delimiter, minimum gap (IEEE 802.3).
pub const WIRE_OVERHEAD_BYTES: f64 = 20.0;

/// Returns the layer-1 rate, bits per second: `pps · 8 · (frame + 20)`, the frame with its FCS.
pub fn l1_bps(pps: f64, frame_bytes: f64) -> f64 {
    pps * 8.0 * (frame_bytes + WIRE_OVERHEAD_BYTES)
}

/// Returns the layer-2 rate, bits per second: `pps · 8 · frame`, the frame with its FCS.
pub fn l2_bps(pps: f64, frame_bytes: f64) -> f64 {
    pps * 8.0 * frame_bytes
}

/// Returns the line rate of a link of `link_bps`, frames per second.
pub fn line_pps(link_bps: f64, frame_bytes: f64) -> f64 {
    link_bps / (8.0 * (frame_bytes + WIRE_OVERHEAD_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_ethernet() {
        assert_eq!(line_pps(TEN_GBE_BPS, 64.0).round(), 14_880_952.0);
        assert_eq!(line_pps(TEN_GBE_BPS, 1518.0).round(), 812_744.0);
        assert_eq!(l1_bps(14_880_952.0, 64.0), 9_999_999_744.0);
        assert_eq!(l2_bps(1000.0, 1518.0), 12_144_000.0);
    }
}
