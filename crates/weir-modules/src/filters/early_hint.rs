//! `early_hint`: sends fields of the response to come in a response 103 (Early Hints, RFC 8297) before the content handler runs,
//! as H2O does with `header.*` lines that say `when: early`.
//!
//! A browser loads what `Link` fields name while the response is being made. As in H2O, clients of HTTP/1 get none unless the
//! configuration says so: some take the first head for the response (RFC 8297 section 3).

use std::sync::Arc;

use weir_conf::names::{ANY_OR_IF, TWO};
use weir_conf::{Directive, LineCx, Result};
use weir_engine::output::interim::is_framing;
use weir_engine::phase::{Handler, Phase};
use weir_engine::plan::PlanBuilder;
use weir_engine::variable::ValueScript;
use weir_engine::{Exchange, Module, Text, Verdict};
use weir_http::header::is_token_byte;
use weir_http::{Version, classify};

use crate::support::value::WorkerValue;

/// The module `early_hint`.
pub struct EarlyHint;

impl Module for EarlyHint {
    const NAME: &'static str = "early_hint";
    type Conf = EarlyHintConf;
    const DIRECTIVES: &'static [Directive<EarlyHintConf>] =
        &[EarlyHintRow::new("early_hint", ANY_OR_IF, TWO, EarlyHintConf::set)
            .syntax("early_hint name value")
            .doc(
                "Adds a field to a response 103 (Early Hints) that is sent before the location's \
                 content handler runs. Fields with an empty value are left out. Without \
                 `early_hints` only clients of HTTP/2 and HTTP/3 get one; with it those for whom \
                 one of its values is neither empty nor `0`. Lines of the enclosing block apply \
                 if the block has none of its own.",
            )
            .example(
                "early_hint Link \"</style.css>; rel=preload; as=style\";\nproxy_pass http://127.0.0.1:3000;",
            )];

    fn inherit(conf: &mut EarlyHintConf, parent: &EarlyHintConf) {
        if conf.fields.is_empty() {
            conf.fields.clone_from(&parent.fields);
        }
    }

    fn install(conf: &EarlyHintConf, plan: &mut PlanBuilder<'_>) {
        if !conf.fields.is_empty() {
            let fields =
                conf.fields.iter().map(|(name, value)| (name.clone(), WorkerValue::new(value))).collect();
            plan.handler(Phase::Precontent, Self::NAME, SendHints { fields });
        }
    }
}

/// Gives the closures of the table the type of their argument.
type EarlyHintRow = Directive<EarlyHintConf>;

/// The settings of one block.
#[derive(Default)]
pub struct EarlyHintConf {
    /// Names and values.
    fields: Vec<(Arc<[u8]>, ValueScript)>,
}

impl EarlyHintConf {
    /// `early_hint name value`
    fn set(&mut self, line: &mut LineCx<'_>) -> Result {
        let name = line.bytes(0);
        if name.is_empty() || !name.iter().copied().all(is_token_byte) {
            return Err(line.invalid_value(0));
        }
        if is_framing(classify(name)) {
            return Err(line.fail_arg(0, "the field is about the connection or the content, and no hint"));
        }
        let name = name.into();
        self.fields.push((name, ValueScript::compile(line, 1)?));
        Ok(())
    }
}

/// Sends the hints of a location, once for each request.
struct SendHints {
    fields: Vec<(Arc<[u8]>, WorkerValue)>,
}

/// A request has got its hints; an internal redirect comes here again.
#[derive(Default)]
struct HintsSent(bool);

impl Handler for SendHints {
    fn handle(&self, x: &mut Exchange) -> Verdict {
        if !x.takes_hints() || x.own_lasting_if::<HintsSent>().is_some_and(|sent| sent.0) {
            return Verdict::Declined;
        }
        let in_frames = x.request.head.version >= Version::V20;
        if !x.wants_hints().unwrap_or(in_frames) {
            return Verdict::Declined;
        }
        x.own_lasting::<HintsSent>().0 = true;
        let values: Vec<Text> = self.fields.iter().map(|(_, value)| value.field(x)).collect();
        let fields = self.fields.iter().zip(&values).map(|((name, _), value)| (&**name, x.text(value)));
        x.send_hints(fields.filter(|(_, value)| !value.is_empty()));
        Verdict::Declined
    }
}
