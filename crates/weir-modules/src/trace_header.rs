//! `trace_header`: a client that knows a secret may ask for the tree of its own request to be kept.
//!
//! The request carries a field `TIME SIGNATURE`: until when it holds, in seconds since 1970, and the HMAC-SHA-256
//! (RFC 2104, FIPS 180-4) of the time's digits in hexadecimal. The answer says in a field of the same name under which
//! number the tree is kept, as `weir explain` takes it. A field that is not signed, or has ended, changes nothing and is
//! not answered: who tries learns nothing.

use sha2::{Digest as _, Sha256};
use weir_conf::names::{ANY, TWO};
use weir_conf::{Directive, LineCx, Result, parse_number};
use weir_core::filter::{HeaderFilter, Slot};
use weir_core::plan::PlanBuilder;
use weir_core::{Exchange, Module, Text, Verdict, inherit};

use crate::password::same;

/// The module.
pub struct TraceHeader;

impl Module for TraceHeader {
    const NAME: &'static str = "trace_header";
    type Conf = TraceHeaderConf;
    const DIRECTIVES: &'static [Directive<TraceHeaderConf>] = &[Row::new("trace_header", ANY, TWO, TraceHeaderConf::set)
        .doc("The name of a field by which a client asks for its own tree to be kept, and the secret it is signed with.")];

    fn inherit(conf: &mut TraceHeaderConf, parent: &TraceHeaderConf) {
        inherit!(conf, parent, field);
    }

    fn install(conf: &TraceHeaderConf, plan: &mut PlanBuilder<'_>) -> Result {
        if let Some(field) = &conf.field {
            plan.header_filter(Slot::Headers, Self::NAME, field.clone());
        }
        Ok(())
    }
}

/// Tells the closure of the table what it is given.
type Row = Directive<TraceHeaderConf>;

/// The setting of one block.
#[derive(Default)]
pub struct TraceHeaderConf {
    field: Option<Field>,
}

impl TraceHeaderConf {
    /// `trace_header name secret`
    fn set(&mut self, line: &mut LineCx<'_>) -> Result {
        let (name, secret) = (line.bytes(0), line.bytes(1));
        if !name.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')) {
            return Err(line.invalid_value(0));
        }
        if secret.len() < SHORTEST {
            return Err(line.fail_arg(1, format!("the secret must have at least {SHORTEST} characters")));
        }
        line.once(&mut self.field, Field { name: name.into(), keys: Keys::new(secret) })
    }
}

/// The filter that looks at the request when its answer is known: also pages of errors are asked about.
#[derive(Clone)]
struct Field {
    name: Box<[u8]>,
    keys: Keys,
}

impl HeaderFilter for Field {
    fn filter(&self, x: &mut Exchange) -> Verdict {
        if x.is_subrequest() {
            return Verdict::Ok;
        }
        let signed =
            x.request_field(&self.name).is_some_and(|value| self.keys.signed(value, weir_rt::unix_time().0));
        if !signed || !x.keep_trace() {
            return Verdict::Ok;
        }
        let (name, number) = (x.arena.push(&self.name), x.id().to_string());
        let number = x.arena.push(number.as_bytes());
        x.response.add_named(Text::Span(name), Text::Span(number));
        Verdict::Ok
    }
}

/// A secret as HMAC takes it: the state of the inner and the outer hash behind their first blocks.
#[derive(Clone)]
struct Keys {
    inner: Sha256,
    outer: Sha256,
}

impl Keys {
    fn new(secret: &[u8]) -> Keys {
        let mut block = [0; BLOCK];
        if secret.len() > BLOCK {
            block[..32].copy_from_slice(&Sha256::digest(secret));
        } else {
            block[..secret.len()].copy_from_slice(secret);
        }
        let keyed = |pad: u8| Sha256::new().chain_update(block.map(|byte| byte ^ pad));
        Keys { inner: keyed(0x36), outer: keyed(0x5c) }
    }

    fn hmac(&self, message: &[u8]) -> [u8; 32] {
        let inner = self.inner.clone().chain_update(message).finalize();
        self.outer.clone().chain_update(inner).finalize().into()
    }

    /// Whether `field` is signed and holds at `now`, in seconds since 1970.
    fn signed(&self, field: &[u8], now: u64) -> bool {
        let Some(space) = field.iter().position(|byte| *byte == b' ') else { return false };
        let (time, signature) = (&field[..space], &field[space + 1..]);
        if parse_number(time).is_none_or(|until| until < now) {
            return false;
        }
        let digits: String = self.hmac(time).iter().map(|byte| format!("{byte:02x}")).collect();
        same(digits.as_bytes(), &signature.to_ascii_lowercase())
    }
}

/// Bytes of SHA-256's block.
const BLOCK: usize = 64;
/// What can be guessed guards nothing.
const SHORTEST: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// RFC 4231, test cases 1, 2 and 6.
    #[test]
    fn codes_are_those_of_the_standard() {
        for (key, message, code) in [
            (
                &[0x0b; 20][..],
                &b"Hi There"[..],
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
            ),
            (
                b"Jefe",
                b"what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                &[0xaa; 131],
                b"Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
        ] {
            assert_eq!(hex(&Keys::new(key).hmac(message)), code);
        }
    }

    #[test]
    fn a_field_holds_until_its_time_and_with_its_signature() {
        let keys = Keys::new(b"0123456789abcdef");
        let signed = |time: &str| format!("{time} {}", hex(&keys.hmac(time.as_bytes())));
        assert!(keys.signed(signed("1000").as_bytes(), 999) && keys.signed(signed("1000").as_bytes(), 1000));
        assert!(keys.signed(signed("1000").to_uppercase().as_bytes(), 1000));
        for wrong in [
            signed("999"),
            signed("1000").replace("1000", "2000"),
            signed("1000").replace(' ', "  "),
            signed("x"),
            "1000".to_owned(),
            "1000 ".to_owned(),
            String::new(),
        ] {
            assert!(!keys.signed(wrong.as_bytes(), 1000), "{wrong:?}");
        }
        assert!(!Keys::new(b"0123456789abcdeF").signed(signed("1000").as_bytes(), 1000));
    }
}
