//! Documentation tests: all Rust code blocks of the book and the README.

macro_rules! chapters {
    ($($name:ident $file:literal)*) => {$(
        #[doc = include_str!(concat!("../../../", $file))]
        mod $name {}
    )*};
}

chapters! {
    readme "README.md"
    concepts "docs/explanation/concepts.md"
    cycles "docs/how-to/find-cycles.md"
    devices "docs/reference/duts.md"
    exact "docs/reference/nfs/exact-match.md"
    isolation "docs/explanation/isolation.md"
    methods "docs/reference/methods.md"
    nodes "docs/reference/nodes.md"
    operators "docs/reference/operators.md"
    streams "docs/reference/streams.md"
    porting "docs/how-to/port-an-nf.md"
    results "docs/reference/results.md"
    state_and_cores "docs/explanation/state-and-cores.md"
    testing "docs/how-to/test-an-nf.md"
    writing_nfs "docs/tutorials/first-nf.md"
}
