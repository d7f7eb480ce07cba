//! What issuers say of certificates: stapled to the server's own, asked about clients'. The responder is `openssl ocsp`
//! on a socket of the test's.

use crate::support::tls as support;

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, IsCa, Issuer, KeyPair, SerialNumber,
};
use support::{TlsClient, client};
use weir_test::{NameReply, NameServer, Server, both_drivers, read_some, require_program, wait_for};
use weir_tls::{Certificate, certificate, key};

/// An authority that is the responder for its certificates.
struct Authority {
    openssl: PathBuf,
    dir: PathBuf,
    addr: SocketAddr,
    params: CertificateParams,
    key: KeyPair,
    asked: Arc<AtomicUsize>,
}

impl Authority {
    /// Its files are in `dir`.
    fn start(openssl: PathBuf, dir: &Path) -> Authority {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let own = params.self_signed(&key).expect("signed").pem();
        std::fs::write(dir.join("ca.crt"), own).expect("written");
        std::fs::write(dir.join("ca.key"), key.serialize_pem()).expect("written");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("bound");
        let asked = Arc::new(AtomicUsize::new(0));
        let responder = Responder { openssl: openssl.clone(), dir: dir.to_owned(), asked: asked.clone() };
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                responder.answer(stream);
            }
        });
        let authority = Authority { openssl, dir: dir.to_owned(), addr, params, key, asked };
        authority.say(&[]);
        authority
    }

    /// The certificate number `serial`, for `name`; with its key, both in PEM.
    fn issue(&self, name: &str, serial: u64) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, name);
        params.serial_number = Some(SerialNumber::from(serial));
        params.custom_extensions = vec![access(&format!("http://{}/ocsp", self.addr))];
        let issuer = Issuer::from_params(&self.params, &self.key);
        let certificate = params.signed_by(&key, &issuer).expect("signed");
        (certificate.pem(), key.serialize_pem())
    }

    /// What it says from now on of certificates 1 to 9: that they are good, but for these.
    fn say(&self, revoked: &[u64]) {
        let line = |serial: u64| match revoked.contains(&serial) {
            true => format!("R\t490101000000Z\t250101000000Z\t{serial:02X}\tunknown\t/CN={serial}\n"),
            false => format!("V\t490101000000Z\t\t{serial:02X}\tunknown\t/CN={serial}\n"),
        };
        std::fs::write(self.dir.join("new"), (1..10).map(line).collect::<String>()).expect("written");
        std::fs::rename(self.dir.join("new"), self.dir.join("index")).expect("replaced");
    }

    /// What a client of the server at `addr` learns about its certificate, if anything.
    fn stapled(&self, addr: SocketAddr) -> Option<String> {
        let output = Command::new(&self.openssl)
            .args(["s_client", "-status", "-servername", "a.example.com", "-connect", &addr.to_string()])
            .stdin(Stdio::null())
            .output()
            .expect("openssl runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("OCSP response:"), "{text}");
        let status = text.lines().find(|line| line.trim_start().starts_with("Cert Status:"))?;
        Some(status.trim_start().trim_start_matches("Cert Status:").trim().to_owned())
    }
}

/// The responder.
struct Responder {
    openssl: PathBuf,
    dir: PathBuf,
    asked: Arc<AtomicUsize>,
}

impl Responder {
    fn answer(&self, mut stream: TcpStream) {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && read_some(&mut stream, &mut byte).is_ok_and(|n| n > 0) {
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        // The client may have gone before.
        let Some(path) = head.strip_prefix("GET /ocsp/").and_then(|rest| rest.split(' ').next()) else {
            return;
        };
        let text = path.replace("%2F", "/").replace("%2B", "+").replace("%3D", "=");
        let number = self.asked.fetch_add(1, SeqCst);
        let [request, response] = ["request", "response"].map(|it| self.dir.join(format!("{it}{number}")));
        let der = weir_http::base64::decode(text.as_bytes()).expect("base64");
        std::fs::write(&request, der).expect("written");
        let made = Command::new(&self.openssl)
            .current_dir(&self.dir)
            .args([
                "ocsp", "-index", "index", "-CA", "ca.crt", "-rsigner", "ca.crt", "-rkey", "ca.key",
                "-ndays", "1",
            ])
            .arg("-reqin")
            .arg(&request)
            .arg("-respout")
            .arg(&response)
            .output()
            .expect("openssl runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let body = std::fs::read(&response).expect("an answer");
        let head = format!(
            "HTTP/1.0 200 OK\r\nContent-Type: application/ocsp-response\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        // A server that ends does not wait for its response.
        let _ = stream.write_all(&[head.as_bytes(), &body].concat());
    }
}

/// Authority Information Access with the responder `url` (RFC 5280, section 4.2.2.1).
fn access(url: &str) -> CustomExtension {
    let element = |tag: u8, content: &[u8]| {
        let length = u8::try_from(content.len()).ok().filter(|n| *n < 0x80).expect("a short address");
        [&[tag, length][..], content].concat()
    };
    let ocsp = element(6, &[0x2b, 6, 1, 5, 5, 7, 0x30, 1]);
    let description = element(0x30, &[ocsp, element(0x86, url.as_bytes())].concat());
    CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 1], element(0x30, &description))
}

fn shown((text, key): &(String, String)) -> Certificate {
    let chain = certificate::chain(text.as_bytes()).expect("a certificate");
    Certificate::new(chain, key::read(key.as_bytes(), &[]).expect("a key"), None).expect("they fit")
}

fn conf(more: &str) -> String {
    format!(
        "worker_processes 2; http {{ server {{ listen 127.0.0.1:%%PORT%% ssl; server_name a.example.com;
            ssl_certificate a.crt; ssl_certificate_key a.key; ssl_trusted_certificate ca.crt; {more} }} }}"
    )
}

both_drivers! {
    fn what_the_issuer_says_is_stapled(driver) {
        let Some(openssl) = require_program("openssl") else { return };
        let builder = Server::builder(&conf("ssl_stapling on; ssl_stapling_verify on; return 200 ok;"));
        let authority = Authority::start(openssl, builder.dir());
        let (certificate, key) = authority.issue("a.example.com", 1);
        let server = builder.file("a.crt", &certificate).file("a.key", &key).driver(driver).start();
        let stapled = wait_for("a stapled answer", || authority.stapled(server.addr(0)));
        assert_eq!(stapled, "good");
        for _ in 0..4 {
            assert_eq!(authority.stapled(server.addr(0)).as_deref(), Some("good"), "on whatever worker");
        }
        assert_eq!(authority.asked.load(SeqCst), 1);
    }

    fn names_of_responders_are_the_resolvers_affair(driver) {
        let Some(openssl) = require_program("openssl") else { return };
        let dns = NameServer::start(|asked| match &*asked.name {
            "ocsp.example" => NameReply::Addresses(vec![[127, 0, 0, 1].into()], 60),
            _ => NameReply::Code(3),
        });
        let builder = Server::builder("");
        let authority = Authority::start(openssl, builder.dir());
        let (certificate, key) = authority.issue("a.example.com", 4);
        let more = format!(
            "resolver {}; ssl_stapling on; ssl_stapling_responder http://ocsp.example:{}/ocsp; return 200 ok;",
            dns.address(), authority.addr.port()
        );
        let server = Server::builder(&conf(&more))
            .file("a.crt", &certificate).file("a.key", &key)
            .file("ca.crt", std::fs::read(builder.dir().join("ca.crt")).expect("there"))
            .driver(driver).start();
        assert_eq!(wait_for("a stapled answer", || authority.stapled(server.addr(0))), "good");
        assert!(dns.asked() > 0);
    }

    fn a_revoked_certificate_is_not_stapled(driver) {
        let Some(openssl) = require_program("openssl") else { return };
        let builder = Server::builder("");
        let authority = Authority::start(openssl, builder.dir());
        authority.say(&[2]);
        let (certificate, key) = authority.issue("a.example.com", 2);
        // The name is the system's to resolve.
        let more = format!(
            "ssl_stapling on; ssl_stapling_responder http://localhost:{}/ocsp; return 200 ok;",
            authority.addr.port()
        );
        let server = Server::builder(&conf(&more))
            .file("a.crt", &certificate).file("a.key", &key)
            .file("ca.crt", std::fs::read(builder.dir().join("ca.crt")).expect("there"))
            .driver(driver).start();
        assert_eq!(authority.stapled(server.addr(0)), None);
        let line = server.error_log_line("certificate status \"revoked\" in the OCSP response");
        assert!(line.contains("while requesting certificate status, responder: http://localhost:"), "{line}");
        assert_eq!(authority.stapled(server.addr(0)), None);
    }

    fn issuers_are_asked_about_clients_certificates(driver) {
        let Some(openssl) = require_program("openssl") else { return };
        let builder = Server::builder(
            "http { ssl_certificate a.crt; ssl_certificate_key a.key; ssl_client_certificate ca.crt;
                ssl_verify_client on; ssl_ocsp leaf; add_header X-Verify $ssl_client_verify always;
                server { listen 127.0.0.1:%%PORT%% ssl; server_name a.example.com; return 200 ok; }
                server { listen 127.0.0.1:%%PORT%% ssl; server_name kept.example.com;
                    ssl_ocsp_cache shared:kept:1m; return 200 ok; }
                server { listen 127.0.0.1:%%PORT%% ssl; server_name lost.example.com;
                    ssl_ocsp_responder http://name.example.com/; return 200 ok; } }",
        );
        let authority = Authority::start(openssl, builder.dir());
        let (certificate, key) = authority.issue("a.example.com", 1);
        let known = authority.issue("known", 3);
        let server = builder.file("a.crt", &certificate).file("a.key", &key).driver(driver).start();
        let ask = |name: &str, config: &weir_tls::ClientConfig| {
            let answer = TlsClient::connect(server.addr(0), name, config).get("/", name);
            (answer.status, answer.field("X-Verify").unwrap_or_default().to_owned())
        };
        let config = client(true, Some(shown(&known)));
        let fine = (200, "SUCCESS".to_owned());
        let revoked = (400, "FAILED:certificate revoked".to_owned());
        assert_eq!(ask("a.example.com", &config), fine);
        assert_eq!(ask("kept.example.com", &config), fine);
        authority.say(&[3]);
        assert_eq!(ask("a.example.com", &config), revoked, "also in a session that is resumed");
        assert_eq!(ask("kept.example.com", &config), fine, "the answer still holds");
        let _ = server.error_log_line("client SSL certificate verify error: certificate revoked");
        let failed = (400, "FAILED:certificate status request failed".to_owned());
        assert_eq!(ask("lost.example.com", &config), failed);
        let _ = server.error_log_line("no resolver defined to resolve name.example.com");
    }
}

#[test]
fn certificates_that_nobody_can_be_asked_about_are_named() {
    let pair = support::own("a.example.com");
    let said = |more: &str| {
        let exit = Server::builder(&conf(more))
            .file("a.crt", &pair.certificate)
            .file("ca.crt", &pair.certificate)
            .file("a.key", &pair.key)
            .run(&["-t"]);
        assert!(exit.status.success(), "{}", exit.stderr);
        exit.stderr
    };
    let stderr = said("ssl_stapling on;");
    assert!(
        stderr.contains("\"ssl_stapling\" ignored, no OCSP responder URL in the certificate \""),
        "{stderr}"
    );
    let stderr = said("ssl_stapling on; ssl_stapling_responder https://a/;");
    assert!(stderr.contains("\"ssl_stapling\" ignored, invalid URL"), "{stderr}");
    let stderr = said("ssl_stapling on; ssl_certificate $ssl_server_name.crt; ssl_certificate_key a.key;");
    assert!(stderr.contains("\"ssl_stapling\" ignored for certificates with variables"), "{stderr}");
    assert!(!said("ssl_stapling off;").contains("ssl_stapling"));
}
