//! `ndk.set_var`: what the directives of set-misc make of a text.

use weir_http::text_coder::TextCoder;

use crate::run::function::{ApiFunction, CallDone, expect_string, function};

pub(super) const TABLE: &[ApiFunction] = &[
    // The coded text, or nil if it can't be decoded; nothing if there is no such directive.
    function("_ndk.code", 0, |l| {
        let (name, text) = (expect_string(&l, 1, "code")?, expect_string(&l, 2, "code")?);
        let Some(coder) = std::str::from_utf8(&name).ok().and_then(TextCoder::named) else {
            return Ok(CallDone::Results(0));
        };
        match coder.apply(&text, None) {
            Some(coded) => l.push_bytes(&coded),
            None => l.push_nil(),
        }
        Ok(CallDone::Results(1))
    }),
];
