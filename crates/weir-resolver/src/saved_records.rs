//! What is known of names as a text that outlives the process, with the times at which it expires.
//!
//! What is read back is checked as what comes from the network is: whoever can write the file, a disk that has damaged it
//! or a clock that was put back must not be able to make a name last longer than an answer could, or more of it than a
//! name server may send. A text that is not whole says nothing at all.

use std::fmt::Write;
use std::net::IpAddr;

use crate::cache::{CacheKey, KnownRecords};
use crate::name::DnsName;
use crate::resolver::Resolver;
use crate::wire::{RecordData, RecordType};

/// What is known of one name and type.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KeptName {
    key: CacheKey,
    records: Vec<RecordData>,
    /// Milliseconds until it expires; negative: since it has.
    left: i64,
}

impl Resolver {
    /// What is known at `now`, as a text; `unix_ms` is the same moment of the clock that other processes have, too.
    pub fn keep(&self, now: u64, unix_ms: u64) -> String {
        let mut out = format!("{HEAD}\n");
        let mut count = 0;
        for (key, known) in self.cache.known() {
            let left = known.until as i64 - now as i64;
            let kept = KeptName { key: key.clone(), records: known.records.clone(), left };
            let stale = known.until.saturating_add(self.settings.stale).min(known.last);
            if now < stale.max(known.until)
                && let Some(line) = kept.write(unix_ms)
            {
                out += &line;
                count += 1;
            }
        }
        let sum = sum(out.as_bytes());
        // Writing to a string can't fail.
        let _ = writeln!(out, "end {count} {sum:016x}");
        out
    }

    /// Takes in what [`Resolver::keep`] has written, if `text` is whole: what is not known yet, no more names than may be
    /// kept, none for longer than an answer of now would be. How many that were.
    pub fn recall(&mut self, now: u64, unix_ms: u64, text: &str) -> usize {
        let Some(kept) = read(text, unix_ms) else { return 0 };
        let longest = self.settings.valid.unwrap_or(self.settings.ttl.1) as i64;
        let stale = self.settings.stale.min(i64::MAX as u64) as i64;
        let mut count = 0;
        for KeptName { key, records, left } in kept.into_iter().take(self.settings.names) {
            if left > longest || left <= -stale || self.cache.get(&key).is_some() {
                continue;
            }
            // The clock of this process may be younger than what has expired.
            let until = now.saturating_add_signed(left);
            let last = now.saturating_add_signed(left.saturating_add(stale));
            // Asked for again as soon as it is looked up.
            self.cache.entry(&key).known =
                Some(KnownRecords { records, until, refresh: now, last: last.max(until) });
            count += 1;
        }
        count
    }
}

impl KeptName {
    /// `None`: it can't be written so that it is read back.
    fn write(&self, unix_ms: u64) -> Option<String> {
        let (name, kind) = &self.key;
        let kind = KINDS.iter().find(|(_, known)| known == kind).map(|(word, _)| word)?;
        let until = unix_ms.saturating_add_signed(self.left);
        let mut line = format!("{kind} {} {until}", plain(name)?);
        for data in &self.records {
            match data {
                RecordData::Address(address) => write!(line, " {address}").ok()?,
                RecordData::Name(name) => write!(line, " {}", plain(name)?).ok()?,
                RecordData::Service { priority, weight, port, target } => {
                    write!(line, " {priority},{weight},{port},{}", plain(target)?).ok()?;
                }
                _ => return None,
            }
        }
        Some(line + "\n")
    }

    fn read(line: &str, unix_ms: u64) -> Option<KeptName> {
        let mut words = line.split(' ');
        let word = words.next()?;
        let kind = KINDS.iter().find(|(known, _)| *known == word).map(|(_, kind)| *kind)?;
        let name = DnsName::parse(words.next()?)?;
        let until: i64 = words.next()?.parse().ok()?;
        let left = until.checked_sub(i64::try_from(unix_ms).ok()?)?;
        let records: Vec<RecordData> = words.map(|word| record(kind, word)).collect::<Option<_>>()?;
        (records.len() <= RECORDS).then_some(KeptName { key: (name, kind), records, left })
    }
}

/// The names of a whole text; `None`: it is damaged, or something else.
fn read(text: &str, unix_ms: u64) -> Option<Vec<KeptName>> {
    let body = text.strip_suffix('\n')?;
    let (body, end) = body.rsplit_once('\n')?;
    let (count, found) = end.strip_prefix("end ")?.split_once(' ')?;
    let lines = body.strip_prefix(HEAD)?;
    let whole = &text[..body.len() + 1];
    if u64::from_str_radix(found, 16) != Ok(sum(whole.as_bytes())) {
        return None;
    }
    let kept: Option<Vec<KeptName>> =
        lines.split('\n').skip(1).map(|line| KeptName::read(line, unix_ms)).collect();
    kept.filter(|_| lines.is_empty() || lines.starts_with('\n'))
        .filter(|kept| count.parse() == Ok(kept.len()))
}

fn record(kind: RecordType, word: &str) -> Option<RecordData> {
    match kind {
        RecordType::A => word.parse().ok().map(|v4| RecordData::Address(IpAddr::V4(v4))),
        RecordType::Aaaa => word.parse().ok().map(|v6| RecordData::Address(IpAddr::V6(v6))),
        RecordType::Ptr => DnsName::parse(word).map(RecordData::Name),
        RecordType::Srv => {
            let mut parts = word.splitn(4, ',');
            let mut number = || parts.next()?.parse::<u16>().ok();
            let (priority, weight, port) = (number()?, number()?, number()?);
            Some(RecordData::Service { priority, weight, port, target: DnsName::parse(parts.next()?)? })
        }
        RecordType::Ns => None,
    }
}

/// The name as text, if that is read back as the same.
fn plain(name: &DnsName) -> Option<String> {
    let text = name.to_string();
    (!text.contains(['\\', ' ']) && DnsName::parse(&text).as_ref() == Some(name)).then_some(text)
}

/// FNV-1a, against damage. Whoever may write the file could write a right one as well: its place is what protects it.
fn sum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

const HEAD: &str = "weir names 1";
const KINDS: [(&str, RecordType); 4] =
    [("a", RecordType::A), ("aaaa", RecordType::Aaaa), ("ptr", RecordType::Ptr), ("srv", RecordType::Srv)];
/// More than fit into a message of a name server (65,535 bytes, 16 a record).
const RECORDS: usize = 4096;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::settings::ResolverSettings;

    const UNIX: u64 = 1_800_000_000_000;
    const DAY: u64 = 86_400_000;

    fn resolver() -> Resolver {
        let servers = vec!["127.0.0.1:53".parse().expect("an address")];
        Resolver::new(ResolverSettings { servers, names: 100, ..ResolverSettings::default() }, || 4)
    }

    fn know(resolver: &mut Resolver, name: &str, kind: RecordType, records: &[&str], now: u64, lasts: u64) {
        let records = records.iter().map(|word| record(kind, word).expect("a record")).collect();
        let key = (DnsName::parse(name).expect("a name"), kind);
        resolver.cache.entry(&key).known = Some(KnownRecords::new(records, now, lasts));
    }

    fn known(resolver: &Resolver, name: &str, kind: RecordType) -> Option<(usize, u64, u64)> {
        let entry = resolver.cache.get(&(DnsName::parse(name)?, kind))?;
        entry.known.as_ref().map(|known| (known.records.len(), known.until, known.last))
    }

    #[test]
    fn what_is_kept_is_known_again_for_as_long_as_it_was() {
        let mut old = resolver();
        know(&mut old, "a.example", RecordType::A, &["192.0.2.1", "192.0.2.2"], 1_000, 60_000);
        know(&mut old, "a.example", RecordType::Aaaa, &[], 1_000, 60_000);
        know(&mut old, "_http._tcp.example", RecordType::Srv, &["1,2,80,a.example"], 1_000, 60_000);
        know(&mut old, "old.example", RecordType::A, &["192.0.2.3"], 1_000, 60_000);
        let text = old.keep(31_000, UNIX);
        let mut new = resolver();
        // Ten seconds later, in a process whose clock is young.
        assert_eq!(new.recall(500, UNIX + 10_000, &text), 4);
        assert_eq!(known(&new, "a.example", RecordType::A), Some((2, 20_500, 20_500 + DAY)));
        assert_eq!(known(&new, "a.example", RecordType::Aaaa), Some((0, 20_500, 20_500 + DAY)));
        assert_eq!(known(&new, "_http._tcp.example", RecordType::Srv), Some((1, 20_500, 20_500 + DAY)));
        // An hour after it has expired it is stale for the rest of the day only.
        let mut late = resolver();
        assert_eq!(late.recall(500, UNIX + 30_000 + 3_600_000, &text), 4);
        assert_eq!(known(&late, "old.example", RecordType::A), Some((1, 0, 500 + DAY - 3_600_000)));
        let key = (DnsName::parse("old.example").expect("a name"), RecordType::A);
        let entry = late.cache.get(&key).expect("just taken in");
        assert!(entry.stale(500 + DAY - 3_600_001, DAY).is_some());
        assert!(entry.stale(500 + DAY - 3_600_000, DAY).is_none());
    }

    #[test]
    fn nothing_is_trusted_beyond_the_limits() {
        let mut old = resolver();
        know(&mut old, "a.example", RecordType::A, &["192.0.2.1"], 0, 60_000);
        let text = old.keep(0, UNIX);
        for (settings, unix, taken) in [
            // A day after it has expired; a clock that went back by more than the longest life.
            (ResolverSettings::default(), UNIX + 60_000 + DAY, 0),
            (ResolverSettings::default(), UNIX - 8 * DAY, 0),
            (ResolverSettings { valid: Some(30_000), ..ResolverSettings::default() }, UNIX, 0),
            (ResolverSettings { stale: 0, ..ResolverSettings::default() }, UNIX + 60_000, 0),
            (ResolverSettings { stale: 0, ..ResolverSettings::default() }, UNIX + 59_000, 1),
            (ResolverSettings { names: 0, ..ResolverSettings::default() }, UNIX, 0),
        ] {
            let mut new = Resolver::new(settings.clone(), || 4);
            assert_eq!(new.recall(5, unix, &text), taken, "{settings:?} {unix}");
        }
        let mut new = resolver();
        know(&mut new, "a.example", RecordType::A, &["192.0.2.9"], 0, 1);
        assert_eq!(new.recall(0, UNIX, &text), 0, "what is known already is newer");
    }

    #[test]
    fn a_damaged_text_says_nothing() {
        let mut old = resolver();
        know(&mut old, "a.example", RecordType::A, &["192.0.2.1"], 0, 60_000);
        know(&mut old, "b.example", RecordType::A, &["192.0.2.2"], 0, 60_000);
        let text = old.keep(0, UNIX);
        assert_eq!(resolver().recall(0, UNIX, &text), 2);
        for end in 0..text.len() {
            assert_eq!(resolver().recall(0, UNIX, &text[..end]), 0, "cut at {end}");
        }
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let changed = String::from_utf8(bytes).expect("ASCII");
            assert_eq!(resolver().recall(0, UNIX, &changed), 0, "changed at {at}");
        }
        let signed = |body: &str| {
            let body = format!("{HEAD}{body}\n");
            format!("{body}end {} {:016x}\n", body.lines().count() - 1, sum(body.as_bytes()))
        };
        assert_eq!(resolver().recall(0, UNIX, &signed("")), 0);
        for line in [
            "a a.example",
            "a a..example 1800000000001",
            "a a.example x 1.2.3.4",
            "aaaa a.example 1800000000001 1.2.3.4",
            "ns a.example 1800000000001 b",
            "srv a 1800000000001 1,2,3",
            "srv a 1800000000001 1,2,99999,b",
            "a a.example -9223372036854775808 1.2.3.4",
            "a a.example 1800000000001 1.2.3.4 ",
            "",
        ] {
            assert_eq!(resolver().recall(0, UNIX, &signed(&format!("\n{line}"))), 0, "{line:?}");
        }
        assert_eq!(resolver().recall(0, UNIX, &signed("\na a.example 1800000000001 1.2.3.4")), 1);
    }

    proptest! {
        /// Whatever is there, also with a right sum: no panic, and nothing that lasts too long.
        #[test]
        fn any_text_is_survived(body in "(\n(a|aaaa|srv|ptr|x) [a-z.\\\\]{0,9} -?[0-9]{0,20}( [0-9.:,a-z]{0,12}){0,3}){0,4}", now in any::<u32>(), unix in any::<u64>()) {
            let body = format!("{HEAD}{body}\n");
            let text = format!("{body}end {} {:016x}\n", body.lines().count() - 1, sum(body.as_bytes()));
            let mut resolver = resolver();
            let now = u64::from(now);
            resolver.recall(now, unix, &text);
            for (_, known) in resolver.cache.known() {
                prop_assert!(known.until <= now + resolver.settings.ttl.1);
                prop_assert!(known.last <= known.until.max(now) + resolver.settings.stale);
            }
        }

        #[test]
        fn any_bytes_are_survived(text in ".{0,200}", unix in any::<u64>()) {
            prop_assert_eq!(resolver().recall(0, unix, &text), 0);
        }
    }
}
