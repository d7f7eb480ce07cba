//! Two values beside each other in one line: whole where they are short, else what differs.

use super::compare::or_none;

/// The values of a change: where they are long lists what is gone and what is new.
pub(super) fn change(old: &str, new: &str, is_list: bool) -> String {
    let is_short = |value: &str| value.chars().count() <= WHOLE;
    let separator =
        SEPARATORS.iter().find(|separator| old.contains(**separator) || new.contains(**separator));
    let Some(separator) = separator.filter(|_| is_list && !(is_short(old) && is_short(new))) else {
        return format!("{} -> {}", around(old, new), around(new, old));
    };
    let [before, after] = [old, new].map(|list| parts(list, separator));
    let (gone, added) = (without(&before, &after), without(&after, &before));
    let same = before.len() - gone.len();
    if gone.is_empty() && added.is_empty() {
        return format!("{} -> {} (the order of {same})", around(old, new), around(new, old));
    }
    let [gone, added] = [gone, added].map(|list| list.join(separator));
    let note = if same == 0 { String::new() } else { format!(" ({same} more are the same)") };
    format!("{} -> {}{note}", around(&gone, &added), around(&added, &gone))
}

/// A line of a configuration beside the one of the other configuration that it is most like.
pub(super) fn line(text: &str, other: Option<&str>) -> String {
    let Some(other) = other.filter(|_| text.chars().count() > SHOWN) else { return short(text) };
    let own = without(&parts(text, " "), &parts(other, " "));
    match (own.is_empty(), text.split_once(' ')) {
        (false, Some((name, _))) => format!("{name} ... {}", short(&own.join(" "))),
        _ => around(text, other),
    }
}

/// Which of `others` is most like `text`: of the same directive, with the longest beginning in common.
pub(super) fn most_like<'t>(text: &str, others: impl Iterator<Item = &'t str>) -> Option<&'t str> {
    let name = |line: &str| line.split(' ').next().map(str::to_owned);
    others.filter(|other| name(other) == name(text)).max_by_key(|other| common(text, other))
}

fn parts<'t>(list: &'t str, separator: &str) -> Vec<&'t str> {
    list.split(separator).filter(|part| !part.is_empty()).collect()
}

/// What `list` has and `other` has not; of several equal parts as many as it has more.
fn without<'t>(list: &[&'t str], other: &[&str]) -> Vec<&'t str> {
    let mut left = other.to_vec();
    let is_own = |part: &&&str| match left.iter().position(|other| other == *part) {
        Some(at) => {
            left.swap_remove(at);
            false
        }
        None => true,
    };
    list.iter().filter(is_own).copied().collect()
}

/// `value` in one line; of a long one its beginning and where it begins to differ from `other`.
fn around(value: &str, other: &str) -> String {
    let length = value.chars().count();
    let from = common(value, other).saturating_sub(CONTEXT);
    if length <= SHOWN || from <= HEAD {
        return short(value);
    }
    let head: String = value.chars().take(HEAD).collect();
    let rest: String = value.chars().skip(from).collect();
    let space = SHOWN - HEAD;
    let end = if rest.chars().count() > space { "..." } else { "" };
    let rest: String = rest.chars().take(space).collect();
    format!("{}...{}{end}", escaped(&head), escaped(&rest))
}

/// How many characters two texts begin with in common.
fn common(a: &str, b: &str) -> usize {
    a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count()
}

/// A value in one short line.
pub(super) fn short(value: &str) -> String {
    let value = escaped(or_none(value));
    match value.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &value[..end]),
        None => value,
    }
}

/// A value drives no terminal.
fn escaped(value: &str) -> String {
    let value = value.escape_debug().to_string().replace("\\\"", "\"").replace("\\'", "'");
    value.replace("\\\\", "\\")
}

/// What separates the parts of lists.
const SEPARATORS: [&str; 2] = ["; ", ", "];
/// Characters of a value that is shown whole whatever the other is.
const WHOLE: usize = 60;
/// Characters of a value that are shown.
const SHOWN: usize = 160;
/// Characters of the beginning of one that is shown in part.
const HEAD: usize = 40;
/// Characters before the place where it differs.
const CONTEXT: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of which the last is `last`.
    fn sent(last: &str) -> String {
        let lines: Vec<String> = (10..40)
            .map(|at| format!("fastcgi_param NAME_{at} $value_{at}"))
            .chain([last.to_owned()])
            .collect();
        lines.join("; ")
    }

    #[test]
    fn of_long_lists_what_differs_is_shown() {
        let (old, new) = (sent("proxy_set_header Host $host"), sent("proxy_set_header Host $http_host"));
        assert_eq!(
            change(&old, &new, true),
            "proxy_set_header Host $host -> proxy_set_header Host $http_host (30 more are the same)"
        );
        assert_eq!(
            change(&old, &sent(""), true),
            "proxy_set_header Host $host -> none (30 more are the same)"
        );
        assert_eq!(
            change(&sent(""), &old, true),
            "none -> proxy_set_header Host $host (30 more are the same)"
        );
        assert_eq!(change("a, b", "a, c", true), "a, b -> a, c");
        assert_eq!(change("", "x", false), "none -> x");
        let peers = |last: &str| format!("{}{last}", "10.0.0.1:80, ".repeat(20));
        assert_eq!(
            change(&peers("10.0.0.2:80"), &peers("10.0.0.3:80"), true),
            "10.0.0.2:80 -> 10.0.0.3:80 (20 more are the same)"
        );
    }

    #[test]
    fn of_long_values_the_place_where_they_differ_is_shown() {
        let value = |end: &str| format!("{}{end}", "x".repeat(300));
        let shown = format!("{0}...{1}a -> {0}...{1}b", "x".repeat(40), "x".repeat(20));
        assert_eq!(change(&value("a"), &value("b"), true), shown);
        let list = sent("a");
        let mut turned = parts(&list, "; ");
        turned.reverse();
        assert!(change(&list, &turned.join("; "), true).ends_with("(the order of 31)"));
        assert!(change(&value("a"), "", true).ends_with("... -> none"));
    }

    #[test]
    fn a_long_line_is_shown_beside_the_one_that_is_like_it() {
        let names = |last: &str| format!("server_name {}{last}", "a.test ".repeat(40));
        let (old, new) = (names("old.test"), names("new.test"));
        let other = most_like(&old, ["server_name x", &new, "return 200"].into_iter());
        assert_eq!(other, Some(&*new));
        assert_eq!(line(&old, other), "server_name ... old.test");
        assert_eq!(line(&new, Some(&old)), "server_name ... new.test");
        assert_eq!(line("return 200", None), "return 200");
        let pattern = format!("location ~ ({}, b)\\.php$", "a|".repeat(30));
        assert_eq!(change(&pattern, "location /", false), format!("{pattern} -> location /"));
        assert!(line(&old, None).ends_with("..."));
    }
}
