//! Adversarial traffic.

use crate::wire::{IpProtocol, TcpFlags, build, icmpv4, icmpv6};

/// A generator of adversarial frames, derived from valid ones: SYN floods, truncated frames, flipped bits, tiny and
/// overlapping fragments, oversized frames, random bytes, and forged ICMP errors. The same seed yields the same frames.
///
/// ```
/// use testkit::{AdversarialTraffic, wire::build};
///
/// let valid = build::udp4([10, 0, 0, 1], [10, 1, 0, 1], 1000, 53).pad_to(60).to_vec();
/// let mut attack = AdversarialTraffic::new(7);
/// assert!((0..100).map(|_| attack.next_frame(&valid)).any(|frame| frame.len() < valid.len()));
/// ```
#[derive(Clone, Debug)]
pub struct AdversarialTraffic(u64);

impl AdversarialTraffic {
    /// Creates a generator.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        AdversarialTraffic((seed ^ 0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a random number of 56 bits (xorshift64*).
    pub fn next_random(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
    }

    /// Returns a random number below `n`.
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next_random() % n
    }

    /// Returns true with probability 1 / `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns an adversarial frame derived from a valid one: an untagged frame of IPv4 without options or of IPv6.
    /// Only flips bits of other frames.
    pub fn next_frame(&mut self, valid: &[u8]) -> Vec<u8> {
        match valid {
            [_, _, _, _, _, _, _, _, _, _, _, _, 0x08, 0x00, 0x45, ..] => self.mutate_ipv4(valid),
            [_, _, _, _, _, _, _, _, _, _, _, _, 0x86, 0xdd, ..] => self.mutate_ipv6(valid),
            _ => self.flip_bits(valid.to_vec()),
        }
    }

    fn mutate_ipv4(&mut self, valid: &[u8]) -> Vec<u8> {
        let mut frame = valid.to_vec();
        let address = |at: usize| valid.get(at..).and_then(|rest| rest.first_chunk::<4>()).copied();
        let (Some(src), Some(dst)) = (address(26), address(30)) else { return self.flip_bits(frame) };
        match self.below(12) {
            0 | 1 => {
                let (a, b) = (self.next_random(), self.next_random());
                let (client, server) =
                    ([src[0], src[1], a as u8, (a >> 8) as u8], [dst[0], dst[1], dst[2], (b >> 8) as u8]);
                let syn = build::tcp4(client, server, (a >> 16) as u16, b as u16).flags(TcpFlags::SYN);
                syn.pad_to(60).to_vec()
            }
            2 => {
                frame.truncate(self.below(valid.len() as u64) as usize + 1);
                frame
            }
            3 | 4 => self.flip_bits(frame),
            5 => {
                // tiny and overlapping fragments, last fragments without first ones
                let protocol = if self.one_in(2) { IpProtocol::TCP } else { IpProtocol::UDP };
                let max_offset = if self.one_in(2) { 3 } else { 8000 };
                let offset = 8 * self.below(max_offset) as u16;
                let body = vec![self.next_random() as u8; 8 * (1 + self.below(9) as usize)];
                let (id, more) = (self.below(2000) as u16, self.one_in(2));
                let fragment = build::ipv4(src, dst, protocol).id(id).fragment(offset, more).payload(&body);
                fragment.try_to_vec().unwrap_or(frame)
            }
            6 | 7 => {
                let mut quoted = valid[14..valid.len().min(14 + 28 + self.below(20) as usize)].to_vec();
                if self.one_in(2) && quoted.len() >= 20 {
                    quoted[12..20].rotate_left(4);
                }
                let error = icmpv4::Repr::FragmentationNeeded { mtu: self.next_random() as u16 };
                build::icmp4(src, dst, error).payload(&quoted).to_vec()
            }
            8 => {
                frame.resize(1500 + self.below(500) as usize, 0xaa);
                frame
            }
            9 => self.random_bytes(),
            10 => {
                frame[14] = (self.next_random() as u8 & 15) | 0x40;
                frame
            }
            _ => frame,
        }
    }

    fn mutate_ipv6(&mut self, valid: &[u8]) -> Vec<u8> {
        let mut frame = valid.to_vec();
        let address = |at: usize| valid.get(at..).and_then(|rest| rest.first_chunk::<16>()).copied();
        let (Some(src), Some(dst)) = (address(22), address(38)) else { return self.flip_bits(frame) };
        match self.below(12) {
            0 | 1 => {
                let (a, b) = (self.next_random(), self.next_random());
                let (mut client, mut server) = (src, dst);
                (client[13], client[14], server[15]) = ((a >> 8) as u8, a as u8, (b >> 8) as u8);
                build::tcp6(client, server, (a >> 16) as u16, b as u16).flags(TcpFlags::SYN).to_vec()
            }
            2 => {
                frame.truncate(self.below(valid.len() as u64) as usize + 1);
                frame
            }
            3 | 4 => self.flip_bits(frame),
            5 => {
                let protocol = [IpProtocol::TCP, IpProtocol::UDP, IpProtocol::ICMPV6][self.below(3) as usize];
                let max_offset = if self.one_in(2) { 3 } else { 8000 };
                let offset = 8 * self.below(max_offset) as u16;
                let body = vec![self.next_random() as u8; 8 * (1 + self.below(9) as usize)];
                let (id, more) = (self.below(2000) as u32, self.one_in(2));
                let fragment = build::ipv6(src, dst, protocol).fragment(offset, more, id).payload(&body);
                fragment.try_to_vec().unwrap_or(frame)
            }
            6 | 7 => {
                let mut quoted = valid[14..valid.len().min(14 + 48 + self.below(20) as usize)].to_vec();
                if self.one_in(2) && quoted.len() >= 40 {
                    quoted[8..40].rotate_left(16);
                }
                let error = icmpv6::Repr::PacketTooBig { mtu: self.next_random() as u32 };
                build::icmp6(src, dst, error).payload(&quoted).to_vec()
            }
            8 => {
                let mut udp = build::udp6(src, dst, 1, 2);
                for _ in 0..self.below(12) {
                    let extension = [0, 43, 60, 44, 51][self.below(5) as usize];
                    udp = udp.extension(IpProtocol(extension), &[self.next_random() as u8; 7]);
                }
                udp.try_to_vec().unwrap_or(frame)
            }
            9 => self.random_bytes(),
            10 => {
                frame[21] = self.below(3) as u8;
                frame
            }
            _ => frame,
        }
    }

    fn random_bytes(&mut self) -> Vec<u8> {
        (0..=self.below(200)).map(|_| self.next_random() as u8).collect()
    }

    /// Flips up to three bits.
    fn flip_bits(&mut self, mut frame: Vec<u8>) -> Vec<u8> {
        for _ in 0..=self.below(3) {
            let at = self.below(frame.len().max(1) as u64) as usize;
            if let Some(byte) = frame.get_mut(at) {
                *byte ^= 1 << self.below(8);
            }
        }
        frame
    }
}
