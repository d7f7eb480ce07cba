//! `proxy_redirect` and `proxy_cookie_domain`, `_path`, `_flags`: what servers say about addresses, rewritten for
//! clients as they see them.

use std::sync::Arc;

use weir_conf::{LineCx, Result};
use weir_engine::regex::{LetterCase, RegexPattern};
use weir_engine::variable::ValueScript;
use weir_engine::{Exchange, Span};

use super::pass::ProxyPass;

/// A part of a value, and what comes in its place.
#[derive(Clone)]
pub(super) struct ValueRule {
    pattern: RulePattern,
    replacement: ValueScript,
}

#[derive(Clone)]
enum RulePattern {
    /// How the value begins.
    Prefix(ValueScript),
    /// The value as a whole, in any case, but for a dot in front.
    Domain(ValueScript),
    /// What this matches: the value as a whole is replaced.
    Regex(Arc<RegexPattern>),
}

/// The rules of one directive in one block; `Off` ends the inheritance.
#[derive(Clone)]
pub(super) enum RuleList<T> {
    Off,
    Of(Vec<T>),
}

impl<T> RuleList<T> {
    /// The rules, none for `off`.
    pub(super) fn list(&self) -> &[T] {
        match self {
            RuleList::Off => &[],
            RuleList::Of(list) => list,
        }
    }

    /// `off`, which must be the only line of its directive in a block.
    fn off(slot: &mut Option<RuleList<T>>, line: &LineCx<'_>) -> Result {
        if line.arg(0) != "off" {
            return Err(line.invalid_parameter(0));
        }
        line.once(slot, RuleList::Off)
    }

    fn add(slot: &mut Option<RuleList<T>>, line: &LineCx<'_>, rule: T) -> Result {
        match slot.get_or_insert_with(|| RuleList::Of(Vec::new())) {
            RuleList::Off => Err(line.refuse("is duplicate")),
            RuleList::Of(list) => {
                list.push(rule);
                Ok(())
            }
        }
    }
}

impl ValueRule {
    /// `proxy_redirect off | default | redirect replacement`
    pub(super) fn redirect(
        slot: &mut Option<RuleList<ValueRule>>,
        pass: Option<&ProxyPass>,
        line: &mut LineCx<'_>,
    ) -> Result {
        if matches!(slot, Some(RuleList::Off)) {
            return Err(line.refuse("is duplicate"));
        }
        if line.args().len() == 2 {
            let rule = ValueRule::of_start(line)?;
            return RuleList::add(slot, line, rule);
        }
        if line.arg(0) != "default" {
            return RuleList::off(slot, line);
        }
        match pass.map(ProxyPass::default_redirect) {
            Some(Some((url, replacement))) => {
                RuleList::add(slot, line, ValueRule::constant(&url, &replacement))
            }
            Some(None) => Err(line.fail(
                "\"proxy_redirect default\" cannot be used with \"proxy_pass\" directive with variables",
            )),
            None => {
                Err(line
                    .fail("\"proxy_redirect default\" should be placed after the \"proxy_pass\" directive"))
            }
        }
    }

    /// What begins with `url` begins with `replacement` instead.
    pub(super) fn constant(url: &str, replacement: &str) -> ValueRule {
        ValueRule {
            pattern: RulePattern::Prefix(ValueScript::literal(url.as_bytes())),
            replacement: ValueScript::literal(replacement.as_bytes()),
        }
    }

    /// `proxy_cookie_domain off | domain replacement`
    pub(super) fn cookie_domain(slot: &mut Option<RuleList<ValueRule>>, line: &mut LineCx<'_>) -> Result {
        if line.args().len() == 1 {
            return RuleList::off(slot, line);
        }
        let rule = if line.bytes(0).first() == Some(&b'~') {
            ValueRule {
                pattern: RulePattern::Regex(RegexPattern::compile(line, 0, 1, LetterCase::Ignored)?),
                replacement: ValueScript::compile(line, 1)?,
            }
        } else {
            let bare = |text: &[u8]| text.strip_prefix(b".").unwrap_or(text).to_vec();
            let (domain, replacement) = (bare(line.bytes(0)), bare(line.bytes(1)));
            ValueRule {
                pattern: RulePattern::Domain(ValueScript::compile_text(line, 0, &domain)?),
                replacement: ValueScript::compile_text(line, 1, &replacement)?,
            }
        };
        RuleList::add(slot, line, rule)
    }

    /// `proxy_cookie_path off | path replacement`
    pub(super) fn cookie_path(slot: &mut Option<RuleList<ValueRule>>, line: &mut LineCx<'_>) -> Result {
        if line.args().len() == 1 {
            return RuleList::off(slot, line);
        }
        let rule = ValueRule::of_start(line)?;
        RuleList::add(slot, line, rule)
    }

    /// `start replacement`, `~pattern replacement` or `~*pattern replacement`
    fn of_start(line: &mut LineCx<'_>) -> Result<ValueRule> {
        let pattern = match line.bytes(0) {
            [b'~', b'*', ..] => RulePattern::Regex(RegexPattern::compile(line, 0, 2, LetterCase::Ignored)?),
            [b'~', ..] => RulePattern::Regex(RegexPattern::compile(line, 0, 1, LetterCase::Distinct)?),
            _ => RulePattern::Prefix(ValueScript::compile(line, 0)?),
        };
        Ok(ValueRule { pattern, replacement: ValueScript::compile(line, 1)? })
    }

    /// The part of `value` from `from` on, changed; `None` where the rule does not fit, or its pattern is given up, which
    /// makes the response a 500: no address that clients must not see goes out.
    fn apply(&self, x: &mut Exchange, value: &[u8], from: usize) -> Option<Vec<u8>> {
        let part = value.get(from..)?;
        let (start, end) = match &self.pattern {
            RulePattern::Prefix(prefix) => {
                let prefix = prefix.value(x);
                let prefix = x.text(&prefix);
                part.starts_with(prefix).then_some((from, from + prefix.len()))?
            }
            RulePattern::Domain(domain) => {
                let dot = usize::from(part.first() == Some(&b'.'));
                let domain = domain.value(x);
                part[dot..].eq_ignore_ascii_case(x.text(&domain)).then_some((from + dot, value.len()))?
            }
            RulePattern::Regex(pattern) => {
                let subject = x.arena.push(part);
                pattern.captures(x, subject).unwrap_or(false).then_some((from, value.len()))?
            }
        };
        let replacement = self.replacement.value(x);
        Some([&value[..start], x.text(&replacement), &value[end..]].concat())
    }
}

/// The value after the first rule that fits.
pub(super) fn first(rules: &[ValueRule], x: &mut Exchange, value: &[u8], from: usize) -> Option<Vec<u8>> {
    rules.iter().find_map(|rule| rule.apply(x, value, from))
}

/// Where the address in a `Refresh` field begins.
pub(super) fn refresh_url(value: &[u8]) -> Option<usize> {
    value.windows(4).position(|window| window.eq_ignore_ascii_case(b"url=")).map(|at| at + 4)
}

/// `proxy_cookie_flags cookie flag ...`
#[derive(Clone)]
pub(super) struct CookieFlags {
    cookie: CookieMatch,
    flags: Vec<ValueScript>,
}

#[derive(Clone)]
enum CookieMatch {
    Name(ValueScript),
    Regex(Arc<RegexPattern>),
}

impl CookieFlags {
    pub(super) fn set(slot: &mut Option<RuleList<CookieFlags>>, line: &mut LineCx<'_>) -> Result {
        if line.args().len() == 1 {
            return RuleList::off(slot, line);
        }
        let cookie = match line.bytes(0).first() {
            Some(b'~') => CookieMatch::Regex(RegexPattern::compile(line, 0, 1, LetterCase::Ignored)?),
            _ => CookieMatch::Name(ValueScript::compile(line, 0)?),
        };
        let flags = (1..line.args().len()).map(|at| ValueScript::compile(line, at)).collect::<Result<_>>()?;
        RuleList::add(slot, line, CookieFlags { cookie, flags })
    }

    fn fits(&self, x: &mut Exchange, name: &[u8]) -> bool {
        match &self.cookie {
            CookieMatch::Name(wanted) => {
                let wanted = wanted.value(x);
                x.text(&wanted).eq_ignore_ascii_case(name)
            }
            CookieMatch::Regex(pattern) => {
                let subject: Span = x.arena.push(name);
                pattern.captures(x, subject).unwrap_or(false)
            }
        }
    }

    fn wishes(&self, x: &mut Exchange) -> FlagWishes {
        let mut wishes = FlagWishes::default();
        for flag in &self.flags {
            let flag = flag.value(x);
            match &*x.text(&flag).to_ascii_lowercase() {
                b"secure" => wishes.secure = Some(true),
                b"nosecure" => wishes.secure = Some(false),
                b"httponly" => wishes.http_only = Some(true),
                b"nohttponly" => wishes.http_only = Some(false),
                b"samesite=strict" => wishes.same_site = Some(Some("Strict")),
                b"samesite=lax" => wishes.same_site = Some(Some("Lax")),
                b"samesite=none" => wishes.same_site = Some(Some("None")),
                b"nosamesite" => wishes.same_site = Some(None),
                _ => {}
            }
        }
        wishes
    }
}

/// What a cookie's flags shall be; `None`: as they are.
#[derive(Default)]
struct FlagWishes {
    secure: Option<bool>,
    http_only: Option<bool>,
    same_site: Option<Option<&'static str>>,
}

/// The rules for cookies of one location.
pub(super) struct CookieRules {
    pub(super) domains: Vec<ValueRule>,
    pub(super) paths: Vec<ValueRule>,
    pub(super) flags: Vec<CookieFlags>,
}

/// An attribute of a cookie: name and value.
type CookieAttribute = (Vec<u8>, Option<Vec<u8>>);

impl CookieRules {
    pub(super) fn is_empty(&self) -> bool {
        self.domains.is_empty() && self.paths.is_empty() && self.flags.is_empty()
    }

    /// The value of a `Set-Cookie` field as the client gets it; `None`: as it is.
    pub(super) fn rewrite(&self, x: &mut Exchange, value: &[u8]) -> Option<Vec<u8>> {
        let mut attributes: Vec<CookieAttribute> = value.split(|byte| *byte == b';').map(attribute).collect();
        let name = attributes.first().filter(|(_, value)| value.is_some())?.0.clone();
        let mut changed = false;
        for (key, value) in attributes.iter_mut().skip(1) {
            let rules = match &*key.to_ascii_lowercase() {
                b"domain" => &self.domains,
                b"path" => &self.paths,
                _ => continue,
            };
            if let Some(old) = value
                && let Some(new) = first(rules, x, old, 0)
            {
                *old = new;
                changed = true;
            }
        }
        if let Some(flags) = self.flags.iter().find(|flags| flags.fits(x, &name)) {
            let wishes = flags.wishes(x);
            changed |= wishes.secure.is_some() || wishes.http_only.is_some() || wishes.same_site.is_some();
            apply(&mut attributes, &wishes);
        }
        changed.then(|| join(&attributes))
    }
}

fn attribute(part: &[u8]) -> CookieAttribute {
    match part.iter().position(|byte| *byte == b'=') {
        Some(at) => (blanks_off(&part[..at]), Some(blanks_off(&part[at + 1..]))),
        None => (blanks_off(part), None),
    }
}

fn blanks_off(text: &[u8]) -> Vec<u8> {
    let start = text.iter().take_while(|byte| **byte == b' ').count();
    let end = text.len() - text.iter().rev().take_while(|byte| **byte == b' ').count();
    text.get(start..end).unwrap_or_default().to_vec()
}

/// Adds, changes and takes away flags; one that is there already stays where it is.
fn apply(attributes: &mut Vec<CookieAttribute>, wishes: &FlagWishes) {
    let mut set = |name: &str, wish: Option<Option<Option<&str>>>| {
        let Some(wish) = wish else { return };
        let is = |key: &[u8]| key.eq_ignore_ascii_case(name.as_bytes());
        let Some(value) = wish else {
            let mut at = 0;
            attributes.retain(|(key, _)| {
                at += 1;
                at == 1 || !is(key)
            });
            return;
        };
        let value = value.map(|value| value.as_bytes().to_vec());
        match attributes.iter_mut().skip(1).find(|(key, _)| is(key)) {
            Some((key, old)) => {
                let same = |old: &Option<Vec<u8>>| {
                    old.as_ref().zip(value.as_ref()).is_some_and(|(old, new)| old.eq_ignore_ascii_case(new))
                };
                if value.is_some() && !same(old) {
                    *key = name.as_bytes().to_vec();
                    *old = value;
                }
            }
            None => attributes.push((name.as_bytes().to_vec(), value)),
        }
    };
    set("Secure", wishes.secure.map(|on| on.then_some(None)));
    set("HttpOnly", wishes.http_only.map(|on| on.then_some(None)));
    set("SameSite", wishes.same_site.map(|value| value.map(Some)));
}

fn join(attributes: &[CookieAttribute]) -> Vec<u8> {
    let mut out = Vec::new();
    for (at, (key, value)) in attributes.iter().enumerate() {
        if at > 0 {
            out.extend_from_slice(b"; ");
        }
        out.extend_from_slice(key);
        if let Some(value) = value {
            out.push(b'=');
            out.extend_from_slice(value);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flagged(cookie: &str, wishes: &FlagWishes) -> String {
        let mut attributes: Vec<_> = cookie.split(';').map(|part| attribute(part.as_bytes())).collect();
        apply(&mut attributes, wishes);
        String::from_utf8_lossy(&join(&attributes)).into_owned()
    }

    #[test]
    fn flags_are_added_changed_and_taken_away() {
        let on = FlagWishes { secure: Some(true), http_only: Some(true), same_site: Some(Some("Lax")) };
        assert_eq!(flagged("a=b", &on), "a=b; Secure; HttpOnly; SameSite=Lax");
        assert_eq!(flagged("a=b; samesite=none; SECURE", &on), "a=b; SameSite=Lax; SECURE; HttpOnly");
        let off = FlagWishes { secure: Some(false), http_only: Some(false), same_site: Some(None) };
        assert_eq!(flagged("secure=b; Secure; httponly; SameSite=Lax; x", &off), "secure=b; x");
        assert_eq!(flagged("a=b ;  Path = /x", &FlagWishes::default()), "a=b; Path=/x");
    }

    #[test]
    fn the_address_of_a_refresh_is_found() {
        assert_eq!(refresh_url(b"7; url=http://a/"), Some(7));
        assert_eq!(refresh_url(b"7"), None);
    }
}
