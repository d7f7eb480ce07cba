//! The reference: what is due for a request, by interpreting the configuration step by step, as nginx's documentation says.

use std::collections::BTreeMap;

use super::pattern::{Pattern, PatternMatch};
use super::plan::{
    AddedField, LocationKind, ROUTED_PORT, RewriteFlag, RouteCondition, RouteLocation, RoutePage, RouteRule,
    RouteScope, RouteServer, RoutedAsk, RoutingPlan,
};
use super::selection::{FoundLocation, location_of, mapped, server_of};
use super::target::{TargetParts, escaped, host_name, redirect_form};

/// A response, as far as routing decides it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueResponse {
    /// The status.
    pub status: u16,
    /// The text; `None`: a page of the server's own.
    pub text: Option<String>,
    /// Fields that the configuration adds, and Location.
    pub fields: Vec<(String, String)>,
}

impl DueResponse {
    /// What has come, without what routing does not decide.
    pub fn of<'f>(status: u16, body: &[u8], fields: impl Iterator<Item = (&'f str, &'f str)>) -> DueResponse {
        let is_decided = |name: &str| name == "location" || name.starts_with("x-");
        let mut fields: Vec<(String, String)> = fields
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .filter(|(name, _)| is_decided(name))
            .collect();
        fields.sort_by(|one, other| one.0.cmp(&other.0));
        let text = (!body.starts_with(b"<html>")).then(|| String::from_utf8_lossy(body).into_owned());
        DueResponse { status, text, fields }
    }

    /// Whether this is what is due: of a bad request the status alone.
    pub fn is_due(words: &str, due: &DueResponse) -> bool {
        if due.status == 400 { words.starts_with("400 None ") } else { words == due.words() }
    }

    /// As words, for the journal.
    pub fn words(&self) -> String {
        format!("{} {:?} {:?}", self.status, self.text, self.fields)
    }
}

/// Whether a status goes with a Location.
fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

/// So often a path may be replaced, and one more time is a fault.
const MOST_CHANGES: u32 = 10;

impl RoutingPlan {
    /// What is due for a request.
    pub fn due(&self, ask: &RoutedAsk) -> DueResponse {
        let host = host_name(ask.absolute.as_ref().unwrap_or(&ask.host));
        let parts = TargetParts::parse(&ask.target);
        let (Some(parts), Some(name), Some(_)) = (parts, host, host_name(&ask.host)) else {
            // Which fields it has depends on what was read of the request.
            return DueResponse { status: 400, text: None, fields: Vec::new() };
        };
        let (server, captured) = server_of(&self.servers, &name);
        let mut walk = RouteWalk {
            plan: self,
            server,
            ask,
            host: name,
            path: parts.path,
            arguments: parts.arguments,
            was_escaped: parts.was_escaped,
            is_internal: false,
            changes: 0,
            has_page: false,
            status: None,
            chain: Vec::new(),
            blocks: 0,
            values: BTreeMap::new(),
            captures: Vec::new(),
        };
        walk.capture(captured);
        walk.run()
    }
}

/// The walk of one request through the configuration.
struct RouteWalk<'p> {
    plan: &'p RoutingPlan,
    server: &'p RouteServer,
    ask: &'p RoutedAsk,
    host: String,
    path: String,
    arguments: String,
    was_escaped: bool,
    /// The path is not the client's any more.
    is_internal: bool,
    changes: u32,
    /// An `error_page` was taken.
    has_page: bool,
    /// The status that is sent in place of the response's own.
    status: Option<u16>,
    /// The blocks that are in force, the innermost last.
    chain: Vec<&'p RouteScope>,
    /// How many of them are not `if`.
    blocks: usize,
    /// Variables that were set, captured or cached.
    values: BTreeMap<String, String>,
    captures: Vec<String>,
}

/// Where the walk goes next.
enum WalkStep<'p> {
    /// The server's rules, then a location.
    Server,
    Find,
    Location(FoundLocation<'p>),
    /// A status without a text.
    Status(u16),
    Done(DueResponse),
}

/// How a list of rules ends.
enum RulesEnd<'p> {
    /// With the last one.
    Through,
    /// Before that.
    Stopped,
    Step(WalkStep<'p>),
}

impl<'p> RouteWalk<'p> {
    fn run(&mut self) -> DueResponse {
        let mut step = WalkStep::Server;
        loop {
            step = match step {
                WalkStep::Done(response) => return response,
                WalkStep::Server => {
                    self.chain = vec![&self.server.scope];
                    self.blocks = 1;
                    let server = self.server;
                    match self.rules(&server.scope.rules, &mut false) {
                        RulesEnd::Step(step) => step,
                        RulesEnd::Through | RulesEnd::Stopped => WalkStep::Find,
                    }
                }
                WalkStep::Find => {
                    self.chain = vec![&self.server.scope];
                    match location_of(&self.server.locations, &self.path) {
                        None => WalkStep::Status(404),
                        Some(found) => self.found(found),
                    }
                }
                WalkStep::Location(found) => self.location(&found),
                WalkStep::Status(status) => self.failed(status),
            }
        }
    }

    fn found(&mut self, found: FoundLocation<'p>) -> WalkStep<'p> {
        self.capture(found.captured.clone());
        self.chain.extend(found.chain.iter().map(|one| &one.scope));
        let is_internal = found.chain.iter().any(|one| one.is_internal);
        if is_internal && !self.is_internal { WalkStep::Status(404) } else { WalkStep::Location(found) }
    }

    fn location(&mut self, found: &FoundLocation<'p>) -> WalkStep<'p> {
        let Some(location) = found.chain.last().copied() else { return WalkStep::Status(404) };
        self.blocks = self.chain.len();
        let mut has_moved = false;
        if let RulesEnd::Step(step) = self.rules(&location.scope.rules, &mut has_moved) {
            return step;
        }
        if has_moved {
            return if self.may_change() { WalkStep::Find } else { WalkStep::Status(500) };
        }
        let Some(fallback) = &location.fallback else { return WalkStep::Status(404) };
        match fallback.strip_prefix('=') {
            Some(status) => WalkStep::Status(status.parse().unwrap_or(0)),
            None => self.goes_to(fallback),
        }
    }

    /// One more change of the path; whether it is allowed.
    fn may_change(&mut self) -> bool {
        self.changes += 1;
        self.changes <= MOST_CHANGES
    }

    /// A path with arguments, or a named location.
    fn goes_to(&mut self, target: &str) -> WalkStep<'p> {
        let target = if target.starts_with('@') { target.to_owned() } else { self.text(target) };
        if !self.may_change() {
            return WalkStep::Status(500);
        }
        self.is_internal = true;
        if target.starts_with('@') {
            let is_it = |one: &&RouteLocation| one.kind == LocationKind::Named && one.path == target;
            let Some(named) = self.server.locations.iter().find(is_it) else { return WalkStep::Status(500) };
            self.chain = vec![&self.server.scope, &named.scope];
            return WalkStep::Location(FoundLocation { chain: vec![named], captured: None });
        }
        let (path, arguments) = target.split_once('?').unwrap_or((&target, ""));
        (self.path, self.arguments) = (path.to_owned(), arguments.to_owned());
        WalkStep::Server
    }

    /// A status without a text: `error_page`, or the server's own page.
    fn failed(&mut self, status: u16) -> WalkStep<'p> {
        self.status = Some(status);
        let pages = self.inherited(|scope| (!scope.pages.is_empty()).then_some(&scope.pages[..]));
        let page: Option<&'p RoutePage> =
            pages.unwrap_or_default().iter().find(|page| page.statuses.contains(&status));
        let Some(page) = page.filter(|_| !self.has_page && self.changes <= MOST_CHANGES) else {
            return WalkStep::Done(self.finish(status, None, None));
        };
        self.has_page = true;
        if !page.target.starts_with(['/', '@']) {
            self.status = Some(page.instead.filter(|status| is_redirect(*status)).unwrap_or(302));
            let target = self.text(&page.target);
            return WalkStep::Done(self.finish(status, None, Some(target)));
        }
        match page.instead {
            Some(0) => self.status = None,
            Some(status) => self.status = Some(status),
            None => (),
        }
        self.goes_to(&page.target)
    }

    /// What the innermost block says that says anything.
    fn inherited<T>(&self, said: impl Fn(&'p RouteScope) -> Option<T>) -> Option<T> {
        self.chain.iter().rev().find_map(|scope| said(scope))
    }

    fn finish(&mut self, status: u16, text: Option<&str>, location: Option<String>) -> DueResponse {
        let status = self.status.unwrap_or(status);
        let plan = self.plan;
        if self.chain.is_empty() {
            self.chain.push(&self.server.scope);
        }
        let added = self.inherited(|scope| (!scope.fields.is_empty()).then_some(&scope.fields[..]));
        let is_usual = matches!(status, 200 | 201 | 204 | 206 | 301 | 302 | 303 | 304 | 307 | 308);
        let mut fields = Vec::new();
        for AddedField { name, value, is_always } in added.unwrap_or(&plan.fields) {
            let value = if is_usual || *is_always { self.text(value) } else { String::new() };
            if !value.is_empty() {
                fields.push((*name, value));
            }
        }
        if let Some(target) = location {
            let is_path = target.starts_with('/');
            let whole = format!("http://{}:{ROUTED_PORT}{target}", self.host);
            fields.push(("location", if is_path { whole } else { target }));
        }
        let fields = fields.iter().map(|(name, value)| (*name, value.as_str()));
        let body = text.map_or("<html>", |text| text);
        DueResponse::of(status, body.as_bytes(), fields)
    }

    fn rules(&mut self, rules: &'p [RouteRule], has_moved: &mut bool) -> RulesEnd<'p> {
        for rule in rules {
            match rule {
                RouteRule::Break => {
                    // The request goes on in this location.
                    *has_moved = false;
                    return RulesEnd::Stopped;
                }
                RouteRule::Set(name, value) => {
                    let value = self.text(value);
                    self.values.insert((*name).to_owned(), value);
                }
                RouteRule::Return(status, value) => {
                    return RulesEnd::Step(self.returned(*status, value.as_deref()));
                }
                RouteRule::Rewrite(pattern, to, flag) => match self.rewrite(pattern, to, *flag, has_moved) {
                    RulesEnd::Through => (),
                    end => return end,
                },
                RouteRule::If(condition, scope) => {
                    if !self.holds(condition) {
                        continue;
                    }
                    // Of several that hold, the last one's settings are in force, with those of the location.
                    self.chain.truncate(self.blocks);
                    self.chain.push(scope);
                    match self.rules(&scope.rules, has_moved) {
                        RulesEnd::Through => (),
                        end => return end,
                    }
                }
            }
        }
        RulesEnd::Through
    }

    fn returned(&mut self, status: u16, value: Option<&str>) -> WalkStep<'p> {
        if status >= 400 && value.is_none() {
            return WalkStep::Status(status);
        }
        let text = self.text(value.unwrap_or(""));
        if is_redirect(status) {
            self.status = Some(status);
            return WalkStep::Done(self.finish(status, None, Some(text)));
        }
        WalkStep::Done(self.finish(status, Some(&text), None))
    }

    fn rewrite(&mut self, pattern: &str, to: &str, flag: RewriteFlag, has_moved: &mut bool) -> RulesEnd<'p> {
        let Some(found) = Pattern::new(pattern, false).find(&self.path) else { return RulesEnd::Through };
        self.capture(Some(found));
        let status = match flag {
            RewriteFlag::Permanent => Some(301),
            RewriteFlag::Redirect => Some(302),
            _ if to.starts_with("http://") => Some(302),
            _ => None,
        };
        let (to, adds) = to.strip_suffix('?').map_or((to, true), |to| (to, false));
        let (path, arguments) = to.split_once('?').map_or((to, None), |(path, rest)| (path, Some(rest)));
        let escapes = self.was_escaped;
        let arguments = arguments.map(|text| self.replaced(text, escapes));
        let old = if adds { self.arguments.clone() } else { String::new() };
        if let Some(status) = status {
            let path = self.replaced(path, escapes);
            let new = arguments.as_ref().map_or(String::new(), |new| format!("?{new}"));
            let joint = if arguments.is_some() { "&" } else { "?" };
            let old = if old.is_empty() { old } else { format!("{joint}{old}") };
            let target = format!("{}{old}", redirect_form(&format!("{path}{new}")));
            self.status = Some(status);
            return RulesEnd::Step(WalkStep::Done(self.finish(status, None, Some(target))));
        }
        self.path = self.replaced(path, false);
        self.is_internal = true;
        match arguments {
            Some(new) if old.is_empty() => self.arguments = new,
            Some(new) => self.arguments = format!("{new}&{old}"),
            None if !adds => self.arguments.clear(),
            None => (),
        }
        *has_moved = flag != RewriteFlag::Break;
        if flag == RewriteFlag::Absent { RulesEnd::Through } else { RulesEnd::Stopped }
    }

    fn holds(&mut self, condition: &RouteCondition) -> bool {
        let RouteCondition { variable, operator, value } = condition;
        let text = self.variable(variable);
        match *operator {
            "" => !text.is_empty() && text != "0",
            "=" => text == *value,
            "!=" => text != *value,
            expression => {
                let found = Pattern::new(value, expression.ends_with('*')).find(&text);
                let holds = found.is_some() != expression.starts_with('!');
                self.capture(found);
                holds
            }
        }
    }

    fn capture(&mut self, found: Option<PatternMatch>) {
        let Some(found) = found else { return };
        self.captures = found.captures;
        self.values.extend(found.named);
    }

    /// A replacement, whose captures may have to be escaped.
    fn replaced(&mut self, template: &str, escapes: bool) -> String {
        let captures = self.captures.clone();
        if escapes {
            self.captures.iter_mut().for_each(|one| *one = escaped(one));
        }
        let text = self.text(template);
        self.captures = captures;
        text
    }

    /// A text with its variables.
    fn text(&mut self, template: &str) -> String {
        let mut parts = template.split('$');
        let mut text = parts.next().unwrap_or("").to_owned();
        for part in parts {
            let is_name = |one: char| one.is_ascii_alphanumeric() || one == '_';
            let length = match part.chars().next() {
                Some(digit) if digit.is_ascii_digit() => 1,
                _ => part.find(|one| !is_name(one)).unwrap_or(part.len()),
            };
            text.push_str(&self.variable(&part[..length]));
            text.push_str(&part[length..]);
        }
        text
    }

    fn variable(&mut self, name: &str) -> String {
        if let Some(value) = self.values.get(name) {
            return value.clone();
        }
        if let Ok(capture) = name.parse::<usize>() {
            return self.captures.get(capture).cloned().unwrap_or_default();
        }
        match name {
            "uri" => self.path.clone(),
            "args" => self.arguments.clone(),
            "is_args" => if self.arguments.is_empty() { "" } else { "?" }.to_owned(),
            "host" => self.host.clone(),
            "request_uri" => self.ask.target.clone(),
            "arg_m" => {
                let mut words = self.arguments.split('&');
                words.find_map(|word| word.strip_prefix("m=")).unwrap_or("").to_owned()
            }
            "http_x_m" => self.ask.mark.clone().unwrap_or_default(),
            name => self.map_value(name),
        }
    }

    fn map_value(&mut self, name: &str) -> String {
        let plan = self.plan;
        let Some(map) = plan.maps.iter().find(|map| map.name == name) else { return String::new() };
        let text = self.text(&map.source);
        let (value, captured) = mapped(map, &text);
        self.capture(captured);
        let value = self.text(value);
        if !map.is_volatile {
            self.values.insert(name.to_owned(), value.clone());
        }
        value
    }
}
