//! A program with one NF that cannot be contained in its process, to see what is said of it.
//!
//! `how` is what it does to packets once it has seen `after` of them: `pass`, `loop`, `recurse`, `recurse-in-build`, `allocate`, `exit`,
//! `abort`, `panic-in-drop`, `huge` (an allocation), `leak`, `hoard` (packets).

use graph::{BuildCx, Cx, Diagnostic, Nf, Node};
use packet::{Batch, Packet};
use std::process::ExitCode;

#[global_allocator]
static MEMORY: bondstone::Memory = bondstone::Memory;

/// The NF.
struct Misbehave;

#[derive(Default, serde::Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    /// What it does.
    how: How,
    /// Packets that it lets pass first.
    after: u64,
}

#[derive(Clone, Copy, Default, PartialEq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum How {
    #[default]
    Pass,
    Loop,
    Recurse,
    RecurseInBuild,
    Allocate,
    Exit,
    Abort,
    PanicInDrop,
    Leak,
    Hoard,
    Huge,
}

struct Bad {
    how: How,
    left: u64,
    kept: Vec<Vec<u64>>,
    packets: Vec<Packet>,
}

impl Nf for Misbehave {
    type Settings = Settings;
    const KIND: &'static str = "misbehave";
    const ABOUT: &'static str = "Does what cannot be contained.";
    fn build(settings: &Settings, _: &BuildCx) -> Result<impl Node + 'static, Diagnostic> {
        if settings.how == How::RecurseInBuild {
            deeper(1);
        }
        Ok(Bad { how: settings.how, left: settings.after, kept: vec![], packets: vec![] })
    }
}

impl Node for Bad {
    fn process(&mut self, _: &mut Cx<'_>, _: u8, batch: &mut Batch) {
        self.left = self.left.saturating_sub(batch.len() as u64);
        if self.left != 0 {
            return;
        }
        match self.how {
            How::Pass | How::RecurseInBuild => {}
            How::Loop => loop {
                std::hint::spin_loop();
            },
            How::Recurse => drop(std::hint::black_box(deeper(batch.len() as u64))),
            How::Allocate => self.kept.push(vec![1; 1 << 16]),
            How::Exit => std::process::exit(0),
            How::Abort => std::process::abort(),
            How::PanicInDrop => {
                let _falls = Falls;
                panic!("the first");
            }
            How::Leak => batch.drain().for_each(std::mem::forget),
            How::Huge => drop(std::hint::black_box(vec![0u8; 1 << 60])),
            How::Hoard => self.packets.extend(batch.drain()),
        }
    }
}

#[expect(unconditional_recursion, reason = "on purpose")]
fn deeper(n: u64) -> u64 {
    let room = std::hint::black_box([n; 64]);
    deeper(n + room[3]) + room[7]
}

struct Falls;

impl Drop for Falls {
    fn drop(&mut self) {
        panic!("the second");
    }
}

fn main() -> ExitCode {
    bondstone::main(nf::registry().with::<Misbehave>())
}
