//! The names of all that a run has had, to which counts refer.

use config::ChainFile;

/// The names of all that the run has had, also before reloads: what was removed still has counts.
#[derive(Clone, Default)]
pub(super) struct Names {
    /// With the devices.
    pub(super) ports: Vec<(String, String)>,
    pub(super) links: Vec<String>,
    /// With the kinds.
    pub(super) nfs: Vec<(String, &'static str)>,
}

/// A source or destination of a worker's packets, by its index in [`Names`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    Port(usize),
    Link(usize),
}

impl Names {
    /// Adds those of a chain file.
    pub(super) fn with(&self, file: &ChainFile, on_wires: bool) -> Names {
        let mut names = self.clone();
        for port in &file.ports {
            // a wire is no ring, whatever device the file names: it does not return what is sent to it
            let is_wire = on_wires && port.crossing_side.is_none();
            let device = if is_wire { "wire".to_owned() } else { port.device.to_string() };
            match names.ports.iter_mut().find(|(name, _)| *name == port.name) {
                Some((_, known)) => *known = device,
                None => names.ports.push((port.name.clone(), device)),
            }
        }
        for link in file.links.iter().filter(|link| !self.links.contains(&link.name)) {
            names.links.push(link.name.clone());
        }
        for nf in &file.nfs {
            if !names.nfs.iter().any(|(name, kind)| *name == nf.name && *kind == nf.kind.name) {
                names.nfs.push((nf.name.clone(), nf.kind.name));
            }
        }
        names
    }

    /// Returns the end with this number in a file: links are numbered after ports.
    pub(super) fn end(&self, file: &ChainFile, number: usize) -> End {
        match number.checked_sub(file.ports.len()) {
            None => {
                let name = &file.ports[number].name;
                End::Port(self.ports.iter().position(|(other, _)| other == name).unwrap_or_default())
            }
            Some(link) => {
                let name = &file.links[link].name;
                End::Link(self.links.iter().position(|other| other == name).unwrap_or_default())
            }
        }
    }

    /// Returns the index of an NF of a file.
    pub(super) fn nf(&self, file: &ChainFile, nf: usize) -> usize {
        let nf = &file.nfs[nf];
        self.nfs.iter().position(|(name, kind)| *name == nf.name && *kind == nf.kind.name).unwrap_or_default()
    }
}
