use std::path::Path;
use std::time::Duration;

use weir_conf::MemoryFiles;
use weir_rt::{DriverChoice, process};

use crate::conf::CORE_MODULES;
use crate::conf::test::{FILE, headlines, load, load_files};
use crate::settings::main::{MainConf, ThreadPool};

fn main(text: &str) -> MainConf {
    load(text, &CORE_MODULES).unwrap_or_else(|error| panic!("{error}")).main
}

#[test]
fn wrong_lines_are_refused_in_nginx_words_at_their_place() {
    for (line, error) in [
        ("worker_processes x;", "\"worker_processes\" directive invalid value in weir.conf:1:18"),
        ("worker_processes 0;", "\"worker_processes\" directive invalid value in weir.conf:1:18"),
        (
            "worker_processes 1; worker_processes 2;",
            "\"worker_processes\" directive is duplicate in weir.conf:1:21",
        ),
        ("ssl_key_pool threads=0;", "invalid parameter \"threads=0\" in weir.conf:1:14"),
        ("ssl_key_pool nice=20;", "invalid parameter \"nice=20\" in weir.conf:1:14"),
        ("ssl_key_pool nice=5 threads=few;", "invalid parameter \"threads=few\" in weir.conf:1:21"),
        ("ssl_key_pool nice=-1;", "invalid parameter \"nice=-1\" in weir.conf:1:14"),
        ("ssl_key_pool 8;", "invalid parameter \"8\" in weir.conf:1:14"),
        ("ssl_key_pool;", "invalid number of arguments in \"ssl_key_pool\" directive in weir.conf:1:1"),
        (
            "ssl_key_pool nice=1; ssl_key_pool nice=2;",
            "\"ssl_key_pool\" directive is duplicate in weir.conf:1:22",
        ),
        ("worker_priority x;", "\"worker_priority\" directive invalid number in weir.conf:1:17"),
        ("worker_cpu_affinity 01x;", "invalid character \"x\" in \"worker_cpu_affinity\" in weir.conf:1:21"),
        (
            "worker_cpu_affinity auto 01 10;",
            "invalid number of arguments in \"worker_cpu_affinity\" directive in weir.conf:1:1",
        ),
        ("worker_rlimit_nofile x;", "\"worker_rlimit_nofile\" directive invalid number in weir.conf:1:22"),
        (
            "worker_shutdown_timeout x;",
            "\"worker_shutdown_timeout\" directive invalid value in weir.conf:1:25",
        ),
        ("thread_pool a;", "invalid number of arguments in \"thread_pool\" directive in weir.conf:1:1"),
        ("thread_pool a threads=0;", "invalid threads value \"threads=0\" in weir.conf:1:15"),
        ("thread_pool a max_queue=x;", "invalid max_queue value \"max_queue=x\" in weir.conf:1:15"),
        ("thread_pool a max_queue=1;", "\"thread_pool\" must have \"threads\" parameter in weir.conf:1:1"),
        (
            "thread_pool a threads=1; thread_pool a threads=2;",
            "duplicate thread pool \"a\" in weir.conf:1:38",
        ),
        ("events { use kqueue; }", "invalid event type \"kqueue\" in weir.conf:1:14"),
        ("events { worker_connections x; }", "invalid number \"x\" in weir.conf:1:29"),
        ("events { use epoll; use epoll; }", "\"use\" directive is duplicate in weir.conf:1:21"),
        ("worker_connections 5;", "\"worker_connections\" directive is not allowed here in weir.conf:1:1"),
        (
            "daemon maybe;",
            "invalid value \"maybe\" in \"daemon\" directive, it must be \"on\" or \"off\" in weir.conf:1:8",
        ),
        ("debug_points x;", "invalid value \"x\" in weir.conf:1:14"),
        ("load_module m.so;", "module \"m.so\" can't be loaded in weir.conf:1:13"),
        ("ssl_engine x;", "\"ssl_engine\" directive is not supported on this platform in weir.conf:1:1"),
        ("error_log e foo;", "invalid log level \"foo\" in weir.conf:1:13"),
        ("error_log;", "invalid number of arguments in \"error_log\" directive in weir.conf:1:1"),
        ("env =x;", "invalid value \"=x\" in weir.conf:1:5"),
    ] {
        assert_eq!(headlines(line, &CORE_MODULES), [error], "{line}");
    }
}

#[test]
fn all_errors_are_told_in_one_run() {
    let text = "worker_processes x;\nevents { use kqueue; }\nhttp {\n  sendfile of;\n  server { listen 1:x; lisen 80; }\n}";
    let errors = headlines(text, &CORE_MODULES);
    assert_eq!(
        errors,
        [
            "\"worker_processes\" directive invalid value in weir.conf:1:18",
            "invalid event type \"kqueue\" in weir.conf:2:14",
            "invalid value \"of\" in \"sendfile\" directive, it must be \"on\" or \"off\" in weir.conf:4:12",
            "invalid port in \"1:x\" of the \"listen\" directive in weir.conf:5:19",
            "unknown directive \"lisen\" in weir.conf:5:24",
        ]
    );
}

#[test]
fn an_empty_configuration_has_nginx_defaults() {
    let main = main("");
    assert_eq!((main.workers(), main.worker_connections(), main.driver()), (1, 512, DriverChoice::Auto));
    assert_eq!((main.daemon(), main.master_process(), main.priority()), (true, true, 0));
    assert_eq!((main.shutdown_timeout(), main.affinity(0)), (None, None));
    assert_eq!(main.pid(Path::new("/p")), Path::new("/p/logs/nginx.pid"));
}

#[test]
fn every_line_is_recorded() {
    let main = main(
        "worker_processes 3; pid run/w.pid; lock_file l; daemon off; master_process off; worker_rlimit_nofile 4;
         worker_rlimit_core 1g; worker_priority -5; ssl_key_pool nice=5 threads=2; worker_shutdown_timeout 6s; working_directory /tmp; env A; env B=c=d;
         timer_resolution 7ms; pcre_jit off; debug_points stop; thread_pool p threads=8 max_queue=9;
         events { use io_uring; worker_connections 10; multi_accept on; accept_mutex on; accept_mutex_delay 11ms;
                  worker_aio_requests 12; epoll_events 13; }",
    );
    assert_eq!((main.workers(), main.worker_connections(), main.driver()), (3, 10, DriverChoice::IoUring));
    assert_eq!(
        (main.daemon(), main.master_process(), main.priority(), main.pcre_jit()),
        (false, false, -5, false)
    );
    assert_eq!(main.key_pool(), (Some(2), 5));
    assert_eq!((main.worker_rlimit_nofile, main.worker_rlimit_core), (Some(4), Some(1 << 30)));
    assert_eq!(main.shutdown_timeout(), Some(Duration::from_secs(6)));
    assert_eq!(main.pid(Path::new("/p")), Path::new("/srv/weir/run/w.pid"));
    assert_eq!(main.env, [("A".to_owned(), None), ("B".to_owned(), Some("c=d".to_owned()))]);
    assert_eq!(main.thread_pools, [ThreadPool { name: b"p".to_vec(), threads: 8, max_queue: 9 }]);
    assert_eq!((main.timer_resolution, main.accept_mutex_delay), (Some(7), Some(11)));
}

#[test]
fn workers_run_on_the_cpus_of_their_masks() {
    let conf = main("worker_cpu_affinity 0101 1000;");
    assert_eq!(conf.affinity(0), Some(vec![0, 2]));
    assert_eq!((conf.affinity(1), conf.affinity(9)), (Some(vec![3]), Some(vec![3])));
    let allowed = process::process_affinity().expect("Linux says");
    let given = |line: &str, workers: usize| {
        let conf = main(line);
        let mut cpus: Vec<usize> = (0..workers).filter_map(|id| Some(conf.affinity(id)?[0])).collect();
        cpus.sort_unstable();
        cpus
    };
    let auto = "worker_cpu_affinity auto;";
    assert_eq!(given(auto, allowed.len()), allowed, "each that the process may use, once");
    assert_eq!(given(auto, 2 * allowed.len()), allowed.iter().flat_map(|cpu| [*cpu; 2]).collect::<Vec<_>>());
    let first = format!("worker_cpu_affinity auto 1{};", "0".repeat(allowed[0]));
    assert_eq!(given(&first, 2), [allowed[0]; 2]);
    // None of the mask is there: binding fails later, and says so.
    let absent = format!("worker_cpu_affinity auto 11{};", "0".repeat(900));
    assert_eq!(given(&absent, 2), [900, 901]);
    let auto = main("worker_processes auto;");
    assert_eq!(auto.workers(), process::cpu_count());
}

#[test]
fn what_is_probably_not_meant_is_said_in_nginx_s_words() {
    let none = Vec::<String>::new();
    for conf in ["", "worker_cpu_affinity 01;", "worker_processes 2; worker_cpu_affinity 01 10;"] {
        assert_eq!(main(&format!("{conf} events {{ worker_connections 9; }}")).doubts(), none, "{conf}");
    }
    let doubts =
        main("worker_processes 3; worker_cpu_affinity 01 10; events { worker_connections 9; }").doubts();
    assert_eq!(doubts.len(), 1);
    assert!(doubts[0].ends_with("masks, using last mask for remaining worker processes"), "{doubts:?}");
    let many = "worker_connections 4000000000";
    let doubts = main(&format!("events {{ {many}; }}")).doubts();
    assert!(doubts[0].starts_with("4000000000 worker_connections exceed open file resource limit: "));
    assert_eq!(main(&format!("worker_rlimit_nofile 5000000000; events {{ {many}; }}")).doubts(), none);
}

#[test]
fn users_are_looked_up_by_who_can_become_one() {
    let files = |text: &str| MemoryFiles::new().with(FILE, text);
    let (result, warnings) = load_files(&files("user no-such-user;"), &CORE_MODULES);
    if process::is_root() {
        let error = result.err().unwrap_or_default();
        assert!(error.starts_with("getpwnam(\"no-such-user\") failed in"), "{error}");
        assert!(main("user root;").user.is_some_and(|(user, group)| user.uid == 0 && group == 0));
        let errors = headlines("user root no-such-group;", &CORE_MODULES);
        assert_eq!(errors, ["getgrnam(\"no-such-group\") failed in weir.conf:1:11"]);
    } else {
        assert!(result.is_ok());
        assert!(warnings.starts_with("the \"user\" directive makes sense only if"), "{warnings}");
    }
}

#[test]
fn logs_of_the_main_context_are_those_of_http() {
    let text = "error_log stderr warn; http { server { location / { } } }";
    let conf = load(text, &CORE_MODULES).unwrap_or_else(|error| panic!("{error}"));
    let http = conf.servers()[0].confs.get::<crate::conf::http_core::HttpCoreConf>();
    assert!(conf.main.error_log_open.is_some() && http.error_log_open.is_some());
}
