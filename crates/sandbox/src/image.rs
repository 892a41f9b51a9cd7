//! Images to take elsewhere: of a container, and of a virtual machine.

use crate::container::PROGRAM;
use crate::initramfs;
use crate::program::{Files, Program, folders, read};
use crate::vm::Kernel;
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What names the chain file in a VM's archive.
pub(crate) const CHAIN: &str = "/chain";
/// Where a container's sockets are expected.
pub const SOCKETS: &str = "/run/bondstone";
/// Whom a container runs as.
const NOBODY: &str = "65532:65532";
/// How hard a VM's archive is compressed: the kernel unpacks it at the same speed.
const HARD: i32 = 19;

/// What an image is to run: a chain file's text, and files that its NFs read, by their paths.
pub struct Content {
    /// The program.
    pub program: Program,
    /// The chain file's path, the same in the image, and its text.
    pub chain: (PathBuf, String),
    /// Files that NFs read; absolute paths, the same in the image.
    pub files: Vec<PathBuf>,
}

impl Content {
    /// The chain file and those that its NFs read.
    fn read(&self) -> io::Result<Files> {
        let (path, text) = &self.chain;
        let chain = (path.clone(), 0o644, text.clone().into_bytes());
        let mut all = read(&self.files, 0o644)?;
        all.push(chain);
        Ok(all)
    }
}

/// A VM's image, as it was written.
pub struct VmImage {
    /// The kernel.
    pub kernel: PathBuf,
    /// The archive that it begins with.
    pub initramfs: PathBuf,
    /// Bytes of both.
    pub bytes: [u64; 2],
}

/// Writes a VM's kernel and the archive with the program, compressed, into a folder.
///
/// # Errors
/// Something cannot be read or written.
pub fn vm(content: &Content, kernel: &Kernel, to: &Path) -> io::Result<VmImage> {
    std::fs::create_dir_all(to)?;
    let mut files = initramfs::guest(&content.program, &kernel.modules)?;
    files.push((CHAIN.into(), 0o644, content.chain.0.display().to_string().into_bytes()));
    files.extend(content.read()?);
    let archive = initramfs::write(vec![], &files)?;
    let image = VmImage { kernel: to.join("vmlinuz"), initramfs: to.join("initramfs.zst"), bytes: [0; 2] };
    let packed = zstd::bulk::compress(&archive, HARD)?;
    std::fs::write(&image.initramfs, &packed)?;
    let of_kernel = std::fs::copy(&kernel.image, &image.kernel)?;
    Ok(VmImage { bytes: [of_kernel, packed.len() as u64], ..image })
}

/// Writes a container's image as one file (OCI image layout 1.0 in a tar archive); its size in bytes.
///
/// # Errors
/// Something cannot be read or written.
pub fn oci(content: &Content, name: &str, to: &Path) -> io::Result<u64> {
    let layer = layer(content)?;
    let mut zipped = GzEncoder::new(vec![], Compression::best());
    zipped.write_all(&layer)?;
    let zipped = zipped.finish()?;
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let config = json!({
        "architecture": arch,
        "os": "linux",
        "config": { "User": NOBODY, "Entrypoint": [PROGRAM], "Cmd": ["run", content.chain.0], "WorkingDir": "/" },
        "rootfs": { "type": "layers", "diff_ids": [digest(&layer)] },
        "history": [{ "created_by": "bondstone image oci" }],
    });
    let config = serde_json::to_vec(&config)?;
    let blob = |kind: &str, bytes: &[u8]| json!({ "mediaType": format!("application/vnd.oci.image.{kind}"), "digest": digest(bytes), "size": bytes.len() });
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob("config.v1+json", &config),
        "layers": [blob("layer.v1.tar+gzip", &zipped)],
    });
    let manifest = serde_json::to_vec(&manifest)?;
    let mut entry = blob("manifest.v1+json", &manifest);
    entry["annotations"] = json!({ "org.opencontainers.image.ref.name": name });
    let index: Value = json!({ "schemaVersion": 2, "manifests": [entry] });
    let mut archive = tar::Builder::new(std::fs::File::create(to)?);
    file(&mut archive, Path::new("/oci-layout"), 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    file(&mut archive, Path::new("/index.json"), 0o644, &serde_json::to_vec(&index)?)?;
    for bytes in [&config, &zipped, &manifest] {
        let at = Path::new("/blobs").join(digest(bytes).replace(':', "/"));
        file(&mut archive, &at, 0o644, bytes)?;
    }
    archive.into_inner()?.sync_all()?;
    Ok(std::fs::metadata(to)?.len())
}

/// The files of a container.
fn layer(content: &Content) -> io::Result<Vec<u8>> {
    let mut files = content.program.files(PROGRAM)?;
    files.extend(content.read()?);
    let mut layer = tar::Builder::new(vec![]);
    let mounted = Path::new(SOCKETS).join("x");
    for folder in folders(files.iter().map(|(path, ..)| path.as_path()).chain([mounted.as_path()])) {
        let mut header = header(0o755, 0);
        header.set_entry_type(tar::EntryType::Directory);
        layer.append_data(&mut header, within(&folder), io::empty())?;
    }
    for (path, mode, bytes) in &files {
        file(&mut layer, path, *mode, bytes)?;
    }
    layer.into_inner()
}

fn within(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

/// The same for the same content, whenever it is written.
fn header(mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

fn file<W: Write>(archive: &mut tar::Builder<W>, path: &Path, mode: u32, bytes: &[u8]) -> io::Result<()> {
    archive.append_data(&mut header(mode, bytes.len() as u64), within(path), bytes)
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}
