//! What `nginx.conf`'s main context asks of the process itself.

use std::ffi::OsString;
use std::io;

use weir_engine::log::{self, LogLevel};
use weir_engine::settings::main::MainConf;
use weir_rt::process::{self, ResourceLimit};

/// Applies limits, environment, priority and directory, before any thread starts; as in nginx only `TZ` and what `env`
/// names is left of the environment. What the system refuses is logged, as nginx does,
/// and the server goes on with what it has.
pub(crate) fn apply(main: &MainConf) {
    let limits = [
        (ResourceLimit::OpenFiles, main.worker_rlimit_nofile, "NOFILE"),
        (ResourceLimit::Core, main.worker_rlimit_core, "CORE"),
    ];
    for (which, wanted, name) in limits {
        let Some(wanted) = wanted else { continue };
        let hard = process::limit(which).map_or(wanted, |(_, hard)| hard.max(wanted));
        let set =
            process::set_limit(which, wanted, hard).or_else(|_| process::set_limit(which, wanted, wanted));
        if let Err(error) = set {
            let reason = reason(&error);
            log::cycle(
                LogLevel::Alert,
                &format_args!("setrlimit(RLIMIT_{name}, {wanted}) failed ({reason})"),
            );
        }
    }
    let environment: Vec<_> = std::iter::once((OsString::from("TZ"), None))
        .chain(main.env.iter().map(|(name, value)| (name.into(), value.as_ref().map(OsString::from))))
        .collect();
    if let Err(error) = process::set_environment(&environment) {
        log::cycle(LogLevel::Alert, &format_args!("the environment can't be set ({})", reason(&error)));
    }
    if main.priority() != 0
        && let Err(error) = process::set_priority(main.priority())
    {
        log::cycle(
            LogLevel::Alert,
            &format_args!("setpriority({}) failed ({})", main.priority(), reason(&error)),
        );
    }
    let (threads, nice) = main.key_pool();
    weir_rt::blocking::set_computing(threads, nice);
    if let Some(directory) = &main.working_directory
        && let Err(error) = std::env::set_current_dir(directory)
    {
        log::cycle(
            LogLevel::Alert,
            &format_args!("chdir(\"{}\") failed ({})", directory.display(), reason(&error)),
        );
    }
}

/// Becomes the user that [`MainConf::run_as`] names, if any.
///
/// # Errors
/// The system refused; going on as root would be wrong.
pub(crate) fn become_user(main: &MainConf) -> Result<(), String> {
    let Some((user, group)) = main.run_as() else { return Ok(()) };
    if user.uid == 0 {
        return Ok(());
    }
    process::drop_privileges(&user, group)
        .map_err(|error| format!("setuid({}) failed ({})", user.uid, reason(&error)))
}

/// Whether a process that was started with `old` can't become what `new` says of it.
pub(crate) fn differ(old: &MainConf, new: &MainConf) -> bool {
    old.run_as() != new.run_as()
        || old.env != new.env
        || old.priority() != new.priority()
        || old.key_pool() != new.key_pool()
        || old.working_directory != new.working_directory
        || old.worker_rlimit_nofile != new.worker_rlimit_nofile
        || old.worker_rlimit_core != new.worker_rlimit_core
        || old.driver() != new.driver()
}

/// What the system says of an error, as nginx shows it: `2: No such file or directory`.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(errno) => format!("{errno}: {}", weir_rt::file::errno_text(errno)),
        None => error.to_string(),
    }
}
