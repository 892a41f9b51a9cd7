//! Devices that forward in the Linux kernel.

use crate::dut::context::DutContext;

/// Returns the version of the kernel.
pub(crate) fn version() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").ok().map(|v| format!("Linux {}", v.trim()))
}

/// Returns the remark on the CPUs that forward.
pub(crate) fn cpu_remark(context: &DutContext) -> String {
    if !context.interfaces().is_empty() {
        return "the kernel forwards on the CPUs of the interfaces' interrupts; none was steered".to_owned();
    }
    format!(
        "the kernel forwards on CPU {} (RPS); sending a frame also costs time on the generator's CPU",
        context.cpu_list()
    )
}
