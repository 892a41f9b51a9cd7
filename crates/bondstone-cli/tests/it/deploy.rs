//! Deployment: the protocol of the service manager, manual pages and completions, the unit, the Debian package, the
//! container image, the Helm chart.

use crate::common::{LIMIT, Running, Said, Scratch, alone, built_folder};
use crate::images::{Container, read_image};
use std::collections::BTreeSet;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;

const CHAIN: &str = "bondstone = 1\n\
     [port.in]\ndevice = \"null\"\n[port.out]\ndevice = \"null\"\n\
     [[chain]]\npath = [\"in\", \"ttl\", \"out\"]\n";

/// Returns the root of the sources.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns true if a program is installed; prints a note otherwise.
fn has(program: &str) -> bool {
    let has = Command::new(program).arg("--version").output().is_ok();
    if !has {
        eprintln!("skipped: {program} is not installed");
    }
    has
}

/// Runs a command that must succeed and print no warning; returns its standard output.
#[track_caller]
fn silent(command: &mut Command) -> String {
    let said: Said = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}")).into();
    assert_eq!((said.status, said.err.as_str()), (Some(0), ""), "{command:?}: {}", said.out);
    said.out
}

#[test]
fn a_service_manager_is_notified() {
    let _alone = alone();
    let scratch = Scratch::new();
    let (file, path) = (scratch.write("edge.toml", CHAIN), scratch.path("notify.sock"));
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let program = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bondstone"));
        command.env("BONDSTONE_RUNTIME_DIR", scratch.path("sockets")).env("NOTIFY_SOCKET", &path);
        command
    };
    let message = || {
        let mut bytes = [0; 64];
        let length = socket.recv(&mut bytes).expect("a message");
        String::from_utf8_lossy(&bytes[..length]).trim_end().to_owned()
    };

    let running = Running::start(program().arg("run").arg(&file).arg("--json").env("WATCHDOG_USEC", "200000"));
    assert_eq!(message(), "READY=1");
    // a probe that begins now succeeds
    let stats: Said = program().arg("stats").output().unwrap().into();
    assert_eq!(stats.status, Some(0), "{}", stats.err);
    for _ in 0..3 {
        assert_eq!(message(), "WATCHDOG=1");
    }
    running.signal(rustix::process::Signal::TERM);
    let last = std::iter::repeat_with(message).find(|message| message != "WATCHDOG=1");
    assert_eq!(last.as_deref(), Some("STOPPING=1"));
    running.end().summary(130);

    // a run that cannot start is not ready
    let rejected: Said = program().arg("run").arg(scratch.path("absent.toml")).output().unwrap().into();
    assert_eq!(rejected.status, Some(2), "{}", rejected.err);
    socket.set_nonblocking(true).unwrap();
    assert!(socket.recv(&mut [0; 64]).is_err());
}

/// Returns the names of the manual pages that a command and those below it need.
fn page_names(command: &clap::Command, name: &str, names: &mut BTreeSet<String>) {
    names.insert(format!("{name}.1"));
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        page_names(below, &format!("{name}-{}", below.get_name()), names);
    }
}

#[test]
fn each_command_has_a_manual_page_and_completions() {
    let scratch = Scratch::new();
    silent(Command::new(built_folder().join("examples/cli_pages")).arg(scratch.path("")));
    let mut expected = BTreeSet::new();
    page_names(&bondstone_cli::command(), "bondstone", &mut expected);
    let pages = std::fs::read_dir(scratch.path("man1")).unwrap().map(|entry| entry.unwrap().path());
    let pages: Vec<_> = pages.collect();
    let names: BTreeSet<_> =
        pages.iter().map(|page| page.file_name().unwrap().to_string_lossy().into_owned()).collect();
    assert_eq!(names, expected);
    assert!(names.contains("bondstone-image-oci.1"));
    if has("groff") {
        silent(Command::new("groff").args(["-man", "-ww", "-z", "-Tutf8"]).args(&pages));
    }

    let completions = [("bash", "-n", "bondstone.bash"), ("zsh", "-n", "_bondstone"), ("fish", "-n", "bondstone.fish")];
    for (shell, parse, name) in completions {
        let file = scratch.path(shell).join(name);
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains("--memory") || text.contains("-l memory"), "{text}");
        assert!(!text.contains(sandbox::PROCESS_COMMAND), "{name} offers a hidden command");
        if has(shell) {
            silent(Command::new(shell).arg(parse).arg(file));
        }
    }
}

#[test]
fn the_unit_is_valid_and_hardened() {
    if !has("systemd-analyze") {
        return;
    }
    let scratch = Scratch::new();
    let unit = std::fs::read_to_string(root().join("deploy/systemd/bondstone@.service")).unwrap();
    // the program must exist
    let unit = unit.replace("/usr/bin/bondstone", env!("CARGO_BIN_EXE_bondstone"));
    let unit = scratch.write("bondstone@edge.service", unit);
    silent(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit));
    let mut security = Command::new("systemd-analyze");
    // of 100; a unit without restrictions has 96
    security.args(["security", "--offline=true", "--no-pager", "--threshold=30"]).arg(&unit);
    let said: Said = security.output().unwrap().into();
    assert_eq!(said.status, Some(0), "{}", said.out);
}

#[test]
fn the_debian_package_installs_and_is_purged() {
    if !has("dpkg-shlibdeps") {
        return;
    }
    let scratch = Scratch::new();
    silent(Command::new(root().join("scripts/deb.sh")).arg(built_folder()).arg(scratch.path("")));
    let deb = std::fs::read_dir(scratch.path("")).unwrap().map(|entry| entry.unwrap().path());
    let deb = deb.into_iter().find(|path| path.extension().is_some_and(|e| e == "deb")).unwrap();
    let field = |name: &str| silent(Command::new("dpkg-deb").arg("-f").arg(&deb).arg(name)).trim().to_owned();
    assert_eq!((field("Package"), field("Version")), ("bondstone".into(), env!("CARGO_PKG_VERSION").into()));
    assert!(field("Depends").contains("libc6 (>= "), "{}", field("Depends"));
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: installing a package needs root");
        return;
    }

    let target = scratch.path("root");
    for folder in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "etc"] {
        std::fs::create_dir_all(target.join(folder)).unwrap();
    }
    for file in ["var/lib/dpkg/status", "var/lib/dpkg/available", "etc/passwd"] {
        std::fs::write(target.join(file), "").unwrap();
    }
    let dpkg = |arguments: &[&str]| {
        let mut command = Command::new("dpkg");
        command.arg("--root").arg(&target).args(["--log=/dev/null", "--force-script-chrootless", "--force-depends"]);
        let said: Said = command.args(arguments).output().unwrap().into();
        assert_eq!(said.status, Some(0), "{} {}", said.out, said.err);
    };
    dpkg(&["--install", deb.to_str().unwrap()]);
    let version = silent(Command::new(target.join("usr/bin/bondstone")).arg("--version"));
    assert_eq!(version, concat!("bondstone ", env!("CARGO_PKG_VERSION"), "\n"));
    let installed = [
        "etc/bondstone",
        "usr/lib/systemd/system/bondstone@.service",
        "usr/share/man/man1/bondstone-run.1.gz",
        "usr/share/bash-completion/completions/bondstone",
    ];
    assert!(installed.iter().all(|path| target.join(path).exists()));
    let check: Said = Command::new(target.join("usr/bin/bondstone"))
        .arg("check")
        .arg(target.join("usr/share/doc/bondstone/examples/router.toml"))
        .output()
        .unwrap()
        .into();
    // 3: its interfaces need privileges or exist
    assert!(matches!(check.status, Some(0 | 3)), "{}", check.err);
    dpkg(&["--purge", "bondstone"]);
    for path in installed.iter().chain(&["usr/bin/bondstone"]) {
        assert!(!target.join(path).exists(), "{path} is left");
    }
    assert!(!std::fs::read_to_string(target.join("etc/passwd")).unwrap().contains("bondstone"));
}

#[test]
fn the_container_image_is_small_observed_and_stopped() {
    let scratch = Scratch::new();
    let tar = scratch.path("bondstone.tar");
    let script = root().join("scripts/container.sh");
    let said: Said = Command::new(script).arg(env!("CARGO_BIN_EXE_bondstone")).arg(&tar).output().unwrap().into();
    assert_eq!(said.status, Some(0), "{}", said.err);
    let bytes = std::fs::read(&tar).unwrap();
    assert!(bytes.len() <= 30_000_000, "{} bytes", bytes.len());
    let (name, config, layer) = read_image(&bytes);
    assert_eq!(name, concat!("bondstone:", env!("CARGO_PKG_VERSION")));
    assert_eq!(config["config"]["StopSignal"], "SIGTERM");

    let _alone = alone();
    let file = scratch.write("chain.toml", CHAIN);
    let mount = [&file, Path::new("/chain.toml")];
    let Some(container) = Container::new(scratch.path("bundle"), &config, &layer, mount) else { return };
    // with a root file system that can be written, no folder is mounted for the control socket
    container.change(|spec| {
        spec["root"]["readonly"] = false.into();
        spec["process"]["args"] = serde_json::json!(["/bondstone", "--version"]);
    });
    let version = silent(&mut container.run());
    assert_eq!(version, concat!("bondstone ", env!("CARGO_PKG_VERSION"), "\n"));
    container
        .change(|spec| spec["process"]["args"] = serde_json::json!(["/bondstone", "run", "/chain.toml", "--json"]));
    let mut running = Running::start(&mut container.run());
    running.started();
    let stats = silent(container.exec(&["/bondstone", "stats", "--json"]).env_remove("BONDSTONE_RUNTIME_DIR"));
    assert!(stats.contains("received"), "{stats}");
    container.kill(config["config"]["StopSignal"].as_str().unwrap());
    running.end().summary(130);
}

#[test]
fn the_helm_chart_renders() {
    let helm = Command::new("helm").arg("version").output().is_ok();
    if !helm {
        eprintln!("skipped: helm is not installed");
        return;
    }
    let folder = root().join("deploy/helm");
    let helm = |command: &str, more: &[&str]| {
        let mut helm = Command::new("helm");
        helm.arg(command).args(more).args(["bondstone", "--values", "sriov.yaml"]).current_dir(&folder);
        silent(&mut helm)
    };
    helm("lint", &["--strict"]);
    let text = helm("template", &["edge", "--set", "podMonitor.enabled=true"]);
    for part in ["k8s.v1.cni.cncf.io/networks: ", "hugepages-2Mi: 512Mi", "kind: PodMonitor", "[/bondstone, stats]"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // Guaranteed: requests and limits are equal
    let list = |name: &str| {
        let lines = text.lines().skip_while(move |line| line.trim() != name).skip(1);
        lines.take_while(|line| line.starts_with("              ")).collect::<Vec<_>>()
    };
    assert!(list("requests:").len() == 5 && list("requests:") == list("limits:"), "{text}");

    // the chain file in it is valid, with the variables of the device plugin
    let chain: String = text
        .lines()
        .skip_while(|line| line.trim() != "chain.toml: |")
        .skip(1)
        .take_while(|line| *line != "---")
        .map(|line| format!("{}\n", line.trim_start()))
        .collect();
    let scratch = Scratch::new();
    let mut check = Command::new(env!("CARGO_BIN_EXE_bondstone"));
    check.arg("check").arg(scratch.write("chain.toml", chain));
    check.env("PCIDEVICE_EXAMPLE_COM_LAN", "0000:3b:02.1").env("PCIDEVICE_EXAMPLE_COM_WAN", "0000:3b:0a.1");
    let said: Said = check.output().unwrap().into();
    // 3: this machine does not have the devices
    assert!(said.status == Some(3) && said.err.contains("0000:3b:02.1"), "{} {}", said.out, said.err);
}
