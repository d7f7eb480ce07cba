//! The load client of `bench/tls/run` and `bench/certificates/run`: handshakes as fast as they go, or small requests one at a time with what each took.
//!
//!     client ADDRESS new|resumed 1.2|1.3 SECONDS THREADS   prints handshakes and seconds
//!     client ADDRESS names COUNT THREADS                    one handshake for each of 0.example.com to COUNT; the same
//!     client ADDRESS requests SECONDS PAUSE_US             prints requests, median, 99th percentile, longest (us); no TLS
//!
//! Certificates are not verified: servers are measured, not clients. A handshake in a resumed session is followed by a
//! small request, since servers of TLS 1.3 send their tickets along with the first bytes; so is the first of each.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use weir_tls::suites::{self, ProtocolVersions};
use weir_tls::{ClientConfig, ClientHandshake, ClientSettings, HandshakeProgress};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[&str]) -> Result<()> {
    match *arguments {
        [addr, "requests", seconds, pause] => requests(
            addr.parse()?,
            Duration::from_secs_f64(seconds.parse()?),
            Duration::from_micros(pause.parse()?),
        ),
        [addr, "names", count, threads] => names(addr.parse()?, count.parse()?, threads.parse()?),
        [addr, kind @ ("new" | "resumed"), version, seconds, threads] => {
            let time = Duration::from_secs_f64(seconds.parse()?);
            handshakes(addr.parse()?, kind == "resumed", version == "1.3", time, threads.parse()?)
        }
        _ => Err(
            "usage: client ADDRESS new|resumed 1.2|1.3 SECONDS THREADS | ADDRESS requests SECONDS PAUSE_US"
                .into(),
        ),
    }
}

fn handshakes(addr: SocketAddr, resumed: bool, tls13: bool, time: Duration, threads: usize) -> Result<()> {
    let (done, begin) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let threads: Vec<_> = (0..threads)
        .map(|_| {
            let done = done.clone();
            std::thread::spawn(move || -> Result<()> {
                let config = config(tls13, resumed)?;
                if resumed {
                    connect(addr, &config, NAME, true)?;
                }
                while begin.elapsed() < time {
                    if resumed != connect(addr, &config, NAME, resumed)? {
                        return Err("a session was resumed that should not be, or the other way round".into());
                    }
                    done.fetch_add(1, Relaxed);
                }
                Ok(())
            })
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| "a thread failed")??;
    }
    println!("{} {:.3}", done.load(Relaxed), begin.elapsed().as_secs_f64());
    Ok(())
}

fn names(addr: SocketAddr, count: u64, threads: u64) -> Result<()> {
    let begin = Instant::now();
    let threads: Vec<_> = (0..threads)
        .map(|first| {
            std::thread::spawn(move || -> Result<()> {
                let config = config(true, false)?;
                let mut numbers = (first..count).step_by(threads as usize);
                numbers.try_for_each(|n| connect(addr, &config, &format!("{n}.example.com"), false).map(drop))
            })
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| "a thread failed")??;
    }
    println!("{count} {:.3}", begin.elapsed().as_secs_f64());
    Ok(())
}

const NAME: &str = "bench.example.com";

fn config(tls13: bool, resumed: bool) -> Result<ClientConfig> {
    Ok(ClientConfig::new(&ClientSettings {
        protocols: ProtocolVersions { tls12: !tls13, tls13 },
        suites: suites::default_suites(),
        // X25519 is used, which all servers have (OpenSSL 3.0 knows no ML-KEM); a key on P-256 wants to see its curve, too.
        groups: suites::select_groups("X25519:prime256v1")?,
        certificate: None,
        alpn: Vec::new(),
        tell_name: true,
        sessions: if resumed { 8 } else { 0 },
        key_log: None,
        signatures: weir_tls::SignatureLimits::default(),
        session_tickets: true,
    })?)
}

/// One connection; whether its session was an earlier one.
fn connect(addr: SocketAddr, config: &ClientConfig, name: &str, asks: bool) -> Result<bool> {
    let mut stream = TcpStream::connect(addr)?;
    stream.set_nodelay(true)?;
    let mut connect = ClientHandshake::new(config, name)?;
    let (mut out, mut buffer) = (Vec::new(), [0; 16 * 1024]);
    let mut progress = connect.handle(&[], &mut out)?;
    loop {
        stream.write_all(&std::mem::take(&mut out))?;
        if progress == HandshakeProgress::Complete {
            break;
        }
        let n = stream.read(&mut buffer)?;
        if n == 0 {
            return Err("closed within the handshake".into());
        }
        progress = connect.handle(&buffer[..n], &mut out)?;
    }
    let (mut session, mut plain) = connect.into_session();
    if asks {
        session.seal(b"GET /6b.txt HTTP/1.1\r\nHost: bench.example.com\r\n\r\n", &mut out);
        stream.write_all(&out)?;
        while !plain.ends_with(b"hello\n") {
            let n = stream.read(&mut buffer)?;
            if n == 0 {
                return Err("closed within the answer".into());
            }
            session.open(&buffer[..n], &mut plain, &mut Vec::new())?;
        }
    }
    Ok(session.facts().resumed)
}

fn requests(addr: SocketAddr, time: Duration, pause: Duration) -> Result<()> {
    let mut stream = TcpStream::connect(addr)?;
    stream.set_nodelay(true)?;
    let (begin, mut took, mut buffer) = (Instant::now(), Vec::new(), [0; 4096]);
    while begin.elapsed() < time {
        let asked = Instant::now();
        stream.write_all(b"GET /6b.txt HTTP/1.1\r\nHost: bench.example.com\r\n\r\n")?;
        let mut received = Vec::new();
        while !received.ends_with(b"hello\n") {
            let n = stream.read(&mut buffer)?;
            if n == 0 {
                return Err("closed within the answer".into());
            }
            received.extend_from_slice(&buffer[..n]);
        }
        took.push(asked.elapsed().as_micros());
        std::thread::sleep(pause);
    }
    took.sort_unstable();
    let at = |part: f64| took.get(((took.len() as f64 - 1.0) * part) as usize).copied().unwrap_or(0);
    println!("{} {} {} {}", took.len(), at(0.5), at(0.99), at(1.0));
    Ok(())
}
