//! The inbox of a worker: no message is lost, and none waits for a worker that sleeps.

use std::sync::Arc;

use loom::thread;

use crate::Model;
use crate::inbox::{Inbox, InboxMessage};

pub(crate) const MODELS: &[Model] = &[
    ("inbox: a sleeper is woken", None, a_sleeper_is_woken),
    ("inbox: of two producers neither is missed", Some(3), of_two_producers_neither_is_missed),
];

fn drain_into(inbox: &Inbox, got: &mut Vec<u32>) {
    got.extend(inbox.drain().map(|message| match message {
        InboxMessage::Wake(task) => task,
        InboxMessage::Run(_) | InboxMessage::FileRead(_) => panic!("a wake was sent"),
    }));
}

/// Whether the eventfd has been written.
fn is_written(inbox: &Inbox) -> bool {
    let mut poll = libc::pollfd { fd: inbox.fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid pollfd.
    unsafe { libc::poll(&mut poll, 1, 0) == 1 }
}

/// A turn of the worker, and one that sleeps until all producers are done: what is left then must have written the eventfd.
fn consume(inbox: &Inbox, producers: Vec<thread::JoinHandle<()>>) -> Vec<u32> {
    let mut got = Vec::new();
    drain_into(inbox, &mut got);
    let sleeps = inbox.prepare_sleep();
    for producer in producers {
        producer.join().expect("no panic");
    }
    inbox.awake();
    let before = got.len();
    drain_into(inbox, &mut got);
    assert!(!sleeps || got.len() == before || is_written(inbox), "it sleeps on a message");
    got
}

fn a_sleeper_is_woken() {
    let inbox = Arc::new(Inbox::new().expect("eventfd"));
    let from = inbox.clone();
    let producer = thread::spawn(move || {
        from.wake(1);
        from.wake(2);
    });
    assert_eq!(consume(&inbox, vec![producer]), [1, 2]);
}

fn of_two_producers_neither_is_missed() {
    let inbox = Arc::new(Inbox::new().expect("eventfd"));
    let producer = |task: u32| {
        let from = inbox.clone();
        thread::spawn(move || from.wake(task))
    };
    let mut got = consume(&inbox, vec![producer(1), producer(2)]);
    got.sort_unstable();
    assert_eq!(got, [1, 2]);
}
