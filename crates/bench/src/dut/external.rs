//! A device that somebody else runs, at the other end of the generator's ports.

use super::attach::Attached;
use super::{About, Driver, DutError, Plan, Ports, Running, Site};

pub(crate) struct External {
    ports: Ports,
}

impl External {
    pub(crate) fn new(plan: &Plan) -> External {
        External { ports: plan.ports.clone() }
    }
}

impl Driver for External {
    fn start(&mut self, site: &mut Site) -> Result<Running, DutError> {
        let Ports::Devices(_) = &self.ports else {
            return Err(site.wrong("no ports are named", "ports = [\"0000:01:00.0\", \"0000:01:00.1\"]"));
        };
        let remarks = vec!["an external device: nothing is known of it".to_owned()];
        let attached = Attached::outside(&self.ports);
        Ok(Running::new(site, attached, vec![], About { remarks, ..About::default() }))
    }
}
