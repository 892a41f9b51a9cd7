//! Packets and bits a second.

/// Bits a second of 10-Gigabit Ethernet.
pub const TEN_GBE_BPS: f64 = 10e9;
/// Bytes that a frame takes on the wire besides itself: preamble, start delimiter, smallest gap (IEEE 802.3).
pub const WIRE_OVERHEAD_BYTES: f64 = 20.0;

/// Bits a second on the wire: `pps · 8 · (frame + 20)`; the frame with its FCS.
pub fn l1_bps(pps: f64, frame_bytes: f64) -> f64 {
    pps * 8.0 * (frame_bytes + WIRE_OVERHEAD_BYTES)
}

/// Bits a second in frames: `pps · 8 · frame`; the frame with its FCS.
pub fn l2_bps(pps: f64, frame_bytes: f64) -> f64 {
    pps * 8.0 * frame_bytes
}

/// Most frames a second on a link of `link_bps`.
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
