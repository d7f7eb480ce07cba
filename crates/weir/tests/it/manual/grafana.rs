//! examples/grafana/weir.json is the dashboard of the metrics on docs/reference/metrics.md: a row of panels for each section
//! and a panel for each metric, after an overview. This test fails when it is stale;
//! `WEIR_WRITE_DOCS=1 cargo test -p weir --test it -- grafana` writes it.

use std::collections::HashSet;
use std::fs;
use std::process::Command;

use weir_http::json::{JsonValue, JsonWriter};
use weir_test::{TempDir, require_program};

use super::root;

const PATH: &str = "examples/grafana/weir.json";

/// A metric as its page has it.
#[derive(Clone, Debug)]
struct MetricRow {
    name: String,
    kind: String,
    help: String,
}

/// The sections of the page that have metrics.
fn sections() -> Vec<(String, Vec<MetricRow>)> {
    let page = fs::read_to_string(root().join("docs/reference/metrics.md")).expect("the page of the metrics");
    let mut all: Vec<(String, Vec<MetricRow>)> = Vec::new();
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            all.push((title.to_owned(), Vec::new()));
        }
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind @ ("counter" | "gauge" | "histogram"), help] = cells[..] else { continue };
        let (_, rows) = all.last_mut().expect("metrics are below a heading");
        let (name, kind, help) = (name.trim_matches('`').to_owned(), kind.to_owned(), help.to_owned());
        rows.push(MetricRow { name, kind, help });
    }
    all.retain(|(_, rows)| !rows.is_empty());
    all
}

/// A panel: what it shows, in which unit, and its queries with their legends.
struct DashboardPanel {
    title: String,
    help: String,
    unit: &'static str,
    queries: Vec<(String, String)>,
}

/// Labels by which the series of a metric are summed: the longest beginning of its name counts.
const LABELS: &[(&str, &str)] = &[
    ("weir_request", "location"),
    ("weir_requests_total", "location, status"),
    ("weir_requests_in_flight", "worker"),
    ("weir_site_", "kind, location, name"),
    ("weir_key_", "zone, key"),
    ("weir_connections", "worker"),
    ("weir_connections_closed_total", "protocol, by, reason"),
    ("weir_http2_streams_reset_total", "by, code"),
    ("weir_http2_abuse_total", "kind"),
    ("weir_loop_", "worker"),
    ("weir_accept_queue_seconds", "worker"),
    ("weir_receive_queue_seconds", "worker"),
    ("weir_stalls_total", "worker"),
    ("weir_turns_", "worker"),
    ("weir_worker_", "worker"),
    ("weir_upstream", "upstream, peer"),
    ("weir_dict_", "dict"),
    ("weir_tls_handshakes_total", "of, value"),
    ("weir_tls_handshakes_failed_total", "by, reason"),
    ("weir_tls_handshake_duration_seconds", "session"),
    ("weir_tls_certificate_end_timestamp_seconds", "name, file"),
    ("weir_build_info", "version"),
    ("", "instance"),
];

fn labels(name: &str) -> &'static str {
    let fitting = LABELS.iter().filter(|(beginning, _)| name.starts_with(beginning));
    fitting.max_by_key(|(beginning, _)| beginning.len()).expect("the last fits all").1
}

/// `{{location}} {{status}}`
fn legend(labels: &str) -> String {
    labels.split(", ").map(|label| format!("{{{{{label}}}}}")).collect::<Vec<_>>().join(" ")
}

const SERIES: &str = "{job=~\"$job\",instance=~\"$instance\"}";
const RATE: &str = "[$__rate_interval]";

impl DashboardPanel {
    /// The panel of one metric.
    fn of(row: &MetricRow) -> DashboardPanel {
        let (name, by) = (row.name.as_str(), labels(&row.name));
        let queries = match row.kind.as_str() {
            "histogram" => vec![quantile(name, "0.5", by), quantile(name, "0.99", by)],
            "counter" => vec![(format!("topk(20, sum by ({by}) (rate({name}{SERIES}{RATE})))"), legend(by))],
            // Moments are shown by how far away they are, the nearest first.
            _ if name.ends_with("_timestamp_seconds") => {
                vec![(format!("bottomk(20, min by ({by}) ({name}{SERIES}) - time())"), legend(by))]
            }
            _ => vec![(format!("topk(20, sum by ({by}) ({name}{SERIES}))"), legend(by))],
        };
        DashboardPanel { title: name.to_owned(), help: row.help.clone(), unit: unit(row), queries }
    }
}

fn quantile(name: &str, q: &str, by: &str) -> (String, String) {
    let rate = format!("sum by (le, {by}) (rate({name}_bucket{SERIES}{RATE}))");
    let percent = q.trim_start_matches("0.");
    let percent = if percent.len() == 1 { format!("{percent}0") } else { percent.to_owned() };
    (format!("topk(20, histogram_quantile({q}, {rate}))"), format!("p{percent} {}", legend(by)))
}

/// Grafana's name of the unit.
fn unit(row: &MetricRow) -> &'static str {
    let counts = row.kind == "counter";
    match row.name.trim_end_matches("_total") {
        // Seconds in a second are a share of a core, or how many requests there were at a time.
        name if name.ends_with("_seconds") && counts => "percentunit",
        name if name.ends_with("_seconds") => "s",
        name if name.contains("_bytes") && counts => "Bps",
        name if name.contains("_bytes") => "bytes",
        _ if counts => "ops",
        _ => "short",
    }
}

/// What one looks at first.
fn overview() -> Vec<DashboardPanel> {
    let panel = |title: &str, help: &str, unit, queries: Vec<(String, String)>| DashboardPanel {
        title: title.to_owned(),
        help: help.to_owned(),
        unit,
        queries,
    };
    let requests = |more: &str| {
        format!("rate(weir_requests_total{{job=~\"$job\",instance=~\"$instance\"{more}}}{RATE})")
    };
    let duration = |q: &str| {
        let rate = format!("sum by (le) (rate(weir_request_duration_seconds_bucket{SERIES}{RATE}))");
        format!("histogram_quantile({q}, {rate})")
    };
    let errors = requests(",status=~\"5..\"");
    vec![
        panel(
            "Requests",
            "Requests by status.",
            "reqps",
            vec![(format!("sum by (status) ({})", requests("")), legend("status"))],
        ),
        panel(
            "Duration",
            "Whole time of requests, of all locations together.",
            "s",
            vec![(duration("0.5"), "p50".to_owned()), (duration("0.99"), "p99".to_owned())],
        ),
        panel(
            "Errors",
            "Share of responses with a status of 500 and above, by location.",
            "percentunit",
            vec![(
                format!("sum by (location) ({errors}) / sum by (location) ({})", requests("")),
                legend("location"),
            )],
        ),
        panel(
            "CPU",
            "Cores that workers use, and wait for.",
            "percentunit",
            vec![
                (
                    format!("sum by (instance) (rate(weir_worker_cpu_seconds_total{SERIES}{RATE}))"),
                    format!("{} used", legend("instance")),
                ),
                (
                    format!("sum by (instance) (rate(weir_worker_run_queue_seconds_total{SERIES}{RATE}))"),
                    format!("{} wanted", legend("instance")),
                ),
            ],
        ),
        panel(
            "Connections",
            "Connections open and idle.",
            "short",
            vec![
                (
                    format!("sum by (instance) (weir_connections{SERIES})"),
                    format!("{} open", legend("instance")),
                ),
                (
                    format!("sum by (instance) (weir_connections_idle{SERIES})"),
                    format!("{} idle", legend("instance")),
                ),
            ],
        ),
        panel(
            "Closes that are no client's usual end",
            "Connections that ended for another reason than an idle client that left.",
            "ops",
            vec![(
                format!(
                    "sum by (protocol, by, reason) (rate(weir_connections_closed_total{{job=~\"$job\",instance=~\"$instance\",reason!=\"idle\"}}{RATE}))"
                ),
                legend("protocol, by, reason"),
            )],
        ),
    ]
}

/// The number of a panel and its place.
struct PanelPlace {
    id: usize,
    x: usize,
    y: usize,
}

fn panel(place: &PanelPlace, panel: &DashboardPanel) -> String {
    JsonWriter::object(|json| {
        json.key("id").raw(place.id);
        json.key("type").text("timeseries");
        json.key("title").text(&panel.title);
        json.key("description").text(&panel.help);
        json.key("datasource").nested(datasource);
        json.key("gridPos").nested(|json| grid(json, place.x, place.y, [WIDTH, HEIGHT]));
        json.key("fieldConfig").nested(|json| {
            json.key("defaults").nested(|json| {
                json.key("unit").text(panel.unit);
                json.key("min").raw(0);
                json.key("custom").nested(|json| json.key("fillOpacity").raw(8));
            });
            json.key("overrides").list(|_| {});
        });
        json.key("options").nested(|json| {
            json.key("legend").nested(|json| {
                json.key("displayMode").text("list");
                json.key("placement").text("bottom");
                json.key("showLegend").raw(true);
            });
            json.key("tooltip").nested(|json| {
                json.key("mode").text("multi");
                json.key("sort").text("desc");
            });
        });
        json.key("targets").list(|json| {
            for ((expression, legend), reference) in panel.queries.iter().zip('A'..) {
                json.nested(|json| {
                    json.key("refId").text(&reference.to_string());
                    json.key("datasource").nested(datasource);
                    json.key("expr").text(expression);
                    json.key("legendFormat").text(legend);
                });
            }
        });
    })
}

fn datasource(json: &mut JsonWriter) {
    json.key("type").text("prometheus");
    json.key("uid").text("${datasource}");
}

fn grid(json: &mut JsonWriter, x: usize, y: usize, [width, height]: [usize; 2]) {
    for (key, value) in [("h", height), ("w", width), ("x", x), ("y", y)] {
        json.key(key).raw(value);
    }
}

/// Panels side by side from row `top` on, with the numbers from `first` on; and the row after them.
fn panels(all: &[DashboardPanel], first: usize, top: usize) -> (Vec<String>, usize) {
    let place =
        |at: usize| PanelPlace { id: first + at, x: at % ACROSS * WIDTH, y: top + at / ACROSS * HEIGHT };
    let written = all.iter().enumerate().map(|(at, one)| panel(&place(at), one)).collect();
    (written, top + all.len().div_ceil(ACROSS) * HEIGHT)
}

/// The dashboard: a panel a line, so that changes can be read.
fn dashboard() -> String {
    let (mut lines, mut top) = panels(&overview(), 1, 0);
    let mut id = lines.len() + 1;
    for (title, rows) in sections() {
        let inside: Vec<DashboardPanel> = rows.iter().map(DashboardPanel::of).collect();
        let (written, below) = panels(&inside, id + 1, top + 1);
        let head = JsonWriter::object(|json| {
            json.key("id").raw(id);
            json.key("type").text("row");
            json.key("title").text(&title);
            json.key("collapsed").raw(true);
            json.key("gridPos").nested(|json| grid(json, 0, top, [24, 1]));
        });
        id += 1 + inside.len();
        // The panels of a row that is folded lie in it.
        let head = head.strip_suffix('}').expect("an object");
        lines.push(format!("{head},\"panels\":[\n    {}\n  ]}}", written.join(",\n    ")));
        top = below.min(top + 1);
    }
    let head = JsonWriter::object(|json| {
        json.key("title").text("Weir");
        json.key("uid").text("weir");
        json.key("description").text("Made from docs/reference/metrics.md, see examples/grafana/README.md.");
        json.key("schemaVersion").raw(SCHEMA);
        json.key("version").raw(1);
        json.key("editable").raw(true);
        json.key("graphTooltip").raw(1);
        json.key("refresh").text("10s");
        json.key("timezone").text("browser");
        json.key("tags").list(|json| json.text("weir"));
        json.key("annotations").nested(|json| json.key("list").list(|_| {}));
        json.key("links").list(|_| {});
        json.key("time").nested(|json| {
            json.key("from").text("now-1h");
            json.key("to").text("now");
        });
        json.key("templating").nested(|json| json.key("list").list(variables));
    });
    let head = head.strip_suffix('}').expect("an object");
    format!("{head},\n\"panels\":[\n  {}\n]}}\n", lines.join(",\n  "))
}

/// Which Prometheus, and which servers.
fn variables(json: &mut JsonWriter) {
    json.nested(|json| {
        json.key("name").text("datasource");
        json.key("type").text("datasource");
        json.key("label").text("Prometheus");
        json.key("query").text("prometheus");
        json.key("refresh").raw(1);
    });
    for (name, query) in [
        ("job", "label_values(weir_uptime_seconds, job)"),
        ("instance", "label_values(weir_uptime_seconds{job=~\"$job\"}, instance)"),
    ] {
        json.nested(|json| {
            json.key("name").text(name);
            json.key("type").text("query");
            json.key("datasource").nested(datasource);
            json.key("query").nested(|json| {
                json.key("query").text(query);
                json.key("refId").text(name);
            });
            json.key("definition").text(query);
            json.key("refresh").raw(2);
            json.key("includeAll").raw(true);
            json.key("multi").raw(true);
            json.key("allValue").text(".*");
            json.key("current").nested(|json| {
                json.key("text").text("All");
                json.key("value").text("$__all");
            });
        });
    }
}

#[test]
fn grafana_dashboard_is_that_of_the_metrics() {
    let (path, text) = (root().join(PATH), dashboard());
    if std::env::var_os("WEIR_WRITE_DOCS").is_some() {
        fs::create_dir_all(path.parent().expect("below examples")).expect("a directory of the repository");
        fs::write(&path, &text).expect("a file of the repository");
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == text,
        "{PATH} is stale: WEIR_WRITE_DOCS=1 cargo test -p weir --test it -- grafana writes it"
    );
}

/// What Grafana requires of a dashboard of this schema: numbers that are unique, places in 24 columns that do not overlap,
/// known types, queries with references of their own and a data source that there is.
#[test]
fn grafana_dashboard_has_what_its_schema_requires() {
    let json = JsonValue::parse(dashboard().as_bytes()).expect("JSON");
    for key in ["title", "uid", "schemaVersion", "panels", "templating", "time", "annotations"] {
        assert!(json.field(key).is_some(), "{key}");
    }
    let text =
        |value: &JsonValue, key: &str| value.field(key).and_then(JsonValue::text).expect(key).to_owned();
    let variables = json.path(&["templating", "list"]).and_then(JsonValue::list).expect("variables");
    let variables: HashSet<String> =
        variables.iter().map(|variable| format!("${}", text(variable, "name"))).collect();
    let (mut ids, mut count) = (HashSet::new(), 0);
    let outer = json.field("panels").and_then(JsonValue::list).expect("panels");
    for group in std::iter::once(outer).chain(outer.iter().filter_map(|panel| panel.field("panels")?.list()))
    {
        let mut taken = HashSet::new();
        for panel in group {
            assert!(
                ids.insert(panel.field("id").and_then(JsonValue::number).expect("a number")),
                "{panel:?}"
            );
            let place = |key: &str| panel.path(&["gridPos", key]).and_then(JsonValue::number).expect(key);
            let (x, y, w, h) = (place("x"), place("y"), place("w"), place("h"));
            assert!(w > 0 && h > 0 && x + w <= 24, "{panel:?}");
            for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
                assert!(taken.insert(cell), "two panels at {cell:?}");
            }
            match text(panel, "type").as_str() {
                "row" => assert!(
                    panel.field("panels").and_then(JsonValue::list).is_some_and(|all| !all.is_empty())
                ),
                "timeseries" => count += 1,
                other => panic!("no panel has the type {other}"),
            }
            let targets = panel.field("targets").and_then(JsonValue::list).unwrap_or_default();
            let references: HashSet<String> = targets.iter().map(|target| text(target, "refId")).collect();
            assert_eq!(references.len(), targets.len(), "{panel:?}");
            for target in targets {
                let used = text(target, "expr").replace("$__rate_interval", "");
                let names = used.split('$').skip(1).map(|rest| {
                    let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
                    format!("${}", &rest[..end])
                });
                names.for_each(|name| assert!(variables.contains(&name), "{name} of {used}"));
            }
        }
    }
    assert!(count > 60, "{count} panels");
}

/// Prometheus itself understands each query.
#[test]
fn grafana_queries_are_prometheus_s() {
    let Some(program) = require_program("promtool") else { return };
    let mut rules = "groups:\n- name: weir\n  rules:\n".to_owned();
    let mut panels = overview();
    panels.extend(sections().iter().flat_map(|(_, rows)| rows).map(DashboardPanel::of));
    for (number, (expression, _)) in panels.iter().flat_map(|panel| &panel.queries).enumerate() {
        let expression =
            expression.replace("$__rate_interval", "5m").replace("$job", ".*").replace("$instance", ".*");
        rules.push_str(&format!("  - record: weir:panel_{number}\n    expr: '{expression}'\n"));
    }
    let directory = TempDir::new();
    let file = directory.path().join("rules.yml");
    fs::write(&file, rules).expect("a temporary file");
    let checked = Command::new(program).args(["check", "rules"]).arg(&file).output().expect("promtool runs");
    assert!(
        checked.status.success(),
        "{}{}",
        String::from_utf8_lossy(&checked.stdout),
        String::from_utf8_lossy(&checked.stderr)
    );
}

/// Columns of a panel; Grafana has 24.
const WIDTH: usize = 8;
const HEIGHT: usize = 8;
const ACROSS: usize = 24 / WIDTH;
/// The version of the form, of Grafana 11.
const SCHEMA: usize = 39;
