//! Every Rust block of the book and of the README, as a documentation test.

macro_rules! chapters {
    ($($name:ident $file:literal)*) => {$(
        #[doc = include_str!(concat!("../../../", $file))]
        mod $name {}
    )*};
}

chapters! {
    readme "README.md"
    concepts "docs/concepts.md"
    cycles "docs/cycles.md"
    devices "docs/devices.md"
    exact "docs/exact.md"
    isolation "docs/isolation.md"
    methods "docs/methods.md"
    nodes "docs/nodes.md"
    operators "docs/operators.md"
    streams "docs/streams.md"
    porting "docs/porting.md"
    results "docs/results.md"
    state_and_cores "docs/state-and-cores.md"
    testing "docs/testing.md"
    writing_nfs "docs/writing-nfs.md"
}
