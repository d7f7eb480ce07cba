//! The instructions on one worker, and their run.

use std::cell::Cell;
use std::sync::Arc;

use aws_lc_rs::{digest, hmac, rand};
use md5::{Digest as _, Md5};
use weir_engine::log::LogLevel;
use weir_engine::plan::{MakeInstruction, PlanBuilder, PlanInstruction};
use weir_engine::variable::{ValueScript, VarIndex};
use weir_engine::{Exchange, Text, Verdict};
use weir_http::base32::Base32Form;
use weir_http::text_coder::TextCoder;

use super::UpstreamList;
use crate::support::moment;
use crate::support::value::WorkerValue;

/// One line as configured.
pub(super) struct SetInstruction {
    pub(super) variable: VarIndex,
    pub(super) directive: String,
    pub(super) source: SetSource,
}

/// What the variable is set to.
pub(super) enum SetSource {
    /// The value, if the variable is empty.
    IfEmpty(ValueScript),
    /// What a coder makes of the value.
    Coded(TextCoder, ValueScript),
    /// A hash of the value, in hexadecimal digits.
    Digest(SetDigest, ValueScript),
    /// The bytes of a signature.
    Hmac { sha256: bool, key: ValueScript, value: ValueScript },
    /// A number, both ends included.
    Random(ValueScript, ValueScript),
    /// Letters, and digits if not `letters_only`.
    RandomText { letters_only: bool, length: ValueScript },
    /// The variable's next number, both ends included.
    Rotate(ValueScript, ValueScript),
    /// The time; without a format the date.
    Time { local: bool, format: Option<ValueScript> },
    /// A name of a list, by a hash.
    HashedUpstream { list: ValueScript, key: ValueScript },
}

/// A hash.
#[derive(Clone, Copy)]
pub(super) enum SetDigest {
    Md5,
    Sha1,
}

/// The value for a request: `None` leaves the variable as it is. An error is logged, and the response 500.
type ValueMaker = Box<dyn Fn(&mut Exchange) -> Result<Option<Vec<u8>>, String>>;

impl MakeInstruction for SetInstruction {
    fn install(&self, _: &PlanBuilder<'_>) -> PlanInstruction {
        let (variable, directive) = (self.variable, self.directive.clone());
        let make = self.source.install(variable);
        Box::new(move |x| match make(x) {
            Ok(Some(value)) => {
                let value = Text::Span(x.arena.push(&value));
                x.set_variable(variable, value);
                Verdict::Declined
            }
            Ok(None) => Verdict::Declined,
            Err(reason) => {
                x.log(LogLevel::Error, &format_args!("{directive}: {reason}"));
                Verdict::Status(500)
            }
        })
    }
}

impl SetSource {
    fn install(&self, variable: VarIndex) -> ValueMaker {
        let script = WorkerValue::new;
        match self {
            SetSource::IfEmpty(value) => if_empty(variable, script(value)),
            SetSource::Coded(coder, value) => coded(*coder, script(value)),
            SetSource::Digest(digest, value) => digested(*digest, script(value)),
            SetSource::Hmac { sha256, key, value } => signed(*sha256, script(key), script(value)),
            SetSource::Random(from, to) => {
                let range = (script(from), script(to));
                Box::new(move |x| drawn(range_of(x, &range)?).map(decimal))
            }
            SetSource::RandomText { letters_only, length } => drawn_text(*letters_only, script(length)),
            SetSource::Rotate(from, to) => rotated(variable, (script(from), script(to))),
            SetSource::Time { local, format } => time(*local, format.as_ref().map(script)),
            SetSource::HashedUpstream { list, key } => {
                let (list, key) = (script(list), script(key));
                Box::new(move |x| {
                    let (list, key) = (bytes(x, &list), bytes(x, &key));
                    hashed(x, &list, &key).map(Some)
                })
            }
        }
    }
}

fn if_empty(variable: VarIndex, value: WorkerValue) -> ValueMaker {
    Box::new(move |x| match current(x, variable).is_empty() {
        true => Ok(Some(bytes(x, &value))),
        false => Ok(None),
    })
}

fn coded(coder: TextCoder, value: WorkerValue) -> ValueMaker {
    Box::new(move |x| {
        let text = bytes(x, &value);
        let coded = coder.apply(&text, x.plan.kept::<Base32Form>());
        coded.map(Some).ok_or_else(|| "invalid value".to_owned())
    })
}

fn digested(digest: SetDigest, value: WorkerValue) -> ValueMaker {
    Box::new(move |x| {
        let text = bytes(x, &value);
        Ok(TextCoder::EncodeHex.apply(&hash(digest, &text), None))
    })
}

fn signed(sha256: bool, key: WorkerValue, value: WorkerValue) -> ValueMaker {
    let algorithm = if sha256 { hmac::HMAC_SHA256 } else { hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY };
    Box::new(move |x| {
        let (key, value) = (bytes(x, &key), bytes(x, &value));
        Ok(Some(hmac::sign(&hmac::Key::new(algorithm, &key), &value).as_ref().to_vec()))
    })
}

fn drawn_text(letters_only: bool, length: WorkerValue) -> ValueMaker {
    let alphabet = if letters_only { &ALPHANUMERIC[..26] } else { ALPHANUMERIC };
    Box::new(move |x| {
        let length = bytes(x, &length);
        let number = weir_conf::parse_number(&length).filter(|length| (1..=64).contains(length));
        let number = number.ok_or_else(|| bad("length", &length))?;
        random_text(alphabet, number as usize).map(Some)
    })
}

fn rotated(variable: VarIndex, range: (WorkerValue, WorkerValue)) -> ValueMaker {
    let last = Cell::new(None);
    Box::new(move |x| {
        let (from, to) = range_of(x, &range)?;
        let now = weir_conf::parse_number(&current(x, variable)).or(last.get());
        let next = now.and_then(|now| now.checked_add(1)).filter(|next| (from..=to).contains(next));
        let next = next.unwrap_or(from);
        if !x.is_rehearsed() {
            last.set(Some(next));
        }
        Ok(decimal(next))
    })
}

fn time(local: bool, format: Option<WorkerValue>) -> ValueMaker {
    Box::new(move |x| {
        let format = format.as_ref().map_or_else(|| b"%Y-%m-%d".to_vec(), |format| bytes(x, format));
        Ok(Some(moment::now(&format, local)))
    })
}

/// What the variable is, nothing if it was not set.
fn current(x: &mut Exchange, variable: VarIndex) -> Vec<u8> {
    let value = x.variable(variable);
    value.map_or_else(Vec::new, |value| x.text(&value).to_vec())
}

fn bytes(x: &mut Exchange, value: &WorkerValue) -> Vec<u8> {
    let text = value.get(x);
    x.text(&text).to_vec()
}

fn hash(with: SetDigest, text: &[u8]) -> Vec<u8> {
    match with {
        SetDigest::Md5 => Md5::digest(text).to_vec(),
        SetDigest::Sha1 => digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, text).as_ref().to_vec(),
    }
}

fn bad(what: &str, value: &[u8]) -> String {
    format!("bad \"{what}\" argument: {}", String::from_utf8_lossy(value))
}

fn decimal(number: u64) -> Option<Vec<u8>> {
    Some(number.to_string().into_bytes())
}

/// Both ends, the lower one first.
fn range_of(x: &mut Exchange, (from, to): &(WorkerValue, WorkerValue)) -> Result<(u64, u64), String> {
    let (from, to) = (bytes(x, from), bytes(x, to));
    let first = weir_conf::parse_number(&from).ok_or_else(|| bad("from", &from))?;
    let last = weir_conf::parse_number(&to).ok_or_else(|| bad("to", &to))?;
    Ok((first.min(last), first.max(last)))
}

fn drawn((from, to): (u64, u64)) -> Result<u64, String> {
    let mut random = [0; 16];
    rand::fill(&mut random).map_err(|_| NO_RANDOM.to_owned())?;
    // Of 128 bits the rest is as good as even.
    let range = u128::from(to - from) + 1;
    Ok(from + (u128::from_ne_bytes(random) % range) as u64)
}

/// Bytes that would make some digits more frequent than others are drawn again.
fn random_text(alphabet: &[u8], length: usize) -> Result<Vec<u8>, String> {
    let even = 256 - 256 % alphabet.len();
    let (mut out, mut random) = (Vec::with_capacity(length), [0; 64]);
    while out.len() < length {
        rand::fill(&mut random).map_err(|_| NO_RANDOM.to_owned())?;
        let usable = random.iter().map(|byte| usize::from(*byte)).filter(|byte| *byte < even);
        out.extend(usable.map(|byte| alphabet[byte % alphabet.len()]).take(length - out.len()));
    }
    Ok(out)
}

fn hashed(x: &Exchange, name: &[u8], key: &[u8]) -> Result<Vec<u8>, String> {
    let lists = x.plan.kept::<Arc<Vec<UpstreamList>>>();
    let list = lists.and_then(|lists| lists.iter().find(|list| list.name.as_bytes() == name));
    let undefined = || format!("upstream list \"{}\" is not defined", String::from_utf8_lossy(name));
    let list = list.ok_or_else(undefined)?;
    // nginx's own hash of names.
    let add = |hash: u32, byte: &u8| hash.wrapping_mul(31).wrapping_add(u32::from(byte.to_ascii_lowercase()));
    let hash = key.iter().fold(0, add);
    Ok(list.upstreams[hash as usize % list.upstreams.len()].clone().into_bytes())
}

const NO_RANDOM: &str = "the system has no random numbers";
const ALPHANUMERIC: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
