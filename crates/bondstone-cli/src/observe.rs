//! Options that `capture` and `trace` share.

use crate::instance::Instance;
use crate::interrupt::on_interrupt;
use bpf::{CompileError, Program};
use control::{Request, ResultStream};
use diagnostics::{Diagnostic, Diagnostics};
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Selects packets of an instance, and the time for which they are observed.
#[derive(clap::Args)]
pub(crate) struct Observe {
    /// Only packets for which this expression is true: man 7 pcap-filter.
    #[arg(short, long, value_name = "EXPRESSION")]
    filter: Option<String>,
    /// Stops after this time, such as 10s.
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
    time: Option<Duration>,
    /// Control socket, chain file, name of the chain file, or number of the process [default: the only instance].
    #[arg(long, value_name = "INSTANCE")]
    instance: Option<String>,
}

impl Observe {
    /// Compiles the filter.
    pub(crate) fn filter(&self) -> anyhow::Result<Option<Program>> {
        match self.filter.as_deref().map(bpf::compile).transpose() {
            Ok(program) => Ok(program),
            Err(e @ CompileError::Library(_)) => Err(runtime::Error::Environment {
                problem: e.to_string(),
                remedy: "install libpcap0.8 (Fedora: libpcap)".to_owned(),
            }
            .into()),
            Err(CompileError::Expression { expression, problem }) => {
                let d = Diagnostic::new(problem).value(expression).remedy("man 7 pcap-filter describes the language");
                Err(Diagnostics(vec![d]).into())
            }
            Err(e) => Err(Diagnostics(vec![Diagnostic::new(e.to_string())]).into()),
        }
    }

    /// Sends a request; returns its result and the stream that follows, which ends after the time or at an interrupt.
    pub(crate) fn start<T: DeserializeOwned>(&self, request: &Request) -> anyhow::Result<(T, ResultStream)> {
        let client = Instance::named(self.instance.clone()).connect()?;
        let (result, stream) = client.stream(request)?;
        let interrupted = stream.ender()?;
        on_interrupt(move || interrupted.end())?;
        if let Some(time) = self.time {
            let ender = stream.ender()?;
            std::thread::spawn(move || {
                std::thread::sleep(time);
                ender.end();
            });
        }
        Ok((result, stream))
    }
}
