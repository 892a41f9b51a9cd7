//! The table of the Internet in `data/routes`, announced by BIRD.

use std::io::Read as _;
use std::path::PathBuf;

/// Returns its prefixes; prints a note if they are not on this machine.
pub(crate) fn prefixes() -> Option<Vec<String>> {
    let data = std::env::var_os("BONDSTONE_DATA").map_or_else(|| "../../../shared/data".into(), PathBuf::from);
    let path = data.join("routes/prefixes.txt.gz");
    let Ok(file) = std::fs::File::open(&path) else {
        eprintln!("skipped: needs {}", path.display());
        return None;
    };
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    Some(text.lines().map(str::to_owned).collect())
}

/// Returns the configuration of a BIRD at `NETWORK.2`, of AS 65002, that announces them to `NETWORK.1`, of AS 65001, each
/// with the next hops that `hops` returns for its number.
pub(crate) fn bird(prefixes: &[String], network: &str, hops: impl Fn(usize) -> (String, String)) -> String {
    let of = |ipv4: bool| {
        let routes = prefixes.iter().enumerate().filter(|(_, prefix)| prefix.contains('.') == ipv4);
        let hop = |n| if ipv4 { hops(n).0 } else { hops(n).1 };
        routes.map(|(n, prefix)| format!("route {prefix} via {};\n", hop(n))).collect::<String>()
    };
    format!(
        "router id {network}.2;\nprotocol device {{}}\nprotocol static {{ ipv4; {} }}\nprotocol static {{ ipv6; {} }}\n\
         protocol bgp control {{ local {network}.2 as 65002; neighbor {network}.1 as 65001; connect retry time 1;\n\
         ipv4 {{ import none; export all; }};\n\
         ipv6 {{ import none; export all; }}; }}\n",
        of(true),
        of(false)
    )
}
