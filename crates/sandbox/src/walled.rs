//! A chain file that runs, with what is behind its walls.

use crate::Walls;
use config::ChainFile;
use graph::Registry;
use runtime::{End, Engine, Error, Options, Summary};

/// An engine, and what is behind the walls of its file, if it has any.
pub struct Walled {
    engine: Engine,
    walls: Option<Walls>,
}

impl Walled {
    /// Starts what runs in this process, and what does not.
    ///
    /// # Errors
    /// As [`Engine::start`], and what this machine or user lacks for walls.
    pub fn start(file: &ChainFile, registry: &Registry, options: Options) -> Result<Walled, Error> {
        let walls = Walls::build(file, registry, 0)?;
        let side = walls.as_ref().map_or(file, Walls::switch);
        let options = Options { idle: walls.as_ref().map_or(options.idle, Walls::idle), ..options };
        let engine = Engine::start_around(side, options, || walls.as_ref().map_or(Ok(()), Walls::start))?;
        Ok(Walled { engine, walls })
    }

    /// As [`Walled::start`], with a wire in the place of every port of the file, as [`Engine::start_on_wires`].
    ///
    /// # Errors
    /// As [`Walled::start`].
    pub fn start_on_wires(file: &ChainFile, registry: &Registry, depth: u32) -> Result<(Walled, Vec<End>), Error> {
        if let Some(port) = file.ports.iter().find(|port| port.behind.is_some()) {
            let remedy = format!("take wall out of [port.{}]", port.name);
            return Err(crate::lacks(
                format!("port {:?} is opened behind a wall, where there is no wire", port.name),
                remedy,
            ));
        }
        // who sends polls as well
        let walls = Walls::build(file, registry, 1)?;
        let side = walls.as_ref().map_or(file, Walls::switch);
        let opened = || walls.as_ref().map_or(Ok(()), Walls::start);
        let options = Options { idle: walls.as_ref().map_or_else(Default::default, Walls::idle), ..Options::default() };
        let (engine, ends) = Engine::start_on_wires_around(side, depth, options, opened)?;
        Ok((Walled { engine, walls }, ends))
    }

    /// What runs in this process.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Whether nothing more comes, on this side or by ports behind walls.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let receives = self.walls.as_ref().is_some_and(Walls::receives);
        self.engine.is_ended() || self.engine.is_finished() && !receives
    }

    /// The part of a file that runs in this process: the numbers of ports and chains are those of this.
    #[must_use]
    pub fn side<'a>(&'a self, file: &'a ChainFile) -> &'a ChainFile {
        self.walls.as_ref().map_or(file, Walls::switch)
    }

    /// What the user may want to know.
    pub fn notes(&self) -> impl Iterator<Item = &String> {
        self.engine.notes().iter().chain(self.walls.iter().flat_map(Walls::notes))
    }

    /// What all of it has done so far; what is behind walls has said so a moment ago.
    #[must_use]
    pub fn snapshot(&self) -> Summary {
        let done = self.engine.snapshot();
        match &self.walls {
            Some(walls) => walls.cover(done, false),
            None => done,
        }
    }

    /// As [`Walled::snapshot`]; asks what is behind walls to say anew what it has done, so that the next one is fresh.
    #[must_use]
    pub fn fresh(&self) -> Summary {
        self.walls.iter().for_each(Walls::ask);
        self.snapshot()
    }

    /// Ends it; what it has done.
    #[must_use]
    pub fn stop(self) -> Summary {
        match self.walls {
            Some(walls) => {
                let done = self.engine.stop_once(|done| walls.returned(done));
                walls.end(done)
            }
            None => self.engine.stop(),
        }
    }
}
