//! Log of alerts as JSON lines, written by a thread of its own.

use super::engine::Alert;
use super::rule::Rule;
use crate::export::Export;
use diagnostics::Diagnostic;
use graph::Counter;
use serde_json::json;
use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, SystemTime};

/// Text of a rule that alerts refer to.
#[derive(Clone, Debug)]
struct Signature {
    sid: u32,
    gid: u32,
    rev: u32,
    msg: String,
    class: String,
    severity: u8,
}

/// Sending half of the log, used by the packet path; it never blocks.
pub(super) struct EveLog {
    export: Export<(SystemTime, Alert)>,
    /// True once the log is being dropped.
    ends: Arc<AtomicBool>,
    /// Largest number of alerts per second; 0: no limit.
    rate: u32,
    second: u64,
    in_second: u32,
}

impl Drop for EveLog {
    /// Lets queued alerts be lost if the last one could not be written: a socket may not accept them.
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

impl EveLog {
    /// Opens a file, to which is appended, or connects to a UNIX stream socket.
    ///
    /// # Errors
    /// The file, the socket or the thread cannot be opened.
    pub(super) fn new(
        path: &Path,
        rules: impl Iterator<Item = LoggedRule>,
        rate: u32,
        counter: Arc<Counter>,
    ) -> Result<EveLog, Diagnostic> {
        let invalid = |e: std::io::Error| {
            let d = Diagnostic::new(format!("alerts cannot be written: {e}")).key("alerts").value(path.display());
            d.remedy("name a file in an existing folder, or a UNIX stream socket with a listener")
        };
        let is_socket = std::fs::metadata(path).is_ok_and(|m| m.file_type().is_socket());
        let out: Box<dyn Write + Send> = if is_socket {
            let socket = UnixStream::connect(path).map_err(invalid)?;
            socket.set_write_timeout(Some(Duration::from_secs(1))).map_err(invalid)?;
            Box::new(socket)
        } else {
            Box::new(std::fs::OpenOptions::new().create(true).append(true).open(path).map_err(invalid)?)
        };
        let signatures: Vec<Signature> = rules.map(|r| r.0).collect();
        let ends = Arc::<AtomicBool>::default();
        let ended = ends.clone();
        let run = move |records, lost: Arc<AtomicU64>| write_all(out, &records, &signatures, &lost, &ended);
        let export = Export::start("ids-alerts", counter, run).map_err(invalid)?;
        Ok(EveLog { export, ends, rate, second: 0, in_second: 0 })
    }

    /// Queues an alert.
    pub(super) fn send(&mut self, now: Duration, alert: Alert) {
        if now.as_secs() != self.second {
            (self.second, self.in_second) = (now.as_secs(), 0);
        }
        self.in_second = self.in_second.saturating_add(1);
        if self.rate != 0 && self.in_second > self.rate {
            self.export.lose();
        } else {
            self.export.send((SystemTime::now(), alert));
        }
    }

    /// Publishes the number of lost alerts.
    pub(super) fn update_counter(&self) {
        self.export.update_counter();
    }
}

/// Description of a rule for the log.
pub(super) struct LoggedRule(Signature);

impl From<&Rule> for LoggedRule {
    fn from(rule: &Rule) -> Self {
        LoggedRule(Signature {
            sid: rule.sid,
            gid: rule.gid,
            rev: rule.rev,
            msg: rule.msg.clone(),
            class: rule.classtype.clone(),
            severity: rule.priority,
        })
    }
}

fn write_all(
    mut out: Box<dyn Write + Send>,
    records: &Receiver<(SystemTime, Alert)>,
    signatures: &[Signature],
    lost: &AtomicU64,
    ends: &AtomicBool,
) {
    let mut has_failed = false;
    while let Ok((at, alert)) = records.recv() {
        let Some(signature) = signatures.get(alert.rule as usize) else { continue };
        let line = format!("{}\n", line(at, &alert, signature));
        let gives_up = has_failed && ends.load(Ordering::Relaxed);
        has_failed = gives_up || out.write_all(line.as_bytes()).is_err();
        if has_failed {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Returns the event of an alert in the EVE format.
fn line(at: SystemTime, alert: &Alert, signature: &Signature) -> serde_json::Value {
    let protocol = match alert.protocol {
        1 => "ICMP".to_owned(),
        6 => "TCP".to_owned(),
        17 => "UDP".to_owned(),
        58 => "IPv6-ICMP".to_owned(),
        132 => "SCTP".to_owned(),
        other => format!("{other:03}"),
    };
    let mut event = json!({
        "timestamp": humantime::format_rfc3339_micros(at).to_string(),
        "flow_id": alert.flow,
        "event_type": "alert",
        "src_ip": alert.src.0,
        "src_port": alert.src.1,
        "dest_ip": alert.dst.0,
        "dest_port": alert.dst.1,
        "proto": protocol,
        "alert": {
            "action": if alert.blocked { "blocked" } else { "allowed" },
            "gid": signature.gid,
            "signature_id": signature.sid,
            "rev": signature.rev,
            "signature": signature.msg,
            "category": signature.class,
            "severity": signature.severity,
        },
    });
    if let Some(app) = alert.app {
        event["app_proto"] = app.name().into();
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::rule::app::AppProtocol;

    #[test]
    fn events_have_the_application_protocol() {
        let signature = Signature { sid: 1, gid: 1, rev: 2, msg: "m".into(), class: String::new(), severity: 3 };
        let end = ([192, 0, 2, 1].into(), 80);
        let mut alert =
            Alert { rule: 0, flow: 7, src: end, dst: end, protocol: 6, blocked: false, app: Some(AppProtocol::Http) };
        assert_eq!(line(SystemTime::UNIX_EPOCH, &alert, &signature)["app_proto"], "http");
        alert.app = None;
        assert!(line(SystemTime::UNIX_EPOCH, &alert, &signature).get("app_proto").is_none());
    }
}
