//! Compiling pcap filter expressions with libpcap.

use crate::program::{Instruction, InvalidProgram, Program};
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use libloading::{Library, Symbol};
use std::ffi::CString;
use std::sync::{Mutex, PoisonError};
use thiserror::Error;

/// The library, by the name that its ABI has had since 1999; Debian's version has another.
const NAMES: [&str; 2] = ["libpcap.so.0.8", "libpcap.so.1"];
/// `DLT_EN10MB`.
const ETHERNET: c_int = 1;
/// Longest frame.
const SNAPLEN: c_int = 262_144;
/// `PCAP_NETMASK_UNKNOWN`.
const NO_NETMASK: c_uint = u32::MAX;

/// An expression that cannot be compiled.
#[derive(Debug, Error)]
pub enum CompileError {
    /// libpcap is not installed.
    #[error(
        "filter expressions are compiled by libpcap, which cannot be loaded: {0}; install libpcap0.8 (Fedora: libpcap)"
    )]
    Library(#[from] libloading::Error),
    /// The expression is not valid.
    #[error("filter {expression:?}: {problem}")]
    Expression {
        /// The expression.
        expression: String,
        /// Message of libpcap.
        problem: String,
    },
    /// libpcap has produced a program that cannot be run here.
    #[error("the compiled filter cannot be run: {0}")]
    Program(#[from] InvalidProgram),
}

/// `struct bpf_program`.
#[repr(C)]
struct RawProgram {
    len: c_uint,
    instructions: *mut RawInstruction,
}

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawInstruction {
    code: u16,
    jt: u8,
    jf: u8,
    k: u32,
}

type OpenDead = unsafe extern "C" fn(c_int, c_int) -> *mut c_void;
type Compile = unsafe extern "C" fn(*mut c_void, *mut RawProgram, *const c_char, c_int, c_uint) -> c_int;
type GetError = unsafe extern "C" fn(*mut c_void) -> *const c_char;
type FreeCode = unsafe extern "C" fn(*mut RawProgram);
type Close = unsafe extern "C" fn(*mut c_void);

/// Compiles an expression for Ethernet frames; an empty one accepts all.
///
/// # Errors
/// libpcap is not installed, or refuses the expression.
pub fn compile(expression: &str) -> Result<Program, CompileError> {
    // versions before 1.8 compile one expression at a time
    static COMPILING: Mutex<()> = Mutex::new(());
    let _one = COMPILING.lock().unwrap_or_else(PoisonError::into_inner);
    let refused =
        |problem: &str| CompileError::Expression { expression: expression.to_owned(), problem: problem.to_owned() };
    let text = CString::new(expression).map_err(|_| refused("contains a NUL byte"))?;
    let library = load()?;
    // SAFETY: the functions have these signatures (pcap.h of libpcap 1.10; unchanged since 0.9).
    let (open_dead, compile, get_error, free_code, close) = unsafe {
        let open_dead: Symbol<'_, OpenDead> = library.get(b"pcap_open_dead")?;
        let compile: Symbol<'_, Compile> = library.get(b"pcap_compile")?;
        let get_error: Symbol<'_, GetError> = library.get(b"pcap_geterr")?;
        let free_code: Symbol<'_, FreeCode> = library.get(b"pcap_freecode")?;
        let close: Symbol<'_, Close> = library.get(b"pcap_close")?;
        (open_dead, compile, get_error, free_code, close)
    };
    // SAFETY: the handle is not null and is closed once; the message is copied, and the program is freed, before that.
    // `pcap_compile` sets the program if it returns 0.
    unsafe {
        let handle = open_dead(ETHERNET, SNAPLEN);
        if handle.is_null() {
            return Err(refused("libpcap has no memory"));
        }
        let mut raw = RawProgram { len: 0, instructions: core::ptr::null_mut() };
        let compiled = if compile(handle, &raw mut raw, text.as_ptr(), 1, NO_NETMASK) != 0 {
            Err(refused(&CStr::from_ptr(get_error(handle)).to_string_lossy()))
        } else {
            let instruction = |i: &RawInstruction| Instruction { code: i.code, jt: i.jt, jf: i.jf, k: i.k };
            let all = core::slice::from_raw_parts(raw.instructions, raw.len as usize);
            let program = Program::new(all.iter().map(instruction).collect());
            free_code(&raw mut raw);
            program.map_err(CompileError::from)
        };
        close(handle);
        compiled
    }
}

fn load() -> Result<Library, libloading::Error> {
    // SAFETY: the constructors of libpcap and its dependencies have no effect on this process.
    let open = |name: &str| unsafe { Library::new(name) };
    open(NAMES[0]).or_else(|e| open(NAMES[1]).map_err(|_| e))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::OnceLock;

    type Filter = unsafe extern "C" fn(*const RawInstruction, *const u8, c_uint, c_uint) -> c_uint;

    /// Returns what libpcap's interpreter returns.
    pub(crate) fn libpcap_runs(program: &[Instruction], frame: &[u8]) -> u32 {
        static LIBRARY: OnceLock<Library> = OnceLock::new();
        let library = LIBRARY.get_or_init(|| load().unwrap());
        let raw: Vec<_> = program.iter().map(|i| RawInstruction { code: i.code, jt: i.jt, jf: i.jf, k: i.k }).collect();
        let len = frame.len() as c_uint;
        // SAFETY: the program was checked, and the frame has this length.
        unsafe {
            let filter: Symbol<'_, Filter> = library.get(b"bpf_filter").unwrap();
            filter(raw.as_ptr(), frame.as_ptr(), len, len)
        }
    }

    #[test]
    fn expressions_are_compiled() {
        let ping = compile("icmp[icmptype] == icmp-echo and host 192.0.2.7").unwrap();
        let mut frame = [0; 60];
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        frame[23] = 1;
        frame[26..30].copy_from_slice(&[192, 0, 2, 7]);
        frame[34] = 8;
        assert!(ping.accepts(&frame));
        assert!(compile("").unwrap().accepts(&[]));
        frame[34] = 0;
        assert!(!ping.accepts(&frame));
        assert!(!ping.accepts(&frame[..20]));
    }

    #[test]
    fn invalid_expressions_are_explained() {
        let error = compile("udp and dst port").unwrap_err().to_string();
        assert!(error.contains("\"udp and dst port\"") && error.contains("syntax error"), "{error}");
        assert!(compile("host \0").unwrap_err().to_string().contains("NUL"));
        assert!(compile("tcp port 99999").unwrap_err().to_string().contains("99999"));
    }
}
