//! Certificates that end, and TLS handshakes that fail.

use super::figures::{CertificateAge, CertificateLoad, WEEK, WhyFigures};
use super::{CERTIFICATE, Finding, HANDSHAKES};
use weir_engine::worker::HandshakeFault;

/// Seconds for people: the largest unit that there are two of.
pub(crate) fn left(seconds: i64) -> String {
    let (minute, hour, day, year) = (60, 3600, 86_400, 365 * 86_400);
    match seconds {
        seconds if seconds >= 2 * year => format!("{} years", seconds / year),
        seconds if seconds >= 2 * day => format!("{} days", seconds / day),
        seconds if seconds >= 2 * hour => format!("{} hours", seconds / hour),
        seconds if seconds >= 2 * minute => format!("{} minutes", seconds / minute),
        seconds => format!("{seconds} s"),
    }
}

/// Certificates that have expired or end soon: each, but for the last of very many.
pub(super) fn certificates(figures: &WhyFigures) -> Vec<Finding> {
    let bad: Vec<&CertificateLoad> =
        figures.certificates.iter().filter(|it| it.age != CertificateAge::Good).collect();
    let others = bad.len().saturating_sub(SINGLE) + figures.more_certificates;
    let finding = |(at, it): (usize, &&CertificateLoad)| {
        let (weight, how) = match it.age {
            CertificateAge::Future => (5.0, format!("is not valid for another {}", left(it.left_s))),
            CertificateAge::Expired => (6.0, format!("expired {} ago", left(-it.left_s))),
            _ => (0.5 + 4.0 * (1.0 - it.left_s as f64 / WEEK as f64), format!("ends in {}", left(it.left_s))),
        };
        let place = if it.line.is_empty() { String::new() } else { format!(" ({})", it.line) };
        let more = match others {
            count if count > 0 && at + 1 == SINGLE => format!("; {count} more certificates end soon, too"),
            _ => String::new(),
        };
        Finding {
            kind: CERTIFICATE,
            weight,
            says: format!("the certificate of {} {how}: {}{place}{more}", it.names, it.file),
            subject: it.names.clone(),
            line: it.line.clone(),
            command: "weir tls certificates".to_owned(),
        }
    };
    bad.iter().take(SINGLE).enumerate().map(finding).collect()
}

/// Handshakes that fail for what the server or its certificate is; what scanners and impatient clients do is not said.
pub(super) fn handshakes(figures: &WhyFigures) -> Vec<Finding> {
    let load = &figures.handshakes;
    let telling = load.faults.iter().filter(|(fault, _)| !is_common(*fault));
    let failed: u64 = telling.clone().map(|(_, count)| count).sum();
    let Some((fault, count)) = telling.max_by_key(|(_, count)| *count) else { return Vec::new() };
    let all = load.complete + failed;
    let own = load.faults.iter().any(|(fault, _)| *fault == HandshakeFault::Own);
    if !own && (failed < FEW || (failed as f64) < all as f64 * SHARE) {
        return Vec::new();
    }
    let rate = failed as f64 / figures.seconds.max(1e-9);
    let name = if load.name.is_empty() { String::new() } else { format!(", most of them for {}", load.name) };
    let others = if *count < failed { format!(" ({count} of {failed})") } else { String::new() };
    vec![Finding {
        kind: HANDSHAKES,
        weight: 1.0 + failed as f64 / all.max(1) as f64,
        says: format!(
            "{:.0}% of the TLS handshakes fail, {rate:.1} a second{name}: {}{others}",
            failed as f64 * 100.0 / all.max(1) as f64,
            fault.says().trim_end_matches('.')
        ),
        subject: load.name.clone(),
        line: String::new(),
        command: "weir tls failures".to_owned(),
    }]
}

/// What comes of clients that go away, and of what scans whole networks.
fn is_common(fault: HandshakeFault) -> bool {
    use HandshakeFault::{Canceled, Closed, NoServer, NotTls, Reset, Timeout};
    matches!(fault, Canceled | Closed | NoServer | NotTls | Reset | Timeout)
}

/// Certificates that have a finding of their own.
const SINGLE: usize = 3;
/// Failed handshakes that say nothing yet.
const FEW: u64 = 4;
/// The share of failed ones that is worth a word.
const SHARE: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_old_by_its_own_time() {
        let day = 86_400;
        for (from, until, expected) in [
            (-80, 10, CertificateAge::Good),
            (-84, 6, CertificateAge::Soon),
            (-90, -1, CertificateAge::Expired),
            (1, 90, CertificateAge::Future),
            // Of six days: in the middle of its time, and at its end.
            (-3, 3, CertificateAge::Good),
            (-5, 1, CertificateAge::Soon),
        ] {
            assert_eq!(CertificateAge::of(from * day, until * day, 0), expected, "{from} {until}");
        }
        assert_eq!(CertificateAge::of(0, i64::MIN, i64::MAX), CertificateAge::Expired, "no overflow");
        assert_eq!(
            [left(3 * day), left(5 * 3600), left(120), left(5)],
            ["3 days", "5 hours", "2 minutes", "5 s"]
        );
    }
}
