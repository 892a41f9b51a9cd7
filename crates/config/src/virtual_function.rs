//! SR-IOV virtual functions.

/// A virtual function that is created when a port opens and removed when it closes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualFunction {
    /// Physical function: the name of its interface or its full PCI address.
    pub physical: String,
    /// Settings in the syntax of `ip link set dev PF vf N`, such as `mac` and `02:00:00:00:00:01`.
    pub settings: Vec<(&'static str, String)>,
}

/// Settings, and descriptions of their values.
const SETTINGS: [(&str, &str); 4] = [
    ("mac", "02:00:00:00:00:01, one host's address"),
    ("vlan", "a number from 1 to 4094"),
    ("trust", "on or off"),
    ("spoofchk", "on or off"),
];

impl VirtualFunction {
    /// Parses the text after the target. Returns the virtual function and the remaining arguments, which are those of
    /// the DPDK driver.
    ///
    /// # Errors
    /// The problem and the remedy.
    pub(crate) fn parse(physical: String, extra: Option<&str>) -> Result<(VirtualFunction, String), (String, String)> {
        let (mut settings, mut others) = (vec![], vec![]);
        for argument in extra.into_iter().flat_map(|extra| extra.split(',')) {
            let (key, value) = argument.split_once('=').unwrap_or((argument, ""));
            let Some((key, remedy)) = SETTINGS.into_iter().find(|(known, _)| *known == key) else {
                others.push(argument);
                continue;
            };
            let is_valid = match key {
                "mac" => is_host_mac(value),
                "vlan" => value.parse::<u16>().is_ok_and(|vlan| (1..=4094).contains(&vlan)),
                _ => matches!(value, "on" | "off"),
            };
            if !is_valid {
                return Err((format!("{value:?} is not a valid {key}"), format!("write {remedy}")));
            }
            if settings.iter().any(|(other, _)| *other == key) {
                return Err((format!("duplicate {key}"), "write it once".to_owned()));
            }
            settings.push((key, value.to_owned()));
        }
        Ok((VirtualFunction { physical, settings }, others.join(",")))
    }
}

/// Returns true for the text of a MAC address that is neither multicast nor zero.
fn is_host_mac(text: &str) -> bool {
    let is_byte = |text: &str| text.len() == 2 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let byte = |text: &str| u8::from_str_radix(text, 16).ok().filter(|_| is_byte(text));
    let Some(bytes) = text.split(':').map(byte).collect::<Option<Vec<u8>>>() else { return false };
    bytes.len() == 6 && bytes[0] & 1 == 0 && bytes.iter().any(|byte| *byte != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_unicast_addresses() {
        for (text, right) in [
            ("02:00:00:00:00:01", true),
            ("aE:00:00:00:00:fF", true),
            ("00:00:00:00:00:00", false),
            ("01:00:5e:00:00:01", false),
            ("02:00:00:00:00", false),
            ("02:00:00:00:00:01:02", false),
            ("2:0:0:0:0:1", false),
            ("02:00:00:00:00:+1", false),
            ("", false),
        ] {
            assert_eq!(is_host_mac(text), right, "{text:?}");
        }
    }
}
