//! Panics, caught with all that may come of them.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
    /// Where this thread has panicked last.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// From now on panics of this thread are not printed: whoever catches them tells.
pub fn be_quiet() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| {
            if QUIET.get() {
                let place = info.location().map(|at| format!("{}:{}:{}", at.file(), at.line(), at.column()));
                PLACE.with(|last| *last.borrow_mut() = place);
            } else {
                before(info);
            }
        }));
    });
    QUIET.set(true);
}

/// What `f` returns, or what it said when it panicked.
///
/// # Errors
/// The [`message`] of a panic.
pub fn caught<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(message)
}

/// What was said by a panic, and where, if its thread is [quiet](be_quiet). The value that it threw is dropped, and may
/// panic at that.
pub fn message(thrown: Box<dyn Any + Send>) -> String {
    let place = PLACE.take();
    let text = thrown.downcast_ref::<&str>().map(|s| (*s).to_owned()).or_else(|| thrown.downcast_ref().cloned());
    let text: String = text.unwrap_or_else(|| "a value that is no text was thrown".to_owned());
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(thrown))) {
        // this one could go on for ever
        std::mem::forget(again);
    }
    match place {
        Some(place) => format!("{text}, at {place}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Thrown;

    impl Drop for Thrown {
        fn drop(&mut self) {
            std::panic::panic_any(Thrown);
        }
    }

    #[test]
    fn whatever_is_thrown_is_caught_and_its_place_is_told() {
        let told = std::thread::spawn(|| {
            be_quiet();
            let number = 7;
            [
                caught(|| panic!("plain")),
                caught(|| panic!("{number}")),
                caught(|| std::panic::panic_any(Thrown)),
                caught(|| ()).map_err(|_| unreachable!()),
            ]
        });
        let told = told.join().unwrap().map(Result::err);
        let begins = |n: usize, with: &str| told[n].as_ref().is_some_and(|t: &String| t.starts_with(with));
        assert!(begins(0, "plain, at ") && begins(1, "7, at ") && begins(2, "a value that is no text"), "{told:?}");
        assert!(told[0].as_ref().is_some_and(|t| t.contains("caught.rs:")), "{told:?}");
        assert_eq!(told[3], None);
    }
}
