//! Requests of HTTP/1.x: nothing panics, a part of a head is no request, and what is written is read back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::Malformed;
use wire::http::{Repr, Request};

fuzz_target!(|bytes: &[u8]| {
    let Ok(request) = Request::new(bytes) else { return };
    assert_eq!(request.head_len() + request.rest().len(), bytes.len());
    let head = &bytes[..request.head_len()];
    assert!(Request::new(head).unwrap().fields().eq(request.fields()));
    assert_eq!(Request::new(&head[..head.len() - 1]), Err(Malformed::Short));
    let fields: Vec<_> = request.fields().collect();
    let (method, target, minor_version) = (request.method(), request.target(), request.minor_version());
    let repr = Repr { method, target, minor_version, fields: &fields };
    let mut written = vec![0; repr.len()];
    match repr.emit(&mut written) {
        // one space behind each colon may exceed the bound
        Err(error) => assert_eq!((error, written.len() > wire::http::MAX_HEAD), (Malformed::Range, true)),
        Ok(()) => assert!(Request::new(&written).unwrap().fields().eq(request.fields())),
    }
});
