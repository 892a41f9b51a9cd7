//! On a simulated `/sys`, whose kernel is a script: it does what a kernel does when it is told something by this
//! program, and by the shell that undoes it.

use super::*;
use crate::engine::{Engine, Options};
use config::ChainFile;
use std::fs::{create_dir_all, read_link, remove_file, write};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};

/// The NIC, seen from `/sys`.
const NIC: &str = "devices/pci0000:00/0000:01:00.0";
/// What its virtual functions are called, but for the last digit.
const VF: &str = "0000:01:10.";
/// Tells the program of a test where its simulated `/sys` is.
const PLACE: &str = "BONDSTONE_SIMULATED_SYS";

/// A machine with a NIC, `eth2`, that can have four virtual functions, and an interface `lo` that is nothing else.
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
            it.put_there(file, text);
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

    fn put_there(&self, file: &str, text: &str) {
        let path = self.0.join(file);
        create_dir_all(path.parent().unwrap()).unwrap();
        write(path, text).unwrap();
    }

    /// Everything that was written, and where.
    fn log(&self) -> Vec<String> {
        read_to_string(self.0.join("log")).unwrap().lines().map(str::to_owned).collect()
    }

    fn of_nic(&self, file: &str) -> String {
        read_to_string(self.0.join(NIC).join(file)).unwrap().trim().to_owned()
    }

    fn driver(&self, function: usize) -> Option<String> {
        driver(&self.0.join("bus/pci/devices").join(format!("{VF}{function}")))
    }

    /// Everything below it but what tests keep there: paths, and what is in files and links.
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

    /// Makes functions for the devices of ports `a`, `b`, ...
    fn make(&self, devices: &[&str]) -> Result<Functions, Error> {
        let names = ["a", "b", "c", "d", "e"];
        let devices: Vec<_> = devices.iter().zip(names).map(|(d, n)| (n, Device::parse(d, n).unwrap())).collect();
        Functions::make(self, devices.iter().map(|(name, device)| (*name, device)))
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
        if std::env::var_os(PLACE).is_none() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

impl Kernel for Simulated {
    fn sys(&self) -> &Path {
        &self.0
    }
    fn put(&self, line: &str, file: &Path) -> io::Result<()> {
        self.run(&[line, &file.to_string_lossy()])
    }
    fn put_of_a_shell(&self) -> String {
        let kernel = self.0.join("kernel.sh");
        format!("put() {{ sh {} \"$1\" \"$2\" || echo \"$2: errno $?\" >&2; }}", kernel.display())
    }
    fn ip(&self, words: &[&str]) -> Result<(), String> {
        let words: Vec<&str> = std::iter::once("ip").chain(words.iter().copied()).collect();
        self.run(&words).map_err(|e| e.to_string())
    }
}

/// What is written to make functions, and to give back as many, each line with its `{NIC}` and `{VF}` put in.
fn lines(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| line.replace("{NIC}", NIC).replace("{VF}", VF)).collect()
}

#[test]
fn each_port_gets_one_and_all_are_given_back() {
    let machine = Simulated::new();
    let before = machine.state();
    let devices = ["sriov:eth2,mac=02:00:00:00:00:01,trust=on", "null", "sriov:0000:01:00.0,vlan=7"];
    let mut functions = machine.make(&devices).unwrap();
    assert_eq!(
        ["a", "b", "c"].map(|port| functions.addresses().get(port).cloned()),
        [Some(format!("{VF}0")), None, Some(format!("{VF}1"))]
    );
    assert_eq!([0, 1].map(|n| machine.driver(n)), [Some("vfio-pci".into()), Some("vfio-pci".into())]);
    assert_eq!((machine.of_nic("sriov_numvfs"), machine.of_nic("sriov_drivers_autoprobe")), ("2".into(), "0".into()));
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
    assert_eq!(functions.end(), Vec::<String>::new());
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
    // and once more, with the end by a drop, and where the kernel was not to look for drivers
    machine.put_there(&format!("{NIC}/sriov_drivers_autoprobe"), "0\n");
    machine.put_there(&format!("{NIC}/net/eth2/flags"), "0x1002\n");
    let before = machine.state();
    let functions = machine.make(&devices).unwrap();
    assert!(functions.notes.iter().any(|note| note.contains("eth2 is down") && note.contains("set eth2 up")));
    drop(functions);
    assert_eq!(machine.state(), before);
}

#[test]
fn a_line_is_written_by_this_program_as_by_a_shell() {
    let file = std::env::temp_dir().join(format!("bondstone-put-{}", std::process::id()));
    assert_eq!(Linux.put("1", &file).unwrap_err().kind(), ErrorKind::NotFound);
    let script = format!("{}\nput \"$1\" \"$2\"", Linux.put_of_a_shell());
    for line in ["0000:01:10.0", "", "-n"] {
        write(&file, "").unwrap();
        Linux.put(line, &file).unwrap();
        assert_eq!(read_to_string(&file).unwrap(), format!("{line}\n"));
        write(&file, "").unwrap();
        assert_eq!(Guard::start(&script, [line.as_ref(), file.as_os_str()], None).unwrap().end(), Ok(()));
        assert_eq!(read_to_string(&file).unwrap(), format!("{line}\n"));
    }
    remove_file(&file).unwrap();
}

#[test]
fn a_machine_without_such_ports_is_not_looked_at() {
    let machine = Simulated::new();
    let functions = machine.make(&["null", "0000:01:00.0", "tap:x"]).unwrap();
    assert_eq!((functions.addresses().len(), functions.made.len(), machine.log().len()), (0, 0, 0));
}

#[test]
fn a_function_that_a_driver_has_already_is_taken_from_it() {
    let machine = Simulated::new();
    // it looks for drivers whatever it is told
    machine.put_there("refuse", &format!("0 {NIC}/sriov_drivers_autoprobe 0\n"));
    let before = machine.state();
    let functions = machine.make(&["sriov:eth2"]).unwrap();
    assert!(machine.log().contains(&format!("bus/pci/drivers/ixgbevf/unbind {VF}0")), "{:?}", machine.log());
    assert_eq!(machine.driver(0).as_deref(), Some("vfio-pci"));
    drop(functions);
    assert_eq!(machine.state(), before);
}

#[test]
fn what_is_missing_is_told_before_anything_is_changed() {
    let one = ["sriov:eth2"].as_slice();
    let nic = |file: &str| format!("{NIC}/{file}");
    let nothing = |_: &Simulated| {};
    type Change<'a> = &'a dyn Fn(&Simulated);
    let cases: [(&[&str], Change, &str, &str); 9] = [
        (&["null", "sriov:eth9"], &nothing, "port \"b\": eth9 is not there", "ip link"),
        (&["sriov:0000:01:00.1"], &nothing, "0000:01:00.1 is not there", "lspci"),
        (&["sriov:lo"], &nothing, "lo is no PCI device's interface", "ip link"),
        (&["sriov:eth2"; 5], &nothing, "5 ports ask for a virtual function of eth2, which can have 4", "another NIC"),
        (one, &|m| remove_file(m.0.join(nic("sriov_totalvfs"))).unwrap(), "eth2 can have no", "firmware"),
        (
            one,
            &|m| m.put_there(&nic("sriov_numvfs"), "2\n"),
            "eth2 has 2 virtual functions already",
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
        let said = machine.refused(devices);
        assert!(said.0.contains(problem) && said.1.contains(remedy), "{devices:?}: {said:?}");
        assert_eq!(machine.log(), Vec::<String>::new(), "{said:?}");
    }
    assert!(remedy(ErrorKind::PermissionDenied).contains("root"));
}

#[test]
fn a_nic_is_one_programs_at_a_time() {
    let machine = Simulated::new();
    let functions = machine.make(&["sriov:eth2"]).unwrap();
    let log = machine.log();
    let said = machine.refused(&["sriov:0000:01:00.0"]);
    assert!(said.0.contains("another Bondstone has"), "{said:?}");
    assert_eq!(machine.log(), log);
    drop(functions);
    drop(machine.make(&["sriov:eth2"]).unwrap());
}

#[test]
fn what_fails_half_way_is_undone() {
    let two = ["sriov:eth2", "sriov:eth2,mac=02:00:00:00:00:01"];
    let cases = [
        ("deaf", format!("{VF}1\n"), "port \"b\": vfio-pci did not take the virtual function 0000:01:10.1", "dmesg"),
        ("refuse", format!("28 {NIC}/sriov_numvfs 2\n"), "sriov_numvfs: No space left", "pci=realloc"),
        ("refuse", format!("2 {NIC}/sriov_numvfs 2\n"), "sriov_numvfs: No such file", "driver"),
        ("refuse", format!("1 {NIC}/sriov_drivers_autoprobe 0\n"), "sriov_drivers_autoprobe: Operation not", "root"),
        (
            "refuse",
            "95 ip link set dev eth2 vf 1 mac 02:00:00:00:00:01\n".into(),
            "port \"b\": ip link set",
            "leave out",
        ),
        ("shared", String::new(), "in one IOMMU group with 0000:01:00.0, which ixgbe has", "ACS"),
        ("stray", String::new(), "0000:01:10.0 is in no IOMMU group", "intel_iommu"),
    ];
    for (file, text, problem, remedy) in cases {
        let machine = Simulated::new();
        let before = machine.state();
        machine.put_there(file, &text);
        let said = machine.refused(&two);
        assert!(said.0.contains(problem) && said.1.contains(remedy), "{file} {text}: {said:?}");
        assert_eq!(machine.state(), before, "{said:?}: {:#?}", machine.log());
    }
}

#[test]
fn whatever_is_refused_leaves_nothing_behind() {
    let two = ["sriov:eth2", "sriov:eth2,mac=02:00:00:00:00:01"];
    let mut refused = 0;
    for number in 1.. {
        let machine = Simulated::new();
        let before = machine.state();
        machine.put_there("refuse", &format!("{number}\n"));
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
fn what_cannot_be_given_back_is_told_and_the_rest_is_given_back() {
    let machine = Simulated::new();
    let before = machine.state();
    let mut functions = machine.make(&["sriov:eth2", "sriov:eth2"]).unwrap();
    machine.put_there("refuse", &format!("5 bus/pci/drivers/vfio-pci/unbind {VF}0\n"));
    let said = functions.end();
    assert!(
        matches!(&said[..], [one] if one.contains("functions of eth2 could") && one.contains("unbind: errno 5")),
        "{said:?}"
    );
    // the kernel unbinds what it takes away
    assert_eq!(machine.state(), before);
    let mut functions = machine.make(&["sriov:eth2"]).unwrap();
    machine.put_there("refuse", &format!("16 {NIC}/sriov_numvfs 0\n"));
    assert!(functions.end()[0].contains("sriov_numvfs: errno 16"));
    assert_eq!((machine.of_nic("sriov_drivers_autoprobe"), machine.driver(0)), ("1".into(), None));
}

/// Makes two functions, says so, and waits to be killed; by [`kills_leave_nothing_behind`].
#[test]
#[ignore = "is a program of another test"]
fn waits_to_be_killed() {
    let machine = Simulated(std::env::var_os(PLACE).expect("started by the other test").into());
    let _functions = machine.make(&["sriov:eth2", "sriov:eth2,mac=02:00:00:00:00:01"]).unwrap();
    println!("made");
    loop {
        std::thread::park();
    }
}

#[test]
fn kills_leave_nothing_behind() {
    let own = std::env::current_exe().unwrap();
    // at every line that is written until all are made, and then
    let moments = (1..=7).flat_map(|n| [format!("before {n}"), format!("after {n}")]).chain([String::new()]);
    for when in moments {
        let machine = Simulated::new();
        let before = machine.state();
        machine.put_there("kill", &when);
        // nobody is left to whom it could be told
        machine.put_there("refuse", &format!("5 bus/pci/drivers/vfio-pci/unbind {VF}0\n"));
        let mut program = Command::new(&own)
            .args(["--exact", "sriov::tests::waits_to_be_killed", "--ignored", "--nocapture"])
            .env(PLACE, &machine.0)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let made = BufReader::new(program.stdout.take().unwrap()).lines().any(|line| line.unwrap().ends_with("made"));
        assert_eq!(made, when.is_empty(), "{when}: {:#?}", machine.log());
        program.kill().unwrap();
        program.wait().unwrap();
        // its shell has the lock until all is done
        File::open(machine.0.join(NIC)).unwrap().lock().unwrap();
        assert_eq!(machine.state(), before, "{when}: {:#?}", machine.log());
        assert_eq!(machine.log().last(), Some(&format!("{NIC}/sriov_drivers_autoprobe 1")));
    }
}

/// A chain file runs on virtual functions, which have gone back when it has ended. Those of this machine are a device
/// of DPDK's that makes a socket, so that it can be seen when it is closed.
#[test]
fn a_run_closes_its_ports_before_their_functions_go() {
    let machine = Simulated::new();
    let before = machine.state();
    machine.put_there("name", "net_vhost_vf");
    // devices that are not on the PCI bus are for who has none
    dpdk::Eal::start(dpdk::Memory::best(), &[]).unwrap();
    let used = machine.0.join("used");
    let text = format!(
        "bondstone = 1\n[port.nic]\ndevice = \"sriov:eth2,iface={}\"\n[[chain]]\npath = [\"nic\", \"ttl\", \"nic\"]\n",
        used.display()
    );
    let file = ChainFile::parse(&text, Path::new("vf.toml"), &nf::registry()).unwrap_or_else(|e| panic!("{e:?}"));
    for stopped in [true, false] {
        let (engine, _) =
            Engine::begin(&file, None, Options::default(), &machine, || Ok(())).unwrap_or_else(|e| panic!("{e}"));
        assert!(used.exists() && engine.notes().iter().any(|note| note.contains("function 0 of eth2, net_vhost_vf0")));
        if stopped {
            assert_eq!(engine.stop().faults, Vec::<String>::new());
        } else {
            drop(engine);
        }
        assert_eq!(machine.state(), before);
    }
    // a run that comes no further than its ports
    let lacks = || Err(lacks("nic", "it is raining", "wait"));
    assert!(Engine::begin(&file, None, Options::default(), &machine, lacks).is_err());
    assert_eq!(machine.state(), before);
    let log = machine.log();
    assert_eq!(log.iter().filter(|line| line.contains("unbind")).count(), 3, "{log:#?}");
    assert!(!log.contains(&"in use".to_owned()), "a port was open when its function went: {log:#?}");
    // on wires there is no need of any
    drop(Engine::begin(&file, Some(64), Options::default(), &machine, || Ok(())).unwrap_or_else(|e| panic!("{e}")));
    assert_eq!(machine.log(), log);
}
