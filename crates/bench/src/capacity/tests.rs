use super::*;

const FILE: &str = "bondstone = 1\n\
    [server]\ncpus = 32\nsockets = 2\nclock_ghz = 2.0\nports = 4\nport_rate = \"10 Gbps\"\nvnfs_per_port = 63\n\
    [vnf]\ncycles = 100\ncrossing = 100\n";

fn parse(text: &str) -> Result<Capacity, Vec<Diagnostic>> {
    Capacity::parse(text, Path::new("server.toml"))
}

fn with(edit: impl FnOnce(&mut Capacity)) -> Capacity {
    let mut capacity = parse(FILE).unwrap();
    edit(&mut capacity);
    capacity
}

#[test]
fn bounds_are_those_of_the_study() {
    // 252 virtual functions and 32 CPUs of 2 sockets with 2 ports each
    let capacity = parse(FILE).unwrap();
    assert_eq!((capacity.vnfs_of_port(), capacity.vnfs_of_server(), capacity.vnfs_at_most()), (8, 32, 252));
    // all ports near one socket: the other 16 CPUs are remote
    let remote = with(|capacity| capacity.server.ports_per_socket = Some(4));
    assert_eq!(remote.vnfs_of_port(), 4);
    // of 32 CPUs, 30 run VNFs
    let switch = with(|capacity| (capacity.switch.cpus, capacity.switch.cycles) = (2, 100.0));
    assert_eq!((switch.vnfs_of_port(), switch.vnfs_of_server()), (7, 30));
    let few = with(|capacity| capacity.server.vnfs_per_port = 4);
    assert_eq!((few.vnfs_of_port(), few.vnfs_of_server()), (4, 16));
}

#[test]
fn each_part_limits_the_rate() {
    let limit = |edit: fn(&mut Capacity), vnfs, frame| {
        let of = with(edit).estimate(vnfs, frame);
        (of.throughput_pps.round() as u64, of.limit)
    };
    // 10 Gbit/s / (84 bytes)
    assert_eq!(limit(|_| {}, 2, 64), (20_000_000, Limit::Cpus));
    assert_eq!(limit(|c| c.server.ports = 1, 2, 64), (14_880_952, Limit::Ports));
    assert_eq!(limit(|c| (c.switch.cpus, c.switch.cycles) = (2, 500.0), 4, 64), (8_000_000, Limit::Switch));
    // a switch that shares the CPUs: 400 cycles per packet
    assert_eq!(limit(|c| c.switch.cycles = 200.0, 1, 64), (5_000_000, Limit::Cpus));
    // three on a CPU of 10 Mpps: a queue of 1024 in 2 x 3 ms
    assert_eq!(limit(|c| c.server.cpus = 1, 3, 64), (512_000, Limit::Queues));
    assert_eq!(limit(|c| (c.server.cpus, c.vnf.polls) = (1, false), 3, 64), (10_000_000, Limit::Cpus));
}

#[test]
fn loss_agrees_with_the_throughput() {
    for cpus in [1, 3, 32] {
        for (vnfs, frame) in [(1, 64), (2, 64), (7, 256), (63, 64), (63, 1518), (200, 64)] {
            for polls in [false, true] {
                let capacity = with(|capacity| (capacity.server.cpus, capacity.vnf.polls) = (cpus, polls));
                let of = capacity.estimate(vnfs, frame);
                let line = capacity.line_rate(vnfs.min(4), frame);
                assert_eq!(of.loss_at_line_rate < 1e-9, of.throughput_pps >= line * (1.0 - 1e-9), "{of:?}");
                assert!(of.throughput_pps <= line * (1.0 - of.loss_at_line_rate) * (1.0 + 1e-9), "{of:?}");
            }
        }
    }
}

#[test]
fn numbers_of_vnfs_at_line_rate() {
    // 59.5 Mpps need six VNFs of 10 Mpps; with more than the 32 CPUs the queues of those that wait overflow
    let capacity = parse(FILE).unwrap();
    assert_eq!(capacity.vnfs_at_line_rate(64), [(6, 32)]);
    // one port: each of 44 VNFs gets 338,000 packets per second, 1015 of them in a slice of another one
    let one_port = with(|capacity| capacity.server.ports = 1);
    assert_eq!(one_port.vnfs_at_line_rate(64), [(2, 32), (44, 63)]);
    assert_eq!(one_port.vnfs_at_line_rate(1518), [(1, 63)]);
    let slow = with(|capacity| capacity.vnf.cycles = 10_000.0);
    assert_eq!(slow.vnfs_at_line_rate(64), []);
    // 18.1 Mpps: 33 VNFs get 549,000 each, of which two on a CPU lose; from 54 on 1024 or fewer arrive in a slice
    assert_eq!(with(|capacity| capacity.vnf.cycles = 20.0).vnfs_at_line_rate(256), [(4, 32), (54, 64)]);
    let split = with(|capacity| capacity.split = Some(Split { cycles: 2000.0 }));
    assert_eq!(split.split_throughput(64), Some(32_000_000.0));
    assert_eq!(split.split_throughput(1518).map(f64::round), Some(3_250_975.0));
}

#[test]
fn names_every_invalid_value() {
    let text =
        FILE.replace("cpus = 32", "cpus = 0").replace("clock_ghz = 2.0", "clock_ghz = 2e9") + "[traffic]\nloss = 1.5\n";
    let errors = parse(&text).unwrap_err();
    let keys: Vec<_> = errors.iter().filter_map(|d| d.key).collect();
    assert_eq!(keys, ["server.cpus", "server.clock_ghz", "switch.cpus", "traffic.loss"]);
    let errors = parse(&FILE.replace("sockets", "socket")).unwrap_err();
    assert_eq!((errors.len(), errors[0].line), (1, Some(4)), "{errors:?}");
}
