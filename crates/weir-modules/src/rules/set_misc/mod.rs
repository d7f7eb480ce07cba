//! `set_misc`: variables that are encoded, hashed, drawn or counted, among the instructions of `rewrite` (as OpenResty's
//! `ngx_http_set_misc_module`).
//!
//! A directive with one argument changes the variable in place; with two it gives the variable what it makes of the second.
//! A text that can't be decoded is an error, and the response 500.

mod instruction;

use std::sync::Arc;

use weir_conf::names::{
    FLAG, HTTP, LOCATION, LOCATION_IF, ONE, ONE_OR_TWO, SERVER, SERVER_IF, THREE, TWO, TWO_OR_MORE,
};
use weir_conf::{Contexts, Directive, Error, LineCx, Result, Span};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::plan::PlanBuilder;
use weir_engine::variable::{ValueScript, VarIndex, VariableGetter};
use weir_engine::{Module, inherit};
use weir_http::base32::Base32Form;
use weir_http::text_coder::TextCoder;

use instruction::{SetDigest, SetInstruction, SetSource};

/// The module `set_misc`.
pub struct SetMisc;

/// A directive that gives its variable what `coder` makes of the second argument, or of the variable.
const fn coded(
    name: &'static str,
    set: fn(&mut SetMiscConf, &mut LineCx<'_>) -> Result,
    syntax: &'static str,
    doc: &'static str,
) -> Directive<SetMiscConf> {
    Directive::new(name, BLOCKS, ONE_OR_TWO, set).syntax(syntax).doc(doc)
}

impl Module for SetMisc {
    const NAME: &'static str = "set_misc";
    type Conf = SetMiscConf;
    const DIRECTIVES: &'static [Directive<SetMiscConf>] = &[
        Directive::new("set_if_empty", BLOCKS, TWO, |_: &mut SetMiscConf, line| {
            let value = ValueScript::compile(line, 1)?;
            instruct(line, SetSource::IfEmpty(value))
        })
        .syntax("set_if_empty $variable value")
        .doc("Sets the variable if it has no value, or an empty one.")
        .example("set $page $arg_page;\nset_if_empty $page 1;"),
        coded(
            "set_escape_uri",
            |_, line| code(line, TextCoder::EscapeUri),
            "set_escape_uri $variable [value]",
            "Escapes a part of a URI: letters, digits and ``! $ ' ( ) * , - . @ _ ` | ~`` stay, all else is written `%XX`.",
        ),
        coded(
            "set_unescape_uri",
            |_, line| code(line, TextCoder::UnescapeUri),
            "set_unescape_uri $variable [value]",
            "Decodes a part of a URI: `%XX` is a byte, `+` a space; what is not well-formed stays.",
        ),
        coded(
            "set_quote_sql_str",
            |_, line| code(line, TextCoder::QuoteSql),
            "set_quote_sql_str $variable [value]",
            "Quotes a text as a string of MySQL's.",
        ),
        coded(
            "set_quote_pgsql_str",
            |_, line| code(line, TextCoder::QuotePostgresql),
            "set_quote_pgsql_str $variable [value]",
            "Quotes a text as a string of PostgreSQL's (`E'...'`). Of a text that is not UTF-8 bytes above 127 are escaped.",
        ),
        coded(
            "set_quote_json_str",
            |_, line| code(line, TextCoder::QuoteJson),
            "set_quote_json_str $variable [value]",
            "Quotes a text as a string of JSON; an empty one is `null`.",
        ),
        coded(
            "set_encode_base32",
            |_, line| code(line, TextCoder::EncodeBase32),
            "set_encode_base32 $variable [value]",
            "Encodes in base32, with the digits of `set_base32_alphabet`.",
        ),
        coded(
            "set_decode_base32",
            |_, line| code(line, TextCoder::DecodeBase32),
            "set_decode_base32 $variable [value]",
            "Decodes base32; an invalid text gives an empty value.",
        ),
        coded(
            "set_encode_base64",
            |_, line| code(line, TextCoder::EncodeBase64),
            "set_encode_base64 $variable [value]",
            "Encodes in base64, with padding.",
        ),
        coded(
            "set_decode_base64",
            |_, line| code(line, TextCoder::DecodeBase64),
            "set_decode_base64 $variable [value]",
            "Decodes base64; an invalid text is an error.",
        ),
        coded(
            "set_encode_base64url",
            |_, line| code(line, TextCoder::EncodeBase64Url),
            "set_encode_base64url $variable [value]",
            "Encodes in base64 with `-` and `_`, without padding.",
        ),
        coded(
            "set_decode_base64url",
            |_, line| code(line, TextCoder::DecodeBase64Url),
            "set_decode_base64url $variable [value]",
            "Decodes base64 with `-` and `_`; an invalid text is an error.",
        ),
        coded(
            "set_encode_hex",
            |_, line| code(line, TextCoder::EncodeHex),
            "set_encode_hex $variable [value]",
            "Writes each byte as two hexadecimal digits.",
        ),
        coded(
            "set_decode_hex",
            |_, line| code(line, TextCoder::DecodeHex),
            "set_decode_hex $variable [value]",
            "Reads hexadecimal digits; others, or an odd number of them, are an error.",
        ),
        coded(
            "set_md5",
            |_, line| digest(line, SetDigest::Md5),
            "set_md5 $variable [value]",
            "The MD5 hash in hexadecimal digits.",
        ),
        coded(
            "set_sha1",
            |_, line| digest(line, SetDigest::Sha1),
            "set_sha1 $variable [value]",
            "The SHA-1 hash in hexadecimal digits.",
        ),
        Directive::new("set_hmac_sha1", BLOCKS, THREE, |_: &mut SetMiscConf, line| {
            let (key, value) = (ValueScript::compile(line, 1)?, ValueScript::compile(line, 2)?);
            instruct(line, SetSource::Hmac { sha256: false, key, value })
        })
        .syntax("set_hmac_sha1 $variable key value")
        .doc("The HMAC-SHA1 of the value with that key, as 20 bytes; see `set_encode_base64` and `set_encode_hex`.")
        .example("set_hmac_sha1 $signature my-key $uri;\nset_encode_base64 $signature;"),
        Directive::new("set_hmac_sha256", BLOCKS, THREE, |_: &mut SetMiscConf, line| {
            let (key, value) = (ValueScript::compile(line, 1)?, ValueScript::compile(line, 2)?);
            instruct(line, SetSource::Hmac { sha256: true, key, value })
        })
        .syntax("set_hmac_sha256 $variable key value")
        .doc("The HMAC-SHA256 of the value with that key, as 32 bytes."),
        Directive::new("set_random", BLOCKS, THREE, |_: &mut SetMiscConf, line| {
            let (from, to) = (ValueScript::compile(line, 1)?, ValueScript::compile(line, 2)?);
            instruct(line, SetSource::Random(from, to))
        })
        .syntax("set_random $variable from to")
        .doc("A random whole number, both ends included. They may have variables; any other text is an error."),
        Directive::new("set_secure_random_alphanum", BLOCKS, ONE_OR_TWO, |_: &mut SetMiscConf, line| {
            let length = in_place_or(line)?;
            instruct(line, SetSource::RandomText { letters_only: false, length })
        })
        .syntax("set_secure_random_alphanum $variable [length]")
        .doc("A random text of 1 to 64 letters and digits, for secrets. Another length is an error."),
        Directive::new("set_secure_random_lcalpha", BLOCKS, ONE_OR_TWO, |_: &mut SetMiscConf, line| {
            let length = in_place_or(line)?;
            instruct(line, SetSource::RandomText { letters_only: true, length })
        })
        .syntax("set_secure_random_lcalpha $variable [length]")
        .doc("A random text of 1 to 64 lower-case letters, for secrets. Another length is an error."),
        Directive::new("set_rotate", BLOCKS, THREE, |_: &mut SetMiscConf, line| {
            let (from, to) = (ValueScript::compile(line, 1)?, ValueScript::compile(line, 2)?);
            instruct(line, SetSource::Rotate(from, to))
        })
        .syntax("set_rotate $variable from to")
        .doc(
            "Adds one to the variable, and begins again with `from` where it is not in the range. A variable without a number \
             goes on from what this line gave last, in each worker by itself.",
        )
        .example("set_rotate $banner 1 5;"),
        Directive::new("set_local_today", BLOCKS, ONE, |_: &mut SetMiscConf, line| {
            instruct(line, SetSource::Time { local: true, format: None })
        })
        .syntax("set_local_today $variable")
        .doc("Today's date in local time, `yyyy-mm-dd`."),
        Directive::new("set_formatted_gmt_time", BLOCKS, TWO, |_: &mut SetMiscConf, line| {
            let format = Some(ValueScript::compile(line, 1)?);
            instruct(line, SetSource::Time { local: false, format })
        })
        .syntax("set_formatted_gmt_time $variable format")
        .doc("The time, GMT, in a format of C's `strftime`."),
        Directive::new("set_formatted_local_time", BLOCKS, TWO, |_: &mut SetMiscConf, line| {
            let format = Some(ValueScript::compile(line, 1)?);
            instruct(line, SetSource::Time { local: true, format })
        })
        .syntax("set_formatted_local_time $variable format")
        .doc("The local time in a format of C's `strftime`."),
        Directive::new("upstream_list", HTTP, TWO_OR_MORE, SetMiscConf::list)
            .syntax("upstream_list name upstream ...")
            .doc("Names a list of upstreams for `set_hashed_upstream`.")
            .example("upstream_list all moon sun earth;"),
        Directive::new("set_hashed_upstream", BLOCKS, THREE, SetMiscConf::hashed)
            .syntax("set_hashed_upstream $variable list value")
            .doc("One of the names in the list (`upstream_list`), by a hash of the value, capitals or not."),
        Directive::new("set_base32_padding", HTTP_AND_BLOCKS, FLAG, |conf: &mut SetMiscConf, line| {
            line.flag(&mut conf.padding)
        })
        .syntax("set_base32_padding on | off")
        .default("on")
        .doc("Whether `set_encode_base32` fills up with `=`."),
        Directive::new("set_misc_base32_padding", HTTP_AND_BLOCKS, FLAG, |conf: &mut SetMiscConf, line| {
            line.flag(&mut conf.padding)
        })
        .syntax("set_misc_base32_padding on | off")
        .default("on")
        .doc("Older name of `set_base32_padding`."),
        Directive::new("set_base32_alphabet", HTTP_AND_BLOCKS, ONE, SetMiscConf::alphabet)
            .syntax("set_base32_alphabet digits")
            .default("0123456789abcdefghijklmnopqrstuv")
            .doc("The 32 digits of `set_encode_base32` and `set_decode_base32`; RFC 4648 has `ABCDEFGHIJKLMNOPQRSTUVWXYZ234567`."),
    ];

    fn inherit(conf: &mut SetMiscConf, parent: &SetMiscConf) {
        inherit!(conf, parent, padding, alphabet);
        if conf.lists.is_empty() {
            conf.lists = parent.lists.clone();
        }
    }

    fn resolve(conf: &mut SetMiscConf, _: &mut ConfRegistry) -> Result {
        for (name, span) in &conf.hashed {
            if !conf.lists.iter().any(|list| list.name == *name) {
                return Err(Error::new(format!("upstream list \"{name}\" is not defined")).at(*span));
            }
        }
        Ok(())
    }

    fn install(conf: &SetMiscConf, plan: &mut PlanBuilder<'_>) {
        if conf.padding.is_some() || conf.alphabet.is_some() {
            let usual = Base32Form::default();
            let alphabet = conf.alphabet.unwrap_or(usual.alphabet);
            plan.keep(Base32Form { alphabet, padded: conf.padding.unwrap_or(usual.padded) });
        }
        if !conf.lists.is_empty() {
            plan.keep(conf.lists.clone());
        }
    }
}

/// The settings of one block.
#[derive(Default)]
pub struct SetMiscConf {
    padding: Option<bool>,
    alphabet: Option<[u8; 32]>,
    /// All of `http`.
    lists: Arc<Vec<UpstreamList>>,
    /// Names of lists that lines of this block have, and where.
    hashed: Vec<(String, Span)>,
}

/// `upstream_list`
#[derive(Clone)]
struct UpstreamList {
    name: String,
    upstreams: Vec<String>,
}

impl SetMiscConf {
    fn alphabet(&mut self, line: &mut LineCx<'_>) -> Result {
        let digits = line.bytes(0);
        let Ok(alphabet) = <[u8; 32]>::try_from(digits) else {
            let length = digits.len();
            return Err(
                line.fail_arg(0, format!("an alphabet of 32 bytes is expected, this one has {length}"))
            );
        };
        line.once(&mut self.alphabet, alphabet)
    }

    fn list(&mut self, line: &mut LineCx<'_>) -> Result {
        let name = line.arg(0).to_owned();
        if self.lists.iter().any(|list| list.name == name) {
            return Err(line.fail_arg(0, format!("duplicate upstream list \"{name}\"")));
        }
        let upstreams = (1..line.args().len()).map(|at| line.arg(at).to_owned()).collect();
        Arc::make_mut(&mut self.lists).push(UpstreamList { name, upstreams });
        Ok(())
    }

    fn hashed(&mut self, line: &mut LineCx<'_>) -> Result {
        let (list, key) = (ValueScript::compile(line, 1)?, ValueScript::compile(line, 2)?);
        if list.constant().is_some() {
            self.hashed.push((line.arg(1).to_owned(), line.args()[1].span));
        }
        instruct(line, SetSource::HashedUpstream { list, key })
    }
}

/// The second argument, or the variable that is the first.
fn in_place_or(line: &mut LineCx<'_>) -> Result<ValueScript> {
    let at = line.args().len() - 1;
    ValueScript::compile(line, at)
}

fn code(line: &mut LineCx<'_>, coder: TextCoder) -> Result {
    let value = in_place_or(line)?;
    instruct(line, SetSource::Coded(coder, value))
}

fn digest(line: &mut LineCx<'_>, digest: SetDigest) -> Result {
    let value = in_place_or(line)?;
    instruct(line, SetSource::Digest(digest, value))
}

/// Adds the instruction that sets the variable of the line's first argument.
fn instruct(line: &mut LineCx<'_>, source: SetSource) -> Result {
    let variable = variable(line)?;
    let directive = line.name().to_owned();
    line.ext::<ConfRegistry>().instruct(Arc::new(SetInstruction { variable, directive, source }));
    Ok(())
}

fn variable(line: &mut LineCx<'_>) -> Result<VarIndex> {
    let name = match line.arg(0).strip_prefix('$') {
        Some(name) if !name.is_empty() => name,
        _ => return Err(line.fail_arg(0, format!("invalid variable name \"{}\"", line.arg(0)))),
    };
    let variable = line.ext::<ConfRegistry>().define_set(name, VariableGetter::Assigned);
    variable.map_err(|message| line.fail_arg(0, message))
}

const BLOCKS: Contexts = SERVER.or(LOCATION).or(SERVER_IF).or(LOCATION_IF);
const HTTP_AND_BLOCKS: Contexts = HTTP.or(BLOCKS);
