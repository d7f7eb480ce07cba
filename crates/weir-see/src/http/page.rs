//! The page: figures over time, requests, workers, upstreams, flame graphs and comparing, for a browser. It is one document, one script and
//! one style sheet, all in the program; it asks the paths that everybody can ask, and needs nothing from elsewhere.

use super::connection::{AdminRequest, AdminResponse};

/// The part of the page at `path`; `/` for browsers only, others get the list of paths as text.
pub(super) fn part(request: &AdminRequest) -> Option<AdminResponse> {
    let (media_type, body) = match request.path.as_str() {
        "/" if request.accept.contains("text/html") => {
            ("text/html; charset=utf-8", include_str!("page/index.html"))
        }
        "/page.js" => ("text/javascript; charset=utf-8", SCRIPT),
        "/page.css" => ("text/css; charset=utf-8", include_str!("page/page.css")),
        _ => return None,
    };
    Some(AdminResponse { fields: POLICY, ..AdminResponse::new(200, media_type, body) })
}

/// One script, whose parts know each other by their names.
const SCRIPT: &str = concat!(
    include_str!("page/core.js"),
    include_str!("page/charts.js"),
    include_str!("page/findings.js"),
    include_str!("page/overview.js"),
    include_str!("page/requests.js"),
    include_str!("page/inside.js"),
    include_str!("page/hosts.js"),
    include_str!("page/tls.js"),
    include_str!("page/recordings.js"),
    include_str!("page/flame.js"),
    include_str!("page/compare.js"),
    include_str!("page/start.js"),
);

/// Names of locations and paths of requests come from elsewhere: should one ever be taken for a script, it does not run.
const POLICY: &[(&str, &str)] = &[
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    ("Referrer-Policy", "no-referrer"),
];
