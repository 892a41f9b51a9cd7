//! Settings of a rewriting node.

use crate::window::block::BLOCK;
use crate::window::piece::Piece;
use diagnostics::Diagnostic;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of [`packetize`](crate::packetize()); an NF embeds them as a field of its own settings.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Server ports of the connections to rewrite: destination ports of the SYN. Empty: all ports. Set by the NF, not
    /// by its settings.
    #[serde(skip)]
    pub ports: Vec<u16>,
    /// Largest number of bytes kept for one direction of a connection: bytes received out of order and bytes that the
    /// receiver has not acknowledged. The advertised window is never larger.
    pub buffer: u32,
    /// Largest number of output bytes per input byte, rounded up: the advertised window is `buffer / growth`. Set by
    /// the NF, not by its settings.
    #[serde(skip)]
    pub growth: u32,
    /// Largest number of bytes that the closure may leave unused while more may follow; beyond it they are forced out.
    pub withheld: u32,
    /// Milliseconds without further bytes after which unused bytes are forced out.
    pub timeout: u32,
    /// Largest number of connections for each IP version. Connections that were reset or have not finished their
    /// handshake are evicted for new ones.
    pub flows: u32,
    /// Memory in bytes for all connections together.
    pub memory: u64,
    /// Seconds without a packet after which a connection is removed; both ends are reset if its bytes were changed.
    pub idle: u32,
    /// The same for a connection whose handshake was not completed.
    pub half_open: u32,
    /// Verify checksums. Rewritten packets always get a correct checksum; disable verification only if the device
    /// verifies.
    pub checksums: bool,
    /// Treatment of new connections when the table is full.
    pub full: WhenFull,
}

/// Treatment of new connections when the table is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WhenFull {
    /// Their packets pass unmodified.
    #[default]
    Pass,
    /// Their SYN is dropped.
    Drop,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            ports: vec![],
            buffer: 256 << 10,
            growth: 2,
            withheld: 4096,
            timeout: 1000,
            flows: 16_384,
            memory: 256 << 20,
            idle: 900,
            half_open: 10,
            checksums: true,
            full: WhenFull::Pass,
        }
    }
}

impl Settings {
    /// Returns the largest number of out-of-order pieces: their blocks and their list take no more memory than the
    /// buffer.
    pub(super) fn pieces(&self) -> usize {
        self.buffer as usize / (BLOCK + size_of::<Piece>())
    }

    /// Returns the number of bytes that the sender may send ahead of the acknowledged ones.
    pub(super) fn ahead(&self) -> u32 {
        self.buffer / self.growth
    }

    /// Checks the ranges of the settings.
    ///
    /// # Errors
    /// The first setting that is out of range, with its key.
    pub fn check(&self) -> Result<(), Diagnostic> {
        let bounded = |key, value: u64, least: u64, most: u64, problem: &str| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(Diagnostic::new(problem).key(key).value(value).remedy(format!("write {least} to {most}")))
        };
        let Settings { growth, buffer, .. } = *self;
        bounded("growth", growth.into(), 1, 4096, "is no number of bytes that one byte grows to")?;
        bounded("buffer", buffer.into(), 8192, 64 << 20, "is no memory for a connection, in bytes")?;
        let least = 8192 * u64::from(growth);
        bounded("buffer", buffer.into(), least, 64 << 20, "leaves the sender no window, with this `growth`")?;
        bounded("withheld", self.withheld.into(), 1, 65_536, "is no number of bytes to wait with")?;
        bounded("timeout", self.timeout.into(), 1, 3_600_000, "is no time to wait, in ms")?;
        bounded("flows", self.flows.into(), 1, 1 << 24, "is no number of connections")?;
        bounded("idle", self.idle.into(), 1, 1_000_000, "is no time after which to give up a connection, in seconds")?;
        bounded(
            "half_open",
            self.half_open.into(),
            1,
            1_000_000,
            "is no time after which to forget a SYN, in seconds",
        )?;
        let least = 4 * u64::from(buffer);
        bounded(
            "memory",
            self.memory,
            least,
            1 << 40,
            "is less than two connections may take, or more than there can be",
        )
    }
}
