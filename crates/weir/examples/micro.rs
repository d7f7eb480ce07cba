//! A program that counts primes, and while it does tells over HTTP how far it is: a server that comes with each count
//! and goes with it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    for limit in [20_000, 40_000] {
        let found = Arc::new(AtomicU64::new(0));
        let server = serve(found.clone())?;
        let address = server.addresses()[0].to_string();
        for number in 2..limit {
            if (2..).take_while(|n| n * n <= number).all(|n| number % n != 0) {
                found.fetch_add(1, Relaxed);
            }
            if number == limit / 2 {
                println!("half-way, {address} says: {}", ask(&address)?);
            }
        }
        server.stop();
        assert!(TcpStream::connect(&address).is_err(), "nobody is there any more");
        println!("{} primes below {limit}", found.load(Relaxed));
    }
    Ok(())
}

/// A server that tells what is in `found`.
fn serve(found: Arc<AtomicU64>) -> Result<weir::Server, weir::Error> {
    weir::Server::builder()
        .listen("127.0.0.1:0")
        .location("= /found", move |_, response| {
            response.content_type("text/plain").body(found.load(Relaxed).to_string());
        })
        .start()
}

/// What the server says.
fn ask(address: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"GET /found HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.split("\r\n\r\n").nth(1).unwrap_or_default().to_owned())
}
