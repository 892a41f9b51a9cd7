//! The agent: runs a device for Bondstone on another host. Its client is [`super::connection`].

use super::message::{Request, Response, StartRequest};
use crate::dut::context::{Description, DutContext, DutError};
use crate::dut::process::remove_leftovers;
use crate::dut::registry;
use crate::environment;
use ::remote::{CLIENT_TIMEOUT, Hello, MAX_REQUEST_BYTES, read_line, write_message};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Runs the device that a client requests on standard input until the input is closed, then removes everything that was
/// created for it.
///
/// # Errors
/// If standard output is closed.
pub fn agent() -> io::Result<()> {
    send(&Hello::own())?;
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, requests) = mpsc::channel();
    let last_request = Arc::new(Mutex::new(Instant::now()));
    let (reader_stop, reader_last) = (stop.clone(), last_request.clone());
    std::thread::spawn(move || read_requests(&sender, &reader_stop, &reader_last));
    let watchdog_stop = stop.clone();
    std::thread::spawn(move || watch_client(&watchdog_stop, &last_request));
    let Some(Request::Start(start)) = next_request(&requests) else { return Ok(()) };
    match run(*start, &requests, &stop) {
        Ok(()) => Ok(()),
        Err(e) => send(&Response::from(e)),
    }
}

fn send(message: &impl serde::Serialize) -> io::Result<()> {
    write_message(&mut io::stdout().lock(), message)
}

/// Returns the next request that needs a response; none once the client is gone.
fn next_request(requests: &Receiver<Request>) -> Option<Request> {
    loop {
        match requests.recv_timeout(CLIENT_TIMEOUT).ok()? {
            Request::KeepAlive | Request::StopDisturbance => {}
            request => return Some(request),
        }
    }
}

/// Stops the disturbance when no request has arrived for too long: a broken connection is not always reported.
fn watch_client(stop: &AtomicBool, last_request: &Mutex<Instant>) {
    loop {
        std::thread::sleep(Duration::from_secs(1));
        if last_request.lock().unwrap_or_else(PoisonError::into_inner).elapsed() > CLIENT_TIMEOUT {
            stop.store(true, Ordering::Relaxed);
        }
    }
}

/// Reads requests and forwards them; applies [`Request::StopDisturbance`] at once.
fn read_requests(to: &Sender<Request>, stop: &AtomicBool, last_request: &Mutex<Instant>) {
    let mut from = io::stdin().lock();
    loop {
        let request = read_line(&mut from, MAX_REQUEST_BYTES).and_then(|line| serde_json::from_slice(&line).ok());
        let Some(request) = request else {
            stop.store(true, Ordering::Relaxed);
            return;
        };
        *last_request.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        match request {
            Request::Disturb(_) => stop.store(false, Ordering::Relaxed),
            Request::StopDisturbance => stop.store(true, Ordering::Relaxed),
            _ => {}
        }
        if to.send(request).is_err() {
            return;
        }
    }
}

/// Starts the device and serves requests until the client is gone.
fn run(start: StartRequest, requests: &Receiver<Request>, stop: &AtomicBool) -> Result<(), DutError> {
    let (traffic, name) = (start.traffic(), start.name.clone());
    // a request must not lead to a third host
    let mut spec = crate::dut::spec::DutSpec { remote: None, ..start.spec.clone() };
    let allowed = runtime::allowed_cpus();
    if spec.cpus.is_empty() {
        spec.cpus.clone_from(&allowed);
    }
    if let Some(absent) = spec.cpus.iter().find(|cpu| !allowed.contains(cpu)) {
        let problem = format!("CPU {absent} is not available to this user; available are {allowed:?}");
        return Err(DutError { dut: name, problem, remedy: "choose others: cpus = [0]".to_owned() });
    }
    remove_leftovers();
    let mut context = DutContext::new(&name, &spec, traffic)?;
    if let Some(chain) = &mut spec.chain {
        chain.folder = context.path("files");
        let folder = &chain.folder;
        std::fs::create_dir(folder)
            .and_then(|()| start.files.write(folder))
            .map_err(|e| context.file_error(folder, &e))?;
    }
    let mut device = registry::device(&name, &spec)?;
    let mut started = device.start(&mut context)?;
    let environment = Some(Box::new(environment(&spec.cpus, "")));
    let description = Description { environment, ..started.description().clone() };
    let mut response = Response::Running(Box::new(description));
    loop {
        // the client is gone
        if send(&response).is_err() {
            return Ok(());
        }
        response = match next_request(requests) {
            Some(Request::Check) => {
                started.check(&context).map_or_else(Response::from, |()| Response::Running(Box::default()))
            }
            Some(Request::Disturb(disturbance)) if device.unsupported(disturbance).is_none() => {
                device.disturb(&started, &context, disturbance, stop).map_or_else(Response::from, Response::Disturbed)
            }
            Some(_) => {
                context.error("unexpected request", "install the same version of Bondstone on both hosts").into()
            }
            None => return Ok(()),
        }
    }
}
