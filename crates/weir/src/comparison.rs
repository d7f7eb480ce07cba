//! What a directive of Weir is beside nginx's, for the reference manual and for editors.

use weir_conf::DirectiveSignature;

/// A directive beside nginx's of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NginxComparison {
    /// nginx has it, with the same names, defaults, inheritance and messages.
    Same,
    /// nginx has it; here it is checked, and has no effect.
    Ignored,
    /// One of a well-known module for nginx, compatible with it.
    ThirdParty,
    /// Weir's own.
    Extra,
}

impl NginxComparison {
    /// What `row` is.
    #[must_use]
    pub fn of(row: &DirectiveSignature) -> NginxComparison {
        match row.name {
            name if EXTRA.contains(&name) => NginxComparison::Extra,
            _ if row.doc.starts_with("Ignored") => NginxComparison::Ignored,
            name if THIRD_PARTY.iter().any(|begin| name.starts_with(begin)) => NginxComparison::ThirdParty,
            _ => NginxComparison::Same,
        }
    }

    /// One word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            NginxComparison::Same => "same",
            NginxComparison::Ignored => "ignored",
            NginxComparison::ThirdParty => "third-party",
            NginxComparison::Extra => "extra",
        }
    }

    /// The end of "compared with nginx: ".
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            NginxComparison::Same => "the same",
            NginxComparison::Ignored => "checked, without effect",
            NginxComparison::ThirdParty => "as in the third-party module",
            NginxComparison::Extra => "Weir's own",
        }
    }
}

/// Directives that nginx 1.31.5 does not have; `queue`, `source` and `state` are not of its free edition.
const EXTRA: [&str; 43] = [
    "admin",
    "auth_require",
    "compress_hint",
    "early_hint",
    "edit_header",
    "edit_request_header",
    "fastcgi_cache_purge",
    "fastcgi_spawn",
    "file_lookup_first",
    "http2_reprioritize_blocking_assets",
    "http2_upgrade",
    "invalid_header_values",
    "internal_redirect",
    "least_time",
    "metrics_locations",
    "peak_ewma",
    "profile",
    "profile_blocked",
    "profile_cpu",
    "profile_redact",
    "proxy_cache_purge",
    "proxy_protocol",
    "proxy_upgrade",
    "queue",
    "reproxy",
    "reproxy_max_delegations",
    "resolver_cache",
    "retry_budget",
    "scgi_cache_purge",
    "server_product",
    "server_timing",
    "source",
    "ssl",
    "ssl_key_pool",
    "state",
    "status_json",
    "text_error_pages",
    "throttle_response",
    "trace",
    "trace_header",
    "trace_name",
    "uwsgi_cache_purge",
    "welcome",
];
/// What directives of modules that are not nginx's own begin with: headers-more, subs_filter, ngx_brotli, zstd, echo.
const THIRD_PARTY: [&str; 24] = [
    "more_",
    "subs_",
    "brotli",
    "zstd",
    "echo",
    "upstream_list",
    "set_if_empty",
    "set_escape",
    "set_unescape",
    "set_quote",
    "set_encode",
    "set_decode",
    "set_md5",
    "set_sha1",
    "set_hmac",
    "set_random",
    "set_secure_random",
    "set_rotate",
    "set_local_today",
    "set_formatted",
    "set_hashed",
    "set_base32",
    "set_misc",
    "keepalive_pool",
];

#[cfg(test)]
mod tests {
    use weir_conf::{ArgCount, Contexts};

    use super::*;
    use crate::modules::all_modules;

    #[test]
    fn directives_are_compared_by_name_and_text() {
        let of = |name, doc| {
            let row = DirectiveSignature::new(name, Contexts::HTTP, ArgCount::ONE);
            NginxComparison::of(&DirectiveSignature { doc, ..row })
        };
        assert_eq!(of("root", "Sets it."), NginxComparison::Same);
        assert_eq!(of("accept_mutex", "Ignored: threads."), NginxComparison::Ignored);
        assert_eq!(of("more_set_headers", "Sets them."), NginxComparison::ThirdParty);
        assert_eq!(of("trace", "Records."), NginxComparison::Extra);
    }

    #[test]
    fn every_directive_of_the_list_is_there() {
        let rows = || all_modules().flat_map(|module| module.directives());
        let absent: Vec<_> = EXTRA.iter().filter(|name| rows().all(|row| row.name != **name)).collect();
        assert!(absent.is_empty(), "{absent:?}");
    }
}
