//! The locations of a server, and how one is found for a URI.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use weir_http::{KnownField, Span};

use super::Plan;
use super::blocks::LocationMatcher;
use crate::deep_traces::PatternRole;
use crate::exchange::Exchange;
use crate::name_map::NameMap;
use crate::phase::Verdict;
use crate::regex::{GivenUp, RegexPattern};
use crate::text::Text;
use crate::transport::keepalive;

/// A location on one worker.
pub(crate) struct WorkerLocation {
    /// What runs there.
    pub plan: Rc<Plan>,
    /// The locations inside.
    pub inner: LocationSet,
}

/// Locations side by side.
#[derive(Default)]
pub(crate) struct LocationSet {
    exact: NameMap<WorkerLocation>,
    /// Of the paths in `exact` and in `redirects`: most URIs are not among them, and need not be looked for.
    single: PathFilter,
    /// Sorted by path; the flag is `^~`.
    prefixes: Vec<(Box<[u8]>, bool, WorkerLocation)>,
    /// For each prefix the index of the longest other one that it begins with.
    shorter: Vec<Option<u32>>,
    patterns: Vec<(Arc<RegexPattern>, WorkerLocation)>,
    /// Locations with a path `dir/` that redirect `dir` to themselves, sorted by `dir`: nginx's `auto_redirect`.
    redirects: Vec<(Box<[u8]>, Rc<Plan>)>,
}

/// What a search among locations has come to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LocationSearch {
    /// Nothing that ends the search: the locations beside may have a pattern that matches.
    Open,
    /// The last location found is the one.
    Found,
    /// The last location found is `dir/`, for a path `dir` that no location has.
    MissingSlash,
}

impl LocationSet {
    pub(crate) fn new(places: Vec<(LocationMatcher, WorkerLocation)>) -> LocationSet {
        let mut locations = LocationSet { redirects: redirects(&places), ..LocationSet::default() };
        for (matcher, place) in places {
            match matcher {
                LocationMatcher::Exact(path) => {
                    locations.exact.insert(path.into(), place);
                }
                LocationMatcher::Prefix(path, alone) => locations.prefixes.push((path.into(), alone, place)),
                LocationMatcher::Regex(pattern) => locations.patterns.push((pattern, place)),
                LocationMatcher::Named(_) => {}
            }
        }
        locations.single =
            locations.exact.keys().chain(locations.redirects.iter().map(|(path, _)| path)).collect();
        locations.prefixes.sort_by(|a, b| a.0.cmp(&b.0));
        for at in 0..locations.prefixes.len() {
            let longest = locations.longest_before(at);
            locations.shorter.push(longest);
        }
        locations
    }

    /// No location here, or inside one, is a regular expression.
    pub(crate) fn is_plain(&self) -> bool {
        let prefixes = self.prefixes.iter().all(|(.., place)| place.inner.is_plain());
        self.patterns.is_empty() && prefixes && self.exact.values().all(|place| place.inner.is_plain())
    }

    fn is_empty(&self) -> bool {
        self.prefixes.is_empty() && self.patterns.is_empty() && self.exact.is_empty()
    }

    /// The longest prefix that begins the one at `at`, for all before which it is known: the one before, or one that begins
    /// that.
    fn longest_before(&self, at: usize) -> Option<u32> {
        let path = &self.prefixes[at].0;
        let mut before = at.checked_sub(1)?;
        while !path.starts_with(&self.prefixes[before].0) {
            before = self.shorter[before]? as usize;
        }
        Some(before as u32)
    }

    /// The longest prefix of `uri`. Among sorted paths it is the last one not above `uri`, or one that begins it.
    fn prefix(&self, uri: &[u8]) -> Option<&(Box<[u8]>, bool, WorkerLocation)> {
        let mut at = self.prefixes.partition_point(|(path, ..)| &**path <= uri).checked_sub(1)?;
        loop {
            let entry = self.prefixes.get(at)?;
            if uri.starts_with(&entry.0) {
                return Some(entry);
            }
            at = self.shorter[at]? as usize;
        }
    }

    /// nginx's search: an exact location wins at once; then a redirect to the path with a slash, unless a prefix is the
    /// whole path; else the longest prefix, then what is inside it, then the regular expressions beside it unless the
    /// prefix is `^~`.
    ///
    /// # Errors
    /// A pattern was given up.
    fn find(&self, x: &mut Exchange, found: &mut Option<Rc<Plan>>) -> Result<LocationSearch, GivenUp> {
        let may_be_single = self.single.may_have(x.uri());
        if may_be_single && let Some(place) = self.exact.get(x.uri()) {
            *found = Some(place.plan.clone());
            return Ok(LocationSearch::Found);
        }
        let prefix = self.prefix(x.uri());
        if may_be_single
            && prefix.is_none_or(|(path, ..)| path.len() < x.uri().len())
            && let Some(plan) = self.with_slash(x.uri())
        {
            *found = Some(plan.clone());
            return Ok(LocationSearch::MissingSlash);
        }
        let mut alone = false;
        if let Some((_, flag, place)) = prefix {
            *found = Some(place.plan.clone());
            alone = *flag;
            if !place.inner.is_empty() {
                match place.inner.find(x, found)? {
                    LocationSearch::Open => {}
                    ended => return Ok(ended),
                }
            }
        }
        if alone { Ok(LocationSearch::Open) } else { self.find_pattern(x, found) }
    }

    fn find_pattern(
        &self,
        x: &mut Exchange,
        found: &mut Option<Rc<Plan>>,
    ) -> Result<LocationSearch, GivenUp> {
        for (pattern, place) in &self.patterns {
            let uri = x.request.uri;
            if pattern.captures_as(PatternRole::Location, x, uri)? {
                *found = Some(place.plan.clone());
                // As in nginx a location inside of a pattern never redirects: its handler gets the path as it is.
                place.inner.find(x, found)?;
                return Ok(LocationSearch::Found);
            }
        }
        Ok(LocationSearch::Open)
    }

    /// The location `uri/` that redirects `uri` to itself.
    fn with_slash(&self, uri: &[u8]) -> Option<&Rc<Plan>> {
        self.redirects.binary_search_by(|(path, _)| (**path).cmp(uri)).ok().map(|at| &self.redirects[at].1)
    }
}

/// Which paths a set may have: a bit of each path's length and last byte.
#[derive(Clone, Copy, Default)]
struct PathFilter(u64);

impl PathFilter {
    #[inline]
    fn bit(path: &[u8]) -> u64 {
        1 << ((path.len() + 7 * path.last().map_or(0, |byte| usize::from(*byte))) % 64)
    }

    /// False: the set does not have `path`.
    #[inline]
    fn may_have(self, path: &[u8]) -> bool {
        self.0 & PathFilter::bit(path) != 0
    }
}

impl<'a> FromIterator<&'a Box<[u8]>> for PathFilter {
    fn from_iter<T: IntoIterator<Item = &'a Box<[u8]>>>(paths: T) -> PathFilter {
        PathFilter(paths.into_iter().fold(0, |bits, path| bits | PathFilter::bit(path)))
    }
}

/// The locations that redirect their path without its last slash to themselves. Where a path has an exact location and
/// a prefix, one of them that redirects is enough, and the exact one's settings are in force, as in nginx.
fn redirects(places: &[(LocationMatcher, WorkerLocation)]) -> Vec<(Box<[u8]>, Rc<Plan>)> {
    let mut found: BTreeMap<&[u8], (bool, bool, &Rc<Plan>)> = BTreeMap::new();
    for (matcher, place) in places {
        let (path, exact) = match matcher {
            LocationMatcher::Exact(path) => (path.as_slice(), true),
            LocationMatcher::Prefix(path, _) => (path.as_slice(), false),
            LocationMatcher::Regex(_) | LocationMatcher::Named(_) => continue,
        };
        let Some((b'/', path)) = path.split_last() else { continue };
        let entry = found.entry(path).or_insert((exact, false, &place.plan));
        entry.1 |= place.plan.auto_redirect();
        if exact {
            *entry = (true, entry.1, &place.plan);
        }
    }
    let redirecting = found.into_iter().filter(|(_, (_, redirects, _))| *redirects);
    redirecting.map(|(path, (_, _, plan))| (path.into(), plan.clone())).collect()
}

/// Finds the location of the URI and points `x` at its plan. A response when the location has one of its own:
/// `internal`, a missing slash, a body that is announced too large.
pub(crate) fn find(x: &mut Exchange) -> Option<Verdict> {
    let server = x.server.clone();
    x.uri_changed = false;
    let mut found = None;
    let search = server.locations.find(x, &mut found);
    x.plan = found.unwrap_or_else(|| server.plan.clone());
    // Which location the request belongs to is not known then, and so neither are its access rules: the response is an
    // error, with the settings of the prefix location beside the pattern, as in nginx.
    let Ok(search) = search else { return Some(Verdict::Status(500)) };
    if x.plan.core.internal && !x.internal {
        return Some(Verdict::Status(404));
    }
    limit_except(x);
    x.routed();
    keepalive::update(x);
    let limit = x.plan.core.client_max_body_size;
    match x.request.head.content_length {
        Some(length) if limit != 0 && length > limit && !x.is_subrequest() && !x.body.is_discarded() => {
            x.body.discard();
            x.log_error(&format_args!("client intended to send too large body: {length} bytes"));
            Some(Verdict::Status(413))
        }
        _ => (search == LocationSearch::MissingSlash).then(|| redirect_to_slash(x)),
    }
}

impl Exchange {
    /// Goes on in `plan`, that of a block inside the location ([`Plan::nested`]).
    pub fn enter_nested(&mut self, plan: &Rc<Plan>) {
        self.plan = plan.clone();
        keepalive::update(self);
    }
}

/// Other methods than those of `limit_except` go by its own plan.
fn limit_except(x: &mut Exchange) {
    if let Some((methods, plan)) = &x.plan.limit_except
        && methods & (1 << x.request.head.method as u32) == 0
    {
        x.plan = plan.clone();
    }
}

/// nginx's `auto_redirect`: `/dir` is sent to `/dir/` when only the latter is a location, with a handler that proxies.
fn redirect_to_slash(x: &mut Exchange) -> Verdict {
    let (uri, args) = (x.request.uri, x.request.args);
    let start = x.arena.mark();
    let escaped = {
        let mut out = Vec::new();
        weir_http::escape::escape(&mut out, x.arena.get(uri), weir_http::escape::EscapeSet::Uri);
        out
    };
    x.arena.push(&escaped);
    x.arena.push(b"/");
    if args.start != args.end {
        x.arena.push(b"?");
        x.arena.copy(args);
    }
    let target: Span = x.arena.since(start);
    x.response.remove(KnownField::Location);
    x.response.location = Some(Text::Span(target));
    Verdict::Status(301)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_has_the_paths_of_its_set_and_few_others() {
        let paths: Vec<Box<[u8]>> =
            ["", "/", "/favicon.ico", "/robots.txt", "/api", "/ü"].map(|p| p.as_bytes().into()).into();
        let filter: PathFilter = paths.iter().collect();
        assert!(paths.iter().all(|path| filter.may_have(path)));
        let others = (0..1000).map(|n| format!("/files/{}.{n}", "x".repeat(n % 50)));
        let taken = others.filter(|other| filter.may_have(other.as_bytes())).count();
        assert!(taken < 200, "{taken}");
        assert!(!PathFilter::default().may_have(b"/"));
    }
}
