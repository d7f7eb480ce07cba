//! The thread for what Weir does of its own accord: health checks, sources of servers, the responses of certificates'
//! issuers. It runs no request and no script, so all of that goes on while every worker is stuck. One for the process,
//! started with the first thing that is to be done.

use std::sync::{Mutex, PoisonError, mpsc};
use std::{io, thread};

use weir_rt::{DriverChoice, Runtime, RuntimeHandle, RuntimeOptions};

/// Runs `task` on the thread, where it may spawn tasks of the event loop.
///
/// # Errors
/// The thread can't start: out of threads, memory or descriptors.
pub fn run(task: impl FnOnce() + Send + 'static) -> io::Result<()> {
    remote()?.run(Box::new(task));
    Ok(())
}

/// Starts the thread, if it does not run yet.
///
/// # Errors
/// As [`run`].
pub fn start() -> io::Result<()> {
    remote().map(drop)
}

/// The thread, which stays.
fn remote() -> io::Result<RuntimeHandle> {
    static THREAD: Mutex<Option<RuntimeHandle>> = Mutex::new(None);
    let mut running = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(remote) = &*running {
        return Ok(remote.clone());
    }
    let (sender, receiver) = mpsc::channel();
    let serve = move || {
        weir_rt::process::unbind();
        // It moves a few small messages: epoll has it ready with the fewest resources.
        let name = NAME.to_owned();
        let options = RuntimeOptions {
            driver: DriverChoice::Epoll,
            buffers: BUFFERS,
            name,
            ..RuntimeOptions::default()
        };
        match Runtime::new(&options) {
            Err(error) => drop(sender.send(Err(error))),
            Ok(runtime) => {
                // The caller that started it waits.
                drop(sender.send(Ok(runtime.remote())));
                runtime.block_on(std::future::pending::<()>());
            }
        }
    };
    thread::Builder::new().name(NAME.to_owned()).spawn(serve)?;
    let remote = receiver.recv().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))?;
    *running = Some(remote.clone());
    Ok(remote)
}

const NAME: &str = "weir services";
/// Receive buffers of the thread.
const BUFFERS: u16 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_done_by_one_thread() {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..2 {
            let sender = sender.clone();
            run(move || {
                weir_rt::spawn(async move {
                    weir_rt::sleep(std::time::Duration::from_millis(1)).await;
                    let _ =
                        sender.send((thread::current().id(), thread::current().name().map(str::to_owned)));
                });
            })
            .expect("a thread");
        }
        let (one, other) = (receiver.recv().expect("it runs"), receiver.recv().expect("it runs"));
        assert_eq!((&one, one.1.as_deref()), (&other, Some(NAME)));
        assert_ne!(one.0, thread::current().id());
    }
}
