//! Images of NFs: their content, and that they run without anything else of Bondstone.

use crate::common::{Running, Said, Scratch, sandboxed_run};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

fn image(folder: &Scratch, args: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bondstone"));
    command.arg("image").args(args).current_dir(folder.path("")).output().unwrap().into()
}

fn json_of(output: &Said) -> Value {
    assert_eq!(output.status, Some(0), "{output:?}");
    serde_json::from_str(&output.out).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

/// Returns the files of an archive.
fn files(archive: impl Read) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut archive = tar::Archive::new(archive);
    let read = |entry: std::io::Result<tar::Entry<_>>| {
        let mut entry = entry.unwrap();
        let mut bytes = vec![];
        entry.read_to_end(&mut bytes).unwrap();
        (entry.path().unwrap().into_owned(), bytes)
    };
    archive.entries().unwrap().map(read).collect()
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Starts a switch that sends to one socket at full rate and receives from another.
fn switch(folder: &Scratch, to: &Path, from: &Path) -> Running {
    let text = format!(
        "bondstone = 1\nport.in.device = \"null\"\nport.to.device = \"vhost:{}\"\nport.from.device = \"vhost:{}\"\n\
         port.out.device = \"null\"\n[[chain]]\npath = [\"in\", \"to\"]\n[[chain]]\npath = [\"from\", \"out\"]\n",
        to.display(),
        from.display()
    );
    let mut running = Running::run(&folder.write("switch.toml", text), &[]);
    running.started();
    running
}

/// Waits until packets return to the switch.
fn wait_for_packets(mut running: Running) {
    running.wait_for("returned packets", sandboxed_run::is_flowing);
    let summary = running.interrupt().summary(130);
    assert!(summary.port("out").number("/sent") > 0, "{}", summary.0);
}

/// Checks the sizes and digests of an OCI image; returns its name, configuration and uncompressed layer.
pub(crate) fn read_image(bytes: &[u8]) -> (String, Value, Vec<u8>) {
    let all = files(bytes);
    let parsed = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
    let index = parsed(&all[Path::new("index.json")]);
    let blob = |of: &Value| {
        let name = of["digest"].as_str().unwrap();
        let bytes = &all[&Path::new("blobs").join(name.replace(':', "/"))];
        assert_eq!((name, &of["size"]), (format!("sha256:{}", digest(bytes)).as_str(), &json!(bytes.len())));
        bytes
    };
    let manifest = parsed(blob(&index["manifests"][0]));
    let config = parsed(blob(&manifest["config"]));
    let mut layer = vec![];
    flate2::read::GzDecoder::new(&blob(&manifest["layers"][0])[..]).read_to_end(&mut layer).unwrap();
    assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", digest(&layer)));
    let name = index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"].as_str().unwrap();
    (name.to_owned(), config, layer)
}

/// A container of an image, run by runc.
pub(crate) struct Container {
    folder: PathBuf,
    id: String,
}

impl Container {
    /// Unpacks a layer, to be run as the configuration says, without capabilities, and with a mount of `source` at
    /// `destination`; `None` without root or runc.
    pub(crate) fn new(folder: PathBuf, config: &Value, layer: &[u8], mount: [&Path; 2]) -> Option<Container> {
        if !rustix::process::geteuid().is_root() || Command::new("runc").arg("--version").output().is_err() {
            eprintln!("skipped: needs root and runc");
            return None;
        }
        let mut layer = tar::Archive::new(layer);
        layer.set_preserve_ownerships(true);
        layer.unpack(folder.join("rootfs")).unwrap();
        // the name of the scratch folder, which is unique
        let id = folder.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
        let container = Container { folder, id };
        assert!(container.runc(&["spec"]).status().unwrap().success());
        container.change(|spec| {
            let list = |of: &Value| of.as_array().unwrap().clone();
            let config = &config["config"];
            spec["process"]["args"] = Value::Array([list(&config["Entrypoint"]), list(&config["Cmd"])].concat());
            spec["process"]["env"] = config["Env"].clone();
            spec["process"]["terminal"] = false.into();
            spec["process"]["user"] = json!({ "uid": 65532, "gid": 65532 });
            spec["process"]["capabilities"] = json!({});
            assert_eq!(spec["root"]["readonly"], true);
            let [source, destination] = mount;
            let mount = json!({ "destination": destination, "source": source, "type": "bind", "options": ["rbind"] });
            spec["mounts"].as_array_mut().unwrap().push(mount);
        });
        Some(container)
    }

    /// Changes the specification of the container.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Value)) {
        let file = self.folder.join("config.json");
        let mut spec = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        change(&mut spec);
        std::fs::write(file, spec.to_string()).unwrap();
    }

    fn runc(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("runc");
        command.arg("--root").arg(self.folder.join("state")).args(arguments).current_dir(&self.folder);
        command
    }

    /// Returns the command that runs it.
    pub(crate) fn run(&self) -> Command {
        self.runc(&["run", &self.id])
    }

    /// Returns a command in the running container.
    pub(crate) fn exec(&self, arguments: &[&str]) -> Command {
        let mut command = self.runc(&["exec", &self.id]);
        command.args(arguments);
        command
    }

    /// Sends a signal to its first process.
    pub(crate) fn kill(&self, signal: &str) {
        assert!(self.runc(&["kill", &self.id, signal]).status().unwrap().success());
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // errors: it has been deleted
        let _ = self.runc(&["delete", "--force", &self.id]).output();
    }
}

#[test]
fn a_container_image_is_complete_and_reproducible_and_runs() {
    let folder = Scratch::new();
    let output = json_of(&image(&folder, &["oci", "ttl", "monitor", "--json", "--out", "nf.tar", "--name", "nf:1"]));
    let bytes = std::fs::read(folder.path("nf.tar")).unwrap();
    assert_eq!(output["bytes"], bytes.len());
    image(&folder, &["oci", "ttl", "monitor", "--out", "again.tar", "--name", "nf:1"]);
    assert!(bytes == std::fs::read(folder.path("again.tar")).unwrap(), "two images of the same content differ");
    let (name, config, layer) = read_image(&bytes);
    assert_eq!((name.as_str(), &config["config"]["User"]), ("nf:1", &json!("65532:65532")));
    let content = files(&layer[..]);
    assert!(!content.keys().any(|path| path.starts_with("bin") || path.starts_with("etc")), "{:?}", content.keys());

    // run it by its configuration with the sockets mounted
    let sockets = folder.path("sockets");
    std::fs::create_dir(&sockets).unwrap();
    let mount = [&sockets, Path::new("/run/bondstone")];
    let Some(container) = Container::new(folder.path("bundle"), &config, &layer, mount) else { return };
    let running = switch(&folder, &sockets.join("in.sock"), &sockets.join("out.sock"));
    for socket in ["in.sock", "out.sock"] {
        rustix::fs::chmod(sockets.join(socket), 0o777.into()).unwrap();
    }
    let _container = Running::start(&mut container.run());
    wait_for_packets(running);
}

#[test]
fn a_vm_image_is_small_and_runs() {
    let folder = Scratch::new();
    let fetched = image(&folder, &["vm", "--fetch"]);
    if fetched.status != Some(0) || Command::new("qemu-system-x86_64").arg("--version").output().is_err() {
        eprintln!("skipped: no QEMU, or no kernel to fetch: {}", fetched.err);
        return;
    }
    let output = json_of(&image(&folder, &["vm", "ttl", "monitor", "--json", "--out", "vm"]));
    let host_program = Path::new(env!("CARGO_BIN_EXE_bondstone")).with_file_name("bondstone-host");
    if host_program.exists() {
        assert!(output["initramfs_bytes"].as_u64().unwrap() < 8 << 20, "{output}");
    } else {
        eprintln!("skipped: size of an image with the small program (make host)");
    }
    let running = switch(&folder, &folder.path("port0.sock"), &folder.path("port1.sock"));
    let arguments = output["command"].as_array().unwrap().iter().map(|argument| argument.as_str().unwrap());
    let here = format!("{}/", folder.path("").display().to_string().trim_end_matches('/'));
    let arguments: Vec<String> = arguments.map(|argument| argument.replace("/run/bondstone/", &here)).collect();
    let mut command = Command::new(&arguments[0]);
    command.args(&arguments[1..]).current_dir(folder.path(""));
    let guest = Running::start(&mut command);
    wait_for_packets(running);
    drop(guest);
}

#[test]
fn rejects_invalid_content() {
    let folder = Scratch::new();
    for (args, expected) in [
        (&["oci"][..], "the image has no content"),
        (&["oci", "no-such-nf"], "no-such-nf"),
        (&["oci", "absent.toml"], "absent.toml"),
        (&["oci", "l3fwd"], "has no interfaces"),
    ] {
        let output = image(&folder, args);
        assert_eq!(output.status, Some(2), "{args:?}: {output:?}");
        assert!(output.err.contains(expected) && output.err.contains("help: "), "{args:?}: {output:?}");
    }
}
