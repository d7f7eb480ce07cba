//! HUP, USR2 and a server's death right after each other, under load: nothing is lost, and nothing is left over.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

use weir_test::{Server, both_drivers, wait_for};

use super::*;

/// How long a test goes on; the round that has begun is completed.
const LONG: Duration = Duration::from_secs(4);

/// A configuration whose response says which it is. The number of workers changes with it.
fn version(n: usize) -> [String; 2] {
    [format!("worker_processes {};", 1 + n % 3), format!("return 200 v{n};")]
}

fn start(driver: weir_test::Driver) -> Server {
    let [workers, says] = version(0);
    let conf = format!(
        "master_process on; {workers} http {{ access_log off; server {{ listen 127.0.0.1:%%PORT%%; {says} }} }}"
    );
    Server::builder(&conf).driver(driver).allow("worker process").allow("the server").start()
}

/// Replaces the configuration before with this one.
fn write(server: &Server, n: usize) {
    let mut text = server.dir().read("nginx.conf");
    for (old, new) in version(n - 1).iter().zip(version(n)) {
        assert!(text.contains(old), "{text}");
        text = text.replace(old, &new);
    }
    server.dir().write("nginx.conf", text);
}

/// Waits until a request gets the configuration with that number.
#[track_caller]
fn wait_version(server: &Server, n: usize) {
    let wanted = format!("v{n}");
    let text = || {
        let mut stream = TcpStream::connect(server.addr(0)).ok()?;
        stream.set_read_timeout(Some(DEADLINE)).ok()?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
        let mut all = String::new();
        stream.read_to_string(&mut all).ok().map(|_| all)
    };
    wait_for(&wanted, || text()?.ends_with(&wanted).then_some(()));
}

/// The processes below a master.
fn children(master: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{master}/task/{master}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Open descriptors.
fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

both_drivers! {
    /// Reloads that overtake each other, and upgrades that begin while one is under way.
    fn reloads_and_upgrades_that_overtake_each_other_lose_nothing(driver) {
        let mut server = start(driver);
        let pid = server.dir().path().join("nginx.pid");
        let (began, first) = (Instant::now(), server.pid());
        let (mut n, mut master, mut seen) = (0, first, BTreeSet::from([first]));
        // The same number of workers as at the end: each has descriptors.
        let before = (descriptors(first), descriptors(server_of(first, None)));
        let failed = under_load(server.addr(0), |load| {
            while began.elapsed() < LONG || n % 3 != 0 {
                n += 1;
                write(&server, n);
                seen.extend(children(master));
                for pause in 0..1 + n % 4 {
                    kill(master, "HUP");
                    // Two at once are one to the kernel; a while apart they meet different steps of the first.
                    sleep(Duration::from_millis(5 * pause as u64));
                }
                if n % 2 == 0 {
                    kill(master, "USR2");
                    let new = pid_in(&pid, Some(master));
                    seen.extend([new, server_of(new, None)]);
                    kill(master, "QUIT");
                    wait_gone(master);
                    master = new;
                }
                load.wait(5);
            }
            wait_version(&server, n);
        });
        assert_eq!(failed, 0, "{}", server.error_log());
        let child = server_of(master, None);
        for gone in seen.iter().filter(|seen| ![master, child].contains(seen)) {
            wait_gone(*gone);
        }
        wait_for("descriptors as at the beginning", || {
            let now = (descriptors(master), descriptors(child));
            (now.0 <= before.0 + SPARE && now.1 <= before.1 + SPARE).then_some(())
        });
        kill(master, "QUIT");
        wait_gone(child);
        wait_gone(master);
        if master != first {
            assert!(server.wait_exit().status.success());
        }
        assert!(!pid.exists(), "removed by the last master");
    }

    /// The server dies at some point of a reload: the master has another, with what is configured by then.
    fn a_server_that_dies_in_a_reload_is_replaced(driver) {
        let server = start(driver);
        let (pid, began) = (server.pid(), Instant::now());
        let before = descriptors(pid);
        let mut n = 0;
        for pause in [0, 1, 2, 4, 8, 16, 32, 64] {
            // One that dies again and again soon after its start is started later and later.
            if began.elapsed() > 2 * LONG {
                break;
            }
            n += 1;
            write(&server, n);
            kill(pid, "HUP");
            sleep(Duration::from_millis(pause));
            for child in children(pid) {
                // It may be gone by itself.
                let _gone = Command::new("sh").args(["-c", &format!("kill -KILL {child}")]).output();
            }
            server_of(pid, None);
            kill(pid, "HUP");
            wait_version(&server, n);
        }
        assert!(n >= 3, "{n} deaths in {LONG:?}");
        wait_for("one server", || (children(pid).len() == 1).then_some(()));
        wait_for("the master's descriptors as before", || (descriptors(pid) <= before + SPARE).then_some(()));
    }
}

/// What may be open for a moment, as a log's or a client's that is just served.
const SPARE: usize = 8;
