//! `throttle_response`: an application limits how fast its response is sent, with the field `X-Traffic`, as H2O's
//! `throttle-response` lets it.

use weir_conf::Directive;
use weir_conf::names::{ANY, FLAG};
use weir_engine::exchange::FieldPattern;
use weir_engine::filter::{FilterSlot, HeaderFilter};
use weir_engine::plan::PlanBuilder;
use weir_engine::{Exchange, Module, Verdict, inherit};

/// The module `throttle_response`.
pub struct ThrottleResponse;

impl Module for ThrottleResponse {
    const NAME: &'static str = "throttle_response";
    type Conf = ThrottleConf;
    const DIRECTIVES: &'static [Directive<ThrottleConf>] =
        &[ThrottleRow::new("throttle_response", ANY, FLAG, |conf, line| line.flag(&mut conf.on))
            .syntax("throttle_response on | off")
            .default("off")
            .doc(
                "Lets a response limit the rate at which it is sent: its field `X-Traffic` is a number \
                 of bytes a second, as for `limit_rate`. The field is not sent to the client.",
            )];

    fn inherit(conf: &mut ThrottleConf, parent: &ThrottleConf) {
        inherit!(conf, parent, on);
    }

    fn install(conf: &ThrottleConf, plan: &mut PlanBuilder<'_>) {
        if conf.on == Some(true) {
            plan.header_filter(FilterSlot::Aux, Self::NAME, Throttle);
        }
    }
}

type ThrottleRow = Directive<ThrottleConf>;

/// The setting of one block.
#[derive(Default)]
pub struct ThrottleConf {
    on: Option<bool>,
}

struct Throttle;

impl HeaderFilter for Throttle {
    fn filter(&self, x: &mut Exchange) -> Verdict {
        let Some(value) = x.response.header_named(&x.arena, FIELD) else { return Verdict::Ok };
        match weir_http::header::decimal(x.text(value)) {
            Some(rate) if rate > 0 => x.limit_rate = Some(rate),
            _ => {
                let value = String::from_utf8_lossy(x.text(value)).into_owned();
                x.log_error(&format_args!("the response has an invalid \"X-Traffic: {value}\""));
            }
        }
        x.remove_response_fields(FieldPattern::Exactly(FIELD));
        Verdict::Ok
    }
}

const FIELD: &[u8] = b"X-Traffic";
