//! What a rewriting node is to be.

use crate::window::memory::BLOCK;
use crate::window::pieces::Piece;
use diagnostics::Diagnostic;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of [`packetize`](crate::packetize()); an NF has them as a field of its own.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Server ports whose connections are rewritten: those a SYN goes to. All, if none is named. The NF says so, not its
    /// settings.
    #[serde(skip)]
    pub ports: Vec<u16>,
    /// Bytes of one direction of a connection that are kept at most, those that came before their turn and those that the
    /// receiver has not acknowledged. The sender is told no larger window.
    pub buffer: u32,
    /// Bytes that are made of one byte at most, rounded up: the window that the sender is told is `buffer` over this. The NF
    /// says so, not its settings.
    #[serde(skip)]
    pub growth: u32,
    /// Bytes at most that may be left for later while more is waited for; beyond, they have to go.
    pub withheld: u32,
    /// Milliseconds after which bytes that were left for later have to go, when nothing more has come.
    pub timeout: u32,
    /// Connections at most, for each IP version. Those that were reset, or whose handshake is not over, make way for new ones.
    pub flows: u32,
    /// Bytes of memory for all connections together.
    pub memory: u64,
    /// Seconds without a packet after which a connection is given up; both ends are told by a reset where it was changed.
    pub idle: u32,
    /// The same for one whose handshake was not seen to the end.
    pub half_open: u32,
    /// Whether checksums are verified. A packet that is made anew gets a right one, whatever was wrong before: leave it on
    /// unless the device verifies.
    pub checksums: bool,
    /// What happens to new connections when there is no room for another.
    pub full: WhenFull,
}

/// What happens to new connections when there is no room for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WhenFull {
    /// They pass unmodified.
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
    /// Pieces that may wait for what comes before them: what they and their list take is no more than the buffer.
    pub(super) fn pieces(&self) -> usize {
        self.buffer as usize / (BLOCK + size_of::<Piece>())
    }

    /// Bytes that the sender may send ahead of what has been acknowledged.
    pub(super) fn ahead(&self) -> u32 {
        self.buffer / self.growth
    }

    /// Looks for values that make no sense.
    ///
    /// # Errors
    /// The first of them, with its key.
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
