//! Responses made from a status alone: `error_page`, redirects, and nginx's own pages.

use std::rc::Rc;

use weir_http::{KnownField, Method, Version, escape, status};

use crate::agent;
use crate::body::{BodyBuf, ResponseBody};
use crate::exchange::Exchange;
use crate::phase::Verdict;
use crate::redirect::InternalRedirect;
use crate::settings::location::{ErrorPage, ServerTokens};
use crate::text::Text;
use crate::text_page::text_page;
use crate::transport::{Transport, keepalive};

/// Turns a status into its response: an `error_page`'s redirect, or the page itself.
pub(crate) fn respond(x: &mut Exchange, code: u16) -> Verdict {
    if code == 444 || x.body.is_gone() {
        return Verdict::Close(code);
    }
    // What an error page's own file is, its name says; and a server's words are about its own status.
    (x.response.content_type, x.response.reason) = (None, None);
    if let Some(verdict) = pageless(x, code) {
        return verdict;
    }
    // After a cycle of redirects nothing leads anywhere else, as in nginx.
    let may_have_page = !x.response.error_page_done || x.plan.core.recursive_error_pages;
    if may_have_page && x.uri_changes != 0 {
        let pages = x.plan.core.error_pages.clone();
        if let Some(page) = pages.iter().find(|page| page.status == code) {
            return error_page(x, page, code);
        }
    }
    page(x, code)
}

fn error_page(x: &mut Exchange, page: &ErrorPage, code: u16) -> Verdict {
    if keepalive::closes(code) {
        x.keep_alive = false;
    }
    x.response.error_page_done = true;
    if page.overwrite.is_none_or(|status| status != 0 && status != 200) {
        x.body.never_continue();
    }
    x.response.err_status = match page.overwrite {
        Some(status) => status,
        None => code,
    };
    let target = page.target.value(x);
    let target = x.text(&target).to_vec();
    match target.first() {
        Some(b'/') => {
            if x.request.head.method != Method::Head {
                x.request.head.method = Method::Get;
                x.request.head.method_span = x.arena.push(b"GET");
            }
            InternalRedirect::to(x, &target).into()
        }
        Some(b'@') => InternalRedirect::to(x, &target).into(),
        _ => {
            let redirects = |status: &u16| matches!(status, 301 | 302 | 303 | 307 | 308);
            let status = page.overwrite.filter(redirects).unwrap_or(302);
            x.response.location = Some(Text::Span(x.arena.push(&target)));
            x.response.err_status = 0;
            self::page(x, status)
        }
    }
}

/// nginx's own page for `code`, or the response without a body where the status has none.
fn page(x: &mut Exchange, code: u16) -> Verdict {
    if keepalive::closes(code) {
        x.keep_alive = false;
    }
    if code == 408 || code == 499 {
        return Verdict::Close(code);
    }
    x.body.never_continue();
    let location = x.response.location.take();
    x.response.clear_entity();
    x.response.status = code;
    // nginx's own codes choose the page; the client and the log get the status they map to. Otherwise the page has its
    // own status, also where an `error_page` with another one failed: a 200 would be judged by filters once more.
    x.response.err_status = if matches!(code, 494..=497) { 400 } else { 0 };
    if matches!(code, 301 | 302 | 303 | 307 | 308 | 201) {
        x.response.location = location;
    }
    x.body_filters.clear();
    if refreshes(x, code)
        && let Some(location) = x.response.location.take()
    {
        x.response.status = 200;
        return html(x, refresh(x.text(&location)));
    }
    if x.plan.core.text_error_pages {
        return text(x, code);
    }
    match body(x, code) {
        Some(bytes) => html(x, bytes),
        None => {
            x.response.content_type = None;
            x.respond(ResponseBody::Empty)
        }
    }
}

fn html(x: &mut Exchange, page: Rc<[u8]>) -> Verdict {
    x.response.content_type = Some(Text::Static(b"text/html"));
    x.response.charset = None;
    x.response.content_length = Some(page.len() as u64);
    x.respond(ResponseBody::Whole(BodyBuf::shared(page)))
}

/// `text_error_pages`: the page in H2O's form.
fn text(x: &mut Exchange, code: u16) -> Verdict {
    let location = x.response.location.as_ref().map(|location| x.text(location).to_vec());
    let Some(page) = text_page(code, location.as_deref()) else {
        x.response.content_type = None;
        return x.respond(ResponseBody::Empty);
    };
    if let Some(reason) = page.reason {
        let status = if matches!(code, 494..=497) { 400 } else { code };
        x.response.reason = Some(Text::Span(x.arena.push(format!("{status} {reason}").as_bytes())));
    }
    // The page is the same for all.
    x.response.vary_encoding = false;
    x.response.content_type = Some(Text::Static(page.content_type.as_bytes()));
    x.response.charset = None;
    x.response.content_length = Some(page.body.len() as u64);
    x.respond(ResponseBody::Whole(BodyBuf::Bytes(page.body)))
}

/// `msie_refresh`: whether a redirect is a page for old Internet Explorers, which lose the part after `#` otherwise.
fn refreshes(x: &Exchange, code: u16) -> bool {
    matches!(code, 301 | 302)
        && x.plan.core.msie_refresh
        && agent::msie(x.request.value(&x.arena, KnownField::UserAgent).unwrap_or_default())
}

fn refresh(location: &[u8]) -> Rc<[u8]> {
    let mut out = b"<html><head><meta http-equiv=\"Refresh\" content=\"0; URL=".to_vec();
    escape::escape(&mut out, location, escape::EscapeSet::Refresh);
    out.extend_from_slice(b"\"></head><body></body></html>\r\n");
    Rc::from(out)
}

/// The page's bytes: title, rule and the server's name.
fn body(x: &Exchange, code: u16) -> Option<Rc<[u8]>> {
    let page = status::page(code)?;
    let product = match x.plan.core.server_tokens {
        ServerTokens::Off => x.server.settings.product.name.as_str(),
        _ => x.server.settings.product.full.as_str(),
    };
    let mut out = Vec::with_capacity(256);
    write_page(&mut out, page, product);
    if pads(x, code) {
        out.extend_from_slice(PADDING.as_bytes());
    }
    Some(Rc::from(out))
}

fn write_page(out: &mut Vec<u8>, page: status::ErrorPageText, product: &str) {
    let detail = page.detail.map_or([""; 3], |detail| ["<center>", detail, "</center>\r\n"]);
    for part in [
        "<html>\r\n<head><title>",
        page.title,
        "</title></head>\r\n<body>\r\n<center><h1>",
        page.heading,
        "</h1></center>\r\n",
    ]
    .into_iter()
    .chain(detail)
    .chain(["<hr><center>", product, "</center>\r\n</body>\r\n</html>\r\n"])
    {
        out.extend_from_slice(part.as_bytes());
    }
}

/// Old Internet Explorers and Chrome replace short error pages by their own.
fn pads(x: &Exchange, code: u16) -> bool {
    let agent = || x.request.value(&x.arena, KnownField::UserAgent).unwrap_or_default();
    code >= 400
        && x.plan.core.msie_padding
        && x.request.head.version >= Version::V10
        && (agent::msie(agent()) || agent::chrome(agent()))
}

const PADDING: &str = "<!-- a padding to disable MSIE and Chrome friendly error page -->\r\n\
<!-- a padding to disable MSIE and Chrome friendly error page -->\r\n\
<!-- a padding to disable MSIE and Chrome friendly error page -->\r\n\
<!-- a padding to disable MSIE and Chrome friendly error page -->\r\n\
<!-- a padding to disable MSIE and Chrome friendly error page -->\r\n\
<!-- a padding to disable MSIE and Chrome friendly error page -->\r\n";

/// What an included subrequest says instead of an error, if its `include` has something for that.
pub(crate) fn stub(x: &mut Exchange) -> Option<Verdict> {
    let Transport::Splice(outlet) = &x.transport else { return None };
    let (stub, content_type) = outlet.stub.take()?;
    x.body_filters.clear();
    x.response.clear_entity();
    x.response.status = 200;
    x.response.content_type = content_type;
    Some(x.respond(ResponseBody::Chain(stub)))
}

/// The response to a subrequest with a status for which no page is wanted, if it is one.
fn pageless(x: &mut Exchange, code: u16) -> Option<Verdict> {
    let Transport::Capture(capture) = &mut x.transport else { return None };
    if !capture.bare || !(200..600).contains(&code) {
        return None;
    }
    capture.pageless = true;
    x.response.clear_entity();
    x.set_content_type();
    Some(Verdict::Close(code))
}
