//! Virtual functions of NICs (SR-IOV).

/// A virtual function that a port asks for. It is there once the port opens, and gone when it has closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The physical function: the name of its interface, or its whole PCI address.
    pub of: String,
    /// What the physical function shall keep it to, in the words of `ip link set dev PF vf N`, such as `mac` and
    /// `02:00:00:00:00:01`.
    pub settings: Vec<(&'static str, String)>,
}

/// What may be set, and what is written then.
const SETTINGS: [(&str, &str); 4] = [
    ("mac", "02:00:00:00:00:01, one host's address"),
    ("vlan", "a number from 1 to 4094"),
    ("trust", "on or off"),
    ("spoofchk", "on or off"),
];

impl Function {
    /// Reads what stands behind the target; and the arguments of DPDK's driver, which are the others.
    ///
    /// # Errors
    /// What is wrong with it, and the remedy.
    pub(crate) fn parse(of: String, extra: Option<&str>) -> Result<(Function, String), (String, String)> {
        let (mut settings, mut others) = (vec![], vec![]);
        for argument in extra.into_iter().flat_map(|extra| extra.split(',')) {
            let (key, value) = argument.split_once('=').unwrap_or((argument, ""));
            let Some((key, remedy)) = SETTINGS.into_iter().find(|(known, _)| *known == key) else {
                others.push(argument);
                continue;
            };
            let right = match key {
                "mac" => is_host(value),
                "vlan" => value.parse::<u16>().is_ok_and(|vlan| (1..=4094).contains(&vlan)),
                _ => matches!(value, "on" | "off"),
            };
            if !right {
                return Err((format!("{value:?} cannot be its {key}"), format!("write {remedy}")));
            }
            if settings.iter().any(|(other, _)| *other == key) {
                return Err((format!("{key} is there twice"), "write it once".to_owned()));
            }
            settings.push((key, value.to_owned()));
        }
        Ok((Function { of, settings }, others.join(",")))
    }
}

/// Whether a text is a MAC address that one host may have.
fn is_host(text: &str) -> bool {
    let is_byte = |text: &str| text.len() == 2 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let byte = |text: &str| u8::from_str_radix(text, 16).ok().filter(|_| is_byte(text));
    let Some(bytes) = text.split(':').map(byte).collect::<Option<Vec<u8>>>() else { return false };
    bytes.len() == 6 && bytes[0] & 1 == 0 && bytes.iter().any(|byte| *byte != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_hosts() {
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
            assert_eq!(is_host(text), right, "{text:?}");
        }
    }
}
