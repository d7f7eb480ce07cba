//! Two verdicts beside each other.

use super::verdict::PlanVerdict;

/// How two configurations differ about a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PlanDifference {
    /// What changes.
    pub(super) changes: Vec<PlanChange>,
    /// What was not run in either, and so is not compared.
    pub(super) unknown: Vec<String>,
    /// The status of the old configuration, where it is the server's own.
    pub(super) status: Option<u16>,
}

/// One thing that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlanChange {
    /// What: `server`, or a field's name.
    pub(super) name: String,
    /// It is a field of the response.
    pub(super) is_field: bool,
    /// Its value in the old configuration; empty without one.
    pub(super) old: String,
    /// ... and in the new one.
    pub(super) new: String,
}

/// How `new` differs from `old`.
pub(super) fn compared(old: &PlanVerdict, new: &PlanVerdict) -> PlanDifference {
    if !old.aspect("listen").is_empty() {
        // The log is of another configuration, or the line lacks what would say its address.
        return PlanDifference { unknown: vec![NO_ADDRESS.to_owned()], ..PlanDifference::default() };
    }
    let mut changes = aspects(old, new);
    if has(&changes, &["listen"]) {
        changes.retain(|change| change.name == "listen");
    } else {
        // What only says where the result comes from is no change of its own: the result says it.
        if has(&changes, &["result"]) {
            changes.retain(|change| !OF_RESULT.contains(&&*change.name));
        }
        let mut fields = fields(old, new);
        if old.aspect("result").starts_with(CLOSED) != new.aspect("result").starts_with(CLOSED) {
            fields.clear();
        } else if has(&changes, &["result", "file", "body"]) {
            fields.retain(|change| !OF_CONTENT.contains(&&*change.name.to_ascii_lowercase()));
        }
        changes.extend(fields);
    }
    let mut unknown: Vec<String> = old.unknown.iter().chain(&new.unknown).cloned().collect();
    unknown.sort();
    unknown.dedup();
    PlanDifference { changes, unknown, status: old.status }
}

fn has(changes: &[PlanChange], names: &[&str]) -> bool {
    changes.iter().any(|change| names.contains(&&*change.name))
}

/// What differs beside fields.
fn aspects(old: &PlanVerdict, new: &PlanVerdict) -> Vec<PlanChange> {
    let pairs = ASPECTS.iter().map(|name| (*name, old.aspect(name), new.aspect(name)));
    let changed = pairs.filter(|(_, before, after)| before != after);
    changed.map(|(name, before, after)| PlanChange::of(name, before, after)).collect()
}

/// The fields that differ; the values of several of one name together.
fn fields(old: &PlanVerdict, new: &PlanVerdict) -> Vec<PlanChange> {
    let mut names: Vec<&str> = old.fields.iter().chain(&new.fields).map(|(name, _)| name.as_str()).collect();
    names.sort_by_key(|name| name.to_ascii_lowercase());
    names.dedup_by(|a, b| a.eq_ignore_ascii_case(b));
    let value = |verdict: &PlanVerdict, wanted: &str| {
        let values = verdict.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
        values.map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(", ")
    };
    let changed = names.into_iter().filter(|name| value(old, name) != value(new, name));
    let change =
        |name| PlanChange { is_field: true, ..PlanChange::of(name, &value(old, name), &value(new, name)) };
    changed.map(change).collect()
}

impl PlanChange {
    pub(super) fn of(name: &str, old: &str, new: &str) -> PlanChange {
        PlanChange { name: name.to_owned(), is_field: false, old: old.to_owned(), new: new.to_owned() }
    }
}

impl PlanDifference {
    pub(super) fn is_changed(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Without the changes of what `noise` changes, too.
    pub(super) fn without(mut self, noise: &PlanDifference) -> PlanDifference {
        self.changes.retain(|change| {
            !noise.changes.iter().any(|other| other.name == change.name && other.is_field == change.is_field)
        });
        self
    }

    /// What groups the lines: what changes, with the values of what has few.
    pub(super) fn group(&self) -> String {
        let shown = |change: &PlanChange| match (&*change.name, change.is_field) {
            ("server" | "location" | "result", false) => {
                format!("{}: {} -> {}", change.name, or_none(&change.old), or_none(&change.new))
            }
            (name, false) => name.to_owned(),
            (name, true) if change.old.is_empty() => format!("field {name} is added"),
            (name, true) if change.new.is_empty() => format!("field {name} is lost"),
            (name, true) => format!("field {name}"),
        };
        self.changes.iter().map(shown).collect::<Vec<_>>().join("; ")
    }
}

/// A value as it is shown.
pub(super) fn or_none(value: &str) -> &str {
    if value.is_empty() { "none" } else { value }
}

/// What is compared beside fields.
const ASPECTS: [&str; 12] = [
    "listen",
    "server",
    "location",
    "decisions",
    "result",
    "peers",
    "balancing",
    "cache",
    "request",
    "uri",
    "file",
    "body",
];
/// What another result implies.
const OF_RESULT: [&str; 8] = ["decisions", "peers", "balancing", "cache", "request", "uri", "file", "body"];
/// Fields that another content implies.
const OF_CONTENT: [&str; 6] =
    ["accept-ranges", "content-encoding", "content-length", "content-type", "etag", "last-modified"];
/// How the result begins where there is no response, and so no field.
const CLOSED: &str = "closed";
const NO_ADDRESS: &str = "no \"listen\" of OLD takes it (listen)";

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(aspects: &[(&'static str, &str)], fields: &[(&str, &str)]) -> PlanVerdict {
        PlanVerdict {
            aspects: aspects.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
            fields: fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            ..PlanVerdict::default()
        }
    }

    #[test]
    fn lines_are_grouped_by_what_changes() {
        let old = verdict(
            &[("server", "a"), ("result", "200"), ("body", "x")],
            &[("X-A", "1"), ("X-B", "1"), ("X-C", "1"), ("ETag", "1")],
        );
        let new = verdict(&[("server", "a"), ("result", "404")], &[("x-a", "1"), ("X-B", "2"), ("X-D", "1")]);
        let difference = compared(&old, &new);
        assert_eq!(
            difference.group(),
            "result: 200 -> 404; field X-B; field X-C is lost; field X-D is added"
        );
        assert!(!compared(&old, &old).is_changed());
        let again = PlanVerdict {
            fields: vec![("X-A".into(), "1".into()), ("X-B".into(), "3".into()), ("X-C".into(), "1".into())],
            ..old.clone()
        };
        let noise = compared(&old, &again);
        assert_eq!(
            difference.without(&noise).group(),
            "result: 200 -> 404; field X-C is lost; field X-D is added"
        );
    }

    #[test]
    fn an_address_that_old_lacks_is_not_decided() {
        let (lacks, has) = (verdict(&[("listen", "no")], &[]), verdict(&[("result", "200")], &[]));
        let difference = compared(&lacks, &has);
        assert!(!difference.is_changed() && difference.unknown == [NO_ADDRESS]);
        assert_eq!(compared(&has, &lacks).group(), "listen");
    }
}
