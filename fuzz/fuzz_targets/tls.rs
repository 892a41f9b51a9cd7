//! ClientHello: nothing panics, joining is bounded, and a message is written as it was read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::tls::{ClientHello, join};

fuzz_target!(|bytes: &[u8]| {
    let mut buffer = vec![0; 4096];
    let joined = join(bytes, &mut buffer).map(|len| &buffer[..len]);
    if let (Ok(joined), Ok(hello)) = (joined, ClientHello::of_stream(bytes)) {
        assert_eq!(ClientHello::new(joined), Ok(hello));
    }
    let hellos = [ClientHello::new(bytes), ClientHello::of_stream(bytes), joined.and_then(ClientHello::new)];
    for hello in hellos.into_iter().flatten() {
        let _ = (hello.server_name(), hello.application_protocols().count(), hello.supported_versions().count());
        assert!(hello.cipher_suites().count() > 0);
        let extensions: usize = hello.extensions().map(|(_, data)| 4 + data.len()).sum();
        assert_eq!(extensions, hello.repr().extensions.map_or(0, <[u8]>::len));
        let mut written = vec![0; hello.repr().len()];
        hello.repr().emit(&mut written).unwrap();
        assert_eq!(ClientHello::new(&written), Ok(hello));
    }
});
