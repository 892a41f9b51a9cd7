//! A device that the user's own commands start, and stop.

use super::attach::Attached;
use super::container::Needs;
use super::plan::Hooks;
use super::program::Line;
use super::{About, Driver, DutError, Env, Plan, Ports, Running, Site, own_program, rhythm};
use crate::bed::{Act, Acted};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How long a reset or a change may take.
const HOOK: Duration = Duration::from_secs(10);
/// How long a question whether it is ready may take.
const ASKED: Duration = Duration::from_secs(5);

pub(crate) struct Hooked {
    ports: Ports,
    hooks: Hooks,
}

impl Hooked {
    pub(crate) fn new(plan: &Plan) -> Hooked {
        Hooked { ports: plan.ports.clone(), hooks: plan.hooks.clone() }
    }
}

/// A script with what it may want to know.
fn script(site: &Site, attached: &Attached, change: u64, script: &str) -> Line {
    let ports = attached.inner.iter().enumerate().map(|(n, inner)| format!("BONDSTONE_PORT{n}={inner}"));
    let folder = format!("BONDSTONE_FOLDER={}", site.path("").display());
    let line = Line::new("env").args([folder, format!("BONDSTONE_CPUS={}", site.cpu_list())]).args(ports);
    // a container does not have it
    let own = own_program(site).ok().filter(|_| site.env() == Env::Native);
    let line = line.args([format!("BONDSTONE_MAC={}", site.sent.dst_mac)]);
    let line = line.args(own.map(|own| format!("BONDSTONE={}", own.display())));
    line.args([&format!("BONDSTONE_CHANGE={change}"), "sh", "-c", script])
}

impl Driver for Hooked {
    fn start(&mut self, site: &mut Site) -> Result<Running, DutError> {
        let attached = Attached::new(site, &self.ports)?;
        let line = script(site, &attached, 0, &self.hooks.start);
        // what the command starts ends with it
        let line = if site.env() == Env::Native && rustix::process::geteuid().is_root() {
            line.behind(["unshare", "--pid", "--fork", "--kill-child"])
        } else {
            line
        };
        let mut program = attached.start(site, "start", line, &Needs::default())?;
        if let Some(ready) = &self.hooks.ready {
            let line = attached.beside(&program, script(site, &attached, 0, ready), site);
            program.wait(site, "readiness", |_| line.succeeds_within(ASKED))?;
        }
        let farewell =
            self.hooks.stop.as_ref().map(|stop| attached.beside(&program, script(site, &attached, 0, stop), site));
        let remarks = vec!["started by the user's own commands".to_owned()];
        let about = About { remarks, ..About::default() };
        Ok(Running::new(site, attached, vec![program], about).farewell(farewell))
    }

    fn cannot(&self, act: Act) -> Option<&'static str> {
        match act {
            Act::Reset { .. } if self.hooks.reset.is_none() => Some("write reset = \"...\" for it"),
            Act::Changes { .. } if self.hooks.change.is_none() => Some("write change = \"...\" for it"),
            _ => None,
        }
    }

    fn act(&mut self, running: &Running, site: &Site, act: Act, stop: &AtomicBool) -> Result<Acted, DutError> {
        let attached = running.attached();
        let does = |text: &str, n: u64| running.line(script(site, attached, n, text), site).succeeds_within(HOOK);
        match (act, &self.hooks) {
            (Act::Reset { at_s }, Hooks { reset: Some(reset), .. }) => Ok(rhythm::once(at_s, stop, || does(reset, 0))),
            (Act::Changes { per_second }, Hooks { change: Some(change), .. }) => {
                Ok(rhythm::changes(per_second, stop, |n| does(change, n)))
            }
            _ => Ok(Acted::default()),
        }
    }
}
