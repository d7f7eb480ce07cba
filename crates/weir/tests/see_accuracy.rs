//! What the commands say of a handler that burns 3 ms, one that sleeps 20 ms and one that blocks for 60 ms: exactly that.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use weir_engine::ModuleDef;
use weir_engine::conf::{CORE_MODULES, with_core};
use weir_see::{ServerSource, control_server};
use weir_test::{DEADLINE, Driver, both_drivers};

#[path = "it/support/inside.rs"]
mod inside;
#[path = "it/support/says.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod says;

use inside::{BLOCK, BURN, SLEEP, is_about};

static MODULES: [ModuleDef; CORE_MODULES.len() + 1] = with_core(&[ModuleDef::of::<inside::Act>()]);

/// A server in this process that is asked by the program.
struct Running {
    inside: inside::Running,
    socket: PathBuf,
}

fn started(driver: Driver) -> Running {
    let server =
        "server { listen %%ADDRESS%%; act; location /burn { } location /sleep { } location /block { } }";
    let inside = inside::Running::start(driver, &MODULES, "", server);
    let socket = inside.directory.path().join("control.sock");
    let source = ServerSource::new(&inside.server);
    control_server::serve(UnixListener::bind(&socket).expect("binds"), source, Arc::new(|_, _, _| None))
        .expect("a thread");
    Running { inside, socket }
}

impl Running {
    #[track_caller]
    fn says(&self, words: &[&str]) -> String {
        says::says(words, &["--socket".as_ref(), self.socket.as_os_str()])
    }

    /// What it says while all three are asked in turn.
    fn says_of_load(&self, words: &[&str]) -> String {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut client = self.inside.client();
                while !stop.load(Relaxed) {
                    for target in ["/burn?burn=content", "/sleep?sleep=content", "/block?block=content"] {
                        assert_eq!(client.get(target).text(), "content");
                    }
                }
            });
            let said = self.says(words);
            stop.store(true, Relaxed);
            said
        })
    }

    /// Of some responses the first that is right: a busy machine may take the processor away at the wrong moment, not
    /// always.
    #[track_caller]
    fn find(&self, words: &[&str], right: impl Fn(&str) -> bool) {
        let end = Instant::now() + DEADLINE;
        loop {
            let said = self.says_of_load(words);
            if right(&said) {
                return;
            }
            assert!(Instant::now() < end, "{words:?}: {said}");
        }
    }
}

/// The figures of the line `-> act` below `-> content` in an average: calls, then microseconds.
fn figures(average: &str) -> Vec<f64> {
    let mut lines = average.lines().skip_while(|line| !line.contains("-> content")).skip(1);
    let line = lines.next().filter(|line| line.contains("-> act")).unwrap_or_else(|| panic!("{average}"));
    let words = line.split_whitespace().skip(2);
    words.filter(|word| !word.ends_with('%')).map(|word| word.parse().expect("a figure")).collect()
}

fn us(figure: f64) -> Duration {
    Duration::from_nanos((figure * 1_000.0) as u64)
}

/// Count and nanoseconds of the stack whose frames have these names, of `flame --json`.
fn stack(said: &str, names: &[&str]) -> (u64, Duration) {
    let named = |text: &str| {
        let found: Vec<&str> =
            text.split("\"name\":\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        found == names
    };
    let number = |text: &str, key: &str| -> u64 {
        let digits = text.split(key).nth(1).and_then(|rest| rest.split([',', '}']).next());
        digits.and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("{text}"))
    };
    let mut stacks = said.split("{\"count\":").skip(1).filter(|text| named(text));
    let Some(stack) = stacks.next() else { return (0, Duration::ZERO) };
    assert!(stacks.next().is_none(), "equal stacks are one: {said}");
    (
        number(&format!("\"count\":{stack}"), "\"count\":"),
        Duration::from_nanos(number(stack, "\"value_ns\":")),
    )
}

/// A timer is of whole milliseconds, counts from the turn's beginning, and is late on a busy machine.
fn is_sleep(time: Duration) -> bool {
    time + Duration::from_millis(1) >= SLEEP && time < SLEEP * 2
}

both_drivers! {
    fn trace_shows_what_each_of_them_does(driver) {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let running = started(driver);
        let average = |location: &'static str| ["trace", "--avg", "1", "--match", location];
        running.find(&average("location=/burn"), |said| is_about(us(figures(said)[2]), BURN));
        running.find(&average("location=/block"), |said| is_about(us(figures(said)[2]), BLOCK));
        running.find(&average("location=/sleep"), |said| {
            let figures = figures(said);
            us(figures[2]) < SLEEP / 20 && is_sleep(us(figures[4]))
        });
    }

    fn flame_shows_what_each_of_them_does(driver) {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let running = started(driver);
        running.find(&["flame", "wall", "-t", "150ms", "--json"], |said| {
            let each = |names: &[&str]| {
                let (count, time) = stack(said, names);
                time.checked_div(count as u32).unwrap_or_default()
            };
            is_about(each(&["/burn", "content", "act"]), BURN)
                && is_about(each(&["/block", "content", "act"]), BLOCK)
                && is_sleep(each(&["/sleep", "content", "act", "wait other"]))
                && each(&["/sleep", "content", "act"]) < SLEEP / 20
        });
        // What has no processor is not in the profile of what has one.
        running.find(&["flame", "cpu", "-t", "1s", "--hz", "250", "-o", "folded"], |said| {
            let of = |location: &str| -> u64 {
                let lines = said.lines().filter(|line| line.starts_with(location) && line.contains(";content;act;"));
                lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
            };
            let (burnt, others) = (of("/burn;"), of("/sleep;") + of("/block;"));
            burnt >= 4 * BURN.as_nanos() as u64 && others <= burnt / 5
        });
    }

    fn blocked_shows_the_one_that_blocks_as_long_as_it_does(driver) {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let running = started(driver);
        running.find(&["blocked", "-v", "--over", "50ms", "-n", "1000"], |said| {
            let mut stalls = said.split("worker ").skip(1).filter(|stall| stall.contains("in content act, location /block"));
            stalls.any(|stall| {
                let lasted = stall.split("was blocked for ").nth(1).and_then(|rest| rest.split(" ms").next());
                let lasted = lasted.and_then(|digits| digits.parse::<f64>().ok()).unwrap_or(0.0);
                is_about(us(lasted * 1_000.0), BLOCK) && stall.contains("nanosleep")
            })
        });
        // On a busy machine any request may be stuck for want of a processor; that one for nothing else.
        let said = running.says(&["blocked", "-v", "--over", "50ms", "-n", "1000"]);
        let of_sleep = said.split("worker ").filter(|stall| stall.contains("location /sleep"));
        assert_eq!(of_sleep.filter(|stall| stall.contains("nanosleep")).count(), 0, "{said}");
    }
}

/// Housekeeping is the process's: it reports the other tests' workers, too.
static ALONE: Mutex<()> = Mutex::new(());
