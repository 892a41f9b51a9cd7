//! The proxy of a device on a remote host.

use super::connection::AgentConnection;
use super::message::{Request, Response, StartRequest};
use crate::dut::context::{DutContext, DutError};
use crate::dut::driver::Device;
use crate::dut::network::Attachment;
use crate::dut::spec::DutSpec;
use crate::dut::started::StartedDevice;
use crate::trial::{Disturbance, DisturbanceReport};
use ::remote::RemoteHost;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time limit of a disturbance, which ends when it is stopped.
const DISTURBANCE_TIMEOUT: Duration = Duration::from_secs(366 * 86_400);

/// A device on a remote host.
pub(crate) struct RemoteDevice {
    spec: DutSpec,
    host: RemoteHost,
    /// The same device on this host, for its properties.
    local: Box<dyn Device + Send>,
}

impl RemoteDevice {
    /// Returns the proxy of `spec`, whose device on this host would be `local`.
    pub(crate) fn new(spec: &DutSpec, host: &RemoteHost, local: Box<dyn Device + Send>) -> RemoteDevice {
        RemoteDevice { spec: DutSpec { remote: None, ..spec.clone() }, host: host.clone(), local }
    }
}

impl Device for RemoteDevice {
    fn start(&mut self, context: &mut DutContext) -> Result<StartedDevice, DutError> {
        let attachment = Attachment::external(&self.spec.ports);
        let start = StartRequest::new(context.name(), self.spec.clone(), &context.traffic)
            .map_err(|problem| context.error(problem, "move the chain to a directory with only the files it needs"))?;
        let (program, connection) = AgentConnection::open(context, &self.host)?;
        let request = Request::Start(Box::new(start));
        let Response::Running(description) = connection.request(context.name(), &request)? else {
            return Err(context.error("the agent did not start it", "report a bug in Bondstone"));
        };
        Ok(StartedDevice::new(context, attachment, vec![program], *description).with_connection(connection))
    }

    fn unsupported(&self, disturbance: Disturbance) -> Option<&'static str> {
        self.local.unsupported(disturbance)
    }

    fn disturb(
        &mut self,
        started: &StartedDevice,
        context: &DutContext,
        disturbance: Disturbance,
        stop: &AtomicBool,
    ) -> Result<DisturbanceReport, DutError> {
        let Some(connection) = started.connection() else { return Ok(DisturbanceReport::default()) };
        let stop = || stop.load(Ordering::Relaxed);
        let request = Request::Disturb(disturbance);
        match connection.request_until(context.name(), &request, DISTURBANCE_TIMEOUT, stop)? {
            Response::Disturbed(result) => Ok(result),
            _ => Err(context.error("the agent did not disturb it", "report a bug in Bondstone")),
        }
    }
}
