//! `bondstone image`.

use crate::check::settings;
use crate::exit::Exit;
use anyhow::{Context, anyhow};
use bytesize::ByteSize;
use config::{ChainFile, Wall};
use diagnostics::{Diagnostic, Diagnostics};
use graph::Registry;
use runtime::Options;
use sandbox::{Accel, Content, Kernel, Program, SOCKETS, Walled};
use serde_json::json;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the first packet may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Writes images of NFs, to run them elsewhere: a container's, or a virtual machine's.
#[derive(clap::Subcommand)]
pub(crate) enum Image {
    /// Writes an OCI image, which podman, Docker and Kubernetes run, without any of them: one program, no shell, no root.
    #[command(after_help = "\
NFs run one after the other, from a port `in` to a port `out`, with the settings that they have by default. A chain file is
taken as it is, with the files that its settings name.

Examples:
  bondstone image oci ttl monitor
  bondstone image oci chain.toml --out nf.tar")]
    Oci {
        #[command(flatten)]
        of: Of,
        /// The file to write.
        #[arg(long, short, value_name = "FILE", default_value = "bondstone-nf.tar")]
        out: PathBuf,
        /// The image's name, and its tag.
        #[arg(long, default_value = "bondstone-nf:latest")]
        name: String,
    },
    /// Writes a micro-VM: a distribution's kernel, and one program that is all there is in it.
    #[command(after_help = "\
NFs run one after the other, from a port `in` to a port `out`, with the settings that they have by default. A chain file is
taken as it is, with the files that its settings name; its ports are the VM's, 0000:00:02.0 and those that follow.

Examples:
  bondstone image vm --fetch
  bondstone image vm ttl monitor --out vm
  bondstone image vm ttl --time")]
    Vm {
        #[command(flatten)]
        of: Of,
        /// The folder to write to.
        #[arg(long, short, value_name = "FOLDER", default_value = "bondstone-vm")]
        out: PathBuf,
        /// Brings the kernel from the distribution's packages first, into the cache, if it is not there; nothing is installed.
        #[arg(long)]
        fetch: bool,
        /// Starts it, and says how long it takes to its first packet, beside the kernel alone.
        #[arg(long)]
        time: bool,
    },
}

/// What is in an image.
#[derive(clap::Args)]
pub(crate) struct Of {
    /// Kinds of NF, or one chain file.
    #[arg(value_name = "NF|FILE")]
    what: Vec<String>,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

impl Of {
    fn file(&self) -> Option<&Path> {
        let [one] = &self.what[..] else { return None };
        Path::new(one).extension().is_some_and(|e| e == "toml").then(|| Path::new(one))
    }

    /// A chain from port to port.
    fn chain(&self, devices: [String; 2], isolation: Option<&str>) -> String {
        let nfs: String = (0..).zip(&self.what).map(|(n, kind)| format!("[nf.nf{n}]\nkind = {kind:?}\n")).collect();
        let path: String = (0..self.what.len()).map(|n| format!("\"nf{n}\", ")).collect();
        let [from, to] = devices;
        let isolation = isolation.map_or_else(String::new, |word| format!("isolation = {word:?}\n"));
        format!(
            "bondstone = 1\n\n[port.in]\ndevice = {from:?}\n\n[port.out]\ndevice = {to:?}\n\n{nfs}\n[[chain]]\n{isolation}path = [\"in\", {path}\"out\"]\n"
        )
    }

    /// Checks it, and adds what it needs; also as it is read.
    fn content(&self, devices: [String; 2], registry: &Registry) -> anyhow::Result<(Content, ChainFile)> {
        let (path, text) = match self.file() {
            Some(path) => {
                let text = config::read(path, "chain file").map_err(|d| Diagnostics(vec![d]))?;
                (path.canonicalize()?, text)
            }
            None => (PathBuf::from("/chain.toml"), self.chain(devices, None)),
        };
        if self.what.is_empty() {
            let d = Diagnostic::new("an image of nothing is asked for");
            return Err(Diagnostics(vec![d.remedy("name NFs (bondstone nf list), or a chain file")]).into());
        }
        let file = ChainFile::parse(&text, &path, registry).map_err(Diagnostics)?;
        if let Some(wall) = file.walls.first() {
            let d = Diagnostic::new("is a wall, and an image is behind one already").value(&wall.name);
            return Err(Diagnostics(vec![d.remedy("take the key isolation out")]).into());
        }
        let faults = settings(&file);
        if !faults.is_empty() {
            return Err(Diagnostics(faults).into());
        }
        let files = file.files(|_| true).iter().map(|file| file.canonicalize()).collect::<Result<_, _>>()?;
        Ok((Content { program: Program::own()?, chain: (path, text), files }, file))
    }
}

impl Image {
    pub(crate) fn run(&self, registry: &Registry) -> anyhow::Result<Exit> {
        match self {
            Image::Oci { of, out, name } => oci(of, out, name, registry),
            Image::Vm { of, out, fetch, time } => {
                let kernel = if *fetch { Kernel::fetch()? } else { Kernel::find()? };
                if *fetch {
                    eprintln!("note: Linux {}: {}", kernel.version, kernel.image.display());
                    if of.what.is_empty() {
                        return Ok(Exit::Done);
                    }
                }
                vm(of, out, &kernel, *time, registry)
            }
        }
    }
}

fn oci(of: &Of, out: &Path, name: &str, registry: &Registry) -> anyhow::Result<Exit> {
    let socket = |port: &str| format!("virtio-user:{SOCKETS}/{port}.sock");
    let (content, _) = of.content(["in", "out"].map(socket), registry)?;
    let bytes = sandbox::oci(&content, name, out).with_context(|| out.display().to_string())?;
    let mut to = stdout();
    if of.json {
        writeln!(to, "{:#}", json!({ "image": out, "name": name, "bytes": bytes }))?;
        return Ok(Exit::Done);
    }
    let at = out.display();
    writeln!(to, "{at}: {}, {name}", ByteSize(bytes))?;
    writeln!(to, "  load it:  podman load -i {at}      (or docker, or a registry)")?;
    writeln!(to, "  run it:   podman run --read-only --network none -v {SOCKETS}:{SOCKETS} {name}")?;
    if of.file().is_none() {
        writeln!(
            to,
            "  its switch has ports vhost:{SOCKETS}/in.sock and vhost:{SOCKETS}/out.sock, which user 65532 may use"
        )?;
    }
    Ok(Exit::Done)
}

fn vm(of: &Of, out: &Path, kernel: &Kernel, time: bool, registry: &Registry) -> anyhow::Result<Exit> {
    let (content, file) = of.content([0, 1].map(Wall::address), registry)?;
    let image = sandbox::vm(&content, kernel, out).with_context(|| out.display().to_string())?;
    let accel = sandbox::accel(kernel);
    let is_its = |n: &usize| file.ports.iter().any(|port| port.device.pci() == Some(&Wall::address(*n)));
    let sockets: Vec<PathBuf> =
        (0..Wall::MOST_SLOTS).take_while(is_its).map(|n| PathBuf::from(format!("{SOCKETS}/port{n}.sock"))).collect();
    let command = sandbox::vm_command(&image, accel, sockets.clone());
    let times = if time { Some(times(of, kernel, accel, registry)?) } else { None };
    let mut to = stdout();
    if of.json {
        let times = times.map(
            |(alone, first)| json!({ "empty_init_s": alone.as_secs_f64(), "first_packet_s": first.as_secs_f64() }),
        );
        let [of_kernel, of_archive] = image.bytes;
        let said = json!({
            "kernel": image.kernel, "kernel_bytes": of_kernel, "linux": kernel.version, "initramfs": image.initramfs,
            "initramfs_bytes": of_archive, "accel": accel.to_string(), "command": command, "times": times,
        });
        writeln!(to, "{said:#}")?;
        return Ok(Exit::Done);
    }
    let [of_kernel, of_archive] = image.bytes.map(ByteSize);
    writeln!(to, "{}: {of_kernel}, Linux {}", image.kernel.display(), kernel.version)?;
    writeln!(to, "{}: {of_archive}, {}", image.initramfs.display(), of.what.join(", "))?;
    writeln!(to, "  run it:   {}", shell(&command))?;
    let list: Vec<String> = sockets.iter().map(|socket| format!("vhost:{}", socket.display())).collect();
    writeln!(to, "  its switch has ports {}, and is started first", list.join(", "))?;
    if let Some((alone, first)) = times {
        let limit = alone.mul_f64(1.2) + Duration::from_millis(500);
        let verdict = if first <= limit { "within" } else { "over" };
        writeln!(to, "  {accel}: the kernel alone comes to an empty first program in {:.2} s;", alone.as_secs_f64())?;
        writeln!(
            to,
            "  the first packet is forwarded after {:.2} s, {verdict} 1.2 times that and half a second ({:.2} s)",
            first.as_secs_f64(),
            limit.as_secs_f64()
        )?;
    }
    Ok(Exit::Done)
}

/// A command, to be given to a shell.
fn shell(command: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./:=,-+".contains(c);
    let quoted = |word: &String| match word.chars().all(plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    command.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// How long the kernel alone takes, and how long it takes until the first packet has come through the NFs: the better of
/// three of each, in turn.
fn times(of: &Of, kernel: &Kernel, accel: Accel, registry: &Registry) -> anyhow::Result<(Duration, Duration)> {
    if of.file().is_some() {
        return Err(anyhow!("--time is for NFs, which it puts between two ports; not for a chain file"));
    }
    let text = of.chain(["null", "null"].map(str::to_owned), Some("vm"));
    let mut best = (Duration::MAX, Duration::MAX);
    for turn in 1..=3 {
        eprintln!("note: {turn} of 3: the kernel alone, then with {}", of.what.join(", "));
        best.0 = best.0.min(sandbox::time_to_init(kernel, accel)?);
        best.1 = best.1.min(first_packet(&text, registry)?);
    }
    Ok(best)
}

fn first_packet(text: &str, registry: &Registry) -> anyhow::Result<Duration> {
    let file = ChainFile::parse(text, Path::new("image.toml"), registry).map_err(Diagnostics)?;
    let chains = Walled::start(&file, registry, Options::default())?;
    let ready = Instant::now();
    let came = || chains.snapshot().ports.iter().any(|port| port.name == "out" && port.sent > 0);
    while !came() && ready.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
    let (after, came) = (ready.elapsed(), came());
    let summary = chains.stop();
    match came {
        true => {
            Ok(after + summary.walls.iter().map(|wall| Duration::from_secs_f64(wall.began_ms / 1e3)).sum::<Duration>())
        }
        false => Err(anyhow!("no packet came through within {PATIENCE:?}: {}", summary.faults.join("; "))),
    }
}
