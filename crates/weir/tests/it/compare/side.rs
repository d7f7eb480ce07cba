//! One of the two servers.

use std::collections::HashSet;
use std::path::PathBuf;

use weir_test::{Server, TestServerBuilder};

use crate::compare::answer::{self, Answer};
use crate::compare::mask::{Place, mask};
use crate::compare::table::Request;
use crate::compare::version::{Version, said_version};

/// A running server, and its responses.
pub(crate) struct Side {
    server: Server,
    place: Place,
    /// With the number of the request's line.
    answers: Vec<(usize, Answer)>,
    /// Ports of clients so far.
    used: HashSet<u16>,
}

/// What a server made of one request: comparable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The number of the request's line.
    pub(crate) number: usize,
    /// A response did not come in time.
    pub(crate) late: bool,
    /// All responses, as bytes.
    pub(crate) bytes: Vec<u8>,
    /// Its lines of the access log.
    pub(crate) log: Vec<String>,
    /// What went wrong; not compared.
    pub(crate) trouble: Option<String>,
}

impl Side {
    /// The real nginx.
    pub(crate) fn nginx(conf: &str, version: Version) -> Side {
        let builder = weir_test::nginx(conf).expect("it was found before");
        Side::start(builder, conf, version)
    }

    /// Weir, under nginx's name; or the other nginx.
    pub(crate) fn tested(conf: &str, version: Version) -> Side {
        match other_nginx() {
            Some(path) => {
                let version = Version::of(&path);
                let builder = weir_test::nginx(conf).expect("it was found before");
                Side::start(builder.binary(path), conf, version)
            }
            None => {
                let builder = Server::builder(conf).http(&format!("server_product nginx/{version};"));
                Side::start(builder, conf, version)
            }
        }
    }

    fn start(builder: TestServerBuilder, conf: &str, version: Version) -> Side {
        let server = builder
            .file("types.conf", crate::compare::data("types.conf"))
            .file("more.d/more.conf", crate::compare::data("more.conf"))
            .start();
        let ports = (0..PORTS).take_while(|number| conf.contains(&format!("%%PORT_{number}%%")));
        let ports = ports.map(|number| server.port(number)).collect();
        let directory = server.dir().path().to_string_lossy().into_owned();
        let place = Place { ports, other_ports: Vec::new(), directory, product: format!("nginx/{version}") };
        Side { server, place, answers: Vec::new(), used: HashSet::new() }
    }

    /// Sends a request and stores the response.
    pub(crate) fn ask(&mut self, request: &Request) {
        let bytes = request.bytes_for(&self.place.ports);
        let answer = answer::ask(self.server.addr(request.port), request, &bytes, &mut self.used);
        self.answers.push((request.number, answer));
    }

    /// Its ports, by number.
    pub(crate) fn ports(&self) -> Vec<u16> {
        self.place.ports.clone()
    }

    /// Stops the server: then its log is complete. It is compared with the one that has `other_ports`.
    pub(crate) fn finish(mut self, other_ports: Vec<u16>) -> Vec<Outcome> {
        self.place.other_ports = other_ports;
        let exit = self.server.quit();
        assert!(exit.status.success(), "{exit}");
        let log = self.server.dir().read("access.log");
        let place = self.place;
        let masked = |line: &str| String::from_utf8_lossy(&mask(line.as_bytes(), &place)).into_owned();
        let outcome = |(number, answer): (usize, Answer)| {
            let client = format!("{} ", answer.client);
            let lines = log.lines().filter_map(|line| line.strip_prefix(&client)).map(masked).collect();
            Outcome {
                number,
                late: answer.late,
                bytes: mask(&answer.bytes, &place),
                log: lines,
                trouble: answer.trouble,
            }
        };
        self.answers.into_iter().map(outcome).collect()
    }
}

/// The program under test, when it is an nginx.
pub(crate) fn other_nginx() -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os("WEIR_BIN")?);
    (!said_version(&path).contains("weir")).then_some(path)
}

/// No configuration has more.
const PORTS: usize = 8;
