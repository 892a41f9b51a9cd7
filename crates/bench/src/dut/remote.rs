//! A device on another machine: the driver there, told by this one over ssh.

use super::attach::Attached;
use super::link::Link;
use super::message::{Answer, Order, Start};
use super::{Driver, DutError, Elsewhere, Plan, Running, Site};
use crate::bed::{Act, Acted};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// An act ends when it is told to.
const ACTING: Duration = Duration::from_secs(366 * 86_400);

pub(crate) struct Remote {
    /// As it is there.
    plan: Plan,
    elsewhere: Elsewhere,
}

impl Remote {
    pub(crate) fn new(plan: &Plan, elsewhere: &Elsewhere) -> Remote {
        Remote { plan: Plan { elsewhere: None, ..plan.clone() }, elsewhere: elsewhere.clone() }
    }
}

impl Driver for Remote {
    fn start(&mut self, site: &mut Site) -> Result<Running, DutError> {
        let attached = Attached::outside(&self.plan.ports);
        let start = Start::new(site.name(), self.plan.clone(), &site.sent)
            .map_err(|problem| site.wrong(problem, "put the chain into a folder with no more than it needs"))?;
        // the line goes before the program that it is of
        let (program, link) = Link::open(site, &self.elsewhere)?;
        let Answer::Runs(about) = link.ask(site.name(), &Order::Start(Box::new(start)))? else {
            return Err(site.wrong("was not started there", "a bug in Bondstone"));
        };
        Ok(Running::new(site, attached, vec![program], *about).over(link))
    }

    fn cannot(&self, act: Act) -> Option<&'static str> {
        self.plan.driver().cannot(act)
    }

    fn act(&mut self, running: &Running, site: &Site, act: Act, stop: &AtomicBool) -> Result<Acted, DutError> {
        let Some(link) = running.link() else { return Ok(Acted::default()) };
        let stop = || stop.load(Ordering::Relaxed);
        match link.ask_until(site.name(), &Order::Act(act), ACTING, stop)? {
            Answer::Acted(acted) => Ok(acted),
            _ => Err(site.wrong("nothing was done to it there", "a bug in Bondstone")),
        }
    }
}
