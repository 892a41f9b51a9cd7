//! Search by Hyperscan or Vectorscan, whose C interface is the same (hs.h of 5.4).

use crate::error::Error;
use crate::literal::Literal;
use core::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use core::ptr::{NonNull, null, null_mut};
use libloading::Library;
use std::ffi::CString;
use std::sync::{Arc, OnceLock};

/// Name of the library; the number is that of its ABI.
const NAME: &str = "libhs.so.5";
/// `HS_SUCCESS`.
const SUCCESS: c_int = 0;
/// `HS_COMPILER_ERROR`.
const COMPILER_ERROR: c_int = -4;
/// `HS_FLAG_CASELESS`.
const CASELESS: c_uint = 1;
/// `HS_FLAG_SINGLEMATCH`: a pattern is reported once per scan.
const SINGLE_MATCH: c_uint = 8;
/// `HS_MODE_BLOCK`: a text is scanned as a whole.
const BLOCK: c_uint = 1;

/// `hs_compile_error_t`.
#[repr(C)]
struct RawError {
    message: *const c_char,
    expression: c_int,
}

type RawDatabase = c_void;
type RawScratch = c_void;
type MatchHandler = unsafe extern "C" fn(c_uint, c_ulonglong, c_ulonglong, c_uint, *mut c_void) -> c_int;
type CompileLiterals = unsafe extern "C" fn(
    *const *const c_char,
    *const c_uint,
    *const c_uint,
    *const usize,
    c_uint,
    c_uint,
    *const c_void,
    *mut *mut RawDatabase,
    *mut *mut RawError,
) -> c_int;
type CompileMulti = unsafe extern "C" fn(
    *const *const c_char,
    *const c_uint,
    *const c_uint,
    c_uint,
    c_uint,
    *const c_void,
    *mut *mut RawDatabase,
    *mut *mut RawError,
) -> c_int;

/// Functions of the library, which is never closed.
struct Api {
    version: &'static str,
    compile_literals: CompileLiterals,
    compile_expressions: CompileMulti,
    free_error: unsafe extern "C" fn(*mut RawError) -> c_int,
    database_size: unsafe extern "C" fn(*const RawDatabase, *mut usize) -> c_int,
    free_database: unsafe extern "C" fn(*mut RawDatabase) -> c_int,
    alloc_scratch: unsafe extern "C" fn(*const RawDatabase, *mut *mut RawScratch) -> c_int,
    free_scratch: unsafe extern "C" fn(*mut RawScratch) -> c_int,
    scan: unsafe extern "C" fn(
        *const RawDatabase,
        *const c_char,
        c_uint,
        c_uint,
        *mut RawScratch,
        Option<MatchHandler>,
        *mut c_void,
    ) -> c_int,
}

fn load() -> Result<Api, libloading::Error> {
    // SAFETY: the constructors of the library and of the C++ run-time library have no effect on this process.
    let library = unsafe { Library::new(NAME) }?;
    // the functions and the version are used until the process ends
    let library: &'static Library = Box::leak(Box::new(library));
    // SAFETY: the functions have these signatures (hs_common.h, hs_compile.h, hs_runtime.h of Hyperscan 5.4; those of 5.x
    // share an ABI). `hs_version` returns a string that is never freed.
    unsafe {
        let version: unsafe extern "C" fn() -> *const c_char = *library.get(b"hs_version")?;
        let version = CStr::from_ptr(version()).to_str().unwrap_or("of unknown version");
        Ok(Api {
            version,
            compile_literals: *library.get(b"hs_compile_lit_multi")?,
            compile_expressions: *library.get(b"hs_compile_multi")?,
            free_error: *library.get(b"hs_free_compile_error")?,
            database_size: *library.get(b"hs_database_size")?,
            free_database: *library.get(b"hs_free_database")?,
            alloc_scratch: *library.get(b"hs_alloc_scratch")?,
            free_scratch: *library.get(b"hs_free_scratch")?,
            scan: *library.get(b"hs_scan")?,
        })
    }
}

/// Loads the library if it supports this CPU: otherwise other functions must not be called.
fn load_if_supported() -> Result<Api, String> {
    // SAFETY: as in `load`; the function has no arguments and only reads the properties of the CPU.
    let supported = unsafe {
        Library::new(NAME).and_then(|library| {
            let valid: unsafe extern "C" fn() -> c_int = *library.get(b"hs_valid_platform")?;
            Ok(valid() == SUCCESS)
        })
    };
    let supported = supported.map_err(|e| e.to_string())?;
    if !supported {
        return Err(format!("{NAME} does not support this CPU"));
    }
    let api = load().map_err(|e| e.to_string())?;
    if is_reliable(api.version) { Ok(api) } else { Err(format!("version {} misses matches", api.version)) }
}

/// Returns false for versions that miss matches: those of Vectorscan before 5.4.13. Those of Hyperscan end with 5.4.2.
fn is_reliable(version: &str) -> bool {
    let number = version.split_whitespace().next().unwrap_or_default();
    let parts: Vec<u32> = number.split('.').map_while(|part| part.parse().ok()).collect();
    !(&[5, 4, 3][..]..&[5, 4, 13][..]).contains(&&parts[..])
}

fn api() -> Result<&'static Api, Error> {
    static API: OnceLock<Result<Api, String>> = OnceLock::new();
    API.get_or_init(load_if_supported).as_ref().map_err(|e| Error::Library(e.clone()))
}

pub(crate) fn version() -> Result<&'static str, Error> {
    api().map(|api| api.version)
}

/// Returns a regular expression that matches the bytes.
fn escape(bytes: &[u8]) -> CString {
    let expression: String = bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect();
    // the expression has no NUL
    CString::new(expression).unwrap_or_default()
}

/// Compiled literals.
pub(crate) struct Database {
    api: &'static Api,
    raw: NonNull<RawDatabase>,
    literals: usize,
}

// SAFETY: a database is not changed after its compilation; scans of several threads read it.
unsafe impl Send for Database {}
// SAFETY: as above.
unsafe impl Sync for Database {}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("literals", &self.literals).finish_non_exhaustive()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: the database was compiled by the library and is freed once; scratches hold a reference to it.
        unsafe { (self.api.free_database)(self.raw.as_ptr()) };
    }
}

impl Database {
    pub(crate) fn compile(literals: &[Literal<'_>]) -> Result<Self, Error> {
        // some versions refuse literals that begin with NUL; expressions take longer
        match Self::compile_as(literals, false) {
            Err(Error::Compile(_)) => Self::compile_as(literals, true),
            compiled => compiled,
        }
    }

    fn compile_as(literals: &[Literal<'_>], as_expressions: bool) -> Result<Self, Error> {
        let api = api()?;
        let count = c_uint::try_from(literals.len()).map_err(|_| Error::Compile("too many literals".to_owned()))?;
        let flag = |literal: &Literal<'_>| SINGLE_MATCH | if literal.nocase { CASELESS } else { 0 };
        let flags: Vec<c_uint> = literals.iter().map(flag).collect();
        let ids: Vec<c_uint> = (0..count).collect();
        let (mut raw, mut error) = (null_mut(), null_mut());
        // without a platform the library compiles for this CPU
        let platform = null();
        let status = if as_expressions {
            let escaped: Vec<CString> = literals.iter().map(|literal| escape(literal.bytes)).collect();
            let texts: Vec<*const c_char> = escaped.iter().map(|expression| expression.as_ptr()).collect();
            let (texts, flags, ids) = (texts.as_ptr(), flags.as_ptr(), ids.as_ptr());
            // SAFETY: the arrays have `count` elements, each expression ends with NUL, and all outlive the call.
            unsafe {
                (api.compile_expressions)(texts, flags, ids, count, BLOCK, platform, &raw mut raw, &raw mut error)
            }
        } else {
            let texts: Vec<*const c_char> = literals.iter().map(|literal| literal.bytes.as_ptr().cast()).collect();
            let lens: Vec<usize> = literals.iter().map(|literal| literal.bytes.len()).collect();
            let (texts, flags, ids, lens) = (texts.as_ptr(), flags.as_ptr(), ids.as_ptr(), lens.as_ptr());
            // SAFETY: the arrays have `count` elements, each literal has the length at its index, and all outlive the call.
            unsafe {
                (api.compile_literals)(texts, flags, ids, lens, count, BLOCK, platform, &raw mut raw, &raw mut error)
            }
        };
        match NonNull::new(raw) {
            Some(raw) if status == SUCCESS => Ok(Database { api, raw, literals: literals.len() }),
            _ if status == COMPILER_ERROR && !error.is_null() => {
                // SAFETY: the library set the error, whose message ends with NUL; it is freed once, after the copy.
                let message = unsafe {
                    let message = CStr::from_ptr((*error).message).to_string_lossy().into_owned();
                    let _ = (*error).expression;
                    (api.free_error)(error);
                    message
                };
                Err(Error::Compile(message))
            }
            _ => Err(Error::Status(status)),
        }
    }

    pub(crate) fn size(&self) -> usize {
        let mut size = 0;
        // SAFETY: the database is valid, and `size` is written during the call.
        unsafe { (self.api.database_size)(self.raw.as_ptr(), &raw mut size) };
        size
    }
}

/// Working memory of a thread for one database.
#[derive(Debug)]
pub(crate) struct Scratch {
    database: Arc<Database>,
    raw: NonNull<RawScratch>,
}

// SAFETY: a scratch is used by one thread at a time, because scans need `&mut`.
unsafe impl Send for Scratch {}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: the scratch was allocated by the library, is not in use, and is freed once.
        unsafe { (self.database.api.free_scratch)(self.raw.as_ptr()) };
    }
}

impl Scratch {
    pub(crate) fn new(database: Arc<Database>) -> Result<Self, Error> {
        let mut raw = null_mut();
        // SAFETY: the database is valid; a null scratch is allocated anew.
        let status = unsafe { (database.api.alloc_scratch)(database.raw.as_ptr(), &raw mut raw) };
        match NonNull::new(raw) {
            Some(raw) if status == SUCCESS => Ok(Scratch { database, raw }),
            _ => Err(Error::Status(status)),
        }
    }

    /// Appends the numbers of the literals that occur in a text.
    #[inline]
    pub(crate) fn search(&mut self, text: &[u8], found: &mut Vec<u32>) -> Result<(), Error> {
        let len = c_uint::try_from(text.len()).unwrap_or(c_uint::MAX);
        // SAFETY: the database and the scratch that was allocated for it are valid, no other scan uses the scratch, the text
        // has at least `len` bytes, and the context is the vector that `on_match` expects, borrowed for this call only.
        let status = unsafe {
            (self.database.api.scan)(
                self.database.raw.as_ptr(),
                text.as_ptr().cast(),
                len,
                0,
                self.raw.as_ptr(),
                Some(on_match),
                core::ptr::from_mut(found).cast(),
            )
        };
        if status == SUCCESS { Ok(()) } else { Err(Error::Status(status)) }
    }
}

/// Appends the number of a literal to the vector to which the context points. It neither allocates nor panics.
unsafe extern "C" fn on_match(id: c_uint, _: c_ulonglong, _: c_ulonglong, _: c_uint, context: *mut c_void) -> c_int {
    // SAFETY: `search` passes a vector, to which nothing else refers during the scan.
    let found = unsafe { &mut *context.cast::<Vec<u32>>() };
    if found.len() < found.capacity() {
        found.push(id);
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_miss_matches_are_refused() {
        for (version, expected) in [
            ("5.4.0 2021-01-26", true),
            ("5.4.2 2023-04-19", true),
            ("5.4.9 2023-03-23", false),
            ("5.4.12 2025-06-05", false),
            ("5.4.13 2026-08-22", true),
            ("5.5.0", true),
        ] {
            assert_eq!(is_reliable(version), expected, "{version}");
        }
    }

    /// Literals that have a meaning in regular expressions, and bytes that some versions refuse as literals.
    #[test]
    fn expressions_find_the_same_as_literals() {
        if let Err(e) = version() {
            println!("skipped: {e}");
            return;
        }
        let bytes: Vec<&[u8]> = vec![b"\0a", b"a.c", b"(x|y)*", b"\\d", b"\xff\xe4", b"AbC", b" #"];
        let literals: Vec<_> = bytes.iter().map(|bytes| Literal { bytes, nocase: bytes[0] == b'A' }).collect();
        let text = b"..\0a..abc..(x|y)*..7..\xff\xe4.. #";
        for as_expressions in [false, true] {
            let database = Database::compile_as(&literals, as_expressions).unwrap();
            let mut found = Vec::with_capacity(literals.len());
            Scratch::new(Arc::new(database)).unwrap().search(text, &mut found).unwrap();
            found.sort_unstable();
            assert_eq!(found, [0, 2, 4, 5, 6], "{as_expressions}");
        }
    }
}
