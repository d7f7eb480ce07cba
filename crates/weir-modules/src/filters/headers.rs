//! `headers`: adds fields to a response's head (`add_header`, `expires`) and trailer (`add_trailer`) (nginx's
//! `ngx_http_headers_module`).

use std::rc::Rc;

use weir_conf::names::{ANY_OR_IF, ONE, ONE_OR_TWO, TWO_OR_THREE};
use weir_conf::{Directive, LineCx, Result};
use weir_engine::body::BodyChain;
use weir_engine::error::EngineError;
use weir_engine::exchange::{HeaderName, ResponseHeader};
use weir_engine::filter::{BodyFilter, FilterSlot, FilterStep, HeaderFilter};
use weir_engine::plan::PlanBuilder;
use weir_engine::variable::ValueScript;
use weir_engine::{Exchange, Module, Text, Verdict, inherit};
use weir_http::{KnownField, classify, date};
use weir_trace::{Site, SiteKind};

use crate::filters::expires::{ExpiresRule, set_expires};
use crate::support::value::WorkerValue;

/// The module `headers`.
pub struct Headers;

impl Module for Headers {
    const NAME: &'static str = "headers";
    type Conf = HeadersConf;
    const DIRECTIVES: &'static [Directive<HeadersConf>] = &[
        Directive::new("expires", ANY_OR_IF, ONE_OR_TWO, HeadersConf::set_expires)
            .syntax("expires [modified] time\nexpires epoch | max | off")
            .default("off")
            .doc(
                "Sets `Expires` and `Cache-Control` of responses with status 200, 201, 204, \
                 206, 301, 302, 303, 304, 307 or 308. The time counts from now, with \
                 `modified` from the file's modification, and as `@15h30m` it is a time of \
                 day; a negative time or `epoch` means `no-cache`, `max` ten years. It may \
                 contain variables.",
            )
            .example("location /static/ {\n    expires 30d;\n}"),
        Directive::new("add_header", ANY_OR_IF, TWO_OR_THREE, HeadersConf::add_header)
            .syntax("add_header name value [always]")
            .doc(
                "Adds a header field to responses with status 200, 201, 204, 206, 301, 302, \
                 303, 304, 307 or 308; with `always` to all. A field with an empty value is \
                 not added.",
            )
            .example("add_header Strict-Transport-Security \"max-age=31536000\" always;"),
        Directive::new("add_trailer", ANY_OR_IF, TWO_OR_THREE, HeadersConf::add_trailer)
            .syntax("add_trailer name value [always]")
            .doc(
                "Adds a trailer field after the body of responses with status 200, 201, 204, \
                 206, 301, 302, 303, 304, 307 or 308; with `always` of all.",
            ),
        Directive::new("add_header_inherit", ANY_OR_IF, ONE, HeadersConf::set_header_inherit)
            .syntax("add_header_inherit on | off | merge")
            .default("on")
            .doc(
                "Whether `add_header` lines of the enclosing block apply: `on`, if the block \
                 has none of its own; `merge`, after its own; `off`, never.",
            ),
        Directive::new("add_trailer_inherit", ANY_OR_IF, ONE, HeadersConf::set_trailer_inherit)
            .syntax("add_trailer_inherit on | off | merge")
            .default("on")
            .doc(
                "Whether `add_trailer` lines of the enclosing block apply: `on`, if the block \
                 has none of its own; `merge`, after its own; `off`, never.",
            ),
    ];

    fn inherit(conf: &mut HeadersConf, parent: &HeadersConf) {
        inherit!(conf, parent, expires, header_inherit, trailer_inherit);
        conf.header_inherit.unwrap_or_default().apply(&mut conf.headers, &parent.headers);
        conf.trailer_inherit.unwrap_or_default().apply(&mut conf.trailers, &parent.trailers);
    }

    fn install(conf: &HeadersConf, plan: &mut PlanBuilder<'_>) {
        let expires = conf.expires.clone().filter(|expires| !expires.is_off());
        if expires.is_some() || !conf.headers.is_empty() {
            let fields = conf.headers.iter().map(AddedField::new).collect();
            plan.header_filter(FilterSlot::Headers, Self::NAME, AddHeaders { expires, fields });
        }
        if !conf.trailers.is_empty() {
            let fields = conf.trailers.iter().map(AddedField::new).collect();
            let body = plan.site(SiteKind::BodyFilter, Self::NAME);
            plan.header_filter(FilterSlot::Trailers, Self::NAME, AddTrailers { body, fields });
        }
    }
}

/// The settings of one block.
#[derive(Default)]
pub struct HeadersConf {
    expires: Option<ExpiresRule>,
    headers: Vec<HeaderAddition>,
    trailers: Vec<HeaderAddition>,
    header_inherit: Option<InheritRule>,
    trailer_inherit: Option<InheritRule>,
}

/// One `add_header` or `add_trailer`.
#[derive(Clone)]
struct HeaderAddition {
    name: Box<[u8]>,
    value: ValueScript,
    always: bool,
}

/// `add_header_inherit`, `add_trailer_inherit`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum InheritRule {
    /// What the block has counts alone.
    Off,
    /// What is around counts if the block has nothing.
    #[default]
    On,
    /// What is around counts too, after the block's own.
    Merge,
}

const INHERIT: &[(&str, InheritRule)] =
    &[("off", InheritRule::Off), ("on", InheritRule::On), ("merge", InheritRule::Merge)];

impl InheritRule {
    fn apply(self, own: &mut Vec<HeaderAddition>, parent: &[HeaderAddition]) {
        if self == InheritRule::Merge || (self == InheritRule::On && own.is_empty()) {
            own.extend_from_slice(parent);
        }
    }
}

impl HeadersConf {
    fn set_expires(&mut self, line: &mut LineCx<'_>) -> Result {
        if self.expires.is_some() {
            return Err(line.refuse("is duplicate"));
        }
        self.expires = Some(ExpiresRule::parse_line(line)?);
        Ok(())
    }

    fn add_header(&mut self, line: &mut LineCx<'_>) -> Result {
        self.headers.push(HeaderAddition::parse(line)?);
        Ok(())
    }

    fn add_trailer(&mut self, line: &mut LineCx<'_>) -> Result {
        self.trailers.push(HeaderAddition::parse(line)?);
        Ok(())
    }

    fn set_header_inherit(&mut self, line: &mut LineCx<'_>) -> Result {
        line.one_of(&mut self.header_inherit, INHERIT)
    }

    fn set_trailer_inherit(&mut self, line: &mut LineCx<'_>) -> Result {
        line.one_of(&mut self.trailer_inherit, INHERIT)
    }
}

impl HeaderAddition {
    fn parse(line: &mut LineCx<'_>) -> Result<HeaderAddition> {
        let value = ValueScript::compile(line, 1)?;
        let always = match line.args().get(2).map(|word| word.bytes()) {
            None => false,
            Some(b"always") => true,
            Some(_) => return Err(line.invalid_parameter(2)),
        };
        Ok(HeaderAddition { name: line.bytes(0).into(), value, always })
    }
}

/// An [`HeaderAddition`] on one worker.
struct AddedField {
    name: HeaderName,
    value: WorkerValue,
    always: bool,
    how: AddedHow,
}

/// What becomes of fields that the response has already.
enum AddedHow {
    /// They stay.
    Add,
    /// This one replaces them; without value they go.
    Replace(KnownField),
}

impl AddedField {
    fn new(addition: &HeaderAddition) -> AddedField {
        let name = &*addition.name;
        let known = classify(name);
        let as_usual = known.name().as_bytes() == name;
        AddedField {
            name: match known {
                KnownField::Other => HeaderName::Other(Text::shared(name)),
                known if as_usual => HeaderName::Known(known),
                known => HeaderName::Written(known, Text::shared(name)),
            },
            value: WorkerValue::new(&addition.value),
            always: addition.always,
            how: match known {
                KnownField::Etag | KnownField::LastModified => AddedHow::Replace(known),
                _ => AddedHow::Add,
            },
        }
    }

    /// Whether it is the same for all responses; validators are the file's.
    fn is_fixed(&self) -> bool {
        matches!((&self.value, &self.how), (WorkerValue::Constant(_), AddedHow::Add))
    }

    fn set(&self, x: &mut Exchange) {
        let value = self.value.field(x);
        let empty = x.text(&value).is_empty();
        match self.how {
            AddedHow::Add if empty || self.stands_already(x, &value) => {}
            AddedHow::Add => x.response.headers.push(ResponseHeader { name: self.name.clone(), value }),
            AddedHow::Replace(KnownField::LastModified) => last_modified(x, value),
            AddedHow::Replace(known) if empty => x.response.remove(known),
            AddedHow::Replace(known) => replace(x, known, value),
        }
    }

    /// A 416 is decided when the fields of the 200 were added already; the filters then run again for its page.
    fn stands_already(&self, x: &Exchange, value: &Text) -> bool {
        x.response.status == 416
            && x.response.headers.iter().any(|header| {
                header.name.is(&x.arena, self.name.bytes(&x.arena)) && x.text(&header.value) == x.text(value)
            })
    }
}

/// A file's `Last-Modified` is no field of the list, one that was added is, and is where it was added; its date is
/// what later filters compare.
fn last_modified(x: &mut Exchange, value: Text) {
    x.response.last_modified = date::parse(x.text(&value));
    if x.text(&value).is_empty() {
        x.response.remove(KnownField::LastModified);
    } else {
        replace(x, KnownField::LastModified, value);
    }
}

/// Puts the value in the place of the first field of that name; others of the name go.
pub(crate) fn replace(x: &mut Exchange, known: KnownField, value: Text) {
    let headers = &mut x.response.headers;
    let is = |header: &ResponseHeader| header.name.known() == Some(known);
    let Some(first) = headers.iter().position(is) else { return x.response.add(known, value) };
    headers[first].value = value;
    let mut at = 0;
    headers.retain(|header| {
        at += 1;
        at <= first + 1 || !is(header)
    });
}

/// nginx's statuses for which fields are added without `always`.
fn is_ordinary(status: u16) -> bool {
    matches!(status, 200 | 201 | 204 | 206 | 301 | 302 | 303 | 304 | 307 | 308)
}

struct AddHeaders {
    expires: Option<ExpiresRule>,
    fields: Box<[AddedField]>,
}

impl HeaderFilter for AddHeaders {
    fn is_rehearsable(&self) -> bool {
        true
    }

    fn filter(&self, x: &mut Exchange) -> Verdict {
        if !x.is_subrequest() {
            let ordinary = is_ordinary(x.response.status);
            if let (true, Some(expires)) = (ordinary, &self.expires)
                && let Some(period) = expires.period(x)
            {
                set_expires(x, period);
            }
            self.fields.iter().filter(|field| ordinary || field.always).for_each(|field| field.set(x));
        }
        Verdict::Ok
    }

    fn is_plain(&self) -> bool {
        true
    }

    fn is_fixed(&self) -> bool {
        self.expires.is_none() && self.fields.iter().all(AddedField::is_fixed)
    }
}

struct AddTrailers {
    /// Where the body filter's time goes.
    body: Site,
    fields: Rc<[AddedField]>,
}

impl HeaderFilter for AddTrailers {
    fn is_rehearsable(&self) -> bool {
        true
    }

    fn filter(&self, x: &mut Exchange) -> Verdict {
        let ordinary = is_ordinary(x.response.status);
        if !x.is_subrequest() && self.fields.iter().any(|field| ordinary || field.always) {
            x.response.expect_trailers = true;
            x.body_filter(FilterSlot::Trailers, self.body, TrailerBody { fields: self.fields.clone() });
        }
        Verdict::Ok
    }
}

/// Waits for the end of the body, since only then many a variable has its value.
struct TrailerBody {
    fields: Rc<[AddedField]>,
}

impl BodyFilter for TrailerBody {
    fn step(
        &mut self,
        x: &mut Exchange,
        input: &mut BodyChain,
        output: &mut BodyChain,
    ) -> std::result::Result<FilterStep, EngineError> {
        if input.last {
            let ordinary = is_ordinary(x.response.status);
            for field in self.fields.iter().filter(|field| ordinary || field.always) {
                let value = field.value.field(x);
                if !x.text(&value).is_empty() {
                    x.response.trailers.push(ResponseHeader { name: field.name.clone(), value });
                }
            }
        }
        output.append(input);
        Ok(FilterStep::More)
    }

    fn in_memory(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use weir_engine::ModuleDef;
    use weir_engine::conf::{self, LocationConf};

    use super::*;
    use crate::testing::core_and;

    static MODULES: [ModuleDef; 4] = core_and::<Headers>();

    /// The values of `add_header` in the only server of `http`, and in each of its locations.
    fn added(http: &str) -> Vec<String> {
        let text = format!("events {{ }} http {{ {http} }}");
        let configuration = conf::test::load(&text, &MODULES).unwrap_or_else(|errors| panic!("{errors}"));
        let server = &configuration.servers()[0];
        let confs =
            [&server.confs].into_iter().chain(server.locations.iter().map(|l: &LocationConf| &l.confs));
        let value = |addition: &HeaderAddition| {
            String::from_utf8_lossy(addition.value.constant().unwrap_or(b"$")).into_owned()
        };
        confs
            .map(|confs| confs.get::<HeadersConf>().headers.iter().map(value).collect::<Vec<_>>().join(" "))
            .collect()
    }

    #[test]
    fn own_fields_replace_inherited_ones_unless_they_are_merged() {
        let server = |inside: &str| added(&format!("add_header X 1; server {{ {inside} }}"));
        assert_eq!(server("location / { }"), ["1", "1"]);
        assert_eq!(server("add_header X 2; location / { } location /a { add_header X 3; }"), ["2", "2", "3"]);
        assert_eq!(
            server(
                "add_header_inherit merge; add_header X 2; location / { } location /a { add_header X 3; }"
            ),
            ["2 1", "2 1", "3 2 1"]
        );
        assert_eq!(
            server("add_header X 2; location / { add_header_inherit off; } location /a { add_trailer X 4; }"),
            ["2", "", "2"]
        );
    }

    #[test]
    fn wrong_lines_are_refused_in_nginx_words() {
        for (line, message) in [
            ("add_header X 1 sometimes;", "invalid parameter \"sometimes\" in weir.conf:2:16"),
            ("add_header X;", "invalid number of arguments in \"add_header\" directive in weir.conf:2:1"),
            ("add_header_inherit maybe;", "invalid value \"maybe\" in weir.conf:2:20"),
            ("expires 1h; expires 2h;", "\"expires\" directive is duplicate in weir.conf:2:13"),
            ("expires never;", "\"expires\" directive invalid value in weir.conf:2:9"),
            ("expires since 1h;", "\"expires\" directive invalid value in weir.conf:2:9"),
            (
                "expires modified @1h;",
                "\"expires\" directive daily time cannot be used with \"modified\" parameter in weir.conf:2:18",
            ),
        ] {
            let text = format!("events {{ }} http {{ server {{ }}\n{line} }}");
            let lines = conf::test::headlines(&text, &MODULES);
            assert_eq!(lines.len(), 1, "{lines:?}");
            assert!(lines[0].ends_with(message), "{}", lines[0]);
        }
    }
}
