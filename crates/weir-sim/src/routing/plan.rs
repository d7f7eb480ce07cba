//! A configuration of servers and locations, as a seed draws it.

/// Where the servers of routing listen.
pub const ROUTED_PORT: u16 = 8090;
/// Numbers of requests to them begin after this.
pub const ROUTED_NUMBERS: u64 = 250_000;

/// All servers of routing, and what is around them.
#[derive(Clone, Debug, Default)]
pub struct RoutingPlan {
    /// `map` blocks.
    pub maps: Vec<RouteMap>,
    /// `add_header` of `http`.
    pub fields: Vec<AddedField>,
    /// Empty: there is no routing.
    pub servers: Vec<RouteServer>,
}

/// A request for one of them: what is not the same in all requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutedAsk {
    /// Host, or `:authority`.
    pub host: String,
    /// The path and arguments.
    pub target: String,
    /// The host that the request line of HTTP/1 says, if it has an absolute form.
    pub absolute: Option<String>,
    /// `X-M`.
    pub mark: Option<String>,
}

/// A `map`.
#[derive(Clone, Debug)]
pub struct RouteMap {
    /// What is looked up: text with variables.
    pub source: String,
    /// The variable, without `$`.
    pub name: String,
    /// Patterns and values, in order; `default` is one of the patterns.
    pub lines: Vec<(String, String)>,
    /// `hostnames`.
    pub has_hostnames: bool,
    /// `volatile`.
    pub is_volatile: bool,
}

/// A `server`.
#[derive(Clone, Debug)]
pub struct RouteServer {
    /// `server_name`.
    pub names: Vec<String>,
    /// `default_server`.
    pub is_default: bool,
    /// What is in it beside locations.
    pub scope: RouteScope,
    /// Its locations, named ones among them.
    pub locations: Vec<RouteLocation>,
}

/// What servers and locations have in common.
#[derive(Clone, Debug, Default)]
pub struct RouteScope {
    /// `add_header`.
    pub fields: Vec<AddedField>,
    /// `error_page`.
    pub pages: Vec<RoutePage>,
    /// The directives of rewriting, in order.
    pub rules: Vec<RouteRule>,
}

/// A `location`.
#[derive(Clone, Debug)]
pub struct RouteLocation {
    /// How it is chosen.
    pub kind: LocationKind,
    /// The path, the expression or the name.
    pub path: String,
    /// What is in it.
    pub scope: RouteScope,
    /// `internal`.
    pub is_internal: bool,
    /// What `try_files` has after a file that is not there; `None`: files are served, and there are no files.
    pub fallback: Option<String>,
    /// Locations in it.
    pub nested: Vec<RouteLocation>,
}

/// How a location is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocationKind {
    /// `=`.
    Exact,
    /// A prefix.
    Prefix,
    /// `^~`.
    FirmPrefix,
    /// `~`.
    Expression,
    /// `~*`.
    AnyCaseExpression,
    /// `@`: by `error_page` and `try_files` alone.
    Named,
}

/// `add_header`.
#[derive(Clone, Debug)]
pub struct AddedField {
    /// Its name.
    pub name: &'static str,
    /// Text with variables.
    pub value: String,
    /// `always`.
    pub is_always: bool,
}

/// `error_page`.
#[derive(Clone, Debug)]
pub struct RoutePage {
    /// Of which statuses.
    pub statuses: Vec<u16>,
    /// `=` (0) or `=status`.
    pub instead: Option<u16>,
    /// A path, a named location, or a whole URL.
    pub target: String,
}

/// A directive of rewriting.
#[derive(Clone, Debug)]
pub enum RouteRule {
    /// `return`: with a text or a URL.
    Return(u16, Option<String>),
    /// `rewrite`: expression, replacement and flag.
    Rewrite(&'static str, &'static str, RewriteFlag),
    /// `set`: the variable without `$`.
    Set(&'static str, String),
    /// `break`.
    Break,
    /// `if`.
    If(RouteCondition, RouteScope),
}

/// The last word of `rewrite`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RewriteFlag {
    /// Nothing.
    Absent,
    /// `last`.
    Last,
    /// `break`.
    Break,
    /// `redirect`.
    Redirect,
    /// `permanent`.
    Permanent,
}

/// A condition of `if`.
#[derive(Clone, Debug)]
pub struct RouteCondition {
    /// The variable, without `$`.
    pub variable: &'static str,
    /// Nothing, `=`, `!=`, `~`, `~*`, `!~` or `!~*`.
    pub operator: &'static str,
    /// What it is compared with.
    pub value: &'static str,
}
