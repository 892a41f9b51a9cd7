//! Packet filters in the language of tcpdump and Wireshark's capture filters.
//!
//! [`compile`] has libpcap translate an expression to classic BPF (pcap-filter(7)). The program may come from another
//! process, which is not trusted: [`Program::new`] accepts only programs that end, and [`Program::run`] interprets them
//! in safe Rust, on any bytes.
//!
//! ```
//! let dns = bpf::compile("udp and dst port 53")?;
//! let mut frame = [0; 60];
//! assert!(!dns.accepts(&frame));
//! frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]); // IPv4, without options
//! frame[23] = 17; // UDP
//! frame[37] = 53;
//! assert!(dns.accepts(&frame));
//! # Ok::<(), bpf::CompileError>(())
//! ```

mod compile;
mod program;

pub use compile::{CompileError, compile};
pub use program::{Instruction, InvalidProgram, MAX_INSTRUCTIONS, Program};
