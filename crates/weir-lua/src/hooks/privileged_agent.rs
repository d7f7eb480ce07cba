//! Connects the privileged agent: its process, and the server, which performs its calls ([`crate::agent`]).

use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use weir_engine::log::{self, LogLevel};
use weir_engine::wire::{IpcReader, IpcWriter};
use weir_engine::worker::WorkerCounts;
use weir_engine::zone::SharedZones;
use weir_server::{Server, WorkerThreads};

use crate::agent::{COUNTS, DICT, JOIN, LEAVE, LINK, PUBLISH, receive, send};
use crate::api::events::{self, EventListener, EventTarget, WorkerEvent};
use crate::dict::DICTIONARY;
use crate::dict::SharedDict;
use crate::dict::call::{DictCall, DictReply};

/// In the agent's process, before its first script: what the server has is asked for on `calls`, what is published comes
/// on `heard`. When the server is gone `gone` is called.
///
/// # Errors
/// A thread can't start.
pub fn connect(calls: UnixStream, heard: UnixStream, gone: impl FnOnce() + Send + 'static) -> io::Result<()> {
    LINK.get_or_init(|| Mutex::new(calls));
    let hear = move || {
        while let Ok(Some(message)) = receive(&heard) {
            match WorkerEvent::decode(&mut IpcReader(&message)) {
                Some(event) => events::deliver(event),
                None => log::cycle(LogLevel::Alert, &"the server tells the privileged agent nonsense"),
            }
        }
        gone();
    };
    std::thread::Builder::new().name("weir events".to_owned()).spawn(hear).map(drop)
}

/// In the server: responds to the agent's calls on `calls`, and sends it what is published on `heard`, from threads of
/// its own, until the agent has ended. The dictionaries are those of the configuration in force.
///
/// # Errors
/// A thread can't start.
pub fn serve(server: &Server, calls: UnixStream, heard: UnixStream) -> io::Result<()> {
    let (configuration, workers) = (server.configuration(), server.crew());
    let zones = configuration.sections().filter_map(|section| section.shared::<SharedZones>());
    let zones = zones.flat_map(|zones| zones.of(DICTIONARY));
    let dicts =
        zones.map(|zone| (zone.name.to_string(), zone.store(|size| SharedDict::of(zone, size)))).collect();
    let (sender, published) = channel();
    let reported = Arc::new(AgentEvents(Mutex::new(sender)));
    let tell = move || {
        // The other thread sees that the agent is gone.
        let _ = tell(&heard, &published);
    };
    std::thread::Builder::new().name("weir agent tell".to_owned()).spawn(tell)?;
    let open = OpenAgent::new();
    let answer = move || {
        let _open = open;
        let host = AgentHost { dicts, workers, reported };
        while let Ok(Some(question)) = receive(&calls) {
            let Some(reply) = host.answer(&question) else {
                log::cycle(LogLevel::Alert, &"the privileged agent asks nonsense");
                break;
            };
            if send(&calls, &reply.encode()).is_err() {
                break;
            }
        }
        host.leave();
    };
    std::thread::Builder::new().name("weir agent ask".to_owned()).spawn(answer).map(drop)
}

/// Before the server's process ends: has agents that end at the same time find what they share until they have, for
/// `limit` at most.
pub fn wait_gone(limit: Duration) {
    let count = AGENTS.0.lock().unwrap_or_else(PoisonError::into_inner);
    // One that takes longer gets the error that the server is gone.
    drop(AGENTS.1.wait_timeout_while(count, limit, |count| *count > 0));
}

/// How many agents are connected.
static AGENTS: AgentCount = AgentCount(Mutex::new(0), Condvar::new());

struct AgentCount(Mutex<i32>, Condvar);

impl AgentCount {
    fn count(&self, change: i32) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += change;
        self.1.notify_all();
    }
}

/// An agent is connected while it lives.
struct OpenAgent(());

impl OpenAgent {
    fn new() -> OpenAgent {
        AGENTS.count(1);
        OpenAgent(())
    }
}

impl Drop for OpenAgent {
    fn drop(&mut self) {
        AGENTS.count(-1);
    }
}

/// What is published, on its way to the agent.
struct AgentEvents(Mutex<Sender<Arc<WorkerEvent>>>);

impl EventListener for AgentEvents {
    fn put(&self, event: Arc<WorkerEvent>) {
        // A receiver that does not take it any more is about to be removed.
        let _ = self.0.lock().unwrap_or_else(PoisonError::into_inner).send(event);
    }
}

fn tell(heard: &UnixStream, published: &Receiver<Arc<WorkerEvent>>) -> io::Result<()> {
    for event in published {
        let mut out = IpcWriter::default();
        match event.encode(&mut out) {
            Ok(()) => send(heard, &out.0)?,
            Err(why) => {
                let text = format_args!("the privileged agent can't be told of an event: {why} in the data");
                log::cycle(LogLevel::Error, &text);
            }
        }
    }
    Ok(())
}

/// What the agent asks for.
struct AgentHost {
    dicts: HashMap<String, Arc<SharedDict>>,
    workers: WorkerThreads,
    reported: Arc<AgentEvents>,
}

impl AgentHost {
    /// `None`: it can't be understood.
    fn answer(&self, question: &[u8]) -> Option<DictReply> {
        let mut from = IpcReader(question);
        match from.number()? {
            DICT => {
                let name = std::str::from_utf8(from.bytes()?).ok()?;
                let call = DictCall::decode(&mut from)?;
                Some(from.whole(call)?.perform(self.dicts.get(name)?))
            }
            JOIN => {
                events::admit(self.reported.clone());
                Some(DictReply::default())
            }
            LEAVE => {
                self.leave();
                Some(DictReply::default())
            }
            COUNTS => {
                let WorkerCounts { accepted, requests, active, writing, waiting } =
                    WorkerCounts::of(&self.workers.counters());
                let keys = [accepted, requests, active, writing, waiting];
                Some(DictReply {
                    keys: keys.map(|count| Box::from(count.to_le_bytes())).into(),
                    ..DictReply::default()
                })
            }
            PUBLISH => {
                let (target, event) = (EventTarget::decode(&mut from)?, WorkerEvent::decode(&mut from)?);
                let heard = events::publish_here(from.whole(target)?, &Arc::new(event));
                Some(DictReply::number(heard as f64))
            }
            _ => None,
        }
    }

    fn leave(&self) {
        let reported: Arc<dyn EventListener> = self.reported.clone();
        events::dismiss(&reported);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn messages_come_as_they_were_sent_and_nonsense_is_refused() {
        let (a, b) = UnixStream::pair().expect("descriptors");
        for message in [&b""[..], &[7; 100_000]] {
            std::thread::scope(|scope| {
                scope.spawn(|| send(&a, message).expect("it is read"));
                assert_eq!(receive(&b).expect("whole").as_deref(), Some(message));
            });
        }
        (&a).write_all(&u64::MAX.to_le_bytes()).expect("it is open");
        assert_eq!(receive(&b).expect_err("too long").kind(), io::ErrorKind::InvalidData);
        (&a).write_all(&[9, 0, 0, 0, 0, 0, 0, 0, 1]).expect("it is open");
        drop(a);
        assert_eq!(receive(&b).expect_err("cut").kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(receive(&b).expect("no error"), None);
    }

    #[test]
    fn what_is_no_question_has_no_answer() {
        let (sender, _published) = channel();
        let host = AgentHost {
            dicts: HashMap::new(),
            workers: WorkerThreads::default(),
            reported: Arc::new(AgentEvents(Mutex::new(sender))),
        };
        assert!(host.answer(b"").is_none());
        assert!(host.answer(&9u64.to_le_bytes()).is_none());
        let mut out = IpcWriter::default();
        out.number(DICT);
        out.bytes(b"unknown");
        DictCall::Capacity.encode(&mut out);
        assert!(host.answer(&out.0).is_none());
    }
}
