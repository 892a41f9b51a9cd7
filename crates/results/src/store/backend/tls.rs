//! TLS of connections to PostgreSQL, with the modes of `libpq` (PostgreSQL §32.19).

use postgres::Config;
use postgres::config::SslMode;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::path::PathBuf;
use std::sync::Arc;
use tokio_postgres_rustls::MakeRustlsConnect;

/// The parameters of a URL that the client library does not know.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Parameters {
    /// `sslmode=verify-full`: the certificate of the server must be valid for its host name.
    verify: bool,
    /// `sslrootcert`: a PEM file with the accepted certificate authorities, instead of those of the system.
    root: Option<PathBuf>,
}

impl Parameters {
    /// Applies the parameters to a configuration.
    pub(super) fn apply(&self, config: &mut Config) {
        if self.verify {
            config.ssl_mode(SslMode::Require);
        }
    }

    /// Returns the connector for TLS.
    ///
    /// # Errors
    /// Certificates cannot be read.
    pub(super) fn connector(&self) -> Result<MakeRustlsConnect, String> {
        client(self).map(MakeRustlsConnect::new)
    }
}

/// Removes the parameters from a URL.
///
/// # Errors
/// A mode that is not supported, or parameters that have no effect.
pub(super) fn take_parameters(url: &str) -> Result<(String, Parameters), String> {
    let mut parameters = Parameters::default();
    let Some((base, query)) = url.split_once('?') else { return Ok((url.to_owned(), parameters)) };
    let mut others = vec![];
    for pair in query.split('&') {
        match pair.split_once('=') {
            Some(("sslmode", "verify-full")) => parameters.verify = true,
            Some(("sslmode", mode @ ("verify-ca" | "allow"))) => {
                return Err(format!("sslmode={mode} is not supported; use disable, prefer, require or verify-full"));
            }
            Some(("sslrootcert", file)) => {
                let file = percent_encoding::percent_decode_str(file).decode_utf8().map_err(|e| e.to_string())?;
                parameters.root = Some(PathBuf::from(&*file));
            }
            _ => others.push(pair),
        }
    }
    if parameters.root.is_some() && !parameters.verify {
        return Err("sslrootcert has no effect without sslmode=verify-full".to_owned());
    }
    let separator = if others.is_empty() { "" } else { "?" };
    Ok((format!("{base}{separator}{}", others.join("&")), parameters))
}

fn client(parameters: &Parameters) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    let builder = if parameters.verify {
        builder.with_root_certificates(roots(parameters.root.as_ref())?)
    } else {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
    };
    Ok(builder.with_no_client_auth())
}

fn roots(file: Option<&PathBuf>) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    let Some(file) = file else {
        let found = rustls_native_certs::load_native_certs();
        // a system's store may contain certificates that are not valid
        return match store.add_parsable_certificates(found.certs) {
            (0, _) => Err("this system has no certificates; name a file of them: sslrootcert=FILE".to_owned()),
            _ => Ok(store),
        };
    };
    let failed = |e: &dyn std::fmt::Display| format!("sslrootcert {}: {e}", file.display());
    for certificate in CertificateDer::pem_file_iter(file).map_err(|e| failed(&e))? {
        store.add(certificate.map_err(|e| failed(&e))?).map_err(|e| failed(&e))?;
    }
    if store.is_empty() { Err(failed(&"contains no certificate")) } else { Ok(store) }
}

/// Accepts the certificate of any server, as the modes `prefer` and `require` do: they protect against eavesdropping
/// only.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_the_url() {
        let taken =
            |url: &str| take_parameters(url).map(|(url, p)| (url, p.verify, p.root.map(|r| r.display().to_string())));
        let base = "postgres://user@host/db";
        assert_eq!(taken(base), Ok((base.to_owned(), false, None)));
        let kept = format!("{base}?sslmode=require&connect_timeout=3");
        assert_eq!(taken(&kept), Ok((kept.clone(), false, None)));
        let all = format!("{base}?sslmode=verify-full&sslrootcert=%2Fetc%2Fca.pem");
        assert_eq!(taken(&all), Ok((base.to_owned(), true, Some("/etc/ca.pem".to_owned()))));
        for (wrong, part) in [("sslmode=verify-ca", "verify-full"), ("sslrootcert=ca.pem", "no effect")] {
            assert!(taken(&format!("{base}?{wrong}")).is_err_and(|e| e.contains(part)), "{wrong}");
        }
        for (file, part) in [("/no/such/file", "/no/such/file"), ("/dev/null", "no certificate")] {
            let (_, parameters) = take_parameters(&format!("{base}?sslmode=verify-full&sslrootcert={file}")).unwrap();
            assert!(parameters.connector().is_err_and(|e| e.contains(part)), "{file}");
        }
    }
}
