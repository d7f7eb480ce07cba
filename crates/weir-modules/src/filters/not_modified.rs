//! `not_modified`: conditional requests (RFC 9110 section 13). A 200 becomes 304 or 412.
//!
//! Its setting, `if_modified_since`, is one of the core's.

use weir_conf::Directive;
use weir_engine::filter::{FilterSlot, HeaderFilter};
use weir_engine::plan::PlanBuilder;
use weir_engine::settings::location::IfModifiedSince;
use weir_engine::{Exchange, Module, Verdict};
use weir_http::h1::KnownFieldSet;
use weir_http::{KnownField, etag};

/// The module; it has no directives of its own.
pub struct NotModified;

impl Module for NotModified {
    const NAME: &'static str = "not_modified";
    type Conf = ();
    const DIRECTIVES: &'static [Directive<()>] = &[];

    fn install(_: &(), plan: &mut PlanBuilder<'_>) {
        plan.header_filter(FilterSlot::NotModified, Self::NAME, NotModifiedFilter);
    }
}

struct NotModifiedFilter;

impl HeaderFilter for NotModifiedFilter {
    fn is_rehearsable(&self) -> bool {
        true
    }

    fn filter(&self, x: &mut Exchange) -> Verdict {
        if x.response.status != 200 || x.response.disable_not_modified || x.is_subrequest() {
            return Verdict::Passed;
        }
        match evaluate(x) {
            None => Verdict::Passed,
            Some(etag::ConditionVerdict::Proceed) => Verdict::Ok,
            Some(etag::ConditionVerdict::PreconditionFailed) => {
                x.response.clear_head();
                Verdict::Status(412)
            }
            Some(etag::ConditionVerdict::NotModified) => {
                not_modified(x);
                Verdict::Ok
            }
        }
    }

    fn is_plain(&self) -> bool {
        true
    }

    fn is_fixed(&self) -> bool {
        true
    }
}

/// The fields that make a request conditional, but for `If-Range`.
const CONDITIONS: KnownFieldSet = KnownFieldSet::of(&[
    KnownField::IfMatch,
    KnownField::IfNoneMatch,
    KnownField::IfModifiedSince,
    KnownField::IfUnmodifiedSince,
]);

/// `None`: the request has no conditions.
fn evaluate(x: &Exchange) -> Option<etag::ConditionVerdict> {
    if !x.request.head.may_have(CONDITIONS) {
        return None;
    }
    let field = |known| x.request.value(&x.arena, known);
    let conditions = etag::RequestConditions {
        if_match: field(KnownField::IfMatch),
        if_none_match: field(KnownField::IfNoneMatch),
        if_modified_since: field(KnownField::IfModifiedSince),
        if_unmodified_since: field(KnownField::IfUnmodifiedSince),
    };
    if conditions.is_empty() {
        return None;
    }
    let how = match x.plan.core.if_modified_since {
        IfModifiedSince::Off => etag::IfModifiedSince::Off,
        IfModifiedSince::Exact => etag::IfModifiedSince::Exact,
        IfModifiedSince::Before => etag::IfModifiedSince::Before,
    };
    let tag = x.response.etag().map(|tag| x.text(tag));
    Some(conditions.evaluate(tag, x.response.last_modified, how))
}

/// The head of a 304: what describes a body that does not follow goes, validators stay.
fn not_modified(x: &mut Exchange) {
    let response = &mut x.response;
    response.status = 304;
    response.reason = None;
    response.not_modified = true;
    response.content_type = None;
    response.charset = None;
    response.content_length = None;
    response.remove(KnownField::AcceptRanges);
    response.remove(KnownField::ContentEncoding);
}
