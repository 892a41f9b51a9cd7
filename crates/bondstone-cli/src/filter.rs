//! Filters of packets that a user names.

use bpf::{CompileError, Program};
use diagnostics::{Diagnostic, Diagnostics};

/// Compiles a pcap filter expression.
pub(crate) fn compile(expression: Option<&str>) -> anyhow::Result<Option<Program>> {
    match expression.map(bpf::compile).transpose() {
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
