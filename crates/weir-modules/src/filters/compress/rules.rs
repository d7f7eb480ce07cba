//! To whom gzip may be sent: `gzip_vary`, `gzip_http_version`, `gzip_proxied`, `gzip_disable`, which gzip, gunzip and
//! gzip_static share (nginx's `ngx_http_gzip_ok`).

use std::sync::Arc;

use weir_conf::{LineCx, Result};
use weir_engine::regex::{LetterCase, RegexPattern};
use weir_engine::{Exchange, agent, inherit};
use weir_http::{KnownField, Version, date};

use super::{ContentCoding, quality};

/// The settings of one block.
#[derive(Clone, Default)]
pub(crate) struct RulesConf {
    pub(crate) vary: Option<bool>,
    pub(crate) version: Option<Version>,
    pub(crate) proxied: Option<u32>,
    disable: Option<Vec<Arc<RegexPattern>>>,
    disable_msie6: Option<()>,
}

impl RulesConf {
    /// `gzip_disable`
    pub(crate) fn add_disabled(&mut self, line: &mut LineCx<'_>) -> Result {
        for at in 0..line.args().len() {
            if line.bytes(at) == b"msie6" {
                self.disable_msie6 = Some(());
            } else {
                let pattern = RegexPattern::compile(line, at, 0, LetterCase::Ignored)?;
                self.disable.get_or_insert_default().push(pattern);
            }
        }
        Ok(())
    }

    /// Takes from the block around.
    pub(crate) fn inherit(&mut self, parent: &RulesConf) {
        inherit!(self, parent, vary, version, proxied, disable, disable_msie6);
    }

    /// What a location works with.
    pub(crate) fn rules(&self) -> CompressionRules {
        CompressionRules {
            vary: self.vary.unwrap_or(false),
            version: self.version.unwrap_or(Version::V11),
            proxied: self.proxied.unwrap_or(OFF),
            disable: self.disable.clone().unwrap_or_default(),
            disable_msie6: self.disable_msie6.is_some(),
        }
    }
}

/// The settings of a location; they are stored with its plan.
pub(crate) struct CompressionRules {
    /// `gzip_vary`
    pub(crate) vary: bool,
    version: Version,
    proxied: u32,
    disable: Vec<Arc<RegexPattern>>,
    disable_msie6: bool,
}

/// How much the client likes gzip, in thousandths; `None` if it must not be sent. The first caller decides, for the
/// others too: what is unpacked is not packed again.
pub(crate) fn gzip_ok(x: &mut Exchange) -> Option<u16> {
    let liked = |x: &Exchange| {
        let accept = x.request.value(&x.arena, KnownField::AcceptEncoding)?;
        quality(accept, ContentCoding::Gzip.token())
    };
    if let Some(known) = x.response.gzip_ok {
        return if known { liked(x) } else { None };
    }
    let found = if x.is_subrequest() { None } else { liked(x) };
    let plan = x.plan.clone();
    let found = found.filter(|_| plan.kept::<CompressionRules>().is_some_and(|rules| rules.allow(x)));
    x.response.gzip_ok = Some(found.is_some());
    found
}

impl CompressionRules {
    fn allow(&self, x: &Exchange) -> bool {
        let agent = x.request.value(&x.arena, KnownField::UserAgent);
        if self.disable_msie6 && agent.is_some_and(agent::msie6) {
            return false;
        }
        if x.request.head.version < self.version {
            return false;
        }
        if x.request.head.field(KnownField::Via).is_some() && !self.allow_proxied(x) {
            return false;
        }
        // A pattern that is given up disables it, as in nginx: an uncompressed response suits every client.
        !agent.is_some_and(|agent| self.disable.iter().any(|pattern| pattern.is_match(agent).unwrap_or(true)))
    }

    /// Whether a response to a proxy's request is compressed.
    fn allow_proxied(&self, x: &Exchange) -> bool {
        let has = |bit: u32| self.proxied & bit != 0;
        if has(OFF) {
            return false;
        }
        if has(ANY) || (has(AUTH) && x.request.head.field(KnownField::Authorization).is_some()) {
            return true;
        }
        if let Some(expires) = x.response.header(KnownField::Expires) {
            return has(EXPIRED) && is_expired(x, x.text(expires));
        }
        if x.response.header(KnownField::CacheControl).is_some() {
            let says = |bit: u32, word: &str| has(bit) && cache_control_has(x, word.as_bytes());
            return says(NO_CACHE, "no-cache") || says(NO_STORE, "no-store") || says(PRIVATE, "private");
        }
        // A file's own date is no field yet, as in nginx.
        let dated = has(NO_LAST_MODIFIED) && x.response.header(KnownField::LastModified).is_some();
        let tagged = has(NO_ETAG) && x.response.etag().is_some();
        !dated && !tagged
    }
}

fn is_expired(x: &Exchange, expires: &[u8]) -> bool {
    let Some(expires) = date::parse(expires) else { return false };
    match &x.response.date {
        Some(date) => date::parse(x.text(date)).is_some_and(|date| expires < date),
        None => expires < weir_rt::unix_time().0 as i64,
    }
}

/// Whether `Cache-Control` has the directive `word` without an argument.
fn cache_control_has(x: &Exchange, word: &[u8]) -> bool {
    let fields = x.response.headers.iter();
    let values = fields.filter(|header| header.name.known() == Some(KnownField::CacheControl));
    values.map(|header| x.text(&header.value)).any(|value| {
        // nginx begins again after a semicolon too, but what one ends is not the word.
        let elements = value.split_inclusive(|&byte| matches!(byte, b',' | b';'));
        elements.map(|element| element.strip_suffix(b",").unwrap_or(element)).any(|element| {
            let start = element.iter().take_while(|&&byte| byte == b' ').count();
            element[start..].trim_ascii_end().eq_ignore_ascii_case(word)
        })
    })
}

const OFF: u32 = 1;
const EXPIRED: u32 = 2;
const NO_CACHE: u32 = 4;
const NO_STORE: u32 = 8;
const PRIVATE: u32 = 16;
const NO_LAST_MODIFIED: u32 = 32;
const NO_ETAG: u32 = 64;
const AUTH: u32 = 128;
const ANY: u32 = 256;

/// The parameters of `gzip_proxied`.
pub(crate) const PROXIED: &[(&str, u32)] = &[
    ("off", OFF),
    ("expired", EXPIRED),
    ("no-cache", NO_CACHE),
    ("no-store", NO_STORE),
    ("private", PRIVATE),
    ("no_last_modified", NO_LAST_MODIFIED),
    ("no_etag", NO_ETAG),
    ("auth", AUTH),
    ("any", ANY),
];

/// The parameters of `gzip_http_version`.
pub(crate) const VERSIONS: &[(&str, Version)] = &[("1.0", Version::V10), ("1.1", Version::V11)];
