//! Settings by which a filter is dear or cheap, with the values in force.

use super::super::conf_lines::ConfLineIndex;
use crate::why::figures::FilterSetting;

/// A setting that decides what a filter costs.
struct DearSetting {
    module: &'static str,
    directive: &'static str,
    /// Its value where it is not written.
    default: &'static str,
    /// Whether a value costs more than it must.
    is_dear: fn(&str) -> bool,
    /// What costs less than a dear value.
    cheaper: &'static str,
    /// What can be done where the value is the cheapest; empty: the setting is not worth a word then.
    otherwise: &'static str,
}

/// Settings of one module: the first that is dear is shown, else the first that has something to say otherwise.
const SETTINGS: &[DearSetting] = &[
    DearSetting {
        module: "gzip",
        directive: "gzip_comp_level",
        default: "1",
        is_dear: |value| value != "1",
        cheaper: "level 1 costs least",
        otherwise: "no level costs less; gzip_types and gzip_min_length say what is compressed",
    },
    DearSetting {
        module: "brotli",
        directive: "brotli_comp_level",
        default: "6",
        is_dear: |value| value != "0",
        cheaper: "lower levels cost less, level 0 least",
        otherwise: "no level costs less; brotli_types and brotli_min_length say what is compressed",
    },
    DearSetting {
        module: "zstd",
        directive: "zstd_comp_level",
        default: "1",
        is_dear: |value| value != "1",
        cheaper: "level 1 costs least",
        otherwise: "no level costs less; zstd_types and zstd_min_length say what is compressed",
    },
    DearSetting {
        module: "sub",
        directive: "sub_filter_types",
        default: "text/html",
        is_dear: |value| value.split(' ').any(|word| word == "*"),
        cheaper: "with fewer types less is searched",
        otherwise: "",
    },
    DearSetting {
        module: "sub",
        directive: "sub_filter_once",
        default: "on",
        is_dear: |value| value == "off",
        cheaper: "on replaces the first occurrence only and costs less",
        otherwise: "",
    },
    DearSetting {
        module: "ssi",
        directive: "ssi_types",
        default: "text/html",
        is_dear: |value| value.split(' ').any(|word| word == "*"),
        cheaper: "with fewer types less is searched",
        otherwise: "",
    },
];

/// The setting of `module` to look at in `location`, with the value in force; `None` where it has none, or where several
/// locations of that name differ.
pub(super) fn of_module(index: &ConfLineIndex<'_>, location: &str, module: &str) -> Option<FilterSetting> {
    let module = index.module(location, module);
    let known = SETTINGS.iter().filter(|setting| setting.module == module);
    let mut others = None;
    for setting in known {
        let written = index.in_force(location, setting.directive)?;
        let (value, place) = written.unwrap_or_else(|| (setting.default.to_owned(), String::new()));
        let is_dear = (setting.is_dear)(&value);
        let cheaper = if is_dear { setting.cheaper } else { setting.otherwise };
        let shown = FilterSetting { directive: setting.directive, value, place, cheaper };
        if is_dear {
            return Some(shown);
        }
        if others.is_none() && !cheaper.is_empty() {
            others = Some(shown);
        }
    }
    others
}

#[cfg(test)]
mod tests {
    use weir_conf::MemoryFiles;

    use super::*;

    fn found(conf: &str, module: &str) -> String {
        let files = MemoryFiles::new()
            .with("/n.conf", format!("http {{ server {{\n location / {{ }}\n{conf}\n}} }}"));
        let tree = weir_conf::load("/n.conf".as_ref(), "/".as_ref(), &files, |_| false, None).expect("lines");
        let setting = of_module(&ConfLineIndex::new(&tree, &[]), "/", module);
        setting.map_or_else(String::new, |one| {
            format!("{} {} {}: {}", one.directive, one.value, one.place, one.cheaper)
        })
    }

    #[test]
    fn settings_have_the_value_in_force() {
        for (conf, module, says) in [
            ("gzip_comp_level 9;", "gzip", "gzip_comp_level 9 n.conf:3: level 1 costs least"),
            (
                "gzip_comp_level 9; trace_name gzip packer;",
                "packer",
                "gzip_comp_level 9 n.conf:3: level 1 costs least",
            ),
            ("", "brotli", "brotli_comp_level 6 : lower levels cost less, level 0 least"),
            ("zstd_comp_level 19;", "zstd", "zstd_comp_level 19 n.conf:3: level 1 costs least"),
            (
                "sub_filter_types a/b *;",
                "sub",
                "sub_filter_types a/b * n.conf:3: with fewer types less is searched",
            ),
            (
                "sub_filter_once off;",
                "sub",
                "sub_filter_once off n.conf:3: on replaces the first occurrence only and costs less",
            ),
            ("sub_filter_types a/b;", "sub", ""),
            ("ssi_types *;", "ssi", "ssi_types * n.conf:3: with fewer types less is searched"),
            ("", "addition", ""),
        ] {
            assert_eq!(found(conf, module), says, "{module}");
        }
        assert!(found("", "gzip").starts_with("gzip_comp_level 1 : no level costs less; gzip_types"));
        assert!(found("brotli_comp_level 0;", "brotli").contains("no level costs less"));
    }
}
