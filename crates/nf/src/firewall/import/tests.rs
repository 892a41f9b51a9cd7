//! Output of the tools, converted.

use super::{ImportedRules, iptables, nft};
use crate::Firewall;
use testkit::Harness;

/// Checks that the firewall accepts the settings.
fn accepted_by_firewall(imported: &ImportedRules) -> &ImportedRules {
    let text = imported.to_string();
    let settings = text.split_once("kind = \"firewall\"\n").unwrap().1;
    Harness::try_new::<Firewall>(settings).unwrap_or_else(|e| panic!("{text}: {e}"));
    imported
}

const SAVED: &str = "# Generated
*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [12:800]
:OUTPUT ACCEPT [0:0]
:web - [0:0]
-A INPUT -i eth0 -j DROP
-A FORWARD -s 10.66.0.0/16 -j DROP
-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -m state --state INVALID -j DROP
-A FORWARD -d 192.0.2.0/24 -p tcp -j web
-A FORWARD -p icmp -m icmp --icmp-type 8 -m comment --comment \"let them -j DROP\" -j ACCEPT
-A FORWARD -p udp -m multiport --dports 53,5000:5010 -j ACCEPT
-A FORWARD -p tcp -m tcp --tcp-flags FIN,SYN FIN,SYN -j REJECT --reject-with icmp-port-unreachable
-A web -p tcp -m tcp --dport 80 -j ACCEPT
-A web -s 10.0.0.0/8 -p tcp -m tcp --dport 443 --syn -j ACCEPT
COMMIT
";

#[test]
fn converts_iptables_save() {
    let imported = iptables(SAVED, false).unwrap();
    assert_eq!(
        accepted_by_firewall(&imported).rules,
        [
            "drop state any src 10.66.0.0/16",
            "accept dst 192.0.2.0/24 proto tcp dport 80",
            "accept src 10.0.0.0/8 dst 192.0.2.0/24 proto tcp dport 443 flags !fin,syn,!rst,!ack",
            "accept proto icmp type 8",
            "accept src 0.0.0.0/0 proto udp dport 53",
            "accept src 0.0.0.0/0 proto udp dport 5000-5010",
            "drop src 0.0.0.0/0 proto tcp flags fin,syn",
        ]
    );
    assert!(!imported.default_accept && imported.tracked);
    assert!(
        imported.notes.iter().any(|n| n.contains("INPUT"))
            && imported.notes.iter().any(|n| n.contains("reject message"))
    );
}

#[test]
fn unsupported_rules_are_reported() {
    for (rule, word) in [
        ("-A FORWARD -i eth0 -j ACCEPT", "eth0"),
        ("-A FORWARD ! -s 10.0.0.0/8 -j DROP", "!"),
        ("-A FORWARD -m limit --limit 5/sec -j ACCEPT", "limit"),
        ("-A FORWARD -j nowhere", "nowhere"),
        ("-A FORWARD -p tcp --dport http -j ACCEPT", "http"),
        ("-A FORWARD -m conntrack --ctstate UNTRACKED -j ACCEPT", "UNTRACKED"),
        ("-A FORWARD -p icmp --icmp-type fancy -j ACCEPT", "fancy"),
        ("-A web -s 10.0.0.0/8 -j RETURN", "RETURN"),
        ("-A web -g web", "circle"),
    ] {
        let text = format!("*filter\n:FORWARD DROP [0:0]\n:web - [0:0]\n-A FORWARD -p tcp -j web\n{rule}\nCOMMIT\n");
        let e = iptables(&text, false).unwrap_err();
        assert!(e.to_string().contains(word) && e.remedy.is_some(), "{rule}: {e}");
    }
    assert!(
        iptables("*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -j DNAT\n", false)
            .unwrap_err()
            .to_string()
            .contains("nat")
    );
    assert!(iptables("", false).is_err() && nft("{}").is_err() && nft("nonsense").is_err());
}

#[test]
fn enables_tracking_only_for_rules_with_states() {
    let text = "*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -s 2001:db8::/32 -p tcp -m tcp --dport 22 -j DROP\n-A FORWARD -p ipv6-icmp -j ACCEPT\nCOMMIT\n";
    let imported = iptables(text, true).unwrap();
    assert_eq!(
        accepted_by_firewall(&imported).rules,
        ["drop src 2001:db8::/32 proto tcp dport 22", "accept proto icmpv6"]
    );
    assert!(imported.default_accept && !imported.tracked);
}

const LISTED: &str = r#"{"nftables": [{"metainfo": {"version": "1.0.6"}},
{"table": {"family": "inet", "name": "fw", "handle": 1}},
{"set": {"family": "inet", "name": "bad", "table": "fw", "type": "ipv4_addr", "handle": 2, "flags": ["interval"],
 "elem": [{"prefix": {"addr": "10.66.0.0", "len": 16}}, {"range": ["10.67.0.0", "10.67.0.2"]}]}},
{"chain": {"family": "inet", "table": "fw", "name": "forward", "handle": 3, "type": "filter", "hook": "forward", "prio": 0, "policy": "drop"}},
{"chain": {"family": "inet", "table": "fw", "name": "web", "handle": 4}},
{"rule": {"family": "inet", "table": "fw", "chain": "forward", "handle": 5, "expr": [
 {"vmap": {"key": {"ct": {"key": "state"}}, "data": {"set": [["invalid", {"drop": null}], ["established", {"accept": null}], ["related", {"accept": null}]]}}}]}},
{"rule": {"family": "inet", "table": "fw", "chain": "forward", "handle": 6, "expr": [
 {"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": "@bad"}}, {"counter": {"packets": 0, "bytes": 0}}, {"drop": null}]}},
{"rule": {"family": "inet", "table": "fw", "chain": "forward", "handle": 7, "expr": [
 {"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": {"set": [22, {"range": [80, 90]}]}}}, {"jump": {"target": "web"}}]}},
{"rule": {"family": "inet", "table": "fw", "chain": "forward", "handle": 8, "expr": [
 {"match": {"op": "==", "left": {"payload": {"protocol": "icmpv6", "field": "type"}}, "right": "echo-request"}}, {"accept": null}]}},
{"rule": {"family": "inet", "table": "fw", "chain": "web", "handle": 9, "expr": [
 {"match": {"op": "==", "left": {"payload": {"protocol": "ip6", "field": "daddr"}}, "right": {"prefix": {"addr": "2001:db8::", "len": 32}}}},
 {"match": {"op": "==", "left": {"&": [{"payload": {"protocol": "tcp", "field": "flags"}}, {"|": ["syn", "ack"]}]}, "right": "syn"}}, {"accept": null}]}}
]}"#;

#[test]
fn converts_nft_list() {
    let imported = nft(LISTED).unwrap();
    let rules = [
        "drop src 10.66.0.0/16",
        "drop src 10.67.0.0/31",
        "drop src 10.67.0.2/32",
        "accept dst 2001:db8::/32 proto tcp dport 22 flags syn,!ack",
        "accept dst 2001:db8::/32 proto tcp dport 80-90 flags syn,!ack",
        "accept proto icmpv6 type 128",
    ];
    assert_eq!(accepted_by_firewall(&imported).rules, rules);
    assert!(!imported.default_accept && imported.tracked);
    let e = nft(&LISTED.replace("\"saddr\"", "\"ttl\"")).unwrap_err().to_string();
    assert!(e.contains("ip ttl") && e.contains("handle 6"), "{e}");
}
