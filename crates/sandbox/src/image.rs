//! Images of containers and virtual machines for other machines.

pub(crate) mod initramfs;
pub(crate) mod program;

use crate::container::PROGRAM;
use crate::kernel::{Kernel, sha256};
use crate::vm::VmImage;
use flate2::{Compression, write::GzEncoder};
use program::{ImageFiles, Program, parent_folders, read_files};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// File in the initramfs of a VM that contains the path of the chain file.
pub(crate) const CHAIN_PATH: &str = "/chain";
/// Folder of the sockets in a container.
pub const SOCKETS: &str = "/run/bondstone";
/// User and group of a container.
const CONTAINER_USER: u64 = 65532;
/// zstd level of the initramfs; the level hardly affects decompression.
const COMPRESSION_LEVEL: i32 = 19;

/// Content of an image: program, chain file, and files that its NFs read.
pub struct ImageContent {
    /// Program.
    pub program: Program,
    /// Path of the chain file, the same in the image, and its text.
    pub chain: (PathBuf, String),
    /// Absolute paths of files that NFs read, the same in the image.
    pub files: Vec<PathBuf>,
}

impl ImageContent {
    /// Returns the chain file and the files that its NFs read.
    fn read(&self) -> io::Result<ImageFiles> {
        let (path, text) = &self.chain;
        let chain = (path.clone(), 0o644, text.clone().into_bytes());
        let mut files = read_files(&self.files, 0o644)?;
        files.push(chain);
        Ok(files)
    }
}

/// Writes the kernel and the compressed initramfs of a VM to a folder.
///
/// # Errors
/// A file cannot be read or written.
pub fn write_vm_image(content: &ImageContent, kernel: &Kernel, to: &Path) -> io::Result<VmImage> {
    std::fs::create_dir_all(to)?;
    let mut files = initramfs::guest_files(&content.program, kernel)?;
    files.push((CHAIN_PATH.into(), 0o644, content.chain.0.display().to_string().into_bytes()));
    files.extend(content.read()?);
    let archive = initramfs::write(vec![], &files)?;
    let image = VmImage { kernel: to.join("vmlinuz"), initramfs: to.join("initramfs.zst"), bytes: [0; 2] };
    let packed = zstd::bulk::compress(&archive, COMPRESSION_LEVEL)?;
    std::fs::write(&image.initramfs, &packed)?;
    let linux = kernel.read(&kernel.image)?;
    std::fs::write(&image.kernel, &linux)?;
    Ok(VmImage { bytes: [linux.len() as u64, packed.len() as u64], ..image })
}

/// Writes a container image as a tar archive of an OCI image layout 1.0 and returns its size in bytes.
///
/// # Errors
/// A file cannot be read or written.
pub fn write_oci_image(content: &ImageContent, name: &str, to: &Path) -> io::Result<u64> {
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
        "config": {
            "User": format!("{CONTAINER_USER}:{CONTAINER_USER}"),
            // for the control socket
            "Env": [format!("BONDSTONE_RUNTIME_DIR={SOCKETS}")],
            "Entrypoint": [PROGRAM],
            "Cmd": ["run", content.chain.0],
            "WorkingDir": "/",
            "StopSignal": "SIGTERM",
        },
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
    append_file(&mut archive, Path::new("/oci-layout"), 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    append_file(&mut archive, Path::new("/index.json"), 0o644, &serde_json::to_vec(&index)?)?;
    for bytes in [&config, &zipped, &manifest] {
        let at = Path::new("/blobs").join(digest(bytes).replace(':', "/"));
        append_file(&mut archive, &at, 0o644, bytes)?;
    }
    archive.into_inner()?.sync_all()?;
    Ok(std::fs::metadata(to)?.len())
}

/// Returns the layer with the files of a container.
fn layer(content: &ImageContent) -> io::Result<Vec<u8>> {
    let mut files = content.program.files(PROGRAM)?;
    files.extend(content.read()?);
    let mut layer = tar::Builder::new(vec![]);
    let mounted = Path::new(SOCKETS).join("x");
    for folder in parent_folders(files.iter().map(|(path, ..)| path.as_path()).chain([mounted.as_path()])) {
        let mut header = header(0o755, 0);
        header.set_entry_type(tar::EntryType::Directory);
        if folder == Path::new(SOCKETS) {
            header.set_uid(CONTAINER_USER);
            header.set_gid(CONTAINER_USER);
        }
        layer.append_data(&mut header, relative(&folder), io::empty())?;
    }
    for (path, mode, bytes) in &files {
        append_file(&mut layer, path, *mode, bytes)?;
    }
    layer.into_inner()
}

fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

/// Returns a tar header without time stamps, so that images are reproducible.
fn header(mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

fn append_file<W: Write>(archive: &mut tar::Builder<W>, path: &Path, mode: u32, bytes: &[u8]) -> io::Result<()> {
    archive.append_data(&mut header(mode, bytes.len() as u64), relative(path), bytes)
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", sha256(bytes))
}
