use std::sync::Arc;

use crate::dict::value::EntryValue;
use crate::dict::*;

fn text(value: &str) -> NewValue<'_> {
    NewValue::Text(value.as_bytes())
}

fn put(dict: &SharedDict, key: &str, value: NewValue<'_>) -> StoreOutcome {
    dict.set(key.as_bytes(), value, 0, 0, StoreCondition::Always, EvictionRule::Evict)
}

fn read(dict: &SharedDict, key: &str) -> Option<String> {
    dict.get(key.as_bytes(), &mut [0; SMALL], |value, about| match value {
        _ if about.expired => None,
        SeenValue::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
        other => Some(format!("{other:?}")),
    })?
}

/// Adds to the right of a list: how many there are.
fn push(dict: &SharedDict, key: &str, number: f64) -> Result<usize, ListError> {
    dict.change_list(key.as_bytes(), |list, place| {
        let list = list.with(&DictItem::Number(number), ListEnd::Right, place);
        let count = list.len();
        (Some(list), count)
    })
}

#[test]
fn values_are_kept_replaced_and_removed() {
    let dict = SharedDict::new(1 << 16);
    assert_eq!(put(&dict, "a", text("1")), StoreOutcome::Yes(false));
    assert_eq!(put(&dict, "a", text("2")), StoreOutcome::Yes(false));
    assert_eq!(read(&dict, "a").as_deref(), Some("2"));
    assert_eq!(
        dict.set(b"a", text("3"), 0, 0, StoreCondition::Absent, EvictionRule::Evict),
        StoreOutcome::Exists
    );
    assert_eq!(
        dict.set(b"b", text("3"), 0, 0, StoreCondition::Present, EvictionRule::Evict),
        StoreOutcome::NotFound
    );
    dict.delete(b"a");
    assert_eq!(read(&dict, "a"), None);
    assert_eq!(dict.sums.used.load(Ordering::Relaxed), 0);
}

#[test]
fn the_least_used_goes_first() {
    let dict = SharedDict::new(4096);
    for number in 0..28 {
        put(&dict, &format!("k{number:02}"), text("0123456789"));
    }
    assert!(read(&dict, "k00").is_some());
    assert_eq!(put(&dict, "new", text("0123456789")), StoreOutcome::Yes(false));
    assert_eq!(put(&dict, "newer", text("0123456789")), StoreOutcome::Yes(true));
    assert!(read(&dict, "k01").is_none(), "not used since it was stored");
    assert!(read(&dict, "k00").is_some() && read(&dict, "k02").is_some());
    assert_eq!(
        dict.set(b"safe", text("0123456789"), 0, 0, StoreCondition::Always, EvictionRule::Refuse),
        StoreOutcome::NoMemory(false)
    );
    assert_eq!(put(&dict, "large", text(&"x".repeat(5000))), StoreOutcome::NoMemory(false));
}

#[test]
fn the_longest_time_is_no_short_one() {
    let dict = SharedDict::new(1 << 16);
    assert_eq!(
        dict.set(b"a", text("1"), u64::MAX, 0, StoreCondition::Always, EvictionRule::Evict),
        StoreOutcome::Yes(false)
    );
    assert_eq!(read(&dict, "a").as_deref(), Some("1"));
}

#[test]
fn a_large_value_fits_a_dictionary_of_a_megabyte() {
    let dict = SharedDict::new(1 << 20);
    assert_eq!(put(&dict, "large", text(&"x".repeat(200_000))), StoreOutcome::Yes(false));
}

/// Every stripe is held by another thread, and still calls return: `get`, `ttl`, `get_keys`.
#[test]
fn a_read_takes_no_lock() {
    let dict = SharedDict::new(1 << 16);
    put(&dict, "a", text("1"));
    let (held, is_held) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let dict = &dict;
        scope.spawn(move || {
            let _locks: Vec<_> = dict.stripes.iter().map(DictStripe::lock).collect();
            held.send(()).expect("the test waits");
            // Also when the test has failed.
            let _ = released.recv();
        });
        is_held.recv().expect("they are locked");
        assert_eq!(read(dict, "a").as_deref(), Some("1"));
        assert_eq!((dict.ttl(b"a"), dict.keys(9).len()), (Some(0), 1));
        drop(release);
    });
}

/// No stripe is gone through at once: `flush_all`, `flush_expired` and a `set` without room go by portions.
#[test]
fn sweeps_go_by_portions() {
    let dict = SharedDict::new(1 << 24);
    let count = 20_000;
    for number in 0..count {
        put(&dict, &format!("key{number}"), text("x"));
    }
    let stripe = &dict.stripes[0];
    let (guard, mut from, mut portions, mut most) = (epoch::pin(), Some(0), 0, 0);
    while let Some(at) = from {
        let mut seen = 0;
        from = stripe.portion(at, &guard, |_| seen += 1);
        (portions, most) = (portions + 1, most.max(seen));
    }
    // One chain may go beyond it.
    assert!(portions >= 8 && most <= 128 + 16, "{portions} portions of up to {most} nodes");
    drop(guard);
    dict.flush_all();
    assert_eq!(dict.keys(usize::MAX).len(), 0);
    assert_eq!((dict.flush_expired(7), dict.flush_expired(usize::MAX)), (7, count - 7));
    assert_eq!(dict.sums.used.load(Ordering::Relaxed), 0);
}

/// A full dictionary in which nothing expires is not swept; where something does, that goes first while there are few.
#[test]
fn what_has_expired_goes_before_what_was_used() {
    let dict = SharedDict::new(1 << 14);
    let fits = |number: &i32| {
        let key = format!("k{number:03}");
        dict.set(key.as_bytes(), text("0123456789"), 0, 0, StoreCondition::Always, EvictionRule::Refuse)
            == StoreOutcome::Yes(false)
    };
    let count = (0..).take_while(fits).count();
    assert!(!dict.expires.load(Ordering::Relaxed) && count > 100);
    assert_eq!(put(&dict, "other", text("0123456789")), StoreOutcome::Yes(true));
    assert!(dict.expire(b"k050", 100_000));
    dict.stripes.iter().for_each(|stripe| {
        let guard = epoch::pin();
        stripe.for_each(&guard, |found| *found.node.key != *b"k050" || found.expire(1, stripe.place, &guard));
    });
    assert_eq!(
        put(&dict, "another", text("01234567")),
        StoreOutcome::Yes(false),
        "nobody living has gone for it"
    );
    assert!(read(&dict, "k050").is_none() && read(&dict, "k001").is_some());
}

#[test]
fn entries_expire_and_are_flushed() {
    let dict = SharedDict::new(1 << 16);
    put(&dict, "a", text("1"));
    put(&dict, "b", text("2"));
    assert_eq!(dict.ttl(b"a"), Some(0));
    assert!(dict.expire(b"a", 100_000));
    assert!(dict.ttl(b"a").is_some_and(|left| left > 0));
    dict.flush_all();
    assert_eq!((read(&dict, "a"), dict.keys(10).len()), (None, 0));
    assert!(dict.ttl(b"a").is_some_and(|left| left < 0), "it is there, and over");
    assert!(dict.expire(b"a", 100_000), "it lives again");
    assert_eq!(read(&dict, "a").as_deref(), Some("1"));
    dict.flush_all();
    assert_eq!((dict.flush_expired(1), dict.flush_expired(9)), (1, 1));
    assert_eq!(dict.sums.used.load(Ordering::Relaxed), 0);
    assert_eq!((dict.ttl(b"a"), dict.expire(b"a", 1)), (None, false));
}

#[test]
fn numbers_and_lists_are_changed() {
    let dict = SharedDict::new(1 << 16);
    let add = |by: f64| {
        dict.update(b"n", |value| match value {
            Some(SeenValue::Number(number)) => Ok((NewValue::Number(number + by), None)),
            None => Ok((NewValue::Number(by), None)),
            Some(_) => Err("not a number"),
        })
    };
    assert_eq!((add(1.0), add(2.0)), (Ok(StoreOutcome::Yes(false)), Ok(StoreOutcome::Yes(false))));
    assert_eq!(read(&dict, "n").as_deref(), Some("Number(3.0)"));
    put(
        &dict,
        "l",
        NewValue::List(ItemList::default().with(&DictItem::Number(1.0), ListEnd::Right, ZonePlace::HEAP)),
    );
    assert_eq!(push(&dict, "l", 2.0), Ok(2));
    assert_eq!(dict.change_list(b"l", |list, _| (Some(ItemList::default()), list.len())), Ok(2));
    assert_eq!(read(&dict, "l"), None, "an empty list is none");
    assert_eq!(dict.change_list(b"l", |list, _| (None, list.len())), Ok(0));
    assert_eq!(push(&dict, "n", 1.0), Err(ListError::OtherKind));
    dict.delete(b"n");
    assert_eq!(dict.sums.used.load(Ordering::Relaxed), 0);
}

/// Readers and writers of the same few keys: no value is torn, none of another key.
#[test]
fn a_key_that_is_set_again_is_always_there() {
    let dict = Arc::new(SharedDict::new(1 << 20));
    put(&dict, "key", text("value"));
    let writer = {
        let dict = dict.clone();
        std::thread::spawn(move || {
            for _ in 0..20_000 {
                put(&dict, "key", text("value"));
            }
        })
    };
    while !writer.is_finished() {
        assert_eq!(read(&dict, "key").as_deref(), Some("value"));
    }
    writer.join().expect("the writer has not panicked");
    assert_eq!(dict.sums.used.load(Ordering::Relaxed), OVERHEAD + 8);
}

/// As compiled Lua reads: what it has as long as that holds, else the dictionary's. Of values that grow none is older than
/// the one before.
#[test]
fn what_is_remembered_is_never_older() {
    let dict = Arc::new(SharedDict::new(1 << 20));
    put(&dict, "key", text("00000"));
    let writer = {
        let dict = dict.clone();
        std::thread::spawn(move || {
            for number in 0..600 {
                match number % 50 {
                    49 => dict.delete(b"key"),
                    _ => {
                        assert_eq!(
                            put(&dict, "key", text(&format!("{number:05}"))),
                            StoreOutcome::Yes(false)
                        );
                    }
                }
                if number % 2 == 0 {
                    std::thread::yield_now();
                }
            }
            put(&dict, "key", text("last"));
        })
    };
    let (mut last, mut kept, mut over) = (String::new(), None::<(MarkVersion, String)>, false);
    loop {
        let now = match &kept {
            Some((version, value)) if version.holds() => Some(value.clone()),
            _ => dict.get(b"key", &mut [0; SMALL], |value, about| {
                let SeenValue::Text(value) = value else { panic!("{value:?}") };
                let value = String::from_utf8_lossy(value).into_owned();
                kept = about.version.map(|version| (version, value.clone()));
                value
            }),
        };
        if let Some(now) = now {
            assert!(now >= last, "{now} behind {last}");
            last = now;
        }
        if over && kept.as_ref().is_some_and(|(version, _)| version.holds()) {
            break;
        }
        over = writer.is_finished();
    }
    assert_eq!(last, "last");
    writer.join().expect("the writer has not panicked");
    dict.delete(b"key");
    assert!(kept.is_some_and(|(version, _)| !version.holds()), "what is gone is not remembered");
}

#[test]
fn threads_share_a_dictionary() {
    let dict = Arc::new(SharedDict::new(1 << 14));
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let dict = dict.clone();
            std::thread::spawn(move || {
                for round in 0..2000_u32 {
                    let key = format!("key{}", (round * 7 + thread) % 50);
                    if round % 3 == thread % 3 {
                        put(&dict, &key, text(&format!("{key}={key}")));
                    } else if let Some(value) = read(&dict, &key) {
                        assert_eq!(value, format!("{key}={key}"));
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    let total: u64 = dict.keys(usize::MAX).len() as u64;
    assert!(total <= 50 && dict.sums.used.load(Ordering::Relaxed) <= dict.capacity);
    dict.flush_all();
    dict.flush_expired(usize::MAX);
    assert_eq!(dict.sums.used.load(Ordering::Relaxed), 0);
}

/// Does `work` in another thread; `None`: it waits for something.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // The thread that waits may have given up.
        let _ = done.send(work());
    });
    is_done.recv_timeout(std::time::Duration::from_secs(20)).ok()
}

/// A writer that lost its core in the middle of its work blocks no thread: with everything held that writers hold, all
/// kinds of writes go through, with and without room.
#[test]
fn a_write_waits_for_no_other_writer() {
    let dict = Arc::new(SharedDict::new(1 << 14));
    for number in 0..40 {
        put(&dict, &format!("key{number}"), text("1"));
    }
    let (held, is_held) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let holder = {
        let dict = dict.clone();
        std::thread::spawn(move || {
            let _locks: Vec<_> = dict.stripes.iter().map(DictStripe::lock).collect();
            held.send(()).expect("the test waits");
            // Also when the test has failed.
            let _ = released.recv();
        })
    };
    is_held.recv().expect("they are locked");
    let written = in_time({
        let dict = dict.clone();
        move || all_kinds_of_writes(&dict)
    });
    drop(release);
    holder.join().expect("the holder has not panicked");
    assert!(written.is_some(), "a writer waits for one that is stopped");
    dict.flush_all();
    dict.flush_expired(usize::MAX);
    assert_eq!((dict.sums.used.load(Ordering::Relaxed), dict.reported().entries), (0, 0));
}

fn all_kinds_of_writes(dict: &SharedDict) {
    assert_eq!(put(dict, "key1", text("2")), StoreOutcome::Yes(false));
    assert_eq!(put(dict, "key2", text(&"longer".repeat(100))), StoreOutcome::Yes(false));
    assert_eq!(put(dict, "new", NewValue::Number(1.0)), StoreOutcome::Yes(false));
    let add = |value: Option<SeenValue<'_>>| match value {
        Some(SeenValue::Number(number)) => Ok::<_, ()>((NewValue::Number(number + 1.0), None)),
        _ => Err(()),
    };
    assert_eq!(dict.update(b"new", add), Ok(StoreOutcome::Yes(false)));
    assert!(dict.expire(b"key3", 100_000) && dict.expire(b"key2", 100_000));
    dict.delete(b"key4");
    assert_eq!(push(dict, "list", 1.0), Ok(1));
    assert_eq!(push(dict, "list", 2.0), Ok(2));
    assert!(dict.expire(b"list", 100_000));
    dict.delete(b"list");
    assert_eq!(read(dict, "new").as_deref(), Some("Number(2.0)"));
    assert_eq!((read(dict, "key4"), read(dict, "list")), (None, None));
    let mut forced = false;
    for number in 0..400 {
        match put(dict, &format!("more{number}"), text("0123456789")) {
            StoreOutcome::Yes(others) => forced |= others,
            other => panic!("{other:?}"),
        }
    }
    assert!(forced && dict.sums.used.load(Ordering::Relaxed) <= dict.capacity);
    dict.flush_all();
    assert!(dict.flush_expired(usize::MAX) > 50);
}

/// A writer is stopped in the middle of the exchange of a value: others write the same key, and its own change, when it
/// goes on, is not seen.
#[test]
fn a_change_that_is_half_done_is_passed_by() {
    let dict = Arc::new(SharedDict::new(1 << 16));
    put(&dict, "n", NewValue::Number(1.0));
    let guard = epoch::pin();
    let hash = hash(b"n");
    let found = dict.stripe(hash).find(hash, b"n", &guard).0.expect("it is there");
    let EntryValue::Small(small) = found.value else { panic!("a number is small") };
    let (state, ..) = found.value.peek();
    assert!(small.claim(state));
    let added = in_time({
        let dict = dict.clone();
        move || {
            let add = |value: Option<SeenValue<'_>>| match value {
                Some(SeenValue::Number(number)) => Ok::<_, ()>((NewValue::Number(number + 1.0), None)),
                _ => Err(()),
            };
            (
                dict.update(b"n", add),
                dict.update(b"n", add),
                put(&dict, "n", NewValue::Number(7.0)),
                read(&dict, "n"),
            )
        }
    });
    let yes = StoreOutcome::Yes(false);
    assert_eq!(added, Some((Ok(yes), Ok(yes), yes, Some("Number(7.0)".to_owned()))));
    assert!(!small.finish(state, &NewValue::Number(100.0), 0, NEVER));
    assert_eq!(read(&dict, "n").as_deref(), Some("Number(7.0)"));
}

/// Many writers of one number, some of which are stopped in the middle: nothing is lost, nothing counted twice.
#[test]
fn no_increment_is_lost() {
    let dict = Arc::new(SharedDict::new(1 << 16));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let dict = dict.clone();
            std::thread::spawn(move || {
                for round in 0..2_500 {
                    let add = |value: Option<SeenValue<'_>>| match value {
                        Some(SeenValue::Number(number)) => {
                            Ok::<_, ()>((NewValue::Number(number + 1.0), None))
                        }
                        None => Ok((NewValue::Number(1.0), None)),
                        Some(_) => Err(()),
                    };
                    assert_eq!(dict.update(b"n", add), Ok(StoreOutcome::Yes(false)));
                    if round % 10 == writer {
                        std::thread::yield_now();
                    }
                    // Entries come and go in the same chains.
                    let other = format!("other{}", round % 7);
                    if round % 2 == 0 {
                        dict.delete(other.as_bytes());
                    } else {
                        put(&dict, &other, text("x"));
                    }
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
    assert_eq!(read(&dict, "n").as_deref(), Some("Number(10000.0)"));
    dict.flush_all();
    dict.flush_expired(usize::MAX);
    assert_eq!((dict.sums.used.load(Ordering::Relaxed), dict.reported().entries), (0, 0));
}

/// A list is part of the dictionary's size, and nothing goes for it: without room it stays as it was.
#[test]
fn a_list_without_room_stays() {
    let dict = SharedDict::new(1 << 14);
    put(&dict, "other", text("value"));
    let count = (0..).take_while(|n| push(&dict, "list", f64::from(*n)).is_ok()).count();
    assert!((300..500).contains(&count), "{count} numbers of 40 bytes in 16 KB");
    assert!(dict.sums.used.load(Ordering::Relaxed) <= dict.capacity);
    assert_eq!(push(&dict, "list", 0.0), Err(ListError::NoMemory));
    assert_eq!(push(&dict, "new", 0.0), Err(ListError::NoMemory));
    assert_eq!(dict.change_list(b"list", |list, _| (None, list.len())), Ok(count));
    assert_eq!(read(&dict, "other").as_deref(), Some("value"));
    assert!(matches!(
        dict.change_list(b"list", |list, place| (
            list.without(ListEnd::Left, place).map(|(_, rest)| rest),
            ()
        )),
        Ok(())
    ));
    assert_eq!(push(&dict, "list", 0.0), Ok(count));
}

/// Callers of one list, which comes and goes: all that is pushed is popped once.
#[test]
fn lists_lose_nothing() {
    use call::{DictCall, DictOutcome};
    let dict = Arc::new(SharedDict::new(1 << 20));
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let dict = dict.clone();
            std::thread::spawn(move || {
                let mut sum = 0.0;
                for number in 0..2_000 {
                    let item = DictItem::Number(f64::from(number));
                    let reply = DictCall::Push {
                        key: b"list",
                        item,
                        end: if thread % 2 == 0 { ListEnd::Left } else { ListEnd::Right },
                    }
                    .perform(&dict);
                    assert_eq!(reply.outcome, DictOutcome::Number);
                    sum += DictCall::Pop { key: b"list", end: ListEnd::Right }.perform(&dict).number;
                }
                sum
            })
        })
        .collect();
    let sum: f64 = threads.into_iter().map(|thread| thread.join().expect("no panic")).sum();
    assert_eq!(sum, 4.0 * f64::from(2_000 * 1_999 / 2));
    assert_eq!((dict.sums.used.load(Ordering::Relaxed), dict.reported().entries), (0, 0));
}
