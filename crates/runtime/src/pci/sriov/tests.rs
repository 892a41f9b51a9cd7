//! Tests with a simulated `/sys`, in which a script acts as the kernel when this program or the cleanup process writes
//! to it.

use super::*;
use crate::engine::{Engine, Options};
use config::ChainFile;
use std::fs::{create_dir_all, read_link, remove_file, write};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};

/// The NIC's directory in `/sys`.
const NIC: &str = "devices/pci0000:00/0000:01:00.0";
/// Address of its virtual functions without the last digit.
const VF: &str = "0000:01:10.";
/// Environment variable with the path of the simulated `/sys`.
const SYS_DIR_VARIABLE: &str = "BONDSTONE_SIMULATED_SYS";

/// A machine with a NIC `eth2` that supports four virtual functions, and an interface `lo` without a device.
struct Simulated(PathBuf);

impl Simulated {
    fn new() -> Simulated {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let name = format!("bondstone-sriov-{}-{}", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed));
        let sys = std::env::temp_dir().canonicalize().unwrap().join(name);
        let it = Simulated(sys.clone());
        for (file, text) in [
            ("kernel.sh", include_str!("kernel.sh")),
            ("log", ""),
            ("name", VF),
            ("bus/pci/drivers_probe", ""),
            ("bus/pci/drivers/ixgbe/unbind", ""),
            ("bus/pci/drivers/ixgbevf/unbind", ""),
            ("bus/pci/drivers/vfio-pci/unbind", ""),
            ("class/net/lo/flags", "0x49\n"),
            (&format!("{NIC}/sriov_totalvfs"), "4\n"),
            (&format!("{NIC}/sriov_numvfs"), "0\n"),
            (&format!("{NIC}/sriov_drivers_autoprobe"), "1\n"),
            (&format!("{NIC}/numa_node"), "1\n"),
            (&format!("{NIC}/net/eth2/flags"), "0x1003\n"),
        ] {
            it.create_file(file, text);
        }
        for folder in ["bus/pci/devices", "kernel/iommu_groups/1/devices"] {
            create_dir_all(sys.join(folder)).unwrap();
        }
        for (link, to) in [
            ("bus/pci/devices/0000:01:00.0", NIC),
            ("kernel/iommu_groups/1/devices/0000:01:00.0", NIC),
            ("class/net/eth2", &format!("{NIC}/net/eth2")),
            (&format!("{NIC}/net/eth2/device"), NIC),
            (&format!("{NIC}/driver"), "bus/pci/drivers/ixgbe"),
            (&format!("{NIC}/iommu_group"), "kernel/iommu_groups/1"),
        ] {
            symlink(sys.join(to), sys.join(link)).unwrap();
        }
        it
    }

    fn create_file(&self, file: &str, text: &str) {
        let path = self.0.join(file);
        create_dir_all(path.parent().unwrap()).unwrap();
        write(path, text).unwrap();
    }

    /// Returns the lines that were written, with their files.
    fn log(&self) -> Vec<String> {
        read_to_string(self.0.join("log")).unwrap().lines().map(str::to_owned).collect()
    }

    fn nic_file(&self, file: &str) -> String {
        read_to_string(self.0.join(NIC).join(file)).unwrap().trim().to_owned()
    }

    fn driver(&self, function: usize) -> Option<String> {
        driver(&self.0.join("bus/pci/devices").join(format!("{VF}{function}")))
    }

    /// Returns all paths with the contents of files and links, without the files of the tests.
    fn state(&self) -> Vec<(PathBuf, String)> {
        fn walk(folder: &Path, all: &mut Vec<(PathBuf, String)>) {
            for entry in read_dir(folder).unwrap().flatten() {
                let (path, kind) = (entry.path(), entry.file_type().unwrap());
                let content = match () {
                    () if kind.is_dir() => {
                        walk(&path, all);
                        continue;
                    }
                    () if kind.is_symlink() => read_link(&path).unwrap().display().to_string(),
                    () => read_to_string(&path).unwrap(),
                };
                all.push((path, content));
            }
        }
        let mut all = vec![];
        ["bus", "class", "devices", "kernel"].iter().for_each(|folder| walk(&self.0.join(folder), &mut all));
        all.sort();
        all
    }

    /// Creates functions for the devices of ports `a`, `b`, ...
    fn make(&self, devices: &[&str]) -> Result<VirtualFunctions, Error> {
        let names = ["a", "b", "c", "d", "e"];
        let devices: Vec<_> = devices.iter().zip(names).map(|(d, n)| (n, Device::parse(d, n).unwrap())).collect();
        VirtualFunctions::create(self, devices.iter().map(|(name, device)| (*name, device)))
    }

    fn refused(&self, devices: &[&str]) -> (String, String) {
        match self.make(devices) {
            Err(Error::Environment { problem, remedy }) => (problem, remedy),
            Err(e) => panic!("{e}"),
            Ok(functions) => panic!("made {:?}", functions.addresses),
        }
    }

    fn run(&self, words: &[&str]) -> io::Result<()> {
        let done = Command::new("sh").arg(self.0.join("kernel.sh")).args(words).output()?;
        assert_eq!(String::from_utf8_lossy(&done.stderr), "", "{words:?}");
        match done.status.code() {
            Some(0) => Ok(()),
            code => Err(io::Error::from_raw_os_error(code.unwrap())),
        }
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        if std::env::var_os(SYS_DIR_VARIABLE).is_none() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

impl Kernel for Simulated {
    fn sys(&self) -> &Path {
        &self.0
    }
    fn write_line(&self, line: &str, file: &Path) -> io::Result<()> {
        self.run(&[line, &file.to_string_lossy()])
    }
    fn shell_put(&self) -> String {
        let kernel = self.0.join("kernel.sh");
        format!("put() {{ sh {} \"$1\" \"$2\" || echo \"$2: errno $?\" >&2; }}", kernel.display())
    }
    fn ip(&self, words: &[&str]) -> Result<(), String> {
        let words: Vec<&str> = std::iter::once("ip").chain(words.iter().copied()).collect();
        self.run(&words).map_err(|e| e.to_string())
    }
}

/// Replaces `{NIC}` and `{VF}` in lines of the log.
fn lines(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| line.replace("{NIC}", NIC).replace("{VF}", VF)).collect()
}

#[test]
fn each_port_gets_a_function_and_all_are_released() {
    let machine = Simulated::new();
    let before = machine.state();
    let devices = ["sriov:eth2,mac=02:00:00:00:00:01,trust=on", "null", "sriov:0000:01:00.0,vlan=7"];
    let mut functions = machine.make(&devices).unwrap();
    assert_eq!(
        ["a", "b", "c"].map(|port| functions.addresses().get(port).cloned()),
        [Some(format!("{VF}0")), None, Some(format!("{VF}1"))]
    );
    assert_eq!([0, 1].map(|n| machine.driver(n)), [Some("vfio-pci".into()), Some("vfio-pci".into())]);
    assert_eq!(
        (machine.nic_file("sriov_numvfs"), machine.nic_file("sriov_drivers_autoprobe")),
        ("2".into(), "0".into())
    );
    let notes = [("a", 0), ("c", 1)].map(|(port, n)| format!("port {port:?}: virtual function {n} of eth2, {VF}{n}"));
    assert_eq!(functions.notes(), notes);
    let made = lines(&[
        "{NIC}/sriov_drivers_autoprobe 0",
        "{NIC}/sriov_numvfs 2",
        "ip link set dev eth2 vf 0 mac 02:00:00:00:00:01 trust on",
        "devices/pci0000:00/{VF}0/driver_override vfio-pci",
        "bus/pci/drivers_probe {VF}0",
        "ip link set dev eth2 vf 1 vlan 7",
        "devices/pci0000:00/{VF}1/driver_override vfio-pci",
        "bus/pci/drivers_probe {VF}1",
    ]);
    assert_eq!(machine.log(), made);
    assert_eq!(functions.release(), Vec::<String>::new());
    let undone = lines(&[
        "bus/pci/drivers/vfio-pci/unbind {VF}0",
        "devices/pci0000:00/{VF}0/driver_override ",
        "bus/pci/drivers/vfio-pci/unbind {VF}1",
        "devices/pci0000:00/{VF}1/driver_override ",
        "{NIC}/sriov_numvfs 0",
        "{NIC}/sriov_drivers_autoprobe 1",
    ]);
    assert_eq!(machine.log()[made.len()..], undone);
    assert_eq!(machine.state(), before);
    // again, released by a drop, and with autoprobe disabled before
    machine.create_file(&format!("{NIC}/sriov_drivers_autoprobe"), "0\n");
    machine.create_file(&format!("{NIC}/net/eth2/flags"), "0x1002\n");
    let before = machine.state();
    let functions = machine.make(&devices).unwrap();
    assert!(functions.notes.iter().any(|note| note.contains("eth2 is down") && note.contains("set eth2 up")));
    drop(functions);
    assert_eq!(machine.state(), before);
}

#[test]
fn a_line_is_written_by_the_program_as_by_the_shell() {
    let file = std::env::temp_dir().join(format!("bondstone-put-{}", std::process::id()));
    assert_eq!(Linux.write_line("1", &file).unwrap_err().kind(), ErrorKind::NotFound);
    let script = format!("{}\nput \"$1\" \"$2\"", Linux.shell_put());
    for line in ["0000:01:10.0", "", "-n"] {
        write(&file, "").unwrap();
        Linux.write_line(line, &file).unwrap();
        assert_eq!(read_to_string(&file).unwrap(), format!("{line}\n"));
        write(&file, "").unwrap();
        assert_eq!(CleanupProcess::start(&script, [line.as_ref(), file.as_os_str()], None).unwrap().run(), Ok(()));
        assert_eq!(read_to_string(&file).unwrap(), format!("{line}\n"));
    }
    remove_file(&file).unwrap();
}

#[test]
fn nothing_is_written_without_sriov_ports() {
    let machine = Simulated::new();
    let functions = machine.make(&["null", "0000:01:00.0", "tap:x"]).unwrap();
    assert_eq!((functions.addresses().len(), functions.nics.len(), machine.log().len()), (0, 0, 0));
}

#[test]
fn a_function_that_is_bound_to_a_driver_is_unbound() {
    let machine = Simulated::new();
    // the kernel probes drivers although autoprobe was disabled
    machine.create_file("refuse", &format!("0 {NIC}/sriov_drivers_autoprobe 0\n"));
    let before = machine.state();
    let functions = machine.make(&["sriov:eth2"]).unwrap();
    assert!(machine.log().contains(&format!("bus/pci/drivers/ixgbevf/unbind {VF}0")), "{:?}", machine.log());
    assert_eq!(machine.driver(0).as_deref(), Some("vfio-pci"));
    drop(functions);
    assert_eq!(machine.state(), before);
}

#[test]
fn missing_capabilities_are_reported_before_any_change() {
    let one = ["sriov:eth2"].as_slice();
    let nic = |file: &str| format!("{NIC}/{file}");
    let nothing = |_: &Simulated| {};
    type Change<'a> = &'a dyn Fn(&Simulated);
    let cases: [(&[&str], Change, &str, &str); 9] = [
        (&["null", "sriov:eth9"], &nothing, "port \"b\": eth9 does not exist", "ip link"),
        (&["sriov:0000:01:00.1"], &nothing, "0000:01:00.1 does not exist", "lspci"),
        (&["sriov:lo"], &nothing, "lo is not the interface of a PCI device", "ip link"),
        (&["sriov:eth2"; 5], &nothing, "5 ports need a virtual function of eth2, which supports 4", "another NIC"),
        (one, &|m| remove_file(m.0.join(nic("sriov_totalvfs"))).unwrap(), "eth2 does not support", "firmware"),
        (
            one,
            &|m| m.create_file(&nic("sriov_numvfs"), "2\n"),
            "eth2 already has 2 virtual functions",
            "echo 0 | sudo tee",
        ),
        (one, &|m| remove_file(m.0.join(nic("iommu_group"))).unwrap(), "no IOMMU", "intel_iommu=on or amd_iommu=on"),
        (
            one,
            &|m| std::fs::remove_dir_all(m.0.join("bus/pci/drivers/vfio-pci")).unwrap(),
            "no driver vfio-pci",
            "sudo modprobe vfio-pci",
        ),
        (&["sriov:eth2,mac=02:00:00:00:00:01", "sriov:lo"], &nothing, "port \"b\": lo", "ip link"),
    ];
    for (devices, change, problem, remedy) in cases {
        let machine = Simulated::new();
        change(&machine);
        let error = machine.refused(devices);
        assert!(error.0.contains(problem) && error.1.contains(remedy), "{devices:?}: {error:?}");
        assert_eq!(machine.log(), Vec::<String>::new(), "{error:?}");
    }
    assert!(remedy(ErrorKind::PermissionDenied).contains("root"));
}

#[test]
fn a_nic_is_used_by_one_process_at_a_time() {
    let machine = Simulated::new();
    let functions = machine.make(&["sriov:eth2"]).unwrap();
    let log = machine.log();
    let error = machine.refused(&["sriov:0000:01:00.0"]);
    assert!(error.0.contains("another Bondstone process uses"), "{error:?}");
    assert_eq!(machine.log(), log);
    drop(functions);
    drop(machine.make(&["sriov:eth2"]).unwrap());
}

#[test]
fn changes_are_undone_after_a_failure() {
    let two = ["sriov:eth2", "sriov:eth2,mac=02:00:00:00:00:01"];
    let cases = [
        ("deaf", format!("{VF}1\n"), "port \"b\": vfio-pci did not bind to virtual function 0000:01:10.1", "dmesg"),
        ("refuse", format!("28 {NIC}/sriov_numvfs 2\n"), "sriov_numvfs: No space left", "pci=realloc"),
        ("refuse", format!("2 {NIC}/sriov_numvfs 2\n"), "sriov_numvfs: No such file", "driver"),
        ("refuse", format!("1 {NIC}/sriov_drivers_autoprobe 0\n"), "sriov_drivers_autoprobe: Operation not", "root"),
        (
            "refuse",
            "95 ip link set dev eth2 vf 1 mac 02:00:00:00:00:01\n".into(),
            "port \"b\": ip link set",
            "remove the settings",
        ),
        ("shared", String::new(), "shares an IOMMU group with 0000:01:00.0, which ixgbe uses", "ACS"),
        ("stray", String::new(), "0000:01:10.0 is in no IOMMU group", "intel_iommu"),
    ];
    for (file, text, problem, remedy) in cases {
        let machine = Simulated::new();
        let before = machine.state();
        machine.create_file(file, &text);
        let error = machine.refused(&two);
        assert!(error.0.contains(problem) && error.1.contains(remedy), "{file} {text}: {error:?}");
        assert_eq!(machine.state(), before, "{error:?}: {:#?}", machine.log());
    }
}

#[test]
fn a_failure_at_any_write_leaves_nothing_behind() {
    let two = ["sriov:eth2", "sriov:eth2,mac=02:00:00:00:00:01"];
    let mut refused = 0;
    for number in 1.. {
        let machine = Simulated::new();
        let before = machine.state();
        machine.create_file("refuse", &format!("{number}\n"));
        match machine.make(&two) {
            Err(e) => assert!(e.to_string().contains("port \"a\"") || e.to_string().contains("port \"b\""), "{e}"),
            Ok(_) => break,
        }
        refused += 1;
        assert_eq!(machine.state(), before, "{:#?}", machine.log());
    }
    assert_eq!(refused, 7, "every line that is written");
}

#[test]
fn errors_of_the_release_are_reported_and_it_continues() {
    let machine = Simulated::new();
    let before = machine.state();
    let mut functions = machine.make(&["sriov:eth2", "sriov:eth2"]).unwrap();
    machine.create_file("refuse", &format!("5 bus/pci/drivers/vfio-pci/unbind {VF}0\n"));
    let error = functions.release();
    assert!(
        matches!(&error[..], [one] if one.contains("functions of eth2 could") && one.contains("unbind: errno 5")),
        "{error:?}"
    );
    // the kernel unbinds functions that it removes
    assert_eq!(machine.state(), before);
    let mut functions = machine.make(&["sriov:eth2"]).unwrap();
    machine.create_file("refuse", &format!("16 {NIC}/sriov_numvfs 0\n"));
    assert!(functions.release()[0].contains("sriov_numvfs: errno 16"));
    assert_eq!((machine.nic_file("sriov_drivers_autoprobe"), machine.driver(0)), ("1".into(), None));
}

/// Creates two functions, prints a line, and waits to be killed; started by [`kills_leave_nothing_behind`].
#[test]
#[ignore = "is started by another test"]
fn waits_to_be_killed() {
    let machine = Simulated(std::env::var_os(SYS_DIR_VARIABLE).expect("started by the other test").into());
    let _functions = machine.make(&["sriov:eth2", "sriov:eth2,mac=02:00:00:00:00:01"]).unwrap();
    println!("made");
    loop {
        std::thread::park();
    }
}

#[test]
fn kills_leave_nothing_behind() {
    let own = std::env::current_exe().unwrap();
    // at every line that is written until all are created, and afterwards
    let moments = (1..=7).flat_map(|n| [format!("before {n}"), format!("after {n}")]).chain([String::new()]);
    for when in moments {
        let machine = Simulated::new();
        let before = machine.state();
        machine.create_file("kill", &when);
        // an error of the release cannot be reported any more
        machine.create_file("refuse", &format!("5 bus/pci/drivers/vfio-pci/unbind {VF}0\n"));
        let mut program = Command::new(&own)
            .args(["--exact", "pci::sriov::tests::waits_to_be_killed", "--ignored", "--nocapture"])
            .env(SYS_DIR_VARIABLE, &machine.0)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let made = BufReader::new(program.stdout.take().unwrap()).lines().any(|line| line.unwrap().ends_with("made"));
        assert_eq!(made, when.is_empty(), "{when}: {:#?}", machine.log());
        program.kill().unwrap();
        program.wait().unwrap();
        // the cleanup process holds the lock until it is done
        File::open(machine.0.join(NIC)).unwrap().lock().unwrap();
        assert_eq!(machine.state(), before, "{when}: {:#?}", machine.log());
        assert_eq!(machine.log().last(), Some(&format!("{NIC}/sriov_drivers_autoprobe 1")));
    }
}

/// Runs a chain file on virtual functions, which are released after the ports have been closed. The functions of this
/// machine are vhost devices, whose socket shows that the port is open.
#[test]
fn ports_are_closed_before_their_functions_are_released() {
    let machine = Simulated::new();
    let before = machine.state();
    machine.create_file("name", "net_vhost_vf");
    // started before without PCI, as the functions are not PCI devices
    dpdk::Eal::start(dpdk::Memory::best(), &[]).unwrap();
    let used = machine.0.join("used");
    let text = format!(
        "bondstone = 1\n[port.nic]\ndevice = \"sriov:eth2,iface={}\"\n[[chain]]\npath = [\"nic\", \"ttl\", \"nic\"]\n",
        used.display()
    );
    let file = ChainFile::parse(&text, Path::new("vf.toml"), &nf::registry()).unwrap_or_else(|e| panic!("{e:?}"));
    for stopped in [true, false] {
        let (engine, _) = Engine::start_inner(&file, None, Options::default(), &machine, None, None, || Ok(()))
            .unwrap_or_else(|e| panic!("{e}"));
        assert!(used.exists() && engine.notes().iter().any(|note| note.contains("function 0 of eth2, net_vhost_vf0")));
        if stopped {
            assert_eq!(engine.stop().errors, Vec::<String>::new());
        } else {
            drop(engine);
        }
        assert_eq!(machine.state(), before);
    }
    // a start that fails after the ports were opened
    let lacks = || Err(environment_error("nic", "on purpose", "none"));
    assert!(Engine::start_inner(&file, None, Options::default(), &machine, None, None, lacks).is_err());
    assert_eq!(machine.state(), before);
    let log = machine.log();
    assert_eq!(log.iter().filter(|line| line.contains("unbind")).count(), 3, "{log:#?}");
    assert!(!log.contains(&"in use".to_owned()), "a port was open when its function was removed: {log:#?}");
    // on wires no functions are needed
    drop(
        Engine::start_inner(
            &file,
            Some(crate::Wires { depth: 64, per_port: 1 }),
            Options::default(),
            &machine,
            None,
            None,
            || Ok(()),
        )
        .unwrap_or_else(|e| panic!("{e}")),
    );
    assert_eq!(machine.log(), log);
}
