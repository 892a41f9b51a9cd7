use super::*;
use proptest::prelude::*;
use proptest::sample::Index;

/// Transport, source and destination port, and payload of messages of each application.
fn samples() -> Vec<(Application, Transport, [u16; 2], Vec<u8>)> {
    use Application as A;
    use Transport::{Tcp, Udp};
    let dns = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x07example\x03com\0\0\x01\0\x01";
    let mut dhcp = vec![0; 244];
    (dhcp[..4]).copy_from_slice(&[1, 1, 6, 0]);
    dhcp[236..240].copy_from_slice(&0x6382_5363_u32.to_be_bytes());
    let mut ntp = vec![0; 48];
    ntp[0] = 0x23;
    let mut bgp = vec![0xff; 16];
    bgp.extend([0, 29, 1, 4, 0xfd, 0xe8, 0, 90, 1, 2, 3, 4, 0]);
    let mut wireguard = vec![7; 148];
    wireguard[..4].copy_from_slice(&[1, 0, 0, 0]);
    let name = [&[0x20][..], &[b'A'; 32], &[0]].concat();
    let netbios = [&b"\x12\x34\x01\x10\0\x01\0\0\0\0\0\0"[..], &name, b"\0\x20\0\x01"].concat();
    let ike = [&[7; 8][..], &[0; 8], &[33, 0x20, 34, 8, 0, 0, 0, 0, 0, 0, 0, 28]].concat();
    let mysql_rest = [&[1, 0, 0, 0][..], &[7; 8], &[0], &[3; 30]].concat();
    let mysql = [&[10][..], b"8.0.36\0", &mysql_rest].concat();
    let mysql = [&[mysql.len() as u8, 0, 0, 0][..], &mysql].concat();
    let smb = [&[0, 0, 0, 64, 0xfe][..], b"SMB", &[0; 60]].concat();
    let tls = [&[22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[9; 50]].concat();
    let dtls =
        [&[22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 52, 1, 0, 0, 40, 0, 0, 0, 0, 0, 0, 0, 40][..], &[9; 40]].concat();
    let rtcp = [&[0x80, 200, 0, 6][..], &[1; 24]].concat();
    let radius = [&[1, 9, 0, 27][..], &[4; 16], &[1, 7, b'a', b'l', b'i', b'c', b'e']].concat();
    let kerberos = [0x6a, 0x10, 0x30, 0x0e, 0xa1, 3, 2, 1, 5, 0xa2, 3, 2, 1, 10, 0xa4, 2, 0x30, 0].to_vec();
    let startup = b"\0\0\0\x14\0\x03\0\0user\0alice\0\0".to_vec();
    let quic = [&[0xc3, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0][..], &[5; 1200]].concat();
    let openvpn = [&[0x38][..], &[7; 8], &[0; 5]].concat();
    vec![
        (A::Amqp, Tcp, [40_000, 5672], b"AMQP\0\0\x09\x01".to_vec()),
        (A::Amqp, Tcp, [5672, 40_000], b"\x01\0\0\0\0\0\x04abcd\xce".to_vec()),
        (A::Bgp, Tcp, [40_000, 179], bgp),
        (A::BitTorrent, Tcp, [40_000, 6881], b"\x13BitTorrent protocol\0\0\0\0\0\0\0\0".to_vec()),
        (A::BitTorrent, Udp, [6881, 6881], b"d1:ad2:id20:abcdefghij0123456789e1:q4:ping1:t2:aa1:y1:qe".to_vec()),
        (A::Dhcp, Udp, [68, 67], dhcp),
        (A::Dhcp, Udp, [546, 547], b"\x01\x12\x34\x56\0\x01\0\x02ab".to_vec()),
        (A::Dns, Udp, [40_000, 53], dns.to_vec()),
        (A::Dns, Tcp, [40_000, 53], [&[0, dns.len() as u8], &dns[..]].concat()),
        (A::Mdns, Udp, [5353, 5353], dns.to_vec()),
        (A::Llmnr, Udp, [40_000, 5355], dns.to_vec()),
        (A::NetBios, Udp, [137, 137], netbios),
        (A::Ftp, Tcp, [21, 40_000], b"220 FTP server ready\r\n".to_vec()),
        (A::Http, Tcp, [40_000, 80], b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n".to_vec()),
        (A::Http, Tcp, [80, 40_000], b"HTTP/1.1 200 OK\r\n".to_vec()),
        (A::Imap, Tcp, [143, 40_000], b"* OK IMAP4rev1 ready\r\n".to_vec()),
        (A::Imap, Tcp, [40_000, 143], b"a1 LOGIN alice secret\r\n".to_vec()),
        (A::Ipsec, Udp, [500, 500], ike.clone()),
        (A::Ipsec, Udp, [4500, 4500], [&[0; 4][..], &ike].concat()),
        (A::Kerberos, Udp, [40_000, 88], kerberos.clone()),
        (A::Kerberos, Tcp, [40_000, 88], [&[0, 0, 0, 18][..], &kerberos].concat()),
        (A::Ldap, Tcp, [40_000, 389], b"0\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\0\x80\0".to_vec()),
        (A::Mqtt, Tcp, [40_000, 1883], b"\x10\x10\0\x04MQTT\x04\x02\0\x3c\0\x04abcd".to_vec()),
        (A::Mysql, Tcp, [3306, 40_000], mysql),
        (A::Ntp, Udp, [123, 123], ntp),
        (A::OpenVpn, Udp, [40_000, 1194], openvpn.clone()),
        (A::OpenVpn, Tcp, [40_000, 1194], [&[0, 14][..], &openvpn].concat()),
        (A::Pop3, Tcp, [110, 40_000], b"+OK POP3 ready\r\n".to_vec()),
        (A::PostgreSql, Tcp, [40_000, 5432], startup),
        (A::PostgreSql, Tcp, [40_000, 5432], b"\0\0\0\x08\x04\xd2\x16\x2f".to_vec()),
        (A::Quic, Udp, [40_000, 443], quic),
        (A::Quic, Udp, [443, 40_000], b"\x80\0\0\0\0\0\x08abcdefgh\0\0\0\x01\x6b\x33\x43\xcf".to_vec()),
        (A::Radius, Udp, [40_000, 1812], radius),
        (A::Rdp, Tcp, [40_000, 3389], b"\x03\0\0\x13\x0e\xe0\0\0\0\0\0\x01\0\x08\0\x03\0\0\0".to_vec()),
        (A::Redis, Tcp, [40_000, 6379], b"*1\r\n$4\r\nPING\r\n".to_vec()),
        (A::Rtcp, Udp, [5005, 5005], rtcp),
        (A::Rtsp, Tcp, [40_000, 554], b"OPTIONS rtsp://example.com/a RTSP/1.0\r\nCSeq: 1\r\n\r\n".to_vec()),
        (A::Sip, Udp, [5060, 5060], b"OPTIONS sip:alice@example.com SIP/2.0\r\n\r\n".to_vec()),
        (A::Smb, Tcp, [40_000, 445], smb),
        (A::Smtp, Tcp, [25, 40_000], b"220 mail.example.com ESMTP\r\n".to_vec()),
        (A::Smtp, Tcp, [40_000, 2525], b"EHLO client.example.com\r\n".to_vec()),
        (A::Snmp, Udp, [40_000, 161], b"0\x0f\x02\x01\x01\x04\x06public\xa0\x02\x02\0".to_vec()),
        (A::Ssdp, Udp, [40_000, 1900], b"M-SEARCH * HTTP/1.1\r\nHOST: 239.255.255.250:1900\r\n\r\n".to_vec()),
        (A::Ssh, Tcp, [22, 40_000], b"SSH-2.0-OpenSSH_9.6\r\n".to_vec()),
        (A::Stun, Udp, [40_000, 3478], b"\0\x01\0\0\x21\x12\xa4\x42abcdefghijkl".to_vec()),
        (A::Tls, Tcp, [40_000, 443], tls),
        (A::WireGuard, Udp, [40_000, 51820], wireguard),
        (A::Dtls, Udp, [40_000, 40_001], dtls),
    ]
}

fn context(transport: Transport, ports: [u16; 2]) -> Context {
    Context { transport, ports, previous: Head::default(), peer: Head::default() }
}

/// Returns the applications whose recognisers match.
fn matches(transport: Transport, ports: [u16; 2], payload: &[u8]) -> Vec<Application> {
    let context = context(transport, ports);
    let of = |it: &&Recogniser| if transport == Transport::Tcp { it.tcp } else { it.udp };
    let all = RECOGNISERS.iter().filter(of);
    all.filter(|it| (it.recognise)(payload, &context) == Verdict::Match).map(|it| it.application).collect()
}

#[test]
fn each_message_matches_its_protocol_and_no_other() {
    for (application, transport, ports, payload) in samples() {
        assert_eq!(matches(transport, ports, &payload), [application], "{payload:?}");
    }
    let known: Vec<_> = samples().iter().map(|sample| sample.0).collect();
    for recogniser in RECOGNISERS.iter().filter(|it| it.application != Application::Rtp) {
        assert!(known.contains(&recogniser.application), "{:?}", recogniser.application);
    }
}

#[test]
fn two_packets_of_a_source_are_rtp() {
    let packet = |sequence: u8| [&[0x80, 0, 0, sequence, 0, 0, 0, 0, 1, 2, 3, 4][..], &[0; 160]].concat();
    let mut context = context(Transport::Udp, [4000, 4002]);
    assert_eq!(rtp::recognise(&packet(1), &context), Verdict::NeedMore);
    context.previous = Head::new(&packet(1));
    assert_eq!(rtp::recognise(&packet(2), &context), Verdict::Match);
    assert_eq!(rtp::recognise(&packet(200), &context), Verdict::NoMatch);
}

#[test]
fn replies_decide_between_protocols_with_the_same_commands() {
    let mut context = context(Transport::Tcp, [40_000, 2000]);
    assert_eq!(ftp::recognise(b"USER alice\r\n", &context), Verdict::NoMatch);
    context.peer = Head::new(b"220 ready\r\n");
    assert_eq!(ftp::recognise(b"USER alice\r\n", &context), Verdict::Match);
    assert_eq!(pop3::recognise(b"USER alice\r\n", &context), Verdict::NoMatch);
    context.peer = Head::new(b"+OK ready\r\n");
    assert_eq!(pop3::recognise(b"USER alice\r\n", &context), Verdict::Match);
    context.peer = Head::new(b"*1\r\n$4\r\nPING\r\n");
    assert_eq!(redis::recognise(b"+OK\r\n", &context), Verdict::Match);
    assert_eq!(pop3::recognise(b"+OK\r\n", &context), Verdict::NoMatch);
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    let mutated =
        (prop::sample::select(samples()), prop::collection::vec((any::<Index>(), any::<u8>()), 0..6), any::<Index>());
    let mutated = mutated.prop_map(|((_, _, _, mut payload), changes, cut)| {
        changes.into_iter().for_each(|(at, byte)| *at.get_mut(&mut payload) = byte);
        payload.truncate(cut.index(payload.len() + 1));
        payload
    });
    prop_oneof![prop::collection::vec(any::<u8>(), 0..200), mutated]
}

proptest! {
    #[test]
    fn arbitrary_and_mutated_payloads_do_not_panic(
        payload in payload(),
        previous in payload(),
        peer in payload(),
        tcp in any::<bool>(),
        port in prop::sample::select(RECOGNISERS.iter().flat_map(|it| it.ports).copied().collect::<Vec<_>>()),
    ) {
        let transport = if tcp { Transport::Tcp } else { Transport::Udp };
        let context = Context { previous: Head::new(&previous), peer: Head::new(&peer), ..context(transport, [40_000, port]) };
        for recogniser in RECOGNISERS {
            (recogniser.recognise)(&payload, &context);
        }
        let _ = http_host(&payload);
        let _ = tls_server_name(&payload, &mut [0; 4096]);
        let _ = client_hello_name(&payload);
    }
}
