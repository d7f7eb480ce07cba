//! What `resty.md5`, `resty.sha1` and their like, `resty.random` and `resty.string` are built on.

use std::cell::RefCell;
use std::rc::Rc;

use aws_lc_rs::{digest, rand};
use md5::{Digest, Md5};

use crate::luajit::state::LuaState;
use crate::run::function::{
    ApiFunction, CallDone, CallOutcome, LuaRaise, expect_number, expect_string, function,
};

pub(crate) const TABLE: &[ApiFunction] = &[
    function("_digest.new", 0, |l| {
        let name = expect_string(&l, 1, "new")?;
        let sum = DigestSum::named(&name).ok_or_else(|| LuaRaise::argument(1, "new", "unknown digest"))?;
        l.push_owned(Rc::new(RefCell::new(sum)), NAME);
        Ok(CallDone::Results(1))
    }),
    function("_digest.update", 0, |l| {
        let text = l.bytes(2).ok_or_else(|| {
            LuaRaise::argument(2, "update", &format!("string expected, got {}", l.kind_name(2)))
        })?;
        let len = if l.is_none_or_nil(3) { text.len() } else { expect_number(l, 3, "update")? as usize };
        of(l)?.borrow_mut().update(text.get(..len).unwrap_or(text));
        Ok(CallDone::Results(0))
    }),
    function("_digest.final", 0, |l| {
        let value = of(l)?.borrow().value();
        l.push_bytes(&value);
        Ok(CallDone::Results(1))
    }),
    function("_digest.reset", 0, |l| {
        of(l)?.borrow_mut().reset();
        Ok(CallDone::Results(0))
    }),
    function("_digest.random", 0, random),
    function("_digest.hex", 0, |l| {
        let text = expect_string(&l, 1, "to_hex")?;
        l.push_bytes(crate::api::encode::hex(&text).as_bytes());
        Ok(CallDone::Results(1))
    }),
];

const NAME: &std::ffi::CStr = c"weir.digest";
/// What `resty.random` gives at once at most: as much as a string of Lua holds.
const MOST_RANDOM: f64 = 2_147_483_391.0;

/// A digest of what came so far.
enum DigestSum {
    Md5(Md5),
    Other(digest::Context),
}

impl DigestSum {
    fn named(name: &[u8]) -> Option<DigestSum> {
        let algorithm = match name {
            b"md5" => return Some(DigestSum::Md5(Md5::new())),
            b"sha1" => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            b"sha224" => &digest::SHA224,
            b"sha256" => &digest::SHA256,
            b"sha384" => &digest::SHA384,
            b"sha512" => &digest::SHA512,
            _ => return None,
        };
        Some(DigestSum::Other(digest::Context::new(algorithm)))
    }

    fn update(&mut self, text: &[u8]) {
        match self {
            DigestSum::Md5(sum) => sum.update(text),
            DigestSum::Other(sum) => sum.update(text),
        }
    }

    fn value(&self) -> Vec<u8> {
        match self {
            DigestSum::Md5(sum) => sum.clone().finalize().to_vec(),
            DigestSum::Other(sum) => sum.clone().finish().as_ref().to_vec(),
        }
    }

    fn reset(&mut self) {
        *self = match self {
            DigestSum::Md5(_) => DigestSum::Md5(Md5::new()),
            DigestSum::Other(sum) => DigestSum::Other(digest::Context::new(sum.algorithm())),
        };
    }
}

/// The digest in the first argument.
fn of(l: LuaState) -> Result<Rc<RefCell<DigestSum>>, LuaRaise> {
    l.owned(1).ok_or_else(|| LuaRaise::text("not a digest"))
}

fn random(l: LuaState) -> CallOutcome {
    let count = expect_number(l, 1, "bytes")?;
    if !(0.0..=MOST_RANDOM).contains(&count) {
        return Err(LuaRaise::argument(1, "bytes", "invalid length"));
    }
    let mut bytes = vec![0; count as usize];
    match rand::fill(&mut bytes) {
        Ok(()) => l.push_bytes(&bytes),
        Err(_) => l.push_nil(),
    }
    Ok(CallDone::Results(1))
}

#[cfg(test)]
mod tests {
    use super::DigestSum;

    fn sum(name: &str, parts: &[&str]) -> String {
        let mut sum = DigestSum::named(name.as_bytes()).expect("a known digest");
        for part in parts {
            sum.update(part.as_bytes());
        }
        crate::api::encode::hex(&sum.value())
    }

    #[test]
    fn digests_of_known_texts() {
        assert_eq!(sum("md5", &["hel", "lo"]), "5d41402abc4b2a76b9719d911017c592");
        assert_eq!(sum("sha1", &["hello"]), "aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d");
        assert_eq!(sum("sha224", &["hello"]), "ea09ae9cc6768c50fcee903ed054556e5bfc8347907f12598aa24193");
        assert_eq!(sum("sha256", &[]), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert!(sum("sha384", &["hello"]).starts_with("59e1748777448c69de6b800d7a33bbfb"));
        assert!(sum("sha512", &["hello"]).starts_with("9b71d224bd62f3785d96d46ad3ea3d73"));
        assert!(DigestSum::named(b"sha3").is_none());
    }

    #[test]
    fn goes_on_behind_a_value_and_begins_anew() {
        let mut sum = DigestSum::named(b"sha1").expect("a known digest");
        sum.update(b"hel");
        let half = sum.value();
        sum.update(b"lo");
        assert_ne!(sum.value(), half);
        sum.reset();
        sum.update(b"hel");
        assert_eq!(sum.value(), half);
    }
}
