//! Rules with the mixture of options that public rule sets for networks have, made from a seed.

/// A generator of pseudo-random numbers (xorshift64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % n
    }

    /// Returns true with a probability of `n` percent.
    fn percent(&mut self, n: u64) -> bool {
        self.below(100) < n
    }

    fn choose<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }

    /// Returns a word of some syllables.
    pub(crate) fn word(&mut self) -> String {
        const SYLLABLES: &[&str] = &[
            "lo", "gin", "ad", "min", "get", "set", "in", "dex", "up", "load", "con", "fig", "da", "ta", "use", "r",
            "pa", "th", "se", "ver", "ex", "ec", "ru", "n", "te", "st", "ke", "y", "val", "ue", "re", "ply", "sys",
            "tem", "bo", "t", "net", "cl", "ient", "Ke", "Wi", "ND", "ows", "x", "z", "q",
        ];
        (0..1 + self.below(3)).map(|_| self.choose(SYLLABLES)).collect()
    }

    /// Returns text of `from` to `to` bytes, both included, as requests contain it.
    pub(crate) fn text(&mut self, from: usize, to: usize) -> String {
        let len = from + self.below((to - from + 1) as u64) as usize;
        let mut text = String::new();
        while text.len() < len {
            text += &self.word();
            text += self.choose(&["/", "-", "_", ".php?", "=", "&", " ", ".", "1", "20", "%2f", "x"]);
        }
        text.truncate(len);
        text.trim().to_owned() + if text.trim().len() < from { "abcd" } else { "" }
    }

    /// Returns the value of a `content`.
    fn content(&mut self) -> String {
        match self.below(10) {
            0..=5 => self.text(4, 40),
            6 => {
                let (a, b) = (self.text(4, 12), self.text(4, 16));
                format!("{a}|3a 20|{b}|0d 0a|")
            }
            7 => format!("GET /{}", self.text(4, 30)),
            _ => {
                let bytes: Vec<_> = (0..4 + self.below(9)).map(|_| format!("{:02x}", self.below(256))).collect();
                format!("|{}|", bytes.join(" "))
            }
        }
    }

    fn expression(&mut self) -> String {
        let (a, b) = (self.word(), self.word());
        match self.below(5) {
            0 => format!("/{a}\\d{{1,8}}{b}/i"),
            1 => format!("/^[a-z0-9]{{4,20}}\\.{b}/R"),
            2 => format!("/{a}=[^&\\s]{{16,64}}/"),
            3 => format!("/({a}|{b}|{})\\x2f[A-F0-9]+$/mi", self.word()),
            _ => format!("/\\b{a}\\s+\\S*{b}[^\\n]{{0,40}}\\x3d/si"),
        }
    }

    fn address(&mut self) -> String {
        format!("{}.{}.{}.{}", 11 + self.below(200), self.below(256), self.below(256), 1 + self.below(254))
    }
}

/// Returns `count` rules, one a line.
pub(crate) fn rules(seed: u64, count: usize) -> String {
    let mut random = Random::new(seed);
    let mut out = String::new();
    for sid in 1..=count {
        out += &rule(&mut random, sid);
        out.push('\n');
    }
    out
}

fn rule(random: &mut Random, sid: usize) -> String {
    let ports = ["80", "[80,8080,8000:8100]", "443", "any", "25", "21", "445", "1433", "any"];
    let (header, flow) = match random.below(100) {
        0..=59 => (format!("tcp $HOME_NET any -> $EXTERNAL_NET {}", random.choose(&ports)), "established,to_server"),
        60..=79 => (format!("tcp $EXTERNAL_NET {} -> $HOME_NET any", random.choose(&ports)), "established,to_client"),
        80..=89 => (format!("udp $HOME_NET any -> any {}", random.choose(&["53", "any", "161", "1900"])), ""),
        90..=93 => {
            let list: Vec<_> = (0..1 + random.below(40)).map(|_| random.address()).collect();
            return format!(
                "alert ip [{}] any -> $HOME_NET any (msg:\"generated list\"; threshold:type limit, track by_src, seconds 3600, \
                 count 1; classtype:misc-attack; sid:{sid}; rev:1;)",
                list.join(",")
            );
        }
        94 => {
            let flags = random.choose(&["S,12", "SF", "FPU", "0"]);
            let window = random.below(65_536);
            return format!(
                "alert tcp $EXTERNAL_NET any -> $HOME_NET any (msg:\"generated header\"; flags:{flags}; window:{window}; \
                 threshold:type both, track by_src, count 5, seconds 60; sid:{sid}; rev:1;)"
            );
        }
        95 => {
            let (kind, size) = (random.below(40), random.below(1400));
            return format!(
                "alert icmp any any -> any any (msg:\"generated icmp\"; itype:{kind}; dsize:>{size}; sid:{sid}; rev:1;)"
            );
        }
        _ => ("tcp any any -> any any".to_owned(), "established"),
    };
    let mut options = format!("msg:\"generated {} {sid}\"; ", random.word());
    if !flow.is_empty() {
        options += &format!("flow:{flow}; ");
    }
    if random.percent(4) {
        options += &format!("flowbits:isset,state.{}; ", random.below(200));
    }
    if random.percent(3) {
        options += &format!("dsize:<{}; ", 100 + random.below(1400));
    }
    for n in 0..1 + random.below(3) {
        options += &format!("content:\"{}\"; ", random.content());
        if random.percent(50) {
            options += "nocase; ";
        }
        match (n, random.below(10)) {
            (0, 0) => options += &format!("depth:{}; ", 80 + random.below(60)),
            (0, 1) => options += &format!("offset:{}; depth:{}; ", random.below(20), 80 + random.below(60)),
            (1.., 0..=3) => options += &format!("distance:{}; ", random.below(8)),
            (1.., 4..=6) => options += &format!("distance:0; within:{}; ", 80 + random.below(120)),
            _ => {}
        }
        if n == 0 && random.percent(10) {
            options += "fast_pattern; ";
        }
    }
    if random.percent(25) {
        options += &format!("pcre:\"{}\"; ", random.expression());
    }
    if random.percent(3) {
        options += &format!("byte_test:2,>,{},0,relative; ", random.below(1000));
    }
    if random.percent(3) {
        options += "isdataat:!8,relative; ";
    }
    if random.percent(4) {
        options += &format!("flowbits:set,state.{}; flowbits:noalert; ", random.below(200));
    }
    if random.percent(8) {
        options += "threshold:type limit, track by_src, count 1, seconds 300; ";
    }
    let class = random.choose(&["trojan-activity", "web-application-attack", "bad-unknown", "policy-violation"]);
    format!("alert {header} ({options}reference:url,example.org/{sid}; classtype:{class}; sid:{sid}; rev:2;)")
}
