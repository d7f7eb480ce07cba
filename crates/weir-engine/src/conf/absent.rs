//! What nginx or a well-known module for it has and Weir does not: files of modules that `load_module` may name,
//! directives whose error says more than that they are unknown, and variables. `docs/reference/differences.md` is made from it.

mod features;
mod modules;

pub use features::{ABSENT_FEATURES, AbsentFeature};

/// Of a module's file, `modules/ngx_http_lua_module.so`: whether it is built in; `None` for an unknown name.
pub(crate) fn module(file: &str) -> Option<bool> {
    let name = file.rsplit('/').next().unwrap_or(file).strip_suffix(".so")?;
    match () {
        () if modules::BUILT_IN.contains(&name) => Some(true),
        () if modules::NOT_HERE.contains(&name) => Some(false),
        () => None,
    }
}

/// What an unknown directive is, for its error.
pub(crate) fn directive(name: &str) -> Option<String> {
    ABSENT_FEATURES.iter().find(|feature| feature.has_directive(name)).map(AbsentFeature::hint)
}

/// What an unknown variable, without its `$`, is, for its error.
pub(crate) fn variable(name: &str) -> Option<String> {
    ABSENT_FEATURES.iter().find(|feature| feature.has_variable(name)).map(AbsentFeature::hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_known_by_the_end_of_their_path() {
        for (file, known) in [
            ("modules/ngx_http_lua_module.so", Some(true)),
            ("/usr/lib/nginx/modules/ngx_http_image_filter_module.so", Some(false)),
            ("ngx_stream_module.so", Some(false)),
            ("ngx_stream_module", None),
            ("modules/ngx_http_my_module.so", None),
            ("", None),
        ] {
            assert_eq!(module(file), known, "{file}");
        }
    }

    #[test]
    fn names_are_known_by_themselves_or_by_how_they_begin_or_end() {
        for (name, module) in [
            ("status_zone", Some("ngx_http_api_module")),
            ("js_content", Some("njs")),
            ("grpc_ssl_key_log", Some("key logs")),
            ("proxy_bind_dynamic", Some("dynamic")),
            ("statu", None),
            ("js", None),
            ("*", None),
            ("", None),
        ] {
            let hint = directive(name);
            assert_eq!(hint.is_some(), module.is_some(), "{name}: {hint:?}");
            assert!(module.is_none_or(|module| hint.is_some_and(|hint| hint.contains(module))), "{name}");
        }
        assert!(variable("geoip_city").is_some() && variable("jwt_claim_sub").is_some());
        assert_eq!(variable("uri"), None);
    }
}
