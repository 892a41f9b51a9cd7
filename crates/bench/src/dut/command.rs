//! A device that the user's own commands start, and stop.

use super::attach::Attached;
use super::plan::Hooks;
use super::program::{Line, Program};
use super::{About, Driver, DutError, Plan, Ports, Site, Started, rhythm};
use crate::bed::{Act, Acted};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How long a reset or a change may take.
const HOOK: Duration = Duration::from_secs(10);

pub(crate) struct Hooked {
    ports: Ports,
    hooks: Hooks,
    attached: Option<Attached>,
    program: Option<Program>,
    /// What `stop` needs.
    environment: Vec<String>,
}

impl Hooked {
    pub(crate) fn new(plan: &Plan) -> Hooked {
        let (ports, hooks) = (plan.ports.clone(), plan.hooks.clone());
        Hooked { ports, hooks, attached: None, program: None, environment: vec![] }
    }

    fn line(&self, site: &Site, attached: &Attached, script: &str) -> Line {
        let line = Line::new("env").args(self.environment.clone()).args(["sh", "-c", script]);
        attached.line(line, site)
    }
}

impl Driver for Hooked {
    fn start(&mut self, site: &mut Site) -> Result<Started, DutError> {
        let attached = Attached::new(site, &self.ports)?;
        let folder = site.path("").display().to_string();
        self.environment = vec![format!("BONDSTONE_FOLDER={folder}"), format!("BONDSTONE_CPUS={}", site.cpu_list())];
        let ports = attached.inner.iter().enumerate().map(|(n, inner)| format!("BONDSTONE_PORT{n}={inner}"));
        self.environment.extend(ports);
        let line = self.line(site, &attached, &self.hooks.start);
        // what the command starts ends with it
        let line = if rustix::process::geteuid().is_root() {
            line.behind(["unshare", "--pid", "--fork", "--kill-child"])
        } else {
            line
        };
        let mut program = Program::start(site, "start", line)?;
        if let Some(ready) = &self.hooks.ready {
            let line = self.line(site, &attached, ready);
            program.wait(site, "readiness", |_| line.succeeds_within(Duration::from_secs(5)))?;
        }
        self.program = Some(program);
        let remarks = vec!["started by the user's own commands".to_owned()];
        let about = About { version: None, configuration: site.notes(), remarks };
        let devices = attached.outer.clone();
        self.attached = Some(attached);
        Ok(Started { devices, about })
    }

    fn check(&mut self) -> Result<(), DutError> {
        self.program.as_mut().map_or(Ok(()), |p| p.check("the start command"))
    }

    fn cannot(&self, act: Act) -> Option<&'static str> {
        match act {
            Act::Reset { .. } if self.hooks.reset.is_none() => Some("write reset = \"...\" for it"),
            Act::Changes { .. } if self.hooks.change.is_none() => Some("write change = \"...\" for it"),
            _ => None,
        }
    }

    fn act(&mut self, site: &Site, act: Act, stop: &AtomicBool) -> Result<Acted, DutError> {
        let Some(attached) = &self.attached else { return Ok(Acted::default()) };
        let line = |script: &str, n: u64| {
            let line = Line::new("env").args(self.environment.clone()).args([format!("BONDSTONE_CHANGE={n}")]);
            attached.line(line.args(["sh", "-c", script]), site)
        };
        match (act, &self.hooks) {
            (Act::Reset { at_s }, Hooks { reset: Some(reset), .. }) => {
                Ok(rhythm::once(at_s, stop, || line(reset, 0).succeeds_within(HOOK)))
            }
            (Act::Changes { per_second }, Hooks { change: Some(change), .. }) => {
                Ok(rhythm::changes(per_second, stop, |n| line(change, n).succeeds_within(HOOK)))
            }
            _ => Ok(Acted::default()),
        }
    }

    fn stop(&mut self) {
        if let (Some(stop), Some(attached), Some(_)) = (&self.hooks.stop, &self.attached, &self.program) {
            let line = Line::new("env").args(self.environment.clone()).args(["sh", "-c", stop]);
            let line = match &attached.namespace {
                Some(namespace) => line.within(namespace.id()),
                None => line,
            };
            line.succeeds_within(Duration::from_secs(10));
        }
        self.program = None;
        self.attached = None;
    }
}

impl Drop for Hooked {
    fn drop(&mut self) {
        self.stop();
    }
}
