//! The instance that a command operates.

use crate::exit::Exit;
use crate::stdout::stdout;
use control::{Client, ClientError, MAX_LINE_LEN, Request};
use diagnostics::{Diagnostic, Diagnostics};
use serde::de::DeserializeOwned;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Selects an instance.
#[derive(clap::Args)]
pub(crate) struct Instance {
    /// Control socket, chain file, name of the chain file, or number of the process. It may be omitted if only one
    /// instance runs.
    #[arg(value_name = "INSTANCE")]
    name: Option<String>,
}

/// Options of a command that operates an NF of an instance.
#[derive(clap::Args)]
pub(crate) struct Target {
    /// Control socket, chain file, name of the chain file, or number of the process; it may be omitted if only one
    /// instance runs.
    #[arg(long, value_name = "INSTANCE")]
    instance: Option<String>,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

impl Target {
    /// Connects to the instance.
    pub(crate) fn connect(&self) -> anyhow::Result<Client> {
        Instance::named(self.instance.clone()).connect()
    }

    /// Sends a request of several changes; `remedy` is that for too many of them.
    pub(crate) fn change<T: DeserializeOwned>(&self, request: &Request, remedy: &str) -> anyhow::Result<T> {
        if serde_json::to_vec(request)?.len() >= MAX_LINE_LEN {
            let problem = Diagnostic::new(format!("the changes are longer than {MAX_LINE_LEN} bytes"));
            return Err(Diagnostics(vec![problem.remedy(remedy)]).into());
        }
        Ok(self.connect()?.call(request)?)
    }

    /// Prints a result, as JSON or by a function.
    pub(crate) fn print<T: serde::Serialize>(
        &self,
        result: &T,
        text: impl FnOnce(&T, &mut dyn Write) -> std::io::Result<()>,
    ) -> anyhow::Result<Exit> {
        // lists may be long, and standard output is written line by line
        let mut out = BufWriter::new(stdout());
        if self.json {
            serde_json::to_writer_pretty(&mut out, result)?;
            writeln!(out)?;
        } else {
            text(result, &mut out)?;
        }
        out.flush()?;
        Ok(Exit::Success)
    }
}

impl Instance {
    /// Returns the instance of this name, or the only one.
    pub(crate) fn named(name: Option<String>) -> Instance {
        Instance { name }
    }

    /// Connects to the instance.
    pub(crate) fn connect(&self) -> anyhow::Result<Client> {
        if let Some(socket) = self.name.as_deref().map(Path::new).filter(|path| is_socket(path)) {
            return Client::connect(socket).map_err(|e| {
                let remedy = match &e {
                    ClientError::Io(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
                        "run this command as the user who runs the instance, or as a member of its group (run --control-group)"
                    }
                    _ => "check whether the instance runs",
                };
                anyhow::Error::new(e).context(format!("{}: {remedy}", socket.display()))
            });
        }
        let dir = control::runtime_directory();
        let mut all: Vec<_> = control::directories().iter().flat_map(|dir| control::instances(dir)).collect();
        let selected: Vec<usize> = (0..all.len()).filter(|&n| self.selects(&all[n].1)).collect();
        if let [one] = selected[..] {
            return Ok(all.swap_remove(one).1);
        }
        let list = || all.iter().map(|(_, client)| describe(client)).collect::<Vec<_>>().join(", ");
        let problem = match (&self.name, selected.len()) {
            (None, 0) => Diagnostic::new("no instance of bondstone run is running").remedy(match dir {
                Some(dir) => format!("start one as this user; its control socket is in {}", dir.display()),
                None => "set XDG_RUNTIME_DIR, or name the control socket of the instance".to_owned(),
            }),
            (None, _) => Diagnostic::new("several instances are running").remedy(format!("name one of {}", list())),
            (Some(name), 0) if all.is_empty() => Diagnostic::new("is not running").value(name),
            (Some(name), 0) => Diagnostic::new("is not running").value(name).remedy(format!("name one of {}", list())),
            (Some(name), _) => {
                let remedy = format!("name the process of one of {}", list());
                Diagnostic::new("is the name of several instances").value(name).remedy(remedy)
            }
        };
        Err(Diagnostics(vec![problem]).into())
    }

    fn selects(&self, client: &Client) -> bool {
        let hello = client.hello();
        self.name.as_ref().is_none_or(|name| {
            let file = PathBuf::from(&hello.file);
            *name == hello.file
                || name.parse() == Ok(hello.pid)
                || file.file_stem().is_some_and(|stem| stem.to_string_lossy() == *name)
                || file.file_name() == Path::new(name).file_name()
        })
    }
}

/// Returns the file and the process of an instance.
fn describe(client: &Client) -> String {
    format!("{} (process {})", client.hello().file, client.hello().pid)
}

fn is_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    path.metadata().is_ok_and(|file| file.file_type().is_socket())
}
