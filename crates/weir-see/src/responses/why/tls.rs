//! Figures of TLS: certificates that end first, and handshakes of the window.

use std::collections::BTreeMap;

use weir_server::tls::inventory::ServedCertificate;
use weir_server::tls::{inventory, last_failed};

use super::super::tls::certificates;
use crate::handshakes::HandshakeCounts;
use crate::responses::lines::written;
use crate::source::{BRIEFLY, ServerSource};
use crate::why::figures::{CertificateAge, CertificateLoad, HandshakeLoad, WhyFigures};

/// Adds them to `figures`; `before` and `after` were counted at the ends of the window, which began at `since_ms` (since
/// 1970).
pub(super) fn add(
    source: &ServerSource,
    figures: &mut WhyFigures,
    (before, after): (&HandshakeCounts, &HandshakeCounts),
    since_ms: u64,
) {
    (figures.certificates, figures.more_certificates) = ending(source);
    let lately = after.since(before);
    figures.handshakes = HandshakeLoad {
        complete: lately.complete(),
        faults: lately.faults().filter(|(_, count)| *count > 0).collect(),
        name: String::new(),
    };
    if lately.failed() > 0 {
        figures.handshakes.name = asked_for(source, since_ms).unwrap_or_default();
    }
}

/// Certificates that are not good, the first of them with their lines, and how many more there are.
fn ending(source: &ServerSource) -> (Vec<CertificateLoad>, usize) {
    let configuration = source.configuration();
    let now = i64::try_from(weir_rt::clock::unix_time().0).unwrap_or(i64::MAX);
    let is_bad = |from, until| CertificateAge::of(from, until, now) != CertificateAge::Good;
    let bad = inventory::certificates(&configuration, is_bad, MOST);
    if bad.count == 0 {
        return (Vec::new(), 0);
    }
    let tree = written(&configuration).ok();
    let load = |(from, until, served): &(i64, i64, ServedCertificate)| {
        let age = CertificateAge::of(*from, *until, now);
        CertificateLoad {
            names: certificates::names(served),
            line: certificates::line(tree.as_ref(), &served.file).unwrap_or_default(),
            file: served.file.clone(),
            age,
            left_s: if age == CertificateAge::Future { from - now } else { until.saturating_sub(now) },
        }
    };
    (bad.first.iter().map(load).collect(), bad.count - bad.first.len())
}

/// The name of a server that two of three clients asked for whose handshakes failed since `since_ms`.
fn asked_for(source: &ServerSource, since_ms: u64) -> Option<String> {
    let asked = source.ask(BRIEFLY, |_| last_failed());
    let failed: Vec<_> =
        asked.answers.into_iter().flatten().filter(|failed| failed.unix_ms >= since_ms).collect();
    let mut names = BTreeMap::<&str, usize>::new();
    for name in failed.iter().filter_map(|failed| failed.server_name.as_deref()) {
        *names.entry(name).or_default() += 1;
    }
    let (name, count) = names.into_iter().max_by_key(|(_, count)| *count)?;
    (count * 3 >= failed.len() * 2).then(|| name.to_owned())
}

/// Certificates that may have findings of their own.
const MOST: usize = 8;
