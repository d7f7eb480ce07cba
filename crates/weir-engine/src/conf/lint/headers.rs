//! `add_header` in a block replaces all of the block around it: what was set for the whole server is silently lost in
//! the one location that adds a header of its own. The same with `proxy_set_header` and its kin.

use weir_conf::{DirectiveLine, Error};

use super::scope::LintScope;

pub(super) fn trap(scope: &LintScope<'_>, found: &mut Vec<Error>) {
    found.extend(LISTS.iter().filter_map(|(name, merge)| lost(scope, name, *merge)));
}

fn lost(scope: &LintScope<'_>, name: &'static str, merge: Option<&'static str>) -> Option<Error> {
    let first = scope.all(name).next()?;
    let mode = merge.and_then(|merge| scope.outwards().find_map(|scope| scope.all(merge).next()));
    if mode.is_some_and(|mode| mode.args.first().is_some_and(|word| !word.is("on"))) {
        return None;
    }
    let around = scope.outwards().skip(1).find(|scope| scope.has(name))?;
    let here = |field: &[u8]| scope.all(name).any(|line| field_of(line).eq_ignore_ascii_case(field));
    let mut fields: Vec<_> = around.all(name).filter(|line| !here(field_of(line))).collect();
    fields.dedup_by_key(|line| field_of(line).to_ascii_lowercase());
    let one = fields.first()?;
    let names: Vec<_> =
        fields.iter().map(|line| format!("\"{}\"", String::from_utf8_lossy(field_of(line)))).collect();
    let message = format!(
        "\"{name}\" here replaces those of the \"{}\" around it ({}): {} will be missing",
        around.name(),
        scope.line_of(one, first),
        names.join(", ")
    );
    let hint = match merge {
        Some(merge) => format!("repeat them here, or say \"{merge} merge\""),
        None => "repeat them here".to_owned(),
    };
    Some(Error::warning(message).at(first.name.span).hint(hint))
}

fn field_of(line: &DirectiveLine) -> &[u8] {
    line.args.first().map_or(b"", |word| word.bytes())
}

/// Directives that are inherited all together or not at all, and what changes that.
const LISTS: [(&str, Option<&str>); 7] = [
    ("add_header", Some("add_header_inherit")),
    ("add_trailer", Some("add_trailer_inherit")),
    ("proxy_set_header", None),
    ("grpc_set_header", None),
    ("fastcgi_param", None),
    ("uwsgi_param", None),
    ("scgi_param", None),
];

#[cfg(test)]
mod tests {
    use crate::conf::lint::testing::found;

    #[test]
    fn a_header_of_ones_own_loses_the_others() {
        assert_eq!(
            found("add_header X-A 1;\nadd_header X-B 2;\nlocation / {\nadd_header x-b 3; }"),
            [
                "4: \"add_header\" here replaces those of the \"server\" around it (line 1): \"X-A\" will be missing"
            ]
        );
        assert_eq!(found("proxy_set_header A 1;\nlocation / { proxy_set_header B 1; }").len(), 1);
        let nested =
            "add_header A 1; location / { add_header A 2; add_header B 1;\nlocation /a { add_header A 3; } }";
        assert_eq!(found(nested).len(), 1, "only what the nearest has is lost");
        assert_eq!(found("add_header A 1; location / { if ($a) {\nadd_header B 1; } }").len(), 1);
    }

    #[test]
    fn all_repeated_or_merged_is_good() {
        for good in [
            "add_header A 1; location / { add_header A 2; add_header B 2; }",
            "add_header A 1; location / { root x; }",
            "add_header A 1; add_header_inherit merge; location / { add_header B 2; }",
            "add_header A 1; location / { add_header_inherit off; add_header B 2; }",
            "location /a { add_header A 1; } location /b { add_header B 1; }",
        ] {
            assert_eq!(found(good), [""; 0], "{good}");
        }
    }
}
