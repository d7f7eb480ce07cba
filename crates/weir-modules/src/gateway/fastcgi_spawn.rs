//! `fastcgi_spawn`: starts a FastCGI server with the first request for it, as H2O's `fastcgi.spawn` does.
//!
//! The program gets a listening socket as its standard input, as the FastCGI specification has it. The socket is in a directory
//! that only this server's user may enter. A shell that waits for the program holds a pipe of this process. The program gets
//! SIGTERM when the last configuration that names it is gone, or when the process is, whatever ended it. One that ended by
//! itself is started again with the next request.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use weir_conf::names::{HTTP, TWO};
use weir_conf::{Directive, LineCx, Result};
use weir_engine::plan::PlanBuilder;
use weir_engine::variable::Variable;
use weir_engine::{Exchange, Module, Text};

/// The module `fastcgi_spawn`.
pub struct FastCgiSpawn;

impl Module for FastCgiSpawn {
    const NAME: &'static str = "fastcgi_spawn";
    type Conf = FastCgiSpawnConf;
    const DIRECTIVES: &'static [Directive<FastCgiSpawnConf>] =
        &[Directive::<FastCgiSpawnConf>::new("fastcgi_spawn", HTTP, TWO, FastCgiSpawnConf::set)
            .syntax("fastcgi_spawn name command")
            .doc(
                "A FastCGI server that is started by the shell with the first request for it, as the user of \
                 the server, and gets SIGTERM with the server's end. It has a listening socket as its standard \
                 input; the address of that is `$fastcgi_spawned_NAME`, for `fastcgi_pass`.",
            )
            .example(
                "fastcgi_spawn php \"PHP_FCGI_CHILDREN=10 exec php-cgi\";\n\
                 server {\n    location ~ \\.php$ {\n        fastcgi_pass $fastcgi_spawned_php;\n    }\n}",
            )];
    const VARIABLES: &'static [Variable] = &[Variable::prefix("fastcgi_spawned_", address).volatile()];

    fn inherit(conf: &mut FastCgiSpawnConf, parent: &FastCgiSpawnConf) {
        // `http` has them, and what is around it has none.
        conf.programs.extend(parent.programs.iter().cloned());
    }

    fn install(conf: &FastCgiSpawnConf, plan: &mut PlanBuilder<'_>) {
        if !conf.programs.is_empty() {
            plan.keep(KnownPrograms(conf.programs.clone()));
        }
    }
}

/// The programs of a configuration, by name.
#[derive(Default)]
pub struct FastCgiSpawnConf {
    programs: Vec<(String, Arc<FastCgiProgram>)>,
}

impl FastCgiSpawnConf {
    fn set(&mut self, line: &mut LineCx<'_>) -> Result {
        let (name, command) = (line.arg(0), line.arg(1));
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err(line.invalid_value(0));
        }
        if self.programs.iter().any(|(known, _)| known == name) {
            return Err(line.fail_arg(0, format!("duplicate name \"{name}\"")));
        }
        if command.trim().is_empty() {
            return Err(line.invalid_value(1));
        }
        self.programs.push((name.to_owned(), FastCgiProgram::of(command)));
        Ok(())
    }
}

/// What a location knows of them.
struct KnownPrograms(Vec<(String, Arc<FastCgiProgram>)>);

/// `$fastcgi_spawned_NAME`: `unix:` and the path of the program's socket; no value if it can't be started, which is logged.
fn address(x: &mut Exchange, name: &str) -> Option<Text> {
    let program = {
        let known = x.plan.kept::<KnownPrograms>()?;
        let found = known.0.iter().find(|(known, _)| known == name)?;
        Arc::clone(&found.1)
    };
    match program.path() {
        Ok(path) => Some(Text::Span(x.arena.push(format!("unix:{}", path.display()).as_bytes()))),
        Err(error) => {
            x.log_error(&format_args!("\"{}\" can't be started ({error})", program.command));
            None
        }
    }
}

/// A command, and its program if it runs. Configurations that name the same command share it: it goes on over a reload.
struct FastCgiProgram {
    command: String,
    running: Mutex<Option<SpawnedServer>>,
}

impl FastCgiProgram {
    fn of(command: &str) -> Arc<FastCgiProgram> {
        static KNOWN: Mutex<Option<HashMap<String, Weak<FastCgiProgram>>>> = Mutex::new(None);
        let mut known = locked(&KNOWN);
        let known = known.get_or_insert_default();
        if let Some(program) = known.get(command).and_then(Weak::upgrade) {
            return program;
        }
        let program = Arc::new(FastCgiProgram { command: command.to_owned(), running: Mutex::new(None) });
        known.retain(|_, program| program.strong_count() > 0);
        known.insert(command.to_owned(), Arc::downgrade(&program));
        program
    }

    /// The path of its socket; starts the program if it does not run.
    fn path(&self) -> io::Result<PathBuf> {
        let mut running = locked(&self.running);
        if let Some(server) = &mut *running
            && server.is_running()
        {
            return Ok(server.path.clone());
        }
        // The old one's directory is gone before another is made.
        *running = None;
        let server = running.insert(SpawnedServer::start(&self.command)?);
        Ok(server.path.clone())
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program that was started. Its shell's standard input is the pipe whose end has it terminated.
struct SpawnedServer {
    shell: Option<Child>,
    path: PathBuf,
}

impl SpawnedServer {
    fn start(command: &str) -> io::Result<SpawnedServer> {
        let path = private_directory()?.join("socket");
        let listener = UnixListener::bind(&path)?;
        let mut shell = Command::new("/bin/sh");
        shell
            .args(["-c", SCRIPT, "weir", command])
            .stdin(Stdio::piped())
            .stdout(Stdio::from(OwnedFd::from(listener)));
        weir_rt::process::set_free(&mut shell);
        Ok(SpawnedServer { shell: Some(shell.spawn()?), path })
    }

    fn is_running(&mut self) -> bool {
        self.shell.as_mut().is_some_and(|shell| matches!(shell.try_wait(), Ok(None)))
    }
}

impl Drop for SpawnedServer {
    fn drop(&mut self) {
        if let Some(mut shell) = self.shell.take() {
            drop(shell.stdin.take());
            weir_rt::process::wait_elsewhere(shell);
        }
        let _gone = std::fs::remove_file(&self.path);
        if let Some(directory) = self.path.parent() {
            let _gone = std::fs::remove_dir(directory);
        }
    }
}

/// A new directory that nobody else may enter.
fn private_directory() -> io::Result<PathBuf> {
    let mut error = io::Error::from(io::ErrorKind::AlreadyExists);
    for attempt in 0..100_u32 {
        let name = format!("weir-fastcgi-{}-{attempt}", weir_rt::process::pid());
        let path = std::env::temp_dir().join(name);
        match std::fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            Err(failed) if failed.kind() == io::ErrorKind::AlreadyExists => error = failed,
            Err(failed) => return Err(failed),
        }
    }
    Err(error)
}

/// Runs the command `$1` with the socket, which is the standard output here, as its standard input, and ends it when the
/// standard input here ends.
const SCRIPT: &str = "exec 3<&0\n\
/bin/sh -c \"$1\" <&1 >&2 3<&- &\n\
program=$!\n\
exec 1>&2\n\
(cat <&3 >/dev/null; kill -TERM $program 2>/dev/null) &\n\
watch=$!\n\
exec 3<&-\n\
wait $program\n\
status=$?\n\
kill $watch 2>/dev/null\n\
exit $status";

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use weir_test::wait_for;

    use super::*;

    #[test]
    fn a_program_has_the_socket_and_ends_with_the_last_configuration() {
        let directory = weir_test::TempDir::new();
        let mark = directory.path().join("ended");
        let command = format!("trap 'touch {}; exit 0' TERM; while :; do sleep 0.05; done", mark.display());
        let (first, second) = (FastCgiProgram::of(&command), FastCgiProgram::of(&command));
        let path = first.path().expect("there is a shell");
        assert_eq!(second.path().expect("it runs"), path);
        let mut stream = UnixStream::connect(&path).expect("the program has it");
        stream.set_read_timeout(Some(Duration::from_millis(20))).expect("an open socket");
        // Nobody accepts, but the socket is open as long as the program is.
        assert!(stream.read(&mut [0]).is_err());
        drop(first);
        assert!(path.exists() && !mark.exists());
        drop(second);
        wait_for("the program to be told", || mark.exists().then_some(()));
        assert!(!path.exists());
    }

    #[test]
    fn a_program_that_ended_is_started_again() {
        let program = FastCgiProgram::of("exit 3");
        let first = program.path().expect("there is a shell");
        wait_for("the program to end", || {
            locked(&program.running).as_mut().is_none_or(|server| !server.is_running()).then_some(())
        });
        let second = program.path().expect("there is a shell");
        assert!(second.exists());
        drop((program, first));
    }
}
