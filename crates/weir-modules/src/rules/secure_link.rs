//! `secure_link`: checks links that are signed and may expire (nginx's `ngx_http_secure_link_module`).
//!
//! The first form signs any text (`secure_link`, `secure_link_md5`), the older one a part of the URI together with a
//! secret word (`secure_link_secret`).

use md5::{Digest as _, Md5};
use weir_conf::names::{ANY, ONE};
use weir_conf::{Directive, Error, Result, Span};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::plan::PlanBuilder;
use weir_engine::variable::{ValueScript, Variable};
use weir_engine::{Exchange, Module, Text};
use weir_http::base64;

use crate::support::password::same;

/// The module `secure_link`.
pub struct SecureLink;

impl Module for SecureLink {
    const NAME: &'static str = "secure_link";
    type Conf = SecureLinkConf;
    const DIRECTIVES: &'static [Directive<SecureLinkConf>] = &[
        SecureLinkRow::new("secure_link", ANY, ONE, |conf, line| {
            let value = ValueScript::compile(line, 0)?;
            line.once(&mut conf.link, value)
        })
        .syntax("secure_link expression")
        .doc(
            "String with variables that holds a link's signature and, after a comma, its \
             expiration time in seconds since 1970; used with `secure_link_md5`.",
        )
        .example(
            "secure_link $arg_md5,$arg_expires;\n\
             secure_link_md5 \"$secure_link_expires$uri$remote_addr secret\";\n\
             if ($secure_link = \"\") {\n\
             \x20   return 403;\n\
             }\n\
             if ($secure_link = \"0\") {\n\
             \x20   return 410;\n\
             }",
        ),
        SecureLinkRow::new("secure_link_md5", ANY, ONE, |conf, line| {
            let value = ValueScript::compile(line, 0)?;
            line.once(&mut conf.signed, value)
        })
        .syntax("secure_link_md5 expression")
        .doc("String with variables whose MD5 hash, in base64url, the signature must equal."),
        SecureLinkRow::new("secure_link_secret", ANY, ONE, |conf, line| {
            conf.span = Some(line.line().name.span);
            line.text(&mut conf.secret)
        })
        .syntax("secure_link_secret word")
        .doc(
            "Secret word for links of the form `/prefix/hash/link`, where `hash` is the \
             hexadecimal MD5 of link and word.",
        ),
    ];
    const VARIABLES: &'static [Variable] =
        &[Variable::new("secure_link", secure_link), Variable::new("secure_link_expires", expires)];

    fn inherit(conf: &mut SecureLinkConf, parent: &SecureLinkConf) {
        if conf.secret.is_some() {
            return;
        }
        weir_engine::inherit!(conf, parent, link, signed);
        if conf.link.is_none() && conf.signed.is_none() {
            conf.secret = parent.secret.clone();
        }
    }

    fn resolve(conf: &mut SecureLinkConf, _: &mut ConfRegistry) -> Result {
        match (conf.span, &conf.link, &conf.signed) {
            (Some(span), link, signed) if link.is_some() || signed.is_some() => Err(Error::new(
                "\"secure_link_secret\" cannot be mixed with \"secure_link\" and \"secure_link_md5\"",
            )
            .at(span)),
            _ => Ok(()),
        }
    }

    fn install(conf: &SecureLinkConf, plan: &mut PlanBuilder<'_>) {
        match (&conf.secret, &conf.link, &conf.signed) {
            (Some(secret), ..) => plan.keep(LinkCheck::Secret(secret.clone())),
            (None, Some(link), Some(signed)) => plan.keep(LinkCheck::Signed(link.clone(), signed.clone())),
            _ => {}
        }
    }
}

/// Gives the closures of the table the type of their argument.
type SecureLinkRow = Directive<SecureLinkConf>;

/// The settings of one block.
#[derive(Default)]
pub struct SecureLinkConf {
    link: Option<ValueScript>,
    signed: Option<ValueScript>,
    secret: Option<Vec<u8>>,
    /// Where the block's own secret is.
    span: Option<Span>,
}

/// What a location checks.
#[derive(Clone)]
enum LinkCheck {
    /// The signature that came, and the text that was signed.
    Signed(ValueScript, ValueScript),
    /// The secret word.
    Secret(Vec<u8>),
}

/// When the link that was looked at ends, as it says.
#[derive(Default)]
struct LinkExpiry(Option<Text>);

/// `$secure_link`: `1` for a good link, `0` for one that has ended; of the older form the part after the signature.
fn secure_link(x: &mut Exchange) -> Option<Text> {
    let plan = x.plan.clone();
    match plan.kept::<LinkCheck>()? {
        LinkCheck::Signed(link, signed) => by_text(x, link, signed),
        LinkCheck::Secret(secret) => by_secret(x, secret),
    }
}

/// `$secure_link_expires`
fn expires(x: &mut Exchange) -> Option<Text> {
    x.state_if::<LinkExpiry>()?.0.clone()
}

fn by_text(x: &mut Exchange, link: &ValueScript, signed: &ValueScript) -> Option<Text> {
    let link = link.value(x);
    let link = x.arena.append(&link);
    let bytes = x.arena.get(link);
    let (signature, end) = match bytes.iter().position(|byte| *byte == b',') {
        None => (bytes.to_vec(), None),
        Some(comma) => {
            let end = weir_conf::parse_number(&bytes[comma + 1..]).filter(|end| *end > 0)?;
            let text = weir_engine::Span { start: link.start + comma as u32 + 1, end: link.end };
            let signature = bytes[..comma].to_vec();
            x.state::<LinkExpiry>().0 = Some(Text::Span(text));
            (signature, Some(end))
        }
    };
    if signature.len() > LONGEST {
        return None;
    }
    let signature = base64::decode_url(&signature).filter(|hash| hash.len() == DIGEST)?;
    let signed = signed.value(x);
    if !same(&Md5::digest(x.text(&signed)), &signature) {
        return None;
    }
    let ended = end.is_some_and(|end| end < weir_rt::unix_time().0);
    Some(Text::Static(if ended { b"0" } else { b"1" }))
}

fn by_secret(x: &mut Exchange, secret: &[u8]) -> Option<Text> {
    let uri = x.request.unparsed_uri;
    let (start, end) = rest(x.arena.get(uri), secret)?;
    Some(Text::Span(weir_engine::Span { start: uri.start + start, end: uri.start + end }))
}

/// Where the rest of `/prefix/md5/rest` lies, if the MD5 is that of the rest and the secret.
pub(crate) fn rest(uri: &[u8], secret: &[u8]) -> Option<(u32, u32)> {
    let slash = |from: usize| Some(from + uri.get(from..)?.iter().position(|byte| *byte == b'/')?);
    let hash = slash(1)? + 1;
    let rest = slash(hash)? + 1;
    if rest - 1 - hash != 2 * DIGEST || rest == uri.len() {
        return None;
    }
    let mut reported = [0; DIGEST];
    for (byte, digits) in reported.iter_mut().zip(uri[hash..].chunks(2)) {
        let digit = |at: usize| char::from(digits[at]).to_digit(16);
        *byte = (digit(0)? << 4 | digit(1)?) as u8;
    }
    let expected = Md5::new().chain_update(&uri[rest..]).chain_update(secret).finalize();
    same(&expected, &reported).then_some((rest as u32, uri.len() as u32))
}

/// Bytes of an MD5.
const DIGEST: usize = 16;
/// Digits of an MD5 in base64, padding included.
const LONGEST: usize = 24;

#[cfg(test)]
mod tests {
    use weir_engine::testing::value;

    use crate::testing::{WITH_ONE, asked, whole_core_and};

    use proptest::prelude::*;
    use weir_engine::ModuleDef;
    use weir_engine::conf;

    use super::*;
    use crate::testing::core_and;

    static MODULES: [ModuleDef; 4] = core_and::<SecureLink>();

    #[test]
    fn the_forms_are_not_mixed() {
        let text = |inside: &str| format!("events {{ }} http {{ server {{ {inside} }} }}");
        let mixed = text("location / { secure_link_secret a; secure_link b; }");
        let words = "\"secure_link_secret\" cannot be mixed with \"secure_link\" and \"secure_link_md5\"";
        assert!(conf::test::headlines(&mixed, &MODULES)[0].starts_with(words));
        for inside in [
            "secure_link a; location / { secure_link_secret b; }",
            "location / { secure_link_secret a; location /b { secure_link b; } }",
        ] {
            assert!(conf::test::load(&text(inside), &MODULES).is_ok(), "{inside}");
        }
    }

    #[test]
    fn the_rest_is_told_by_its_hash() {
        // The MD5 of "linksecret".
        let hash: String = Md5::digest(b"linksecret").iter().map(|byte| format!("{byte:02x}")).collect();
        let uri = format!("/p/{hash}/link");
        assert_eq!(rest(uri.as_bytes(), b"secret"), Some((36, 40)));
        assert_eq!(rest(uri.to_ascii_uppercase().as_bytes(), b"secret"), None);
        assert_eq!(rest(uri.as_bytes(), b"other"), None);
        let of_nothing: String = Md5::digest(b"secret").iter().map(|byte| format!("{byte:02x}")).collect();
        let (longer, empty) = (format!("/p/{hash}00/link"), format!("/p/{of_nothing}/"));
        assert_eq!([longer, empty].map(|uri| rest(uri.as_bytes(), b"secret")), [None; 2]);
        for wrong in ["", "/", "/p", "/p/", "/p/x/y", &format!("/p/{hash}/"), &format!("/p/{hash}")] {
            assert_eq!(rest(wrong.as_bytes(), b"secret"), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_target_makes_it_panic(uri in "[/a-f0-9]{0,50}") {
            rest(uri.as_bytes(), b"secret");
        }
    }

    static WHOLE: [ModuleDef; WITH_ONE] = whole_core_and::<SecureLink>();

    /// `$secure_link` and `$secure_link_expires`.
    fn link(http: &str, target: &str) -> (Option<String>, Option<String>) {
        asked(&WHOLE, http, (target, ""), |x| (value(x, "secure_link"), value(x, "secure_link_expires")))
    }

    /// The MD5 of a text as links have it.
    fn signature(text: &str) -> String {
        let mut encoded = Vec::new();
        base64::encode(&Md5::digest(text), &mut encoded);
        String::from_utf8(encoded).expect("ASCII").replace('+', "-").replace('/', "_")
    }

    #[test]
    fn a_signed_link_is_good_until_its_end() {
        let http = "server { secure_link $arg_md5,$arg_end; secure_link_md5 \"$arg_end$uri secret\"; }";
        let good = |end: &str| signature(&format!("{end}/a secret"));
        let trimmed = |end: &str| good(end).trim_end_matches('=').to_owned();
        let target = |signature: &str, end: &str| format!("/a?md5={signature}&end={end}");
        let (some, future) = (|text: &str| Some(text.to_owned()), "99999999999");
        assert_eq!(link(http, &target(&trimmed(future), future)), (some("1"), some(future)));
        assert_eq!(link(http, &target(&good(future), future)), (some("1"), some(future)), "with its padding");
        assert_eq!(link(http, &target(&trimmed("1"), "1")), (some("0"), some("1")));
        for (signature, end) in [(trimmed("0"), "0"), (trimmed("x"), "x"), (trimmed(""), "")] {
            assert_eq!(link(http, &target(&signature, end)), (None, None), "{end}");
        }
        for wrong in
            [trimmed("1"), format!("{}=", good(future)), good(future)[..20].to_owned(), String::new()]
        {
            assert_eq!(link(http, &target(&wrong, future)).0, None, "{wrong}");
        }
        let endless = "server { secure_link $arg_md5; secure_link_md5 \"$uri secret\"; }";
        assert_eq!(link(endless, &format!("/a?md5={}", signature("/a secret"))), (some("1"), None));
        assert_eq!(link(endless, &format!("/b?md5={}", signature("/a secret"))), (None, None));
    }

    #[test]
    fn the_older_form_gives_the_rest_of_the_target() {
        let hash: String = Md5::digest(b"linksecret").iter().map(|byte| format!("{byte:02x}")).collect();
        let target = format!("/p/{hash}/link");
        let rest = Some("link".to_owned());
        for (http, expected) in [
            ("server { secure_link_secret secret; }", &rest),
            ("server { secure_link_secret other; }", &None),
            ("server { secure_link_secret secret; location /p { } }", &rest),
            ("server { secure_link_secret secret; location /p { secure_link_secret other; } }", &None),
            (
                "server { secure_link a; secure_link_md5 b; location /p { secure_link_secret secret; } }",
                &rest,
            ),
            ("server { secure_link_secret secret; location /p { secure_link a; } }", &None),
            ("server { secure_link_secret secret; location /p { secure_link_md5 a; } }", &None),
            ("server { }", &None),
        ] {
            assert_eq!(&link(http, &target).0, expected, "{http}");
        }
    }

    #[test]
    fn what_is_signed_is_inherited_one_by_one() {
        let http = "server { secure_link $arg_md5; location /a { secure_link_md5 secret; } }";
        assert_eq!(link(http, &format!("/a?md5={}", signature("secret"))).0.as_deref(), Some("1"));
        assert_eq!(link(http, &format!("/b?md5={}", signature("secret"))).0, None);
    }
}
