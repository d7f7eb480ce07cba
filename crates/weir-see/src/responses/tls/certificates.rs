//! The table of certificates in force: whose they are, when they end, whether clients can verify them.

use weir_conf::{ConfTree, DirectiveLine};
use weir_engine::Configuration;
use weir_server::tls::inventory::{self, ServedCertificate, ServedCertificates, StapleState};
use weir_tls::certificate::CertificateDer;
use weir_tls::facts;

use crate::responses::lines::written;
use crate::table::{TableCell, TableColumn, TableReport};
use crate::why::figures::CertificateAge;
use crate::why::tls::left;

/// Those first that end first, [`MOST`] of them; a row more says how many others there are.
pub(in crate::responses) fn report(configuration: &Configuration) -> TableReport {
    let all = inventory::certificates(configuration, |_, _| true, MOST);
    let tree = written(configuration).ok();
    let now = weir_rt::clock::unix_time().0;
    let mut report = TableReport::new(&COLUMNS);
    for (from, until, served) in &all.first {
        if let Some(row) = row(configuration, tree.as_ref(), (*from, *until), served, now) {
            report.row(row);
        }
    }
    let others = others(&all);
    if others > 0 {
        let mut row = [const { TableCell::None }; COLUMNS.len()];
        row[0] = TableCell::Text(format!("{others} more that end later"));
        report.row(row);
    }
    report
}

/// How many are not listed.
fn others(all: &ServedCertificates) -> usize {
    all.count.saturating_sub(all.first.len())
}

fn row(
    configuration: &Configuration,
    tree: Option<&ConfTree>,
    (from, until): (i64, i64),
    served: &ServedCertificate,
    now: u64,
) -> Option<[TableCell; COLUMNS.len()]> {
    let chain = served.chain.chain();
    let own = chain.first()?;
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    let age = CertificateAge::of(from, until, now);
    let (chain_state, chain_says) = chain_state(chain);
    let text = TableCell::text;
    let server = served.server.and_then(|span| configuration.source.place(span));
    let server = server.map(|place| format!("{}:{}", base(&place.path.to_string_lossy()), place.line));
    Some([
        text(names(served)),
        TableCell::text(age.as_str()),
        text(if until < now { format!("{} ago", left(now - until)) } else { left(until - now) }),
        text(facts::valid_until(own).unwrap_or_default()),
        text(facts::key_type(own).unwrap_or_default()),
        TableCell::text(chain_state),
        text(chain_says),
        staple(&served.staple, now),
        text(facts::subject(own).unwrap_or_default()),
        text(facts::alternative_names(own).join(" ")),
        text(facts::issuer(own).unwrap_or_default()),
        TableCell::Count(served.servers as u64),
        TableCell::text(inventory::key_place(&served.chain)),
        text(line(tree, &served.file).unwrap_or_default()),
        server.map_or(TableCell::None, TableCell::Text),
        text(if served.replaced { format!("{} (replaced)", served.file) } else { served.file.clone() }),
        TableCell::Count(u64::try_from(until).unwrap_or(0)),
    ])
}

/// The names of its servers; of one that a name with variables led to its file.
pub(in crate::responses) fn names(served: &ServedCertificate) -> String {
    let shown: Vec<&str> =
        served.names.iter().map(|name| if name.is_empty() { "\"\"" } else { name }).collect();
    let more = served.servers.saturating_sub(shown.len().max(1));
    match (shown.is_empty(), more) {
        _ if served.computed => base(&served.file).to_owned(),
        (true, _) => "(no server_name)".to_owned(),
        (false, 0) => shown.join(" "),
        (false, more) => format!("{} and {more} more servers", shown.join(" ")),
    }
}

/// The `file:line` of the `ssl_certificate` that names `file`, without directories.
pub(in crate::responses) fn line(tree: Option<&ConfTree>, file: &str) -> Option<String> {
    let tree = tree?;
    let line = find(&tree.lines, file)?;
    let place = tree.source.place(line.span)?;
    Some(format!("{}:{}", base(&place.path.to_string_lossy()), place.line))
}

fn find<'t>(lines: &'t [DirectiveLine], file: &str) -> Option<&'t DirectiveLine> {
    let is_it = |line: &&DirectiveLine| {
        let named = line.args.first().map_or("", |word| word.str());
        let same = file == named || file.ends_with(&format!("/{}", named.trim_start_matches("./")));
        line.name.is("ssl_certificate") && (same || (file == "data:" && named.starts_with(file)))
    };
    lines.iter().find(is_it).or_else(|| {
        lines.iter().filter_map(|line| line.block.as_ref()).find_map(|block| find(&block.lines, file))
    })
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether clients that trust the last issuer can verify it, as a word and a sentence.
fn chain_state(chain: &[CertificateDer<'static>]) -> (&'static str, String) {
    let [own, ..] = chain else { return ("none", String::new()) };
    for (at, pair) in chain.windows(2).enumerate() {
        if !facts::is_issued_by(&pair[0], &pair[1]) {
            let says = format!("certificate {} of the file is not issued by the next one", at + 1);
            return ("broken", says);
        }
    }
    let last = &chain[chain.len() - 1];
    if facts::is_self_issued(last) {
        let says = if chain.len() == 1 { "it has issued itself" } else { "up to the root" };
        return (if chain.len() == 1 { "self-signed" } else { "complete" }, says.to_owned());
    }
    let issuer = facts::issuer(last).unwrap_or_default();
    match facts::issuer_url(own) {
        // Where the issuer is published, it is mostly no root: clients that do not fetch it fail.
        Some(url) if chain.len() == 1 => ("incomplete", format!("without its issuer, which is at {url}")),
        _ => ("complete", format!("up to {issuer}")),
    }
}

fn staple(state: &StapleState, now: i64) -> TableCell {
    TableCell::text(match state {
        StapleState::Off => "-".to_owned(),
        StapleState::File => "from a file".to_owned(),
        StapleState::Absent(None) => "none yet: no handshake has asked".to_owned(),
        StapleState::Absent(Some(why)) => format!("none: {why}"),
        StapleState::Until(until) if *until == u64::MAX => "stapled".to_owned(),
        StapleState::Until(until) => {
            format!("stapled, good for {}", left(i64::try_from(*until).unwrap_or(i64::MAX) - now))
        }
    })
}

/// Certificates that are listed.
const MOST: usize = 500;
/// Columns that a terminal has room for; programs get all.
pub(super) const FOR_PEOPLE: [&str; 9] =
    ["names", "state", "left", "key", "chain", "staple", "issuer", "line", "file"];
const COLUMNS: [TableColumn; 17] = [
    TableColumn("servers", "names"),
    TableColumn("state", "state"),
    TableColumn("left", "left"),
    TableColumn("until", "until"),
    TableColumn("key", "key"),
    TableColumn("chain", "chain"),
    TableColumn("", "chain_says"),
    TableColumn("staple", "staple"),
    TableColumn("subject", "subject"),
    TableColumn("names", "alternative_names"),
    TableColumn("issuer", "issuer"),
    TableColumn("used by", "servers"),
    TableColumn("signs on", "signs_on"),
    TableColumn("line", "line"),
    TableColumn("server", "server_line"),
    TableColumn("file", "file"),
    TableColumn("until unix", "until_unix"),
];

#[cfg(test)]
mod tests {
    use weir_conf::MemoryFiles;

    use super::*;

    #[test]
    fn a_certificate_leads_to_its_line() {
        let conf = "http {\n ssl_certificate a.crt;\n server {\n  ssl_certificate /etc/b.crt;\n }\n server {\n  ssl_certificate data:$x;\n }\n}";
        let files = MemoryFiles::new().with("/n.conf", conf);
        let tree = weir_conf::load("/n.conf".as_ref(), "/".as_ref(), &files, |_| false, None).expect("lines");
        let of = |file: &str| line(Some(&tree), file).unwrap_or_default();
        assert_eq!((of("/srv/a.crt"), of("a.crt")), ("n.conf:2".to_owned(), "n.conf:2".to_owned()));
        assert_eq!((of("/etc/b.crt"), of("data:")), ("n.conf:4".to_owned(), "n.conf:7".to_owned()));
        assert_eq!((of("/srv/other-a.crt"), line(None, "a.crt")), (String::new(), None));
    }
}
