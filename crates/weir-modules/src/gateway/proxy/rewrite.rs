//! `proxy_redirect` and `proxy_cookie_domain`, `_path`, `_flags`: what servers say about addresses, told to clients as
//! they see them.

use std::sync::Arc;

use weir_conf::{LineCx, Result};
use weir_engine::regex::Pattern;
use weir_engine::variable::Script;
use weir_engine::{Exchange, Span};

use super::pass::Pass;

/// A part of a value, and what comes in its place.
#[derive(Clone)]
pub(super) struct Rule {
    pattern: What,
    replacement: Script,
}

#[derive(Clone)]
enum What {
    /// How the value begins.
    Prefix(Script),
    /// The value as a whole, in any case, but for a dot in front.
    Domain(Script),
    /// What this matches: the value as a whole is replaced.
    Regex(Arc<Pattern>),
}

/// The rules of one directive in one block; `Off` ends the inheritance.
#[derive(Clone)]
pub(super) enum Rules<T> {
    Off,
    Of(Vec<T>),
}

impl<T> Rules<T> {
    /// The rules, none for `off`.
    pub(super) fn list(&self) -> &[T] {
        match self {
            Rules::Off => &[],
            Rules::Of(list) => list,
        }
    }

    /// `off`, which must be the only line of its directive in a block.
    fn off(slot: &mut Option<Rules<T>>, line: &LineCx<'_>) -> Result {
        if line.arg(0) != "off" {
            return Err(line.invalid_parameter(0));
        }
        line.once(slot, Rules::Off)
    }

    fn add(slot: &mut Option<Rules<T>>, line: &LineCx<'_>, rule: T) -> Result {
        match slot.get_or_insert_with(|| Rules::Of(Vec::new())) {
            Rules::Off => Err(line.refuse("is duplicate")),
            Rules::Of(list) => {
                list.push(rule);
                Ok(())
            }
        }
    }
}

impl Rule {
    /// `proxy_redirect off | default | redirect replacement`
    pub(super) fn redirect(
        slot: &mut Option<Rules<Rule>>,
        pass: Option<&Pass>,
        line: &mut LineCx<'_>,
    ) -> Result {
        if matches!(slot, Some(Rules::Off)) {
            return Err(line.refuse("is duplicate"));
        }
        if line.args().len() == 2 {
            let rule = Rule::of_start(line)?;
            return Rules::add(slot, line, rule);
        }
        if line.arg(0) != "default" {
            return Rules::off(slot, line);
        }
        match pass.map(Pass::default_redirect) {
            Some(Some((url, replacement))) => Rules::add(slot, line, Rule::constant(&url, &replacement)),
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
    pub(super) fn constant(url: &str, replacement: &str) -> Rule {
        Rule {
            pattern: What::Prefix(Script::literal(url.as_bytes())),
            replacement: Script::literal(replacement.as_bytes()),
        }
    }

    /// `proxy_cookie_domain off | domain replacement`
    pub(super) fn cookie_domain(slot: &mut Option<Rules<Rule>>, line: &mut LineCx<'_>) -> Result {
        if line.args().len() == 1 {
            return Rules::off(slot, line);
        }
        let rule = if line.bytes(0).first() == Some(&b'~') {
            Rule {
                pattern: What::Regex(Pattern::compile(line, 0, 1, true)?),
                replacement: Script::compile(line, 1)?,
            }
        } else {
            let bare = |text: &[u8]| text.strip_prefix(b".").unwrap_or(text).to_vec();
            let (domain, replacement) = (bare(line.bytes(0)), bare(line.bytes(1)));
            Rule {
                pattern: What::Domain(Script::compile_text(line, 0, &domain)?),
                replacement: Script::compile_text(line, 1, &replacement)?,
            }
        };
        Rules::add(slot, line, rule)
    }

    /// `proxy_cookie_path off | path replacement`
    pub(super) fn cookie_path(slot: &mut Option<Rules<Rule>>, line: &mut LineCx<'_>) -> Result {
        if line.args().len() == 1 {
            return Rules::off(slot, line);
        }
        let rule = Rule::of_start(line)?;
        Rules::add(slot, line, rule)
    }

    /// `start replacement`, `~pattern replacement` or `~*pattern replacement`
    fn of_start(line: &mut LineCx<'_>) -> Result<Rule> {
        let pattern = match line.bytes(0) {
            [b'~', b'*', ..] => What::Regex(Pattern::compile(line, 0, 2, true)?),
            [b'~', ..] => What::Regex(Pattern::compile(line, 0, 1, false)?),
            _ => What::Prefix(Script::compile(line, 0)?),
        };
        Ok(Rule { pattern, replacement: Script::compile(line, 1)? })
    }

    /// The part of `value` from `from` on, changed; `None` where the rule does not fit, or its pattern is given up, which
    /// makes the response a 500: no address that clients must not see goes out.
    fn apply(&self, x: &mut Exchange, value: &[u8], from: usize) -> Option<Vec<u8>> {
        let part = value.get(from..)?;
        let (start, end) = match &self.pattern {
            What::Prefix(prefix) => {
                let prefix = prefix.value(x);
                let prefix = x.text(&prefix);
                part.starts_with(prefix).then_some((from, from + prefix.len()))?
            }
            What::Domain(domain) => {
                let dot = usize::from(part.first() == Some(&b'.'));
                let domain = domain.value(x);
                part[dot..].eq_ignore_ascii_case(x.text(&domain)).then_some((from + dot, value.len()))?
            }
            What::Regex(pattern) => {
                let subject = x.arena.push(part);
                pattern.captures(x, subject).unwrap_or(false).then_some((from, value.len()))?
            }
        };
        let replacement = self.replacement.value(x);
        Some([&value[..start], x.text(&replacement), &value[end..]].concat())
    }
}

/// The value after the first rule that fits.
pub(super) fn first(rules: &[Rule], x: &mut Exchange, value: &[u8], from: usize) -> Option<Vec<u8>> {
    rules.iter().find_map(|rule| rule.apply(x, value, from))
}

/// Where the address in a `Refresh` field begins.
pub(super) fn refresh_url(value: &[u8]) -> Option<usize> {
    value.windows(4).position(|window| window.eq_ignore_ascii_case(b"url=")).map(|at| at + 4)
}

/// `proxy_cookie_flags cookie flag ...`
#[derive(Clone)]
pub(super) struct Flags {
    cookie: Cookie,
    flags: Vec<Script>,
}

#[derive(Clone)]
enum Cookie {
    Name(Script),
    Regex(Arc<Pattern>),
}

impl Flags {
    pub(super) fn set(slot: &mut Option<Rules<Flags>>, line: &mut LineCx<'_>) -> Result {
        if line.args().len() == 1 {
            return Rules::off(slot, line);
        }
        let cookie = match line.bytes(0).first() {
            Some(b'~') => Cookie::Regex(Pattern::compile(line, 0, 1, true)?),
            _ => Cookie::Name(Script::compile(line, 0)?),
        };
        let flags = (1..line.args().len()).map(|at| Script::compile(line, at)).collect::<Result<_>>()?;
        Rules::add(slot, line, Flags { cookie, flags })
    }

    fn fits(&self, x: &mut Exchange, name: &[u8]) -> bool {
        match &self.cookie {
            Cookie::Name(wanted) => {
                let wanted = wanted.value(x);
                x.text(&wanted).eq_ignore_ascii_case(name)
            }
            Cookie::Regex(pattern) => {
                let subject: Span = x.arena.push(name);
                pattern.captures(x, subject).unwrap_or(false)
            }
        }
    }

    fn wishes(&self, x: &mut Exchange) -> Wishes {
        let mut wishes = Wishes::default();
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
struct Wishes {
    secure: Option<bool>,
    http_only: Option<bool>,
    same_site: Option<Option<&'static str>>,
}

/// The rules for cookies of one location.
pub(super) struct Cookies {
    pub(super) domains: Vec<Rule>,
    pub(super) paths: Vec<Rule>,
    pub(super) flags: Vec<Flags>,
}

/// An attribute of a cookie: name and value.
type Attribute = (Vec<u8>, Option<Vec<u8>>);

impl Cookies {
    pub(super) fn is_empty(&self) -> bool {
        self.domains.is_empty() && self.paths.is_empty() && self.flags.is_empty()
    }

    /// The value of a `Set-Cookie` field as the client gets it; `None`: as it is.
    pub(super) fn rewrite(&self, x: &mut Exchange, value: &[u8]) -> Option<Vec<u8>> {
        let mut attributes: Vec<Attribute> = value.split(|byte| *byte == b';').map(attribute).collect();
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

fn attribute(part: &[u8]) -> Attribute {
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
fn apply(attributes: &mut Vec<Attribute>, wishes: &Wishes) {
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

fn join(attributes: &[Attribute]) -> Vec<u8> {
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

    fn flagged(cookie: &str, wishes: &Wishes) -> String {
        let mut attributes: Vec<_> = cookie.split(';').map(|part| attribute(part.as_bytes())).collect();
        apply(&mut attributes, wishes);
        String::from_utf8_lossy(&join(&attributes)).into_owned()
    }

    #[test]
    fn flags_are_added_changed_and_taken_away() {
        let on = Wishes { secure: Some(true), http_only: Some(true), same_site: Some(Some("Lax")) };
        assert_eq!(flagged("a=b", &on), "a=b; Secure; HttpOnly; SameSite=Lax");
        assert_eq!(flagged("a=b; samesite=none; SECURE", &on), "a=b; SameSite=Lax; SECURE; HttpOnly");
        let off = Wishes { secure: Some(false), http_only: Some(false), same_site: Some(None) };
        assert_eq!(flagged("secure=b; Secure; httponly; SameSite=Lax; x", &off), "secure=b; x");
        assert_eq!(flagged("a=b ;  Path = /x", &Wishes::default()), "a=b; Path=/x");
    }

    #[test]
    fn the_address_of_a_refresh_is_found() {
        assert_eq!(refresh_url(b"7; url=http://a/"), Some(7));
        assert_eq!(refresh_url(b"7"), None);
    }
}
