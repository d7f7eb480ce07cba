//! An operation on a dictionary, as a value: a script of the server's own process has it done here, one of the
//! privileged agent's sends it to where the dictionary is ([`crate::agent`]).

use weir_engine::wire::{IpcReader, IpcWriter};

use crate::dict::{
    DictItem, EvictionRule, ListEnd, ListError, NewValue, SMALL, SeenValue, SharedDict, StoreCondition,
    StoreOutcome,
};

/// One thing that is asked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DictCall<'c> {
    Get(&'c [u8]),
    /// Key, value, milliseconds to live (0 for ever), flags.
    Set {
        key: &'c [u8],
        value: GivenValue<'c>,
        ttl: u64,
        flags: u32,
        when: StoreCondition,
        eviction: EvictionRule,
    },
    Delete(&'c [u8]),
    Incr(&'c [u8], IncrCall),
    Push {
        key: &'c [u8],
        item: DictItem,
        end: ListEnd,
    },
    Pop {
        key: &'c [u8],
        end: ListEnd,
    },
    Length(&'c [u8]),
    Ttl(&'c [u8]),
    /// Milliseconds to live from now on.
    Expire(&'c [u8], u64),
    FlushAll,
    /// How many at most.
    FlushExpired(u64),
    /// How many at most.
    Keys(u64),
    Capacity,
    FreeSpace,
}

/// A value to be stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum GivenValue<'c> {
    Text(&'c [u8]),
    Number(f64),
    Boolean(bool),
}

/// What is added to a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct IncrCall {
    pub(crate) by: f64,
    /// Where a number begins that is not there.
    pub(crate) init: Option<f64>,
    /// Milliseconds that such a one lives; 0 for ever.
    pub(crate) ttl: u64,
    /// Nothing is to be changed: what would come of it is asked.
    pub(crate) ignored: bool,
}

/// What came of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DictReply {
    pub(crate) outcome: DictOutcome,
    /// The number that was found, or another result in one.
    pub(crate) number: f64,
    /// The text that was found.
    pub(crate) text: Vec<u8>,
    pub(crate) flags: u32,
    /// The value has expired; of what was stored, that others have gone for it.
    pub(crate) flag: bool,
    pub(crate) keys: Vec<Box<[u8]>>,
}

/// How it went; the numbers are the prelude's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DictOutcome {
    /// There is nothing of the kind.
    #[default]
    Nothing = 0,
    /// It is done, or a text was found.
    Done = 1,
    Number = 2,
    Boolean = 3,
    /// A list was found.
    List = 4,
    Exists = 5,
    NotFound = 6,
    NoMemory = 7,
    /// The value is of another kind.
    Other = 8,
}

impl DictOutcome {
    fn of(number: u64) -> Option<DictOutcome> {
        use DictOutcome::{Boolean, Done, Exists, List, NoMemory, NotFound, Nothing, Number, Other};
        let all = [Nothing, Done, Number, Boolean, List, Exists, NotFound, NoMemory, Other];
        all.into_iter().find(|outcome| *outcome as u64 == number)
    }

    /// What came of storing a value, and whether others have gone for it.
    pub(crate) fn stored(stored: StoreOutcome) -> (DictOutcome, bool) {
        match stored {
            StoreOutcome::Yes(forced) => (DictOutcome::Done, forced),
            StoreOutcome::Exists => (DictOutcome::Exists, false),
            StoreOutcome::NotFound => (DictOutcome::NotFound, false),
            StoreOutcome::NoMemory(forced) => (DictOutcome::NoMemory, forced),
        }
    }
}

impl From<DictOutcome> for DictReply {
    fn from(outcome: DictOutcome) -> DictReply {
        DictReply { outcome, ..DictReply::default() }
    }
}

impl From<StoreOutcome> for DictReply {
    fn from(stored: StoreOutcome) -> DictReply {
        let (outcome, flag) = DictOutcome::stored(stored);
        DictReply { outcome, flag, ..DictReply::default() }
    }
}

impl DictReply {
    /// A result that is a number.
    pub(crate) fn number(number: f64) -> DictReply {
        DictReply { outcome: DictOutcome::Number, number, ..DictReply::default() }
    }

    /// The bytes of the message.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = IpcWriter::default();
        out.number(self.outcome as u64);
        out.float(self.number);
        out.bytes(&self.text);
        out.number(self.flags.into());
        out.number(self.flag.into());
        out.list(self.keys.iter(), |out, key| out.bytes(key));
        out.0
    }

    /// Reads a message; `None` if it is not a message.
    pub(crate) fn decode(bytes: &[u8]) -> Option<DictReply> {
        let mut from = IpcReader(bytes);
        let reply = DictReply {
            outcome: DictOutcome::of(from.number()?)?,
            number: from.float()?,
            text: from.bytes()?.to_vec(),
            flags: from.number()? as u32,
            flag: from.number()? != 0,
            keys: from.list(|from| Some(from.bytes()?.into()))?,
        };
        from.whole(reply)
    }
}

impl DictCall<'_> {
    /// Does it.
    pub(crate) fn perform(self, dict: &SharedDict) -> DictReply {
        match self {
            DictCall::Get(key) => get(dict, key),
            DictCall::Set { key, value, ttl, flags, when, eviction } => {
                dict.set(key, value.into(), ttl, flags, when, eviction).into()
            }
            DictCall::Delete(key) => {
                dict.delete(key);
                DictOutcome::Done.into()
            }
            DictCall::Incr(key, incr) => {
                let (outcome, flag, number) = add(dict, key, incr);
                DictReply { flag, number, ..outcome.into() }
            }
            DictCall::Push { key, item, end } => push(dict, key, &item, end),
            DictCall::Pop { key, end } => pop(dict, key, end),
            DictCall::Length(key) => {
                let length = dict.change_list(key, |list, _| (None, list.len()));
                length.map_or_else(DictReply::from, |count| DictReply::number(count as f64))
            }
            DictCall::Ttl(key) => dict
                .ttl(key)
                .map_or(DictOutcome::NotFound.into(), |left| DictReply::number(left as f64 / 1000.0)),
            DictCall::Expire(key, ttl) => {
                if dict.expire(key, ttl) {
                    DictOutcome::Done.into()
                } else {
                    DictOutcome::NotFound.into()
                }
            }
            DictCall::FlushAll => {
                dict.flush_all();
                DictOutcome::Done.into()
            }
            DictCall::FlushExpired(most) => DictReply::number(dict.flush_expired(whole(most)) as f64),
            DictCall::Keys(most) => DictReply { keys: dict.keys(whole(most)), ..DictOutcome::Done.into() },
            DictCall::Capacity => DictReply::number(dict.capacity() as f64),
            DictCall::FreeSpace => DictReply::number(dict.free_space() as f64),
        }
    }

    /// The bytes of the message.
    pub(crate) fn encode(&self, out: &mut IpcWriter) {
        let mut keyed = |number: u64, key: &[u8]| {
            out.number(number);
            out.bytes(key);
        };
        match self {
            DictCall::Get(key) => keyed(GET, key),
            DictCall::Set { key, value, ttl, flags, when, eviction } => {
                keyed(SET, key);
                value.encode(out);
                out.number(*ttl);
                out.number((*flags).into());
                out.number(*when as u64);
                out.number((*eviction == EvictionRule::Evict).into());
            }
            DictCall::Delete(key) => keyed(DELETE, key),
            DictCall::Incr(key, IncrCall { by, init, ttl, ignored }) => {
                keyed(INCR, key);
                out.float(*by);
                out.list(init.iter(), |out, init| out.float(*init));
                out.number(*ttl);
                out.number((*ignored).into());
            }
            DictCall::Push { key, item, end } => {
                keyed(PUSH, key);
                match item {
                    DictItem::Text(text) => GivenValue::Text(text).encode(out),
                    DictItem::Number(number) => GivenValue::Number(*number).encode(out),
                }
                out.number((*end == ListEnd::Left).into());
            }
            DictCall::Pop { key, end } => {
                keyed(POP, key);
                out.number((*end == ListEnd::Left).into());
            }
            DictCall::Length(key) => keyed(LENGTH, key),
            DictCall::Ttl(key) => keyed(TTL, key),
            DictCall::Expire(key, ttl) => {
                keyed(EXPIRE, key);
                out.number(*ttl);
            }
            DictCall::FlushAll => out.number(FLUSH_ALL),
            DictCall::FlushExpired(most) => {
                [FLUSH_EXPIRED, *most].iter().for_each(|number| out.number(*number));
            }
            DictCall::Keys(most) => [KEYS, *most].iter().for_each(|number| out.number(*number)),
            DictCall::Capacity => out.number(CAPACITY),
            DictCall::FreeSpace => out.number(FREE_SPACE),
        }
    }
}

impl<'c> DictCall<'c> {
    /// Reads a message; `None` if it is not a message.
    pub(crate) fn decode(from: &mut IpcReader<'c>) -> Option<DictCall<'c>> {
        Some(match from.number()? {
            GET => DictCall::Get(from.bytes()?),
            SET => DictCall::Set {
                key: from.bytes()?,
                value: GivenValue::decode(from)?,
                ttl: from.number()?,
                flags: from.number()? as u32,
                when: StoreCondition::of(from.number()?),
                eviction: EvictionRule::of(from.number()?),
            },
            DELETE => DictCall::Delete(from.bytes()?),
            INCR => {
                let key = from.bytes()?;
                let (by, init) = (from.float()?, from.list(IpcReader::float)?.pop());
                DictCall::Incr(key, IncrCall { by, init, ttl: from.number()?, ignored: from.number()? != 0 })
            }
            PUSH => DictCall::Push {
                key: from.bytes()?,
                item: match GivenValue::decode(from)? {
                    GivenValue::Text(text) => DictItem::Text(text.into()),
                    GivenValue::Number(number) => DictItem::Number(number),
                    GivenValue::Boolean(_) => return None,
                },
                end: ListEnd::of(from.number()?),
            },
            POP => DictCall::Pop { key: from.bytes()?, end: ListEnd::of(from.number()?) },
            LENGTH => DictCall::Length(from.bytes()?),
            TTL => DictCall::Ttl(from.bytes()?),
            EXPIRE => DictCall::Expire(from.bytes()?, from.number()?),
            FLUSH_ALL => DictCall::FlushAll,
            FLUSH_EXPIRED => DictCall::FlushExpired(from.number()?),
            KEYS => DictCall::Keys(from.number()?),
            CAPACITY => DictCall::Capacity,
            FREE_SPACE => DictCall::FreeSpace,
            _ => return None,
        })
    }
}

impl<'c> GivenValue<'c> {
    fn encode(&self, out: &mut IpcWriter) {
        match self {
            GivenValue::Text(text) => {
                out.number(0);
                out.bytes(text);
            }
            GivenValue::Number(number) => {
                out.number(1);
                out.float(*number);
            }
            GivenValue::Boolean(value) => {
                out.number(2);
                out.number((*value).into());
            }
        }
    }

    fn decode(from: &mut IpcReader<'c>) -> Option<GivenValue<'c>> {
        Some(match from.number()? {
            0 => GivenValue::Text(from.bytes()?),
            1 => GivenValue::Number(from.float()?),
            2 => GivenValue::Boolean(from.number()? != 0),
            _ => return None,
        })
    }
}

impl<'c> From<GivenValue<'c>> for NewValue<'c> {
    fn from(given: GivenValue<'c>) -> NewValue<'c> {
        match given {
            GivenValue::Text(text) => NewValue::Text(text),
            GivenValue::Number(number) => NewValue::Number(number),
            GivenValue::Boolean(value) => NewValue::Boolean(value),
        }
    }
}

fn get(dict: &SharedDict, key: &[u8]) -> DictReply {
    let found = dict.get(key, &mut [0; SMALL], |value, about| {
        let mut reply = DictReply { flags: about.flags, flag: about.expired, ..DictReply::default() };
        reply.outcome = match value {
            SeenValue::Text(text) => {
                reply.text = text.to_vec();
                DictOutcome::Done
            }
            SeenValue::Number(number) => {
                reply.number = number;
                DictOutcome::Number
            }
            SeenValue::Boolean(value) => {
                reply.number = f64::from(u8::from(value));
                DictOutcome::Boolean
            }
            SeenValue::List => DictOutcome::List,
        };
        reply
    });
    found.unwrap_or_default()
}

/// Adds to a number: how that went, whether others have gone for it, and the sum.
pub(crate) fn add(
    dict: &SharedDict,
    key: &[u8],
    IncrCall { by, init, ttl, ignored }: IncrCall,
) -> (DictOutcome, bool, f64) {
    let mut sum = 0.0;
    let added = dict.update(key, |value| match (value, init) {
        // The first run of `init_by_lua` has added it.
        (Some(SeenValue::Number(number)), _) if ignored => {
            sum = number;
            Err(DictOutcome::Done)
        }
        (Some(SeenValue::Number(number)), _) => {
            sum = number + by;
            Ok((NewValue::Number(sum), None))
        }
        (Some(_), _) => Err(DictOutcome::Other),
        (None, Some(init)) => {
            sum = init + by;
            if ignored { Err(DictOutcome::Done) } else { Ok((NewValue::Number(sum), Some(ttl))) }
        }
        (None, None) => Err(DictOutcome::NotFound),
    });
    let (outcome, forced) = added.map_or_else(|outcome| (outcome, false), DictOutcome::stored);
    (outcome, forced, sum)
}

/// Puts an element at an end of a list: how many there are.
fn push(dict: &SharedDict, key: &[u8], item: &DictItem, end: ListEnd) -> DictReply {
    let pushed = dict.change_list(key, |list, place| {
        let list = list.with(item, end, place);
        let count = list.len();
        (Some(list), count)
    });
    pushed.map_or_else(DictReply::from, |count| DictReply::number(count as f64))
}

/// Takes the element at an end of a list.
fn pop(dict: &SharedDict, key: &[u8], end: ListEnd) -> DictReply {
    let popped = dict.change_list(key, |list, place| match list.without(end, place) {
        Some((item, rest)) => (Some(rest), Some(item)),
        None => (None, None),
    });
    match popped {
        Err(error) => error.into(),
        Ok(None) => DictReply::default(),
        Ok(Some(DictItem::Text(text))) => DictReply { text: text.to_vec(), ..DictOutcome::Done.into() },
        Ok(Some(DictItem::Number(number))) => DictReply::number(number),
    }
}

impl From<ListError> for DictReply {
    fn from(error: ListError) -> DictReply {
        match error {
            ListError::OtherKind => DictOutcome::Other.into(),
            ListError::NoMemory => DictOutcome::NoMemory.into(),
        }
    }
}

fn whole(most: u64) -> usize {
    usize::try_from(most).unwrap_or(usize::MAX)
}

const GET: u64 = 0;
const SET: u64 = 1;
const DELETE: u64 = 2;
const INCR: u64 = 3;
const PUSH: u64 = 4;
const POP: u64 = 5;
const LENGTH: u64 = 6;
const TTL: u64 = 7;
const EXPIRE: u64 = 8;
const FLUSH_ALL: u64 = 9;
const FLUSH_EXPIRED: u64 = 10;
const KEYS: u64 = 11;
const CAPACITY: u64 = 12;
const FREE_SPACE: u64 = 13;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn calls() -> Vec<DictCall<'static>> {
        let value = GivenValue::Text(b"v");
        let item = DictItem::Text(Arc::from(&b"i"[..]));
        vec![
            DictCall::Set {
                key: b"a",
                value,
                ttl: 0,
                flags: 7,
                when: StoreCondition::Always,
                eviction: EvictionRule::Evict,
            },
            DictCall::Get(b"a"),
            DictCall::Set {
                key: b"n",
                value: GivenValue::Number(1.5),
                ttl: 60_000,
                flags: 0,
                when: StoreCondition::Absent,
                eviction: EvictionRule::Refuse,
            },
            DictCall::Set {
                key: b"b",
                value: GivenValue::Boolean(true),
                ttl: 0,
                flags: 0,
                when: StoreCondition::Present,
                eviction: EvictionRule::Refuse,
            },
            DictCall::Incr(b"n", IncrCall { by: 2.0, init: None, ttl: 0, ignored: false }),
            DictCall::Incr(b"m", IncrCall { by: 2.0, init: Some(1.0), ttl: 9, ignored: true }),
            DictCall::Get(b"n"),
            DictCall::Push { key: b"l", item, end: ListEnd::Left },
            DictCall::Push { key: b"l", item: DictItem::Number(3.0), end: ListEnd::Right },
            DictCall::Length(b"l"),
            DictCall::Pop { key: b"l", end: ListEnd::Left },
            DictCall::Pop { key: b"a", end: ListEnd::Right },
            DictCall::Ttl(b"a"),
            DictCall::Expire(b"a", 60_000),
            DictCall::Keys(10),
            DictCall::FlushExpired(u64::MAX),
            DictCall::Capacity,
            DictCall::FreeSpace,
            DictCall::Delete(b"a"),
            DictCall::FlushAll,
        ]
    }

    #[test]
    fn messages_read_back_and_what_is_cut_is_none() {
        for call in calls() {
            let mut out = IpcWriter::default();
            call.encode(&mut out);
            let mut from = IpcReader(&out.0);
            assert_eq!(DictCall::decode(&mut from), Some(call));
            assert!(from.0.is_empty());
            for end in 0..out.0.len() {
                let mut from = IpcReader(&out.0[..end]);
                assert_eq!(DictCall::decode(&mut from).and_then(|call| from.whole(call)), None, "{end}");
            }
        }
        assert_eq!(DictCall::decode(&mut IpcReader(&99u64.to_le_bytes())), None);
    }

    #[test]
    fn replies_read_back_and_say_what_came_of_it() {
        let dict = SharedDict::new(1 << 20);
        let replies: Vec<DictReply> = calls().into_iter().map(|call| call.perform(&dict)).collect();
        for reply in &replies {
            let bytes = reply.encode();
            assert_eq!(DictReply::decode(&bytes).as_ref(), Some(reply));
            assert_eq!(DictReply::decode(&bytes[..bytes.len() - 1]), None);
        }
        use DictOutcome::{Done, NotFound, Number, Other};
        let outcomes: Vec<DictOutcome> = replies.iter().map(|reply| reply.outcome).collect();
        let wanted = [
            Done, Done, Done, NotFound, Done, Done, Number, Number, Number, Number, Done, Other, Number,
            Done, Done, Number, Number, Number, Done, Done,
        ];
        assert_eq!(outcomes, wanted);
        assert_eq!((replies[1].text.as_slice(), replies[1].flags), (&b"v"[..], 7));
        assert_eq!([4, 5, 6, 8].map(|at| replies[at].number), [3.5, 3.0, 3.5, 2.0]);
        assert_eq!((replies[10].text.as_slice(), replies[12].number), (&b"i"[..], 0.0));
        let mut keys = replies[14].keys.clone();
        keys.sort();
        assert_eq!(keys, [b"a", b"l", b"n"].map(|key| Box::from(&key[..])));
    }
}
