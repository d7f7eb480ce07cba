//! `compress_hint`: an application says whether its response is compressed, with the field `X-Compress-Hint`, as H2O lets it.

use weir_conf::Directive;
use weir_conf::names::{ANY, FLAG};
use weir_engine::exchange::FieldPattern;
use weir_engine::filter::{FilterSlot, HeaderFilter};
use weir_engine::plan::PlanBuilder;
use weir_engine::{Exchange, Module, Verdict, inherit};

use super::compress::{CompressionHint, ContentCoding};

/// The module `compress_hint`.
pub struct CompressHint;

impl Module for CompressHint {
    const NAME: &'static str = "compress_hint";
    type Conf = CompressHintConf;
    const DIRECTIVES: &'static [Directive<CompressHintConf>] =
        &[CompressHintRow::new("compress_hint", ANY, FLAG, |conf, line| line.flag(&mut conf.on))
            .syntax("compress_hint on | off")
            .default("off")
            .doc(
                "Lets a response say whether it is compressed, by its field `X-Compress-Hint`. With `off` \
                 it is not. With `on` it is, whatever its type and length, if its status is 200; with \
                 `gzip`, `br` or `zstd` by this coding alone. The codings are those that the location has \
                 on. The field is not sent to the client; other values change nothing.",
            )];

    fn inherit(conf: &mut CompressHintConf, parent: &CompressHintConf) {
        inherit!(conf, parent, on);
    }

    fn install(conf: &CompressHintConf, plan: &mut PlanBuilder<'_>) {
        if conf.on == Some(true) {
            plan.header_filter(FilterSlot::Aux, Self::NAME, TakeHint);
        }
    }
}

type CompressHintRow = Directive<CompressHintConf>;

/// The setting of one block.
#[derive(Default)]
pub struct CompressHintConf {
    on: Option<bool>,
}

struct TakeHint;

impl HeaderFilter for TakeHint {
    fn filter(&self, x: &mut Exchange) -> Verdict {
        let Some(value) = x.response.header_named(&x.arena, FIELD) else { return Verdict::Passed };
        let hint = hint(x.text(value));
        x.remove_response_fields(FieldPattern::Exactly(FIELD));
        *x.state::<CompressionHint>() = hint;
        Verdict::Ok
    }

    fn is_plain(&self) -> bool {
        true
    }
}

/// What the field says.
fn hint(value: &[u8]) -> CompressionHint {
    let is = |word: &str| value.eq_ignore_ascii_case(word.as_bytes());
    match () {
        () if is("off") => CompressionHint::Off,
        () if is("on") => CompressionHint::On,
        () => {
            let coding = ContentCoding::ALL.into_iter().find(|coding| is(coding.token()));
            coding.map_or(CompressionHint::Auto, CompressionHint::Only)
        }
    }
}

const FIELD: &[u8] = b"X-Compress-Hint";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_field() {
        let rows = [
            ("on", CompressionHint::On),
            ("OFF", CompressionHint::Off),
            ("br", CompressionHint::Only(ContentCoding::Brotli)),
            ("gzip", CompressionHint::Only(ContentCoding::Gzip)),
            ("zstd", CompressionHint::Only(ContentCoding::Zstd)),
            ("auto", CompressionHint::Auto),
            ("", CompressionHint::Auto),
            ("on,off", CompressionHint::Auto),
        ];
        for (value, expected) in rows {
            assert_eq!(hint(value.as_bytes()), expected, "{value}");
        }
    }
}
