//! Certificates that scripts fetch from Redis in handshakes, with keys on pool threads and in a device, with OCSP, while
//! requests' scripts run and the configuration is reloaded.

use crate::support::tls as support;

use crate::support::softhsm;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use softhsm::Token;
use support::{Pair, TlsClient, authority, client};
use weir_test::{Client, Driver, Server, both_drivers, require_program, wait_for};

/// What is there to be chosen.
struct Stock {
    token: Token,
    names: [&'static str; 3],
    /// The socket of the admin listener.
    admin: PathBuf,
    _redis: Redis,
}

/// A Redis that listens on the socket `redis` in a directory.
struct Redis(Child);

impl Redis {
    /// `None`: there is no such program.
    fn start(dir: &Path) -> Option<Redis> {
        let program = require_program("redis-server")?;
        let child = Command::new(program)
            .args(["--port", "0", "--unixsocket", "redis", "--save", "", "--appendonly", "no"])
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server runs");
        Some(Redis(child))
    }

    fn set(dir: &Path, name: &str, value: &[u8]) {
        let mut stream = wait_for("Redis", || UnixStream::connect(dir.join("redis")).ok());
        let head = format!("*3\r\n$3\r\nSET\r\n${}\r\n{name}\r\n${}\r\n", name.len(), value.len());
        stream.write_all(&[head.as_bytes(), value, b"\r\n"].concat()).expect("Redis reads");
        let mut said = [0; 5];
        stream.read_exact(&mut said).expect("Redis answers");
        assert_eq!(&said, b"+OK\r\n");
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes certificates for `ec`, `rsa` and `hsm` to `dir`, all of one authority, and what that says of `ec`.
fn stock(dir: &Path) -> Option<Stock> {
    let openssl = require_program("openssl")?;
    let ca = authority("ca");
    let rsa = rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048);
    let pairs = [
        ("ec", ca.issue("ec")),
        ("rsa", support::with_key("rsa", rsa.expect("a key"))),
        ("hsm", ca.issue("hsm")),
    ];
    let write = |name: String, text: &str| std::fs::write(dir.join(name), text).expect("written");
    for (name, Pair { certificate, key, .. }) in
        [("ca", &ca)].into_iter().chain(pairs.iter().map(|(name, pair)| (*name, pair)))
    {
        write(format!("{name}.crt"), certificate);
        write(format!("{name}.key"), key);
    }
    let token = Token::new(dir, &pairs[2].1.key)?;
    write("hsm.key".to_owned(), &token.name("object=k", "pin-value=1234"));
    let serial = weir_tls::facts::serial(&pairs[0].1.shown().chain()[0]).expect("a number");
    write("index".to_owned(), &format!("V\t490101000000Z\t\t{serial}\tunknown\t/CN=ec\n"));
    let made = Command::new(openssl)
        .current_dir(dir)
        .args([
            "ocsp", "-index", "index", "-CA", "ca.crt", "-rsigner", "ca.crt", "-rkey", "ca.key", "-ndays",
            "1",
        ])
        .args(["-issuer", "ca.crt", "-cert", "ec.crt", "-respout", "ec.ocsp", "-noverify"])
        .output()
        .expect("openssl runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let redis = Redis::start(dir)?;
    for name in ["ec.crt", "ec.key", "rsa.crt", "rsa.key", "hsm.crt", "hsm.key", "ca.crt", "ec.ocsp"] {
        Redis::set(dir, name, &std::fs::read(dir.join(name)).expect("written"));
    }
    Some(Stock { token, names: ["ec", "rsa", "hsm"], admin: dir.join("admin.sock"), _redis: redis })
}

const CONF: &str = r#"worker_processes 2; env SOFTHSM2_CONF; admin unix:%%DIR%%/admin.sock; ssl_key_pool nice=%%NICE%%;
events {}
http {
    init_by_lua_block {
        function fetch(name)
            local redis = ngx.socket.tcp()
            assert(redis:connect("unix:%%DIR%%/redis"))
            assert(redis:send("GET " .. name .. "\r\n"))
            local length = tonumber(assert(redis:receive()):match("^%$(%-?%d+)$"))
            if length < 0 then
                assert(redis:setkeepalive(10000, 20))
                return nil
            end
            local value = assert(redis:receive(length))
            assert(redis:receive(2))
            assert(redis:setkeepalive(10000, 20))
            return value
        end
    }
    server {
        listen 127.0.0.1:%%PORT_0%% ssl; server_name a.example.com;
        ssl_certificate ec.crt; ssl_certificate_key ec.key pool;
        ssl_certificate_by_lua_block {
            local ssl = require "ngx.ssl"
            local name = ssl.server_name():match("^%w+")
            local crt, key = fetch(name .. ".crt"), fetch(name .. ".key")
            assert(ssl.clear_certs())
            assert(ssl.set_cert(assert(ssl.parse_pem_cert(crt))))
            ngx.sleep(0.001)
            if name == "hsm" then
                assert(ssl.set_priv_key(assert(weir.ssl.key(key))))
            else
                assert(ssl.set_priv_key(assert(ssl.parse_pem_priv_key(key))))
            end
            local answer = fetch(name .. ".ocsp")
            if answer then
                local ocsp = require "ngx.ocsp"
                local chain = assert(ssl.cert_pem_to_der(crt .. fetch("ca.crt")))
                assert(#assert(ocsp.create_ocsp_request(chain)) > 60)
                assert(ocsp.get_ocsp_responder_from_der_chain(chain) == nil)
                local good, until_when = ocsp.validate_ocsp_response(answer, chain)
                assert(good and until_when > ngx.time(), until_when)
                assert(not ocsp.validate_ocsp_response(answer:sub(1, -2), chain))
                assert(not ocsp.validate_ocsp_response(answer, crt))
                local set, why = ocsp.set_ocsp_status_resp("")
                assert(set == nil and why == "OPENSSL_malloc() failed" or why == "no status req", why)
                assert(ocsp.set_ocsp_status_resp(answer))
            end
        }
        location / { content_by_lua_block {
            local sum = 0
            for i = 1, 1000 do sum = sum + i % 7 end
            ngx.sleep(0.001)
            ngx.say(ngx.var.ssl_server_name, " ", sum)
        } }
    }
    server {
        listen 127.0.0.1:%%PORT_1%%;
        location / { content_by_lua_block {
            local parts, text = {}, fetch("ca.crt")
            for i = 1, 100 do parts[i] = text:sub(i, i) end
            ngx.say(#table.concat(parts))
        } }
    }
}"#;

/// A server with all of it; `None`: a program is not there.
fn serve(driver: Driver) -> Option<(Server, String, Stock)> {
    let place = Server::builder("");
    let stock = stock(place.dir())?;
    let conf = CONF.replace("%%DIR%%", &place.dir().display().to_string());
    let conf = conf.replace("%%NICE%%", &Churn::wanted().nice.to_string());
    let mut builder = Server::builder(&conf).driver(driver).env("SOFTHSM2_CONF", stock.token.conf());
    if let Ok(binary) = std::env::var("WEIR_CHURN_BINARY") {
        // Cargo runs tests in their package's directory.
        builder = builder.binary(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(binary));
    }
    for name in ["ec.crt", "ec.key"] {
        builder = builder.file(name, std::fs::read(place.dir().join(name)).expect("written"));
    }
    // The directory is there as long as the test's process.
    std::mem::forget(place);
    Some((builder.start(), conf, stock))
}

/// How much is done: `WEIR_CHURN=ROUNDS[,THREADS[,ABANDONED[,NICE]]]`. Without it what a test has time for.
#[derive(Clone, Copy)]
struct Churn {
    /// Handshakes of a thread.
    rounds: usize,
    threads: usize,
    /// Handshakes that are begun beside each of those and not gone on with.
    abandoned: usize,
    /// How far the threads that use keys give way.
    nice: usize,
    /// A run for its figures: reloads go on all the time.
    long: bool,
}

impl Churn {
    fn wanted() -> Churn {
        let said = std::env::var("WEIR_CHURN").unwrap_or_default();
        let mut numbers = said.split(',').filter_map(|number| number.parse().ok());
        let long = !said.is_empty();
        let mut next = |usual| numbers.next().unwrap_or(usual);
        Churn { rounds: next(8), threads: next(4), abandoned: next(usize::from(long)), nice: next(10), long }
    }
}

/// A handshake and a request in it; beside it others whose clients leave while scripts fetch their certificates, or after.
fn meet(addr: SocketAddr, name: &str, tls13: bool, abandoned: usize) {
    let host = format!("{name}.example.com");
    let config = client(tls13, None);
    let left: Vec<TcpStream> = (0..abandoned)
        .map(|_| {
            let mut hello = Vec::new();
            let mut connect = weir_tls::ClientHandshake::new(&config, &host).expect("a configuration");
            connect.handle(&[], &mut hello).expect("a hello");
            let mut stream = TcpStream::connect(addr).expect("a server");
            stream.write_all(&hello).expect("the server reads");
            stream
        })
        .collect();
    let mut it = TlsClient::connect(addr, &host, &config);
    assert_eq!(weir_tls::facts::subject(&it.facts().peer[0]), Some(format!("CN={name}")));
    assert_eq!(it.get("/", &host).text(), format!("{host} 3003\n"));
    drop(left);
}

/// How long handshakes held their loop, as the server has it: nanoseconds at the median and the 99th percentile.
fn held(stock: &Stock) -> Option<[u64; 2]> {
    let mut stream = UnixStream::connect(&stock.admin).ok()?;
    stream.write_all(b"GET /sites?fmt=json HTTP/1.0\r\n\r\n").ok()?;
    let mut said = String::new();
    stream.read_to_string(&mut said).ok()?;
    let site = said.split("{\"kind\":").find(|site| site.contains("\"name\":\"tls\""))?;
    let run = site.split_once("\"run\":")?.1;
    let number = |name: &str| {
        let digits = run.split_once(name)?.1;
        digits.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    Some([number("\"p50_ns\":")?, number("\"p99_ns\":")?])
}

/// What a long run came to.
fn tell(server: &Server, stock: &Stock, churn: Churn, counts: [usize; 2], before: (u64, usize)) {
    let [p50, p99] = held(stock).expect("a site of handshakes").map(|ns| ns as f64 / 1000.0);
    let done = churn.rounds * churn.threads;
    let [requests, reloads] = counts;
    println!(
        "{done} handshakes, {} abandoned, {requests} requests beside, {reloads} reloads, 0 crashes; \
         loop held p50 {p50:.1} us, p99 {p99:.1} us; RSS {} to {} KB, files {} to {}",
        done * churn.abandoned,
        before.0 / 1024,
        server.resident_bytes() / 1024,
        before.1,
        server.open_files(),
    );
}

both_drivers! {
    fn handshakes_fetch_certificates_beside_scripts_and_reloads(driver) {
        let Some((mut server, conf, stock)) = serve(driver) else { return };
        let (secure, plain, churn) = (server.addr(0), server.addr(1), Churn::wanted());
        static OVER: [AtomicBool; 2] = [AtomicBool::new(false), AtomicBool::new(false)];
        let over = &OVER[usize::from(driver == Driver::Epoll)];
        let requests = thread::spawn(move || {
            let mut answered = 0;
            while !over.load(SeqCst) {
                assert_eq!(Client::connect(plain).get("/").text(), "100\n");
                answered += 1;
            }
            answered
        });
        let names = stock.names;
        let handshakes: Vec<_> = (0..churn.threads).map(|number| thread::spawn(move || {
            for round in 0..churn.rounds {
                let tls13 = (number + round) % 4 > 0;
                meet(secure, names[(number + round) % names.len()], tls13, churn.abandoned);
            }
        })).collect();
        let mut reloads = 0;
        let mut before = None;
        while reloads < 3 || (churn.long && handshakes.iter().any(|thread| !thread.is_finished())) {
            server.reload(&conf);
            reloads += 1;
            wait_for("a reload", || {
                (server.error_log().matches(": reconfiguring").count() >= reloads).then_some(())
            });
            if churn.long {
                thread::sleep(std::time::Duration::from_secs(2));
            }
            // After the first ones: pools and scripts have grown to what they need.
            if reloads == 3 {
                before = Some((server.resident_bytes(), server.open_files()));
            }
        }
        for thread in handshakes {
            thread.join().expect("all handshakes");
        }
        over.store(true, SeqCst);
        let answered = requests.join().expect("all requests");
        assert!(answered > 0);
        if churn.long {
            tell(&server, &stock, churn, [answered, reloads], before.expect("three reloads"));
        }
        let log = server.error_log();
        assert!(!log.contains("[error]") && !log.contains("[crit]") && !log.contains("[alert]"), "{log}");
        let exit = server.quit();
        assert!(exit.status.success(), "{exit}");
    }

    fn what_a_script_staples_comes_to_the_client(driver) {
        let Some((server, _, _stock)) = serve(driver) else { return };
        let Some(openssl) = require_program("openssl") else { return };
        let status = |name: &str| {
            let output = Command::new(&openssl)
                .args(["s_client", "-status", "-connect", &server.addr(0).to_string(), "-servername", name])
                .stdin(Stdio::null())
                .output()
                .expect("openssl runs");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.lines().find(|line| line.contains("Cert Status:")).map(|line| line.trim().to_owned())
        };
        assert_eq!(status("ec.example.com").as_deref(), Some("Cert Status: good"));
        assert_eq!(status("rsa.example.com"), None);
    }
}
