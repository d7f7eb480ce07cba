//! `profile_cpu` and `profile_blocked` as the running program obeys them, and what samples of it show by name.

use weir_test::{Server, both_drivers, wait_for};

use crate::support::says;

const CONF: &str = "worker_processes 1; profile_cpu 50; profile_blocked 30ms;
    http { server { listen 127.0.0.1:%%PORT%%; root html; keepalive_requests 1000000;
        location /img/ { alias html/; autoindex on; } } }";

/// The program's output for these arguments, about that server.
fn tell(server: &Server, words: &[&str]) -> String {
    says::says(words, &says::of(server))
}

fn started() -> Server {
    let server = Server::builder(CONF).file("html/a.txt", "0123456789").start();
    says::ready(&server);
    server
}

both_drivers! {
    fn rate_and_limit_are_those_of_the_configuration(driver) {
        let mut server = started();
        let reported = tell(&server, &["doctor"]);
        assert!(reported.contains("50 per second of CPU time") && reported.contains("watched from 30.0 ms on"), "{reported}");
        server.reload(&CONF.replace("profile_cpu 50; profile_blocked 30ms", "profile_cpu off"));
        let reported = wait_for("the new settings", || {
            Some(tell(&server, &["doctor"])).filter(|reported| !reported.contains("50 per second"))
        });
        assert!(reported.contains("watched from 10.0 ms on"), "{reported}");
    }

    /// Of the samples of a loaded server nearly all begin at a thread's start, and those of requests name location,
    /// phase and module.
    fn samples_have_names_from_the_location_to_the_function(driver) {
        let server = started();
        let mut client = server.client();
        let folded = wait_for("some samples", || {
            (0..3000).for_each(|_| assert_eq!(client.get("/img/").status, 200));
            let folded = tell(&server, &["flame", "cpu", "--last", "-t", "60s", "-o", "folded"]);
            (total(&folded, |_| true) >= 200_000_000).then_some(folded)
        });
        let all = total(&folded, |_| true);
        for what in ["thread_start", "weir_server::workers::thread::start"] {
            let rooted = total(&folded, |stack| stack.contains(what));
            assert!(rooted * 10 >= all * 9, "{rooted} of {all} ns with {what}\n{folded}");
        }
        assert!(total(&folded, |stack| stack.starts_with("/img/;content;autoindex;")) > 0, "{folded}");
    }
}

/// Nanoseconds in the stacks that are wanted.
fn total(folded: &str, wanted: impl Fn(&str) -> bool) -> u64 {
    let lines = folded.lines().filter_map(|line| line.rsplit_once(' '));
    lines.filter(|(stack, _)| wanted(stack)).filter_map(|(_, ns)| ns.parse::<u64>().ok()).sum()
}
