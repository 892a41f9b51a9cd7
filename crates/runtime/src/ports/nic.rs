//! Facts of network cards, for the description of a host.

use std::fmt;
use std::path::Path;

/// PCI devices in sysfs.
const PCI_DEVICES: &str = "/sys/bus/pci/devices";

/// A network card behind a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Nic {
    /// Name of the port.
    pub port: String,
    /// PCI address, such as `0000:03:00.0`.
    pub address: String,
    /// Vendor and device in hexadecimal, such as `8086:1572`.
    pub model: Option<String>,
    /// Version of its firmware, if the driver reports it.
    pub firmware: Option<String>,
    /// PCIe link, such as `8.0 GT/s x4 of 8.0 GT/s x8`: as negotiated, and the highest that the card supports.
    pub pcie: Option<String>,
}

impl Nic {
    /// Reads the facts of the card at a PCI address.
    pub(super) fn read(port: &str, address: &str, firmware: Option<String>) -> Nic {
        Nic::read_from(Path::new(PCI_DEVICES), port, address, firmware)
    }

    fn read_from(devices: &Path, port: &str, address: &str, firmware: Option<String>) -> Nic {
        let file = |name: &str| {
            let text = std::fs::read_to_string(devices.join(address).join(name)).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty() && !text.starts_with("Unknown"))
        };
        let hexadecimal = |name: &str| file(name).map(|id| id.trim_start_matches("0x").to_owned());
        let link = |which: &str| {
            let speed = file(&format!("{which}_link_speed"))?;
            let width = file(&format!("{which}_link_width")).filter(|lanes| lanes != "0")?;
            Some(format!("{} x{width}", speed.trim_end_matches(" PCIe")))
        };
        let pcie = link("current").map(|current| match link("max") {
            Some(max) => format!("{current} of {max}"),
            None => current,
        });
        let model =
            hexadecimal("vendor").zip(hexadecimal("device")).map(|(vendor, device)| format!("{vendor}:{device}"));
        Nic { port: port.to_owned(), address: address.to_owned(), model, firmware, pcie }
    }
}

impl fmt::Display for Nic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.model.as_deref().unwrap_or("unknown model"))?;
        if let Some(firmware) = &self.firmware {
            write!(f, ", firmware {firmware}")?;
        }
        match &self.pcie {
            Some(pcie) => write!(f, ", PCIe {pcie}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_sysfs_has() {
        let devices = std::env::temp_dir().join(format!("bondstone-nic-{}", std::process::id()));
        let card = devices.join("0000:03:00.0");
        std::fs::create_dir_all(&card).unwrap();
        let nic = |firmware: Option<&str>| {
            Nic::read_from(&devices, "wan", "0000:03:00.0", firmware.map(str::to_owned)).to_string()
        };
        let write = |name: &str, text: &str| std::fs::write(card.join(name), text).unwrap();
        assert_eq!(nic(None), "unknown model");
        write("vendor", "0x8086\n");
        write("device", "0x1572\n");
        write("current_link_speed", "Unknown\n");
        assert_eq!(nic(None), "8086:1572");
        write("current_link_speed", "8.0 GT/s PCIe\n");
        write("current_link_width", "4\n");
        assert_eq!(nic(Some("9.20 0x8000d95e")), "8086:1572, firmware 9.20 0x8000d95e, PCIe 8.0 GT/s x4");
        write("max_link_speed", "8.0 GT/s PCIe\n");
        write("max_link_width", "8\n");
        assert_eq!(nic(None), "8086:1572, PCIe 8.0 GT/s x4 of 8.0 GT/s x8");
        std::fs::remove_dir_all(devices).unwrap();
    }
}
