//! The other side of [`super::link`]: runs a device for the same program on another machine.

use super::message::{Answer, Hello, LONGEST, Order, Start};
use super::{About, DutError, Site, link};
use crate::environment;
use std::io::{self, BufRead, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Who has said nothing for so long is gone.
const SILENCE: Duration = Duration::from_secs(60);

/// Runs the device that it is told of on standard input, until that ends: then all that it made is gone, and what it was
/// given is given back.
///
/// # Errors
/// When nobody reads what it says.
pub fn agent() -> io::Result<()> {
    const _: () = assert!(SILENCE.as_secs() > 3 * link::ALIVE.as_secs());
    say(&Hello { bondstone: env!("CARGO_PKG_VERSION").to_owned() })?;
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, orders) = mpsc::channel();
    let heard = Arc::new(Mutex::new(Instant::now()));
    let (also, last) = (stop.clone(), heard.clone());
    std::thread::spawn(move || hear(&sender, &also, &last));
    let also = stop.clone();
    std::thread::spawn(move || watch(&also, &heard));
    let Some(Order::Start(start)) = next(&orders) else { return Ok(()) };
    match run(*start, &orders, &stop) {
        Ok(()) => Ok(()),
        Err(e) => say(&Answer::from(e)),
    }
}

fn say(what: &impl serde::Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}

/// The next order that is one; none when there are no more.
fn next(orders: &Receiver<Order>) -> Option<Order> {
    loop {
        match orders.recv_timeout(SILENCE).ok()? {
            Order::Alive | Order::Halt => {}
            order => return Some(order),
        }
    }
}

/// Ends an act when nothing has been heard for too long: a line may be cut without a word.
fn watch(stop: &AtomicBool, heard: &Mutex<Instant>) {
    loop {
        std::thread::sleep(Duration::from_secs(1));
        if heard.lock().unwrap_or_else(PoisonError::into_inner).elapsed() > SILENCE {
            stop.store(true, Ordering::Relaxed);
        }
    }
}

/// Hands on what is said; an act is ended at once.
fn hear(to: &Sender<Order>, stop: &AtomicBool, heard: &Mutex<Instant>) {
    let mut from = io::stdin().lock();
    loop {
        let mut line = vec![];
        let whole = from.by_ref().take(LONGEST).read_until(b'\n', &mut line).is_ok_and(|n| n > 0);
        let order = serde_json::from_slice(&line).ok().filter(|_| whole);
        let Some(order) = order else {
            stop.store(true, Ordering::Relaxed);
            return;
        };
        *heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        match order {
            Order::Act(_) => stop.store(false, Ordering::Relaxed),
            Order::Halt => stop.store(true, Ordering::Relaxed),
            _ => {}
        }
        if to.send(order).is_err() {
            return;
        }
    }
}

/// Starts the device and does what is said, until nothing more is.
fn run(start: Start, orders: &Receiver<Order>, stop: &AtomicBool) -> Result<(), DutError> {
    let (sent, name) = (start.sent(), start.name.clone());
    let mut plan = start.plan.clone();
    // a plan that leads to a third machine is none of ours
    plan.elsewhere = None;
    let allowed = runtime::allowed_cpus();
    if plan.cpus.is_empty() {
        plan.cpus.clone_from(&allowed);
    }
    if let Some(absent) = plan.cpus.iter().find(|cpu| !allowed.contains(cpu)) {
        let problem = format!("CPU {absent} is not there for this user, who may use {allowed:?}");
        return Err(DutError { dut: name, problem, remedy: "write others: cpus = [0]".to_owned() });
    }
    let mut site = Site::new(&name, &plan, sent)?;
    if let Some(chain) = &mut plan.chain {
        chain.folder = site.path("files");
        let folder = &chain.folder;
        std::fs::create_dir(folder).and_then(|()| start.write(folder)).map_err(|e| site.file_error(folder, &e))?;
    }
    let mut driver = plan.driver();
    let mut running = driver.start(&mut site)?;
    // where its packets are kept is the device's own affair
    let environment = Some(Box::new(environment(&plan.cpus, "")));
    let about = About { environment, ..running.about().clone() };
    let mut answer = Answer::Runs(Box::new(about));
    loop {
        // who does not listen does not speak either
        if say(&answer).is_err() {
            return Ok(());
        }
        answer = match next(orders) {
            Some(Order::Check) => running.check(&site).map_or_else(Answer::from, |()| Answer::Runs(Box::default())),
            Some(Order::Act(act)) if driver.cannot(act).is_none() => {
                driver.act(&running, &site, act, stop).map_or_else(Answer::from, Answer::Acted)
            }
            Some(_) => site.wrong("was told what it cannot do", "install the same version on both").into(),
            None => return Ok(()),
        }
    }
}
