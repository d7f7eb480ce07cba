//! `trace_header`: lets a client that knows a secret have the trace of its own request retained.
//!
//! The request carries a field `TIME SIGNATURE`: until when it is valid, in seconds since 1970, and the HMAC-SHA-256
//! (RFC 2104, FIPS 180-4) of the time's digits in hexadecimal. The response gives, in a field of the same name, the
//! number under which the trace is stored, as `weir explain` takes it. A field with a wrong signature, or one that
//! has expired, changes nothing and gets no field in the response.

use aws_lc_rs::hmac;
use weir_conf::names::{ANY, TWO};
use weir_conf::{Directive, LineCx, Result, parse_number};
use weir_engine::filter::{FilterSlot, HeaderFilter};
use weir_engine::plan::PlanBuilder;
use weir_engine::{Exchange, Module, Text, Verdict, inherit};

use crate::support::password::same;

/// The module `trace_header`.
pub struct TraceHeader;

impl Module for TraceHeader {
    const NAME: &'static str = "trace_header";
    type Conf = TraceHeaderConf;
    const DIRECTIVES: &'static [Directive<TraceHeaderConf>] =
        &[TraceHeaderRow::new("trace_header", ANY, TWO, TraceHeaderConf::set)
            .syntax("trace_header name secret")
            .doc(
                "Request header field by which a client asks for its trace to be retained, and the \
                 secret that the field is signed with. The response then names the trace in the \
                 same field.",
            )];

    fn inherit(conf: &mut TraceHeaderConf, parent: &TraceHeaderConf) {
        inherit!(conf, parent, field);
    }

    fn install(conf: &TraceHeaderConf, plan: &mut PlanBuilder<'_>) {
        if let Some(field) = &conf.field {
            plan.header_filter(FilterSlot::Headers, Self::NAME, field.clone());
        }
    }
}

/// Gives the closures of the table the type of their argument.
type TraceHeaderRow = Directive<TraceHeaderConf>;

/// The setting of one block.
#[derive(Default)]
pub struct TraceHeaderConf {
    field: Option<TraceField>,
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
        line.once(&mut self.field, TraceField { name: name.into(), keys: TraceKeys::new(secret) })
    }
}

/// The filter that looks at the request when its response is known: also pages of errors are asked about.
#[derive(Clone)]
struct TraceField {
    name: Box<[u8]>,
    keys: TraceKeys,
}

impl HeaderFilter for TraceField {
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

/// A secret as HMAC takes it.
#[derive(Clone)]
struct TraceKeys(hmac::Key);

impl TraceKeys {
    fn new(secret: &[u8]) -> TraceKeys {
        TraceKeys(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    fn signature(&self, time: &[u8]) -> String {
        hmac::sign(&self.0, time).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether `field` is signed and holds at `now`, in seconds since 1970.
    fn signed(&self, field: &[u8], now: u64) -> bool {
        let Some(space) = field.iter().position(|byte| *byte == b' ') else { return false };
        let (time, signature) = (&field[..space], &field[space + 1..]);
        if parse_number(time).is_none_or(|until| until < now) {
            return false;
        }
        same(self.signature(time).as_bytes(), &signature.to_ascii_lowercase())
    }
}

/// What can be guessed guards nothing.
const SHORTEST: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_holds_until_its_time_and_with_its_signature() {
        let keys = TraceKeys::new(b"0123456789abcdef");
        let signed = |time: &str| format!("{time} {}", keys.signature(time.as_bytes()));
        // As `printf 1000 | openssl dgst -sha256 -hmac 0123456789abcdef` has it.
        assert_eq!(signed("1000"), "1000 c78741753c95c39011c4fcf931a3f0b092460cf9460019233190375b13ddea42");
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
        assert!(!TraceKeys::new(b"0123456789abcdeF").signed(signed("1000").as_bytes(), 1000));
    }
}
