//! `bondstone image`.

use crate::exit::Exit;
use anyhow::{Context, anyhow};
use bytesize::ByteSize;
use config::{ChainFile, Sandbox};
use diagnostics::{Diagnostic, Diagnostics};
use graph::Registry;
use logger::eprintln;
use runtime::Options;
use sandbox::{Accelerator, ImageContent, Kernel, Program, SOCKETS, SandboxedEngine};
use serde_json::json;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time until the first packet.
const FIRST_PACKET_TIMEOUT: Duration = Duration::from_secs(120);

/// Writes container or virtual machine images of NFs.
#[derive(clap::Subcommand)]
pub(crate) enum Image {
    /// Writes an OCI image for podman, Docker and Kubernetes: one program, no shell, no root.
    #[command(after_help = "\
NFs form a chain from a port `in` to a port `out`, with default settings. A chain file is included unchanged, with
the files that its settings name.

Examples:
  bondstone image oci ttl monitor
  bondstone image oci chain.toml --out nf.tar")]
    Oci {
        #[command(flatten)]
        content: Content,
        /// Output file.
        #[arg(long, short, value_name = "FILE", default_value = "bondstone-nf.tar")]
        out: PathBuf,
        /// Name and tag of the image.
        #[arg(long, default_value = "bondstone-nf:latest")]
        name: String,
    },
    /// Writes a micro-VM: a distribution kernel and one program.
    #[command(after_help = "\
NFs form a chain from a port `in` to a port `out`, with default settings. A chain file is included unchanged, with
the files that its settings name; its ports are those of the VM, from 0000:00:02.0 on.

Examples:
  bondstone image vm --fetch
  bondstone image vm ttl monitor --out vm
  bondstone image vm ttl --time")]
    Vm {
        #[command(flatten)]
        content: Content,
        /// Output folder.
        #[arg(long, short, value_name = "FOLDER", default_value = "bondstone-vm")]
        out: PathBuf,
        /// Downloads the kernel package of the distribution to the cache first; installs nothing.
        #[arg(long)]
        fetch: bool,
        /// Starts the VM and measures the time to the first packet, and that of the kernel alone.
        #[arg(long)]
        time: bool,
    },
}

/// Content of an image.
#[derive(clap::Args)]
pub(crate) struct Content {
    /// Kinds of NF, or one chain file.
    #[arg(value_name = "NF|FILE")]
    what: Vec<String>,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

impl Content {
    fn file(&self) -> Option<&Path> {
        let [one] = &self.what[..] else { return None };
        Path::new(one).extension().is_some_and(|e| e == "toml").then(|| Path::new(one))
    }

    /// Returns a chain file with a chain of the NFs between two ports.
    fn chain(&self, devices: [String; 2], isolation: Option<&str>) -> String {
        let nfs: String = (0..).zip(&self.what).map(|(n, kind)| format!("[nf.nf{n}]\nkind = {kind:?}\n")).collect();
        let path: String = (0..self.what.len()).map(|n| format!("\"nf{n}\", ")).collect();
        let [from, to] = devices;
        let isolation = isolation.map_or_else(String::new, |name| format!("isolation = {name:?}\n"));
        format!(
            "bondstone = 1\n\n[port.in]\ndevice = {from:?}\n\n[port.out]\ndevice = {to:?}\n\n{nfs}\n[[chain]]\n{isolation}path = [\"in\", {path}\"out\"]\n"
        )
    }

    /// Returns the checked content with the files that it needs, and the chain file.
    fn resolve(&self, devices: [String; 2], registry: &Registry) -> anyhow::Result<(ImageContent, ChainFile)> {
        let (path, text) = match self.file() {
            Some(path) => {
                let text = config::read(path, "chain file").map_err(|d| Diagnostics(vec![d]))?;
                (path.canonicalize()?, text)
            }
            None => (PathBuf::from("/chain.toml"), self.chain(devices, None)),
        };
        if self.what.is_empty() {
            let d = Diagnostic::new("the image has no content");
            return Err(Diagnostics(vec![d.remedy("name NFs (bondstone nf list), or a chain file")]).into());
        }
        let file = ChainFile::parse(&text, &path, registry).map_err(Diagnostics)?;
        if let Some(sandbox) = file.sandboxes.first() {
            let d = Diagnostic::new("is a sandbox, which an image cannot contain").value(&sandbox.name);
            return Err(Diagnostics(vec![d.remedy("remove isolation")]).into());
        }
        let errors = file.build_errors();
        if !errors.is_empty() {
            return Err(Diagnostics(errors).into());
        }
        let files = file.setting_files(|_| true).iter().map(|file| file.canonicalize()).collect::<Result<_, _>>()?;
        Ok((ImageContent { program: Program::find()?, chain: (path, text), files }, file))
    }
}

impl Image {
    pub(crate) fn run(&self, registry: &Registry) -> anyhow::Result<Exit> {
        match self {
            Image::Oci { content, out, name } => oci(content, out, name, registry),
            Image::Vm { content, out, fetch, time } => {
                let kernel = if *fetch { Kernel::fetch()? } else { Kernel::find()? };
                if *fetch {
                    eprintln!("note: Linux {}: {}", kernel.version, kernel.image.display());
                    if content.what.is_empty() {
                        return Ok(Exit::Success);
                    }
                }
                vm(content, out, &kernel, *time, registry)
            }
        }
    }
}

fn oci(content: &Content, out: &Path, name: &str, registry: &Registry) -> anyhow::Result<Exit> {
    let socket = |port: &str| format!("virtio-user:{SOCKETS}/{port}.sock");
    let (image_content, _) = content.resolve(["in", "out"].map(socket), registry)?;
    let bytes = sandbox::write_oci_image(&image_content, name, out).with_context(|| out.display().to_string())?;
    let mut to = stdout();
    if content.json {
        writeln!(to, "{:#}", json!({ "image": out, "name": name, "bytes": bytes }))?;
        return Ok(Exit::Success);
    }
    let at = out.display();
    writeln!(to, "{at}: {}, {name}", ByteSize(bytes))?;
    writeln!(to, "  load:  podman load -i {at}")?;
    writeln!(to, "  run:   podman run --read-only --network none -v {SOCKETS}:{SOCKETS} {name}")?;
    if content.file().is_none() {
        writeln!(
            to,
            "  ports of the switch: vhost:{SOCKETS}/in.sock and vhost:{SOCKETS}/out.sock, accessible to user 65532"
        )?;
    }
    Ok(Exit::Success)
}

fn vm(content: &Content, out: &Path, kernel: &Kernel, time: bool, registry: &Registry) -> anyhow::Result<Exit> {
    let (image_content, file) = content.resolve([0, 1].map(Sandbox::pci_address), registry)?;
    let image = sandbox::write_vm_image(&image_content, kernel, out).with_context(|| out.display().to_string())?;
    let accel = sandbox::detect_accelerator(kernel);
    let is_port =
        |n: &usize| file.ports.iter().any(|port| port.device.pci_address() == Some(&Sandbox::pci_address(*n)));
    let sockets: Vec<PathBuf> =
        (0..Sandbox::MAX_SLOTS).take_while(is_port).map(|n| PathBuf::from(format!("{SOCKETS}/port{n}.sock"))).collect();
    let command = sandbox::standalone_command(&image, accel, sockets.clone());
    let times = if time { Some(times(content, kernel, accel, registry)?) } else { None };
    let mut to = stdout();
    if content.json {
        let times = times.map(
            |(alone, first)| json!({ "empty_init_s": alone.as_secs_f64(), "first_packet_s": first.as_secs_f64() }),
        );
        let [of_kernel, of_archive] = image.bytes;
        let document = json!({
            "kernel": image.kernel, "kernel_bytes": of_kernel, "linux": kernel.version, "initramfs": image.initramfs,
            "initramfs_bytes": of_archive, "accel": accel.to_string(), "command": command, "times": times,
        });
        writeln!(to, "{document:#}")?;
        return Ok(Exit::Success);
    }
    let [of_kernel, of_archive] = image.bytes.map(ByteSize);
    writeln!(to, "{}: {of_kernel}, Linux {}", image.kernel.display(), kernel.version)?;
    writeln!(to, "{}: {of_archive}, {}", image.initramfs.display(), content.what.join(", "))?;
    writeln!(to, "  run:   {}", shell(&command))?;
    let list: Vec<String> = sockets.iter().map(|socket| format!("vhost:{}", socket.display())).collect();
    writeln!(to, "  ports of the switch, which is started first: {}", list.join(", "))?;
    if let Some((alone, first)) = times {
        let limit = alone.mul_f64(1.2) + Duration::from_millis(500);
        let verdict = if first <= limit { "within" } else { "over" };
        writeln!(to, "  {accel}: the kernel alone starts its first process after {:.2} s", alone.as_secs_f64())?;
        writeln!(
            to,
            "  the first packet is forwarded after {:.2} s, {verdict} the limit of 1.2 times that plus 0.5 s ({:.2} s)",
            first.as_secs_f64(),
            limit.as_secs_f64()
        )?;
    }
    Ok(Exit::Success)
}

/// Returns a command with shell quoting.
fn shell(command: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./:=,-+".contains(c);
    let quoted = |word: &String| match word.chars().all(plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    command.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// Measures the boot time of the kernel alone, and the time until the first packet is forwarded: the best of three
/// each, interleaved.
fn times(
    content: &Content,
    kernel: &Kernel,
    accel: Accelerator,
    registry: &Registry,
) -> anyhow::Result<(Duration, Duration)> {
    if content.file().is_some() {
        return Err(anyhow!("--time requires NFs, not a chain file"));
    }
    let text = content.chain(["null", "null"].map(str::to_owned), Some("vm"));
    let mut best = (Duration::MAX, Duration::MAX);
    for turn in 1..=3 {
        eprintln!("note: run {turn} of 3: the kernel alone, then with {}", content.what.join(", "));
        best.0 = best.0.min(sandbox::measure_boot_time(kernel, accel)?);
        best.1 = best.1.min(first_packet(&text, registry)?);
    }
    Ok(best)
}

/// Returns the time until the first packet is forwarded.
fn first_packet(text: &str, registry: &Registry) -> anyhow::Result<Duration> {
    let file = ChainFile::parse(text, Path::new("image.toml"), registry).map_err(Diagnostics)?;
    let chains = SandboxedEngine::start(&file, registry, Options::default())?;
    let ready = Instant::now();
    let is_forwarded = || chains.snapshot().ports.iter().any(|port| port.name == "out" && port.sent > 0);
    while !is_forwarded() && ready.elapsed() < FIRST_PACKET_TIMEOUT {
        std::thread::sleep(Duration::from_millis(5));
    }
    let (after, forwarded) = (ready.elapsed(), is_forwarded());
    let summary = chains.stop();
    match forwarded {
        true => Ok(after
            + summary
                .sandboxes
                .iter()
                .map(|sandbox| Duration::from_secs_f64(sandbox.startup_ms / 1e3))
                .sum::<Duration>()),
        false => Err(anyhow!("no packet was forwarded within {FIRST_PACKET_TIMEOUT:?}: {}", summary.errors.join("; "))),
    }
}
