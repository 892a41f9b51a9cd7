//! A device that runs.

use super::attach::Attached;
use super::link::Link;
use super::message::Order;
use super::program::{Line, Program};
use super::{DutError, Site};
use report::Environment;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long the command before the end may take.
const FAREWELL: Duration = Duration::from_secs(10);

/// What a result says of a running device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// Its version, as it says itself.
    pub version: Option<String>,
    /// Its whole configuration: commands, arguments, files.
    pub configuration: String,
    /// What a reader of a result has to know of it.
    pub remarks: Vec<String>,
    /// The machine that it runs on, if that is not this one.
    pub environment: Option<Box<Environment>>,
}

/// A device that runs, until it is dropped: then its programs are ended, the last first, and after them its interfaces.
pub struct Running {
    about: About,
    // goes first: the device on the other machine is stopped, then ssh
    link: Option<Link>,
    /// Is run before the programs are ended.
    farewell: Option<Line>,
    programs: Vec<Program>,
    // goes last: a program may ask its interfaces, or the other side of its ports
    attached: Attached,
}

impl Running {
    /// Programs in the order in which they were started, at these ports; the site's notes are the configuration.
    pub(crate) fn new(site: &Site, attached: Attached, programs: Vec<Program>, mut about: About) -> Running {
        if about.configuration.is_empty() {
            about.configuration = site.notes();
        }
        about.remarks.extend_from_slice(site.remarks());
        Running { about, link: None, farewell: None, programs, attached }
    }

    /// With a command that is run before the programs are ended.
    pub(crate) fn farewell(mut self, line: Option<Line>) -> Running {
        self.farewell = line;
        self
    }

    /// On another machine, at the end of this line.
    pub(crate) fn over(mut self, link: Link) -> Running {
        self.link = Some(link);
        self
    }

    /// The line to the other machine.
    pub(crate) fn link(&self) -> Option<&Link> {
        self.link.as_ref()
    }

    /// The devices that the generator has to open, in the order of the ports, written as in a chain file.
    pub fn devices(&self) -> &[String] {
        &self.attached.outer
    }

    /// What a result says of it.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// A command where its first program runs.
    pub(crate) fn line(&self, line: Line, site: &Site) -> Line {
        match self.programs.first() {
            Some(program) => self.attached.beside(program, line, site),
            None => self.attached.line(line, site),
        }
    }

    /// How it is joined to the generator.
    pub(crate) fn attached(&self) -> &Attached {
        &self.attached
    }

    /// What its programs here said last.
    pub(crate) fn said(&self) -> String {
        let last = self.programs.iter().map(|program| (program.name(), program.said()));
        last.filter(|(_, said)| !said.is_empty()).map(|(name, said)| format!("{name} said:\n{said}\n")).collect()
    }

    /// Whether it still runs.
    ///
    /// # Errors
    /// How it ended, with what it said last.
    pub(crate) fn check(&mut self, site: &Site) -> Result<(), DutError> {
        for program in &mut self.programs {
            program.check(site.name())?;
        }
        if let Some(link) = &self.link {
            link.ask(site.name(), &Order::Check)?;
        }
        self.attached.check(site.name())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(line) = self.farewell.take() {
            line.succeeds_within(FAREWELL);
        }
        self.link = None;
        while let Some(program) = self.programs.pop() {
            drop(program);
        }
    }
}
