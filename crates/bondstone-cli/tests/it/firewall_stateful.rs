//! The firewall with connection tracking gateway Linux hosts, and compared with nftables.

use crate::common::alone;
use crate::common::namespace::{Namespace, done, possible};
use crate::common::traffic::{Web, iperf3};
use crate::common::{Running, Scratch, Summary, bondstone};

const TOOLS: [&str; 5] = ["ping", "curl", "nginx", "iperf3", "traceroute"];
/// Hosts in the namespaces `a` and `b`.
const A: [&str; 2] = ["10.1.0.2", "fd01::2"];
const B: [&str; 2] = ["10.2.0.2", "fd02::2"];

/// Two hosts on either side of a firewall in front of a router.
struct Lab {
    a: Namespace,
    b: Namespace,
    _gateway: Namespace,
    bondstone: Running,
}

impl Lab {
    /// Starts the chain; `firewall` are the settings of the firewall.
    fn start(scratch: &Scratch, name: &str, firewall: &str) -> Lab {
        let [a, b, gateway] = ["a", "b", "r"].map(|side| Namespace::new(&format!("{name}-{side}")));
        gateway.mute();
        let text = format!(
            "bondstone = 1\nport.lan.device = \"tap:a0\"\nport.wan.device = \"tap:b0\"\n\
             chain = [{{ path = [\"lan\", \"fw\", \"router\"], cores = [0] }}, {{ path = [\"wan\", \"fw\", \"router\"], cores = [0] }}]\n\
             [nf.fw]\nkind = \"firewall\"\n{firewall}\n[nf.router]\nkind = \"l3fwd\"\n\
             interface.lan = {{ addresses = [\"10.1.0.1/24\", \"fd01::1/64\"], mac = \"02:00:00:00:01:00\" }}\n\
             interface.wan = {{ addresses = [\"10.2.0.1/24\", \"fd02::1/64\"], mac = \"02:00:00:00:02:00\", mtu = 1400 }}\n"
        );
        let mut command = gateway.command(env!("CARGO_BIN_EXE_bondstone"));
        let mut bondstone = Running::start(command.arg("run").arg(scratch.write("edge.toml", text)).arg("--json"));
        bondstone.started();
        for (n, interface, host) in [(1, "a0", &a), (2, "b0", &b)] {
            gateway.ip(&format!("link set {interface} netns {}", host.0));
            host.configure(interface, &[&format!("10.{n}.0.2/24"), &format!("fd0{n}::2/64")]);
            host.ip(&format!("route add default via 10.{n}.0.1"));
            host.ip(&format!("route add default via fd0{n}::1"));
        }
        Lab { a, b, _gateway: gateway, bondstone }
    }
}

/// Runs ping; returns true if there was a reply, and the output.
fn ping(from: &Namespace, words: &str) -> (bool, String) {
    let output = from.command("ping").arg("-n").args(words.split(' ')).output().unwrap();
    (output.status.success(), [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat())
}

#[track_caller]
fn answered(from: &Namespace, words: &str) {
    let (all, output) = ping(from, &format!("-c 3 -i 0.1 -w 100 {words}"));
    assert!(all, "{words}: {output}");
}

#[track_caller]
fn unanswered(from: &Namespace, words: &str) {
    let (any, output) = ping(from, &format!("-c 2 -i 0.1 -W 1 {words}"));
    assert!(!any, "{words}: {output}");
}

/// Checks that connecting times out.
#[track_caller]
fn blocked(client: &Namespace, host: &str) {
    let url = format!("http://{host}/content");
    let output = client.command("curl").args(["-sS", "-o", "/dev/null", "--max-time", "2", &url]).output().unwrap();
    assert_eq!(output.status.code(), Some(28), "{host}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Checks that the firewall forwarded or dropped every packet.
#[track_caller]
fn check_accounting(summary: &Summary) {
    let (fw, router) = (summary.nf("fw"), summary.nf("router"));
    let received: u64 = ["lan", "wan"].map(|port| summary.port(port).number("/received")).iter().sum();
    assert_eq!(received, fw.number("/packets"), "{}", summary.0);
    assert_eq!(fw.number("/packets"), router.number("/packets") + fw.dropped(), "{}", summary.0);
}

#[test]
fn connections_can_be_opened_from_inside_only() {
    let _one = alone();
    if !possible(&TOOLS) {
        return;
    }
    let scratch = Scratch::new();
    let rules =
        scratch.write("edge.rules", "accept src 10.1.0.0/16\naccept src fd01::/16\naccept proto icmpv6 type 133-136\n");
    let settings = format!("file = {rules:?}\ntrack = {{ connections = 1000 }}");
    let Lab { a, b, _gateway, mut bondstone } = Lab::start(&scratch, "fws", &settings);
    let web = Web::start(&scratch, &b, "out", 4 << 20);
    let home = Web::start(&scratch, &a, "in", 1000);
    for (family, host) in ["10.2.0.2", "[fd02::2]"].iter().enumerate() {
        answered(&a, B[family]);
        unanswered(&b, A[family]);
        web.fetch(&a, &format!("{host}:8080"));
    }
    blocked(&b, "10.1.0.2:8080");
    blocked(&b, "[fd01::2]:8080");
    // windows of megabytes and thousands of segments
    iperf3(&a, &b, "-c 10.2.0.2 -t 1", "/end/sum_received/bytes");
    iperf3(&a, &b, "-c fd02::2 -t 1 -R", "/end/sum_received/bytes");
    iperf3(&a, &b, "-c 10.2.0.2 -u -b 5M -t 1", "/end/sum/packets");
    // fragmented echoes in both directions
    answered(&a, "-s 4000 10.2.0.2");
    // the first packet causes an ICMP error: too big for the next link
    let (_, output) = ping(&a, "-c 1 -W 60 -s 4000 fd02::2");
    assert!(output.contains("too big: mtu=1400"), "{output}");
    answered(&a, "-s 4000 fd02::2");
    unanswered(&b, "-s 4000 10.1.0.2");
    // an ICMP error of the router, and port unreachable of the server
    let (_, output) = ping(&a, "-c 1 -W 60 -M do -s 1372 10.2.0.2");
    assert!(output.contains("1400") || output.contains("ttl"), "{output}");
    let output = done(a.command("traceroute").args(["-n", "-q", "1", "-N", "1", "-w", "60", "-m", "6", "10.2.0.2"]));
    assert!(String::from_utf8_lossy(&output.stdout).contains("10.2.0.2"));

    // an added rule admits connections while packets are forwarded
    scratch.write("edge.rules", "accept src 10.1.0.0/16\naccept src fd01::/16\naccept dst 10.1.0.2 proto tcp dport 8080\naccept proto icmpv6 type 133-136\n");
    home.fetch(&b, "10.1.0.2:8080");
    blocked(&b, "10.1.0.2:8081");
    // an invalid rule changes nothing
    scratch.write("edge.rules", "accept everything\n");
    bondstone.wait_for("the message about the invalid rule", |line| line.contains("the rules remain unchanged"));
    home.fetch(&b, "10.1.0.2:8080");

    let summary = bondstone.terminate().summary(130);
    check_accounting(&summary);
    let fw = summary.nf("fw");
    let had: Vec<_> = fw.0["drops"].as_object().unwrap().keys().map(String::as_str).collect();
    let known =
        ["denied_by_default", "no_first_fragment", "no_connection", "out_of_window", "out_of_state", "unrelated_icmp"];
    assert!(had.iter().all(|reason| known.contains(reason)), "{}", fw.0);
    assert!(fw.number("/drops/denied_by_default") > 0 && fw.number("/drops/no_first_fragment") > 0, "{}", fw.0);
    let count = |name: &str| fw.0["counters"][name].as_u64().unwrap_or_else(|| panic!("{name}: {}", fw.0));
    assert!(count("connections_new") >= 10 && count("fragments_matched") >= 10, "{}", fw.0);
    assert_eq!(count("rules_rejected"), 1, "{}", fw.0);
    assert!(count("rules_changed") >= 1 && count("1 accept src 10.1.0.0/16") >= 5, "{}", fw.0);
    eprintln!("{}", fw.0);
}

/// Rules for the kernel and, after import, for the firewall.
const RULESET: &str = "table inet fw {
  set friends { type ipv4_addr; flags interval; elements = { 10.1.0.0/30, 10.1.0.9-10.1.0.11 } }
  chain web { tcp dport { 80, 443, 8000-8010 } accept; ip saddr 10.1.0.64/27 tcp dport 22 accept; }
  chain forward { type filter hook forward priority 0; policy drop;
    ip saddr 10.1.0.200 drop
    ct state established,related accept
    ct state invalid drop
    ip saddr @friends udp dport 53 accept
    ip daddr 10.2.0.0/24 meta l4proto tcp jump web
    icmp type echo-request accept
    icmpv6 type { echo-request, nd-neighbor-solicit, nd-neighbor-advert } accept
  }
}";

/// Sends packets from several addresses of `a` and returns for each whether `b` received it. Unanswered packets are
/// repeated for eight seconds, because a busy machine may delay or lose packets.
fn verdicts(a: &Namespace, b: &Namespace, scratch: &Scratch) -> Vec<(String, bool)> {
    let got = scratch.path("got.log");
    let script = scratch.write(
        "server.py",
        "import socket,sys,threading,os\n\
         def tcp(s):\n while True: c,_=s.accept(); c.close()\n\
         def udp(s):\n while True: d,a=s.recvfrom(99); s.sendto(d,a)\n\
         def bound(p): s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.bind(('10.2.0.2',p)); return s\n\
         for p in (22,80,81,443,8000,8010,8011): threading.Thread(target=tcp,args=(socket.create_server(('10.2.0.2',p)),),daemon=True).start()\n\
         for p in (53,54): threading.Thread(target=udp,args=(bound(p),),daemon=True).start()\n\
         open(sys.argv[1],'w').write('ready')\nthreading.Event().wait()\n",
    );
    let _server = Running::start(b.command("python3").arg(script).arg(&got));
    let deadline = std::time::Instant::now() + crate::common::LIMIT;
    while !got.exists() {
        assert!(std::time::Instant::now() < deadline, "the server does not start");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    std::fs::remove_file(&got).unwrap();
    let client = scratch.write(
        "client.py",
        "import socket\n\
         def tcp(h,p):\n s=socket.socket(); s.settimeout(8); s.bind((h,0))\n try: s.connect(('10.2.0.2',p)); return True\n except OSError: return False\n\
         def udp(h,p):\n s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.settimeout(2); s.bind((h,0))\n for _ in range(4):\n  s.sendto(b'x',('10.2.0.2',p))\n  try: s.recv(9); return True\n  except OSError: pass\n return False\n\
         from concurrent.futures import ThreadPoolExecutor as T\n\
         all=[(k,h,p) for h in ('10.1.0.2','10.1.0.3','10.1.0.4','10.1.0.9','10.1.0.11','10.1.0.12','10.1.0.64','10.1.0.95','10.1.0.96','10.1.0.200') for k,ps in (('tcp',(22,80,81,443,8000,8010,8011)),('udp',(53,54))) for p in ps]\n\
         with T(90) as t:\n  for (k,h,p),ok in zip(all,t.map(lambda x: (tcp if x[0]=='tcp' else udp)(*x[1:]),all)): print(k,h,p,'yes' if ok else 'no')\n",
    );
    for n in [3, 4, 9, 11, 12, 64, 95, 96, 200] {
        a.ip(&format!("addr add 10.1.0.{n}/24 dev a0"));
    }
    let output = done(a.command("python3").arg(client));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|l| l.rsplit_once(' ')).map(|(what, ok)| (what.to_owned(), ok == "yes")).collect()
}

#[test]
fn imported_rules_are_equivalent_to_those_of_the_kernel() {
    let _one = alone();
    if !possible(&["nft", "python3"]) {
        return;
    }
    let scratch = Scratch::new();
    let list = scratch.write("rules.nft", RULESET);
    // nftables
    let [a, b, k] = ["a", "b", "k"].map(|side| Namespace::new(&format!("fwk-{side}")));
    k.link("k0", &a, "a0");
    k.link("k1", &b, "b0");
    for (n, near, host, far) in [(1, "k0", &a, "a0"), (2, "k1", &b, "b0")] {
        k.configure(near, &[&format!("10.{n}.0.1/24")]);
        host.configure(far, &[&format!("10.{n}.0.2/24")]);
        host.ip(&format!("route add default via 10.{n}.0.1"));
    }
    done(k.command("sh").args(["-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"]));
    let loaded = k.command("nft").arg("-f").arg(&list).output().unwrap();
    if !loaded.status.success() {
        return eprintln!("skipped: {}", String::from_utf8_lossy(&loaded.stderr));
    }
    let json = done(k.command("nft").args(["-j", "list", "ruleset"])).stdout;
    let by_kernel = verdicts(&a, &b, &scratch);
    drop((a, b, k));

    let imported = bondstone(["import".as_ref(), "nft".as_ref(), scratch.write("rules.json", json).as_os_str()]);
    assert_eq!(imported.status, Some(0), "{}", imported.err);
    let settings = imported.out.split_once("kind = \"firewall\"\n").expect("a section").1;
    let Lab { a, b, _gateway, bondstone } = Lab::start(&scratch, "fwi", settings);
    let by_firewall = verdicts(&a, &b, &scratch);
    let summary = bondstone.terminate().summary(130);
    check_accounting(&summary);
    assert_eq!(by_firewall, by_kernel, "{}", imported.out);
    let passed = by_kernel.iter().filter(|(_, ok)| *ok).count();
    assert!((20..by_kernel.len() - 20).contains(&passed), "{passed} of {}", by_kernel.len());
}

#[test]
fn unsupported_rules_are_reported() {
    let scratch = Scratch::new();
    let saved = scratch.write("saved", "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -i eth0 -j ACCEPT\nCOMMIT\n");
    let output = bondstone(["import".as_ref(), "iptables".as_ref(), saved.as_os_str()]);
    assert_eq!(output.status, Some(2), "{}", output.err);
    assert!(
        output.err.contains("saved:3:") && output.err.contains("eth0") && output.err.contains("help:"),
        "{}",
        output.err
    );
    let saved =
        scratch.write("saved", "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -p tcp --dport 80 -j ACCEPT\nCOMMIT\n");
    let output = bondstone(["import".as_ref(), "iptables".as_ref(), saved.as_os_str(), "--lines".as_ref()]);
    assert!(
        output.out.ends_with("accept src 0.0.0.0/0 proto tcp dport 80\n") && output.err.contains("default = \"drop\""),
        "{}",
        output.out
    );
}
