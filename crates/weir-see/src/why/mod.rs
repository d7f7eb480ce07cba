//! `weir why`: what is wrong now, in sentences.
//!
//! [`figures`] is what was counted in a window of some seconds, as plain numbers. Each detector of [`DETECTORS`] is a
//! function from those to findings, so that it can be tried without a server. A healthy server has none.

pub(crate) mod compute;
pub(crate) mod errors;
pub(crate) mod figures;
mod logs;
mod queues;
mod stalls;
pub(crate) mod tls;
mod upstreams;

use weir_http::json::JsonWriter;

use figures::WhyFigures;

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Finding {
    /// Which kind of fault, for programs: a name of [`DETECTORS`].
    pub(crate) kind: &'static str,
    /// How much it costs: seconds lost in a second, of workers and of requests that wait.
    pub(crate) weight: f64,
    /// The sentence.
    pub(crate) says: String,
    /// The location, the peer, the listener or the worker that it is about.
    pub(crate) subject: String,
    /// Where it is written: `file:line` of a script or of the configuration; empty where there is none.
    pub(crate) line: String,
    /// The command that shows more of it.
    pub(crate) command: String,
}

type Detector = fn(&WhyFigures) -> Vec<Finding>;

/// All detectors, by the kind of what they find.
const DETECTORS: &[(&str, Detector)] = &[
    (ERRORS, errors::find),
    (CPU, compute::find),
    (GC, compute::collector),
    (BLOCKED, stalls::calls),
    (LOCK, stalls::locks),
    (DISK, stalls::disk),
    (SLOW_PEER, upstreams::slow),
    (FAULTY_PEER, upstreams::faulty),
    (ACCEPT_QUEUE, queues::listeners),
    (UNEVEN, queues::uneven),
    (NO_CORE, queues::no_core),
    (CERTIFICATE, tls::certificates),
    (HANDSHAKES, tls::handshakes),
    (LOGS, logs::lost),
    (ZONE, logs::zones),
];

/// Responses are errors.
pub(crate) const ERRORS: &str = "errors";
/// A module or a script computes much, or without a pause.
pub(crate) const CPU: &str = "cpu";
/// A Lua VM's collector takes much, or stops everything.
pub(crate) const GC: &str = "gc";
/// A call blocks a worker.
pub(crate) const BLOCKED: &str = "blocked";
/// A worker waits for a lock.
pub(crate) const LOCK: &str = "lock";
/// Files are slow.
pub(crate) const DISK: &str = "disk";
/// A peer is much slower than others of its upstream.
pub(crate) const SLOW_PEER: &str = "slow_peer";
/// A peer refuses connections or breaks them off.
pub(crate) const FAULTY_PEER: &str = "faulty_peer";
/// Connections wait to be accepted.
pub(crate) const ACCEPT_QUEUE: &str = "accept_queue";
/// Some workers have most of the connections.
pub(crate) const UNEVEN: &str = "uneven";
/// A worker has no core when it needs one.
pub(crate) const NO_CORE: &str = "no_core";
/// A certificate has expired, or ends soon.
pub(crate) const CERTIFICATE: &str = "certificate";
/// Lines of logs are lost.
pub(crate) const LOGS: &str = "logs";
/// A zone of a limit is full.
pub(crate) const ZONE: &str = "zone";
/// TLS handshakes fail.
pub(crate) const HANDSHAKES: &str = "handshakes";

/// The heaviest findings, at most `most`.
pub(crate) fn findings(figures: &WhyFigures, most: usize) -> Vec<Finding> {
    let mut all: Vec<Finding> = DETECTORS.iter().flat_map(|(_, detect)| detect(figures)).collect();
    all.sort_by(|one, other| other.weight.total_cmp(&one.weight));
    all.truncate(most);
    all
}

/// As text: a sentence and a command each.
pub(crate) fn text(findings: &[Finding]) -> String {
    let mut out = String::new();
    for (number, finding) in findings.iter().enumerate() {
        out.push_str(&format!("{}. {}\n   {}\n", number + 1, finding.says, finding.command));
    }
    out
}

/// As JSON: an object with the window in seconds and the list.
pub(crate) fn json(figures: &WhyFigures, findings: &[Finding]) -> String {
    JsonWriter::object(|json| {
        json.key("seconds").raw(format!("{:.3}", figures.seconds));
        json.key("findings").list(|json| {
            for finding in findings {
                json.nested(|json| {
                    json.key("kind").text(finding.kind);
                    json.key("weight").raw(format!("{:.4}", finding.weight));
                    json.key("says").text(&finding.says);
                    json.key("subject").text(&finding.subject);
                    json.key("line").text(&finding.line);
                    json.key("command").text(&finding.command);
                });
            }
        });
    }) + "\n"
}

/// ", 3 requests waited 20 ms each"; nothing where none waited.
fn waited(count: u64, ns: u64) -> String {
    match count {
        0 => String::new(),
        1 => format!(", 1 request waited {}", crate::table::time(ns)),
        _ => format!(", {count} requests waited {} each", crate::table::time(ns / count)),
    }
}

/// `at FILE:LINE`, in words that follow a name; nothing without a line.
fn at(line: &str) -> String {
    if line.is_empty() { String::new() } else { format!(" at {line}") }
}

#[cfg(test)]
mod tests {
    use super::figures::*;
    use super::*;
    use weir_engine::worker::HandshakeFault;

    /// A server that is well and has something to do.
    fn healthy() -> WhyFigures {
        let worker = |number| WorkerLoad {
            worker: number,
            busy: 0.3,
            run_queue: 0.02,
            gc_ns: 10_000_000,
            connections: 50,
            late: 0,
        };
        let peer = |name: &str, p50_us| PeerLoad {
            name: name.to_owned(),
            requests: 200,
            responses: 200,
            p50_us,
            ..PeerLoad::default()
        };
        WhyFigures {
            seconds: 2.0,
            workers: vec![worker(0), worker(1)],
            modules: vec![ModuleLoad {
                location: "/".to_owned(),
                name: "gzip".to_owned(),
                work: ModuleWork::Besides,
                ns: 400_000_000,
                line: "nginx.conf:7".to_owned(),
                ..ModuleLoad::default()
            }],
            upstreams: vec![UpstreamLoad {
                name: "u".to_owned(),
                peers: vec![peer("a", 2_000), peer("b", 2_400)],
            }],
            files: FileLoad { done: 50, ns: 20_000_000, running: 0, oldest_ns: 0 },
            listeners: vec![ListenerLoad { name: "127.0.0.1:80".to_owned(), waiting: 3, room: 511 }],
            // Some clients ask for what is not there.
            errors: vec![ErrorLoad {
                location: "/".to_owned(),
                responses: 400,
                failed: 2,
                refused: 200,
                message: "open() failed".to_owned(),
                ..ErrorLoad::default()
            }],
            zones: vec![ZoneLoad { name: "limit_req_zone a".to_owned(), size: 1 << 20, dropped: 2 }],
            certificates: vec![certificate(CertificateAge::Good, 60)],
            handshakes: HandshakeLoad {
                complete: 100,
                // Scanners, and a client that trusts other authorities.
                faults: vec![(HandshakeFault::Closed, 90), (HandshakeFault::UnknownCa, 3)],
                name: String::new(),
            },
            ..WhyFigures::default()
        }
    }

    fn certificate(age: CertificateAge, days: i64) -> CertificateLoad {
        CertificateLoad {
            names: "a.example".to_owned(),
            file: "/etc/a.crt".to_owned(),
            line: "nginx.conf:3".to_owned(),
            age,
            left_s: days * 86_400,
        }
    }

    fn kinds(figures: &WhyFigures) -> Vec<&'static str> {
        findings(figures, 5).iter().map(|finding| finding.kind).collect()
    }

    fn stall(by: StallCause) -> StallLoad {
        StallLoad {
            location: "/x".to_owned(),
            by: "os.execute (wait4) at a.lua:3".to_owned(),
            line: "a.lua:3".to_owned(),
            cause: by,
            ns: 22_000_000,
            waited: 3,
            waited_ns: 30_000_000,
        }
    }

    #[test]
    fn nothing_is_wrong_with_a_healthy_server() {
        assert_eq!(kinds(&healthy()), [""; 0]);
        assert_eq!(kinds(&WhyFigures::default()), [""; 0]);
        assert_eq!(text(&[]), "");
        assert_eq!(json(&healthy(), &[]), "{\"seconds\":2.000,\"findings\":[]}\n");
    }

    /// Each fault is found by its own detector and by no other one.
    #[test]
    fn each_fault_has_its_name() {
        type Fault = (&'static str, fn(&mut WhyFigures));
        let faults: [Fault; 21] = [
            (ERRORS, |f| f.errors[0].failed = 40),
            (ERRORS, |f| f.errors[0].refused = 390),
            (CPU, |f| {
                f.workers[0].busy = 0.97;
                f.modules[0].ns = 1_500_000_000;
            }),
            (CPU, |f| f.stalls = vec![stall(StallCause::Computes); 8]),
            (GC, |f| f.workers[1].gc_ns = 900_000_000),
            (GC, |f| f.stalls = vec![stall(StallCause::Collects); 3]),
            (BLOCKED, |f| f.stalls = vec![stall(StallCause::Sleeps); 8]),
            (LOCK, |f| f.stalls = vec![stall(StallCause::Locked); 8]),
            (DISK, |f| f.stalls = vec![stall(StallCause::Disk); 8]),
            (DISK, |f| f.files = FileLoad { done: 40, ns: 2_000_000_000, running: 2, oldest_ns: 40_000_000 }),
            (SLOW_PEER, |f| f.upstreams[0].peers[1].p50_us = 19_000),
            (FAULTY_PEER, |f| (f.upstreams[0].peers[1].reset, f.upstreams[0].peers[1].repeated) = (40, 40)),
            (ACCEPT_QUEUE, |f| f.listeners[0].waiting = 511),
            (UNEVEN, |f| f.workers[1].connections = 300),
            (NO_CORE, |f| f.workers[0].run_queue = 0.5),
            (CERTIFICATE, |f| f.certificates[0] = certificate(CertificateAge::Soon, 3)),
            (CERTIFICATE, |f| f.certificates[0] = certificate(CertificateAge::Expired, -3)),
            (HANDSHAKES, |f| f.handshakes.faults = vec![(HandshakeFault::UnknownCa, 30)]),
            (HANDSHAKES, |f| f.handshakes.faults = vec![(HandshakeFault::Own, 1)]),
            (LOGS, |f| f.lost_lines = 1),
            (ZONE, |f| f.zones[0].dropped = 50),
        ];
        for (kind, inject) in faults {
            let mut figures = healthy();
            inject(&mut figures);
            assert_eq!(kinds(&figures), [kind], "{:?}", findings(&figures, 5));
        }
    }

    #[test]
    fn sentences_have_a_line_and_a_command() {
        let mut figures = healthy();
        figures.stalls = vec![stall(StallCause::Sleeps); 28];
        // Much slower than the loops, which are blocked, make any of them look.
        figures.upstreams[0].peers[1].p50_us = 49_200;
        let mut found = findings(&figures, 5);
        assert_eq!(found.len(), 2, "{found:?}");
        found.sort_by_key(|finding| finding.kind);
        assert_eq!(
            found[0].says,
            "os.execute (wait4) at a.lua:3 in /x blocked a worker 14 times a second, 22.0 ms each, 84 requests waited 10.0 ms each"
        );
        assert_eq!((&*found[0].line, &*found[0].command), ("a.lua:3", "weir blocked"));
        assert_eq!(
            found[1].says,
            "b is 24.6 times slower than the other servers of u: 49.2 ms to a response against 2.0 ms"
        );
        figures.upstreams[0].peers[1].p50_us = 19_200;
        assert_eq!(kinds(&figures), [BLOCKED], "as slow as that all of them may look");
        let text = text(&found);
        assert!(text.starts_with("1. os.execute") && text.ends_with("   weir top upstreams\n"), "{text}");
        assert_eq!(findings(&figures, 1).len(), 1);
        let json = json(&figures, &found);
        assert!(
            json.contains("\"kind\":\"blocked\",\"weight\":") && json.contains("\"subject\":\"b\""),
            "{json}"
        );
    }

    /// What takes much of the workers' CPU all the time is found; what is there for that, or hurts nobody, is not.
    #[test]
    fn steady_use_of_cpu_is_found_where_it_matters() {
        let found = |work, ns, requests, busy: f64, run_queue| {
            let mut figures = healthy();
            figures.workers[0].busy = busy;
            figures.workers[0].run_queue = run_queue;
            figures.modules = vec![ModuleLoad { work, ns, requests, ..figures.modules[0].clone() }];
            !kinds(&figures).is_empty()
        };
        use ModuleWork::{Besides, Content, Script};
        // The other worker runs for 0.6 s of the two seconds.
        for (work, ns, requests, busy, run_queue, expected) in [
            (Besides, 1_000_000_000, 700, 0.9, 0.0, true),
            (Besides, 1_000_000_000, 700, 0.9, 0.19, true),
            (Besides, 900_000_000, 700, 0.9, 0.0, false),
            (Besides, 590_000_000, 700, 0.0, 0.0, false),
            (Besides, 610_000_000, 0, 0.1, 0.0, true),
            (Content, 1_800_000_000, 10, 1.0, 0.0, false),
            (Script, 1_400_000_000, 100_000, 1.0, 0.0, true),
            (Script, 1_200_000_000, 100_000, 1.0, 0.0, false),
            (Script, 1_000_000_000, 100_000, 0.6, 0.0, false),
            (Script, 1_000_000_000, 1_000, 0.6, 0.0, true),
            (Script, 1_000_000_000, 1_000, 0.6, 0.19, true),
        ] {
            assert_eq!(
                found(work, ns, requests, busy, run_queue),
                expected,
                "{work:?} {ns} {requests} {busy}"
            );
        }
        let mut figures = healthy();
        figures.modules[0] =
            ModuleLoad { work: Script, ns: 1_000_000_000, requests: 1_000, ..figures.modules[0].clone() };
        figures.workers[1].run_queue = 0.3;
        assert_eq!(kinds(&figures), [NO_CORE], "of a script nothing is said where others have the core");
    }

    #[test]
    fn steady_use_of_cpu_has_its_line_its_price_and_its_setting() {
        let mut figures = healthy();
        figures.workers[0].busy = 0.9;
        let setting = FilterSetting {
            directive: "gzip_comp_level",
            value: "9".to_owned(),
            place: "nginx.conf:8".to_owned(),
            cheaper: "level 1 costs least",
        };
        figures.modules[0] = ModuleLoad {
            ns: 1_200_000_000,
            requests: 600,
            others: 2,
            setting: Some(setting),
            ..figures.modules[0].clone()
        };
        let found = findings(&figures, 5);
        assert_eq!(
            found[0].says,
            "gzip (nginx.conf:7) in / and 2 other locations takes 50% of the workers' CPU, 0.6 cores, 2.0 ms a request; \
             gzip_comp_level is 9 (nginx.conf:8): level 1 costs least"
        );
        assert_eq!((&*found[0].line, &*found[0].command), ("nginx.conf:7", "weir flame cpu --route /"));
        figures.modules[0] = ModuleLoad {
            name: "log_by_lua".to_owned(),
            others: 0,
            hottest: "/srv/audit.lua:5".to_owned(),
            setting: None,
            ..figures.modules[0].clone()
        };
        let found = findings(&figures, 5);
        let says = "log_by_lua (nginx.conf:7) in / takes 50% of the workers' CPU, 0.6 cores, 2.0 ms a request, most of it at /srv/audit.lua:5";
        assert_eq!((&*found[0].says, &*found[0].line), (says, "/srv/audit.lua:5"));
        // One that computes without a pause there is one finding, not two.
        figures.stalls = vec![StallLoad { location: "/".to_owned(), ..stall(StallCause::Computes) }; 8];
        assert_eq!(kinds(&figures), [CPU]);
    }

    /// A pause that nobody looked into, while the collector took as much.
    #[test]
    fn a_pause_without_a_stack_may_be_the_collector_s() {
        let mut figures = healthy();
        let unseen =
            StallLoad { line: String::new(), by: "content".to_owned(), ..stall(StallCause::Computes) };
        figures.stalls = vec![unseen; 8];
        assert_eq!(kinds(&figures), [CPU]);
        figures.workers[0].gc_ns = 150_000_000;
        assert_eq!(kinds(&figures), [""; 0]);
        figures.stalls = vec![stall(StallCause::Computes); 8];
        assert_eq!(kinds(&figures), [CPU], "one whose line was seen");
    }

    #[test]
    fn errors_are_named_with_what_the_log_says() {
        let mut figures = healthy();
        figures.stalls = vec![stall(StallCause::Sleeps); 28];
        figures.errors[0].failed = 100;
        let found = findings(&figures, 5);
        assert_eq!((found.len(), found[0].kind), (2, ERRORS), "what clients see comes first: {found:?}");
        assert_eq!(found[0].says, "25% of the responses of / are 5xx, 50.0 a second: open() failed");
        assert_eq!(found[0].command, "weir slow --match 'location=/ status=5xx'");
        (figures.errors[0].status, figures.errors[0].line) = (Some(500), "a.lua:4".to_owned());
        let says = |figures: &WhyFigures| findings(figures, 1)[0].says.clone();
        assert_eq!(
            says(&figures),
            "25% of the responses of / are 500, 50.0 a second: open() failed at a.lua:4"
        );
        figures.errors[0].message = "a.lua:4: no".to_owned();
        assert!(says(&figures).ends_with(": a.lua:4: no"));
        figures.errors[0].message.clear();
        assert!(says(&figures).ends_with("; the error log says nothing of them"));
        (figures.errors[0].failed, figures.errors[0].refused) = (0, 400);
        assert_eq!(found.len(), 2, "refusals without a line are clients' own: {found:?}");
        assert_eq!(findings(&figures, 5)[0].kind, BLOCKED);
    }

    /// One long turn is an accident; so is a connection that was reset once.
    #[test]
    fn what_happens_once_is_not_found() {
        let mut figures = healthy();
        figures.stalls =
            vec![stall(StallCause::Sleeps), stall(StallCause::Computes), stall(StallCause::Collects)];
        figures.stalls.iter_mut().for_each(|stall| stall.ns = 12_000_000);
        figures.upstreams[0].peers[0].reset = 1;
        figures.upstreams[0].peers[0].refused = 0;
        assert_eq!(kinds(&figures), [""; 0]);
        figures.stalls[0].ns = 400_000_000;
        assert_eq!(kinds(&figures), [BLOCKED], "one that takes a fifth of the time is none");
    }

    #[test]
    fn certificates_are_named_with_their_line_and_very_many_with_their_number() {
        let mut figures = healthy();
        figures.certificates = vec![certificate(CertificateAge::Expired, -2); 9];
        let found = findings(&figures, 9);
        assert_eq!(found.len(), 3);
        assert_eq!(
            found[0].says,
            "the certificate of a.example expired 2 days ago: /etc/a.crt (nginx.conf:3)"
        );
        assert!(
            found.iter().any(|one| one.says.ends_with("; 6 more certificates end soon, too")),
            "{found:?}"
        );
        assert_eq!((&*found[0].line, &*found[0].command), ("nginx.conf:3", "weir tls certificates"));
        figures = healthy();
        figures.handshakes.faults = vec![(HandshakeFault::UnknownCa, 60), (HandshakeFault::NoCipher, 40)];
        figures.handshakes.name = "a.example".to_owned();
        assert_eq!(
            findings(&figures, 9)[0].says,
            "50% of the TLS handshakes fail, 50.0 a second, most of them for a.example: The client does not trust \
             the issuer of the certificate: alert 48 (60 of 100)"
        );
    }
}
