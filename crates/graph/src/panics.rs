//! Catching panics of NFs.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static SUPPRESSED: Cell<bool> = const { Cell::new(false) };
    /// Location of the last panic of this thread.
    static LOCATION: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Stops printing panics of this thread; the code that catches them reports them.
pub fn suppress_output() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = take_hook();
        set_hook(Box::new(move |info| {
            if SUPPRESSED.get() {
                let location = info.location().map(|at| format!("{}:{}:{}", at.file(), at.line(), at.column()));
                LOCATION.with(|last| *last.borrow_mut() = location);
            } else {
                previous(info);
            }
        }));
    });
    SUPPRESSED.set(true);
}

/// Calls `f` and returns its result.
///
/// # Errors
/// The [`message`] of a panic.
pub fn catch<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(message)
}

/// Returns the message of a panic, and its location if the output of the thread is
/// [suppressed](suppress_output). Drops the payload and ignores a panic of its destructor.
pub fn message(payload: Box<dyn Any + Send>) -> String {
    let location = LOCATION.take();
    let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned()).or_else(|| payload.downcast_ref().cloned());
    let text: String = text.unwrap_or_else(|| "panic payload is not a string".to_owned());
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        // its destructor could panic again, without end
        std::mem::forget(again);
    }
    match location {
        Some(location) => format!("{text}, at {location}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct PanicsOnDrop;

    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            std::panic::panic_any(PanicsOnDrop);
        }
    }

    #[test]
    fn returns_message_and_location_of_any_payload() {
        let results = std::thread::spawn(|| {
            suppress_output();
            let number = 7;
            [
                catch(|| panic!("plain")),
                catch(|| panic!("{number}")),
                catch(|| std::panic::panic_any(PanicsOnDrop)),
                catch(|| ()).map_err(|_| unreachable!()),
            ]
        });
        let messages = results.join().unwrap().map(Result::err);
        let begins = |n: usize, with: &str| messages[n].as_ref().is_some_and(|t: &String| t.starts_with(with));
        assert!(begins(0, "plain, at ") && begins(1, "7, at ") && begins(2, "panic payload is not"), "{messages:?}");
        assert!(messages[0].as_ref().is_some_and(|t| t.contains("panics.rs:")), "{messages:?}");
        assert_eq!(messages[3], None);
    }
}
