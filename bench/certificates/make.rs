//! Certificates for `bench/certificates/run`: `make FOLDER COUNT` writes `0.example.com.crt` and so on, and `key.pem`, which
//! all of them have.

use std::path::Path;
use std::process::ExitCode;

use rcgen::{CertificateParams, KeyPair};

type Result = std::result::Result<(), Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let made = match &arguments[..] {
        [directory, count] => make(Path::new(directory), count),
        _ => Err("usage: make FOLDER COUNT".into()),
    };
    match made {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn make(directory: &Path, count: &str) -> Result {
    let key = KeyPair::generate()?;
    std::fs::write(directory.join("key.pem"), key.serialize_pem())?;
    for number in 0..count.parse::<u32>()? {
        let name = format!("{number}.example.com");
        let certificate = CertificateParams::new(vec![name.clone()])?.self_signed(&key)?;
        std::fs::write(directory.join(format!("{name}.crt")), certificate.pem())?;
    }
    Ok(())
}
