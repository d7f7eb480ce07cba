//! `ssl_certificate_compression`: certificates sent compressed (RFC 8879), with zlib, which all clients that ask for it know.

use rustls::CertificateCompressionAlgorithm;
use rustls::compress::{CertCompressor, CompressionFailed, CompressionLevel};
use zlib_rs::{DeflateConfig, ReturnCode};

/// zlib.
#[derive(Debug)]
pub(crate) struct ZlibCompressor;

impl CertCompressor for ZlibCompressor {
    fn compress(&self, input: Vec<u8>, level: CompressionLevel) -> Result<Vec<u8>, CompressionFailed> {
        // rustls caches compressed certificates of the amortized level.
        let level = if level == CompressionLevel::Amortized { 9 } else { 6 };
        let mut output = vec![0; zlib_rs::compress_bound(input.len())];
        match zlib_rs::compress_slice(&mut output, &input, DeflateConfig::new(level)) {
            (compressed, ReturnCode::Ok) => Ok(compressed.to_vec()),
            _ => Err(CompressionFailed),
        }
    }

    fn algorithm(&self) -> CertificateCompressionAlgorithm {
        CertificateCompressionAlgorithm::Zlib
    }
}
