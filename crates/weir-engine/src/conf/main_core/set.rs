//! Setters of the main context and of `events` that need more than a stock one.

use std::io;

use weir_conf::{Error, LineCx, Result, parse_number};
use weir_rt::DriverChoice;
use weir_rt::process;

use crate::cidr::Cidr;
use crate::conf::absent;
use crate::log::LogSpec;
use crate::privileged;
use crate::settings::main::{CpuAffinity, MOST_WORKERS, MainConf, MasterGone, ThreadPool, WorkerProcesses};

/// `user user [group]`
pub(super) fn user(conf: &mut MainConf, line: &mut LineCx<'_>) -> Result {
    if conf.user.is_some() {
        return Err(line.refuse("is duplicate"));
    }
    if !privileged::is_root() {
        line.warn(
            "the \"user\" directive makes sense only if the master process runs with super-user privileges, ignored",
        );
        return Ok(());
    }
    let user = found(line, 0, "getpwnam", process::user(line.arg(0)))?;
    // Without a group nginx takes the one with the user's name.
    let at = line.args().len() - 1;
    if at == 1 && line.bytes(1) == b"=primary" {
        let own = user.gid;
        return line.once(&mut conf.user, (user, own));
    }
    let group = found(line, at, "getgrnam", process::group(line.arg(at)))?;
    line.once(&mut conf.user, (user, group))
}

/// `getpwnam("x") failed`, with the system's error unless the name simply does not exist.
fn found<T>(line: &LineCx<'_>, i: usize, call: &str, result: io::Result<Option<T>>) -> Result<T> {
    let failed = format!("{call}(\"{}\") failed", line.arg(i));
    match result {
        Ok(Some(found)) => Ok(found),
        Ok(None) => Err(line.fail_arg(i, failed)),
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(0);
            Err(line.fail_arg(i, format!("{failed} ({errno}: {})", weir_rt::file::errno_text(errno))))
        }
    }
}

/// `master_gone serve | quit`
pub(super) fn master_gone(conf: &mut MainConf, line: &mut LineCx<'_>) -> Result {
    let what = match line.bytes(0) {
        b"serve" => MasterGone::Serve,
        b"quit" => MasterGone::Quit,
        _ => return Err(line.invalid_value(0).choices(line.arg(0), ["serve", "quit"].into_iter())),
    };
    line.once(&mut conf.master_gone, what)
}

/// `error_log file [level]`
pub(super) fn error_log(conf: &mut MainConf, line: &mut LineCx<'_>) -> Result {
    conf.error_log.get_or_insert_default().push(LogSpec::parse(line)?);
    Ok(())
}

/// `env name[=value]`
pub(super) fn env(conf: &mut MainConf, line: &mut LineCx<'_>) -> Result {
    let (name, value) = match line.arg(0).split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (line.arg(0), None),
    };
    if name.is_empty() || line.bytes(0).contains(&0) {
        return Err(line.invalid_value(0));
    }
    conf.env.push((name.to_owned(), value));
    Ok(())
}

/// `load_module file`
pub(super) fn load_module(_: &mut MainConf, line: &mut LineCx<'_>) -> Result {
    let file = line.arg(0).to_owned();
    match absent::module(&file) {
        Some(true) => line.warn(format!("module \"{file}\" is built in, ignored")),
        Some(false) => line.warn(format!("Weir does not have module \"{file}\", ignored")),
        None => return Err(unknown_module(line)),
    }
    Ok(())
}

fn unknown_module(line: &LineCx<'_>) -> Error {
    let hint = "modules are built into the server; remove the line if its directives are known without it";
    line.fail_arg(0, format!("module \"{}\" can't be loaded", line.arg(0))).hint(hint)
}

/// `ssl_engine device`
pub(super) fn ssl_engine(_: &mut MainConf, line: &mut LineCx<'_>) -> Result {
    Err(line.refuse("is not supported on this platform"))
}

/// `thread_pool name threads=N [max_queue=N]`
pub(super) fn thread_pool(conf: &mut MainConf, line: &mut LineCx<'_>) -> Result {
    let name = line.bytes(0);
    if conf.thread_pools.iter().any(|pool| pool.name == name) {
        return Err(line.fail_arg(0, format!("duplicate thread pool \"{}\"", line.arg(0))));
    }
    let (mut threads, mut max_queue) = (None, 65_536);
    for i in 1..line.args().len() {
        let invalid = |what| line.fail_arg(i, format!("invalid {what} value \"{}\"", line.arg(i)));
        if let Some(number) = line.bytes(i).strip_prefix(b"threads=") {
            threads = Some(parse_number(number).filter(|n| *n > 0).ok_or_else(|| invalid("threads"))?);
        } else if let Some(number) = line.bytes(i).strip_prefix(b"max_queue=") {
            max_queue = parse_number(number).ok_or_else(|| invalid("max_queue"))?;
        } else {
            // nginx overlooks other words here; a mistyped parameter should not go unnoticed.
            return Err(line.invalid_parameter(i));
        }
    }
    let Some(threads) = threads else {
        return Err(line.fail("\"thread_pool\" must have \"threads\" parameter"));
    };
    conf.thread_pools.push(ThreadPool { name: name.to_vec(), threads, max_queue });
    Ok(())
}

/// `worker_processes number | auto`
pub(super) fn worker_processes(conf: &mut MainConf, line: &mut LineCx<'_>) -> Result {
    let number = match line.bytes(0) {
        b"auto" => Some(WorkerProcesses::Auto),
        text => parse_number(text)
            .and_then(|n| u8::try_from(n).ok())
            .filter(|n| (1..=MOST_WORKERS).contains(n))
            .map(WorkerProcesses::Number),
    };
    if conf.worker_processes.is_some() {
        return Err(line.refuse("is duplicate"));
    }
    conf.worker_processes = Some(number.ok_or_else(|| line.refuse_arg(0, "invalid value"))?);
    Ok(())
}

/// `ssl_key_pool [threads=number] [nice=number]`
pub(super) fn key_pool(conf: &mut MainConf, line: &mut LineCx<'_>) -> Result {
    let (mut threads, mut nice) = conf.key_pool();
    if conf.key_pool.is_some() {
        return Err(line.refuse("is duplicate"));
    }
    for at in 0..line.args().len() {
        let (name, value) = line.arg(at).split_once('=').unwrap_or_default();
        let number = parse_number(value.as_bytes());
        match (name, number) {
            ("threads", Some(number @ 1..=1024)) => threads = Some(number as usize),
            ("nice", Some(number @ 0..=19)) => nice = number as i32,
            _ => return Err(line.invalid_parameter(at)),
        }
    }
    conf.key_pool = Some((threads, nice));
    Ok(())
}

/// `worker_priority number`, which may have a sign.
pub(super) fn worker_priority(conf: &mut MainConf, line: &mut LineCx<'_>) -> Result {
    if conf.worker_priority.is_some() {
        return Err(line.refuse("is duplicate"));
    }
    let (sign, digits) = match line.bytes(0) {
        [b'-', digits @ ..] => (-1, digits),
        [b'+', digits @ ..] => (1, digits),
        digits => (1, digits),
    };
    let number = parse_number(digits).and_then(|n| i32::try_from(n).ok());
    conf.worker_priority = Some(sign * number.ok_or_else(|| line.refuse_arg(0, "invalid number"))?);
    Ok(())
}

/// `worker_cpu_affinity mask ...`, `worker_cpu_affinity auto [mask]`
pub(super) fn worker_cpu_affinity(conf: &mut MainConf, line: &mut LineCx<'_>) -> Result {
    if conf.worker_cpu_affinity.is_some() {
        return Err(line.refuse("is duplicate"));
    }
    let masks = |from: usize| (from..line.args().len()).map(|i| cpus(line, i)).collect::<Result<Vec<_>>>();
    let affinity = if line.bytes(0) == b"auto" {
        if line.args().len() > 2 {
            return Err(line.fail("invalid number of arguments in \"worker_cpu_affinity\" directive"));
        }
        let mask = masks(1)?.pop();
        if mask.as_ref().is_some_and(Vec::is_empty) {
            return Err(line.invalid_value(1).hint("no CPU is left"));
        }
        CpuAffinity::Auto(mask)
    } else {
        CpuAffinity::Masks(masks(0)?)
    };
    line.once(&mut conf.worker_cpu_affinity, affinity)
}

/// The CPUs of a mask, whose last digit is the first CPU.
fn cpus(line: &LineCx<'_>, i: usize) -> Result<Vec<usize>> {
    let text = line.bytes(i);
    if text.len() > MOST_CPUS {
        return Err(line.fail_arg(i, format!("\"worker_cpu_affinity\" supports up to {MOST_CPUS} CPUs only")));
    }
    let mut cpus = Vec::new();
    for (cpu, digit) in text.iter().rev().filter(|digit| **digit != b' ').enumerate() {
        match digit {
            b'0' => {}
            b'1' => cpus.push(cpu),
            other => {
                let other = other.escape_ascii();
                return Err(
                    line.fail_arg(i, format!("invalid character \"{other}\" in \"worker_cpu_affinity\""))
                );
            }
        }
    }
    Ok(cpus)
}

/// `use method`
pub(super) fn driver(conf: &mut MainConf, line: &mut LineCx<'_>) -> Result {
    if conf.driver.is_some() {
        return Err(line.refuse("is duplicate"));
    }
    conf.driver = Some(match line.bytes(0) {
        b"epoll" => DriverChoice::Epoll,
        b"io_uring" => DriverChoice::IoUring,
        b"poll" | b"select" => {
            let message = format!("the event type \"{}\" is not there, \"epoll\" is used", line.arg(0));
            line.warn(message);
            DriverChoice::Epoll
        }
        _ => return Err(line.fail_arg(0, format!("invalid event type \"{}\"", line.arg(0)))),
    });
    Ok(())
}

/// `worker_connections number`
pub(super) fn worker_connections(conf: &mut MainConf, line: &mut LineCx<'_>) -> Result {
    if conf.worker_connections.is_some() {
        return Err(line.refuse("is duplicate"));
    }
    let number = parse_number(line.bytes(0));
    let number = number.ok_or_else(|| line.fail_arg(0, format!("invalid number \"{}\"", line.arg(0))))?;
    line.once(&mut conf.worker_connections, number)
}

/// `debug_connection address | network | name | unix:`
pub(super) fn debug_connection(conf: &mut MainConf, line: &mut LineCx<'_>) -> Result {
    if let Some(cidr) = Cidr::argument(line, 0) {
        conf.debug_connections.push(cidr);
        return Ok(());
    }
    let found = privileged::look_up(line.arg(0), 0);
    let found = found
        .map_err(|_| line.fail_arg(0, format!("host not found in debug_connection \"{}\"", line.arg(0))))?;
    conf.debug_connections.extend(found.iter().map(|address| Cidr::host(address.ip().to_canonical())));
    Ok(())
}

/// `CPU_SETSIZE` of Linux.
const MOST_CPUS: usize = 1024;

/// `multi_accept on | off`
pub(super) fn multi_accept(conf: &mut MainConf, line: &mut LineCx<'_>) -> Result {
    line.flag(&mut conf.multi_accept)?;
    if conf.multi_accept == Some(false) {
        line.note("\"multi_accept off\" is ignored: all connections that wait are accepted");
    }
    Ok(())
}

/// `accept_mutex on | off`
pub(super) fn accept_mutex(conf: &mut MainConf, line: &mut LineCx<'_>) -> Result {
    line.flag(&mut conf.accept_mutex)?;
    if conf.accept_mutex == Some(true) {
        line.note("\"accept_mutex on\" is ignored: one thread accepts for all workers and deals connections to them");
    }
    Ok(())
}

/// `accept_mutex_delay time`
pub(super) fn accept_mutex_delay(conf: &mut MainConf, line: &mut LineCx<'_>) -> Result {
    line.time_ms(&mut conf.accept_mutex_delay)?;
    line.note(
        "\"accept_mutex_delay\" is ignored: one thread accepts for all workers, none waits for a mutex",
    );
    Ok(())
}
