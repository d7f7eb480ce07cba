//! Weir and nginx on the same configuration, the same files and the same bytes from clients.
//!
//! Three configurations (`tests/data/compare/*.conf`) with their tables of requests (`*.req`) are given to both. What
//! they respond with must be the same byte by byte, but for the value of `Date` and the random boundary of multipart
//! responses (see [`mask`]); so must the lines of their access logs. nginx's name and version are given to Weir by
//! `server_product`, so that its `Server` field and error pages can be compared too.
//!
//! nginx is the program of `WEIR_TEST_NGINX` or `PATH`; requests to which its versions respond differently say in the
//! table from or until which version they are asked. A difference that is meant says so in the table; the test fails
//! for every other one, and for a meant one that is gone. With another nginx in `WEIR_BIN` the two are compared: that
//! is how the tables are checked themselves.

mod answer;
mod mask;
mod report;
mod side;
mod site;
mod table;
pub(crate) mod version;

use std::fs;
use std::path::Path;

use report::Report;
use side::Side;
use site::Site;
use version::Version;

weir_test::both_drivers! {
    /// Which server, which location, redirects, error pages.
    fn hosts(driver) {
        compare("hosts");
    }

    /// Files, directories, ranges, conditional requests, added fields.
    fn files(driver) {
        compare("files");
    }

    /// Request lines, fields, bodies, limits, connections, logs.
    fn messages(driver) {
        compare("messages");
    }
}

/// Asks both servers everything in the table of this name and fails where their responses differ.
fn compare(name: &str) {
    let Some(nginx) = weir_test::require_program("nginx") else { return };
    let versions = [Some(Version::of(&nginx)), side::other_nginx().map(|path| Version::of(&path))];
    let versions: Vec<Version> = versions.into_iter().flatten().collect();
    let site = Site::new();
    let conf = version::select(&data(&format!("{name}.conf")), &versions);
    let conf = conf.replace("%%SITE%%", &site.path().to_string_lossy());
    let requests = table::parse(&data(&format!("{name}.req")));

    let mut theirs = Side::nginx(&conf, versions[0]);
    let mut ours = Side::tested(&conf, versions[0]);
    let mut report = Report::new(name, versions[0]);
    for request in &requests {
        if versions.iter().all(|version| request.versions.contains(version)) {
            theirs.ask(request);
            ours.ask(request);
        } else {
            report.skip(request);
        }
    }
    let (their_ports, our_ports) = (theirs.ports(), ours.ports());
    report.compare(&requests, &theirs.finish(our_ports), &ours.finish(their_ports));
    report.finish();
}

fn data(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/compare").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
