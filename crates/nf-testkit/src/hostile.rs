//! Frames that nobody should send.

use crate::wire::{IpProtocol, TcpFlags, build, icmpv4, icmpv6};

/// Makes hostile frames of good ones: beginnings of connections in floods, cut, bent, fragmented, overlapping, tiny, jumbo
/// and random ones, and ICMP errors about packets that nobody sent. The same number gives the same frames.
///
/// ```
/// use testkit::{Hostile, wire::build};
///
/// let good = build::udp4([10, 0, 0, 1], [10, 1, 0, 1], 1000, 53).pad_to(60).to_vec();
/// let mut hostile = Hostile::new(7);
/// assert!((0..100).map(|_| hostile.of(&good)).any(|frame| frame.len() < good.len()));
/// ```
#[derive(Clone, Debug)]
pub struct Hostile(u64);

impl Hostile {
    /// A source of such frames; `seed` may be any number.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Hostile((seed ^ 0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number of 56 bits (xorshift64*).
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
    }

    /// One below `n`, which is not 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.number() % n
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Makes one of an untagged frame of IPv4 without options or of IPv6; of something else, one with other bits.
    pub fn of(&mut self, good: &[u8]) -> Vec<u8> {
        match good {
            [_, _, _, _, _, _, _, _, _, _, _, _, 0x08, 0x00, 0x45, ..] => self.of_ipv4(good),
            [_, _, _, _, _, _, _, _, _, _, _, _, 0x86, 0xdd, ..] => self.of_ipv6(good),
            _ => self.bent(good.to_vec()),
        }
    }

    fn of_ipv4(&mut self, good: &[u8]) -> Vec<u8> {
        let mut frame = good.to_vec();
        let address = |at: usize| good.get(at..).and_then(|rest| rest.first_chunk::<4>()).copied();
        let (Some(src), Some(dst)) = (address(26), address(30)) else { return self.bent(frame) };
        match self.below(12) {
            0 | 1 => {
                let (a, b) = (self.number(), self.number());
                let (near, far) = ([src[0], src[1], a as u8, (a >> 8) as u8], [dst[0], dst[1], dst[2], (b >> 8) as u8]);
                let syn = build::tcp4(near, far, (a >> 16) as u16, b as u16).flags(TcpFlags::SYN);
                syn.pad_to(60).to_vec()
            }
            2 => {
                frame.truncate(self.below(good.len() as u64) as usize + 1);
                frame
            }
            3 | 4 => self.bent(frame),
            5 => {
                // tiny ones, overlapping ones, the last without the first
                let protocol = if self.one_in(2) { IpProtocol::TCP } else { IpProtocol::UDP };
                let most = if self.one_in(2) { 3 } else { 8000 };
                let offset = 8 * self.below(most) as u16;
                let body = vec![self.number() as u8; 8 * (1 + self.below(9) as usize)];
                let (id, more) = (self.below(2000) as u16, self.one_in(2));
                let piece = build::ipv4(src, dst, protocol).id(id).fragment(offset, more).payload(&body);
                piece.try_to_vec().unwrap_or(frame)
            }
            6 | 7 => {
                let mut quoted = good[14..good.len().min(14 + 28 + self.below(20) as usize)].to_vec();
                if self.one_in(2) && quoted.len() >= 20 {
                    quoted[12..20].rotate_left(4);
                }
                let error = icmpv4::Repr::FragmentationNeeded { mtu: self.number() as u16 };
                build::icmp4(src, dst, error).payload(&quoted).to_vec()
            }
            8 => {
                frame.resize(1500 + self.below(500) as usize, 0xaa);
                frame
            }
            9 => self.noise(),
            10 => {
                frame[14] = (self.number() as u8 & 15) | 0x40;
                frame
            }
            _ => frame,
        }
    }

    fn of_ipv6(&mut self, good: &[u8]) -> Vec<u8> {
        let mut frame = good.to_vec();
        let address = |at: usize| good.get(at..).and_then(|rest| rest.first_chunk::<16>()).copied();
        let (Some(src), Some(dst)) = (address(22), address(38)) else { return self.bent(frame) };
        match self.below(12) {
            0 | 1 => {
                let (a, b) = (self.number(), self.number());
                let (mut near, mut far) = (src, dst);
                (near[13], near[14], far[15]) = ((a >> 8) as u8, a as u8, (b >> 8) as u8);
                build::tcp6(near, far, (a >> 16) as u16, b as u16).flags(TcpFlags::SYN).to_vec()
            }
            2 => {
                frame.truncate(self.below(good.len() as u64) as usize + 1);
                frame
            }
            3 | 4 => self.bent(frame),
            5 => {
                let protocol = [IpProtocol::TCP, IpProtocol::UDP, IpProtocol::ICMPV6][self.below(3) as usize];
                let most = if self.one_in(2) { 3 } else { 8000 };
                let offset = 8 * self.below(most) as u16;
                let body = vec![self.number() as u8; 8 * (1 + self.below(9) as usize)];
                let (id, more) = (self.below(2000) as u32, self.one_in(2));
                let piece = build::ipv6(src, dst, protocol).fragment(offset, more, id).payload(&body);
                piece.try_to_vec().unwrap_or(frame)
            }
            6 | 7 => {
                let mut quoted = good[14..good.len().min(14 + 48 + self.below(20) as usize)].to_vec();
                if self.one_in(2) && quoted.len() >= 40 {
                    quoted[8..40].rotate_left(16);
                }
                let error = icmpv6::Repr::PacketTooBig { mtu: self.number() as u32 };
                build::icmp6(src, dst, error).payload(&quoted).to_vec()
            }
            8 => {
                let mut udp = build::udp6(src, dst, 1, 2);
                for _ in 0..self.below(12) {
                    let kind = [0, 43, 60, 44, 51][self.below(5) as usize];
                    udp = udp.extension(IpProtocol(kind), &[self.number() as u8; 7]);
                }
                udp.try_to_vec().unwrap_or(frame)
            }
            9 => self.noise(),
            10 => {
                frame[21] = self.below(3) as u8;
                frame
            }
            _ => frame,
        }
    }

    fn noise(&mut self) -> Vec<u8> {
        (0..=self.below(200)).map(|_| self.number() as u8).collect()
    }

    /// With a few bits flipped.
    fn bent(&mut self, mut frame: Vec<u8>) -> Vec<u8> {
        for _ in 0..=self.below(3) {
            let at = self.below(frame.len().max(1) as u64) as usize;
            if let Some(byte) = frame.get_mut(at) {
                *byte ^= 1 << self.below(8);
            }
        }
        frame
    }
}
