//! What nginx or a well-known module for it has and Weir has not: files of modules that `load_module` may name, and
//! directives whose error says more than that they are unknown.

/// Of a module's file, `modules/ngx_http_lua_module.so`: whether it is built in; `None` for an unknown name.
pub(crate) fn module(file: &str) -> Option<bool> {
    let name = file.rsplit('/').next().unwrap_or(file).strip_suffix(".so")?;
    match () {
        () if BUILT_IN.contains(&name) => Some(true),
        () if NOT_HERE.contains(&name) => Some(false),
        () => None,
    }
}

/// What an unknown directive is, for its error.
pub(crate) fn directive(name: &str) -> Option<String> {
    if let Some((_, what)) = DIRECTIVES.iter().find(|(known, _)| *known == name) {
        return Some((*what).to_owned());
    }
    let (_, module) = PREFIXES.iter().find(|(prefix, _)| name.starts_with(prefix))?;
    Some(format!("it is of {module}, which Weir does not have"))
}

const BUILT_IN: &[&str] = &[
    "ndk_http_module",
    "ngx_http_brotli_filter_module",
    "ngx_http_brotli_static_module",
    "ngx_http_echo_module",
    "ngx_http_headers_more_filter_module",
    "ngx_http_lua_module",
    "ngx_http_subs_filter_module",
    "ngx_http_zstd_filter_module",
    "ngx_http_zstd_static_module",
    "ngx_otel_module",
];

/// nginx's own dynamic modules, those of its packages, of Debian's and of the usual collections.
const NOT_HERE: &[&str] = &[
    "ngx_backtrace_module",
    "ngx_fips_check_module",
    "ngx_http_acme_module",
    "ngx_http_ajp_module",
    "ngx_http_app_protect_module",
    "ngx_http_array_var_module",
    "ngx_http_auth_digest_module",
    "ngx_http_auth_jwt_module",
    "ngx_http_auth_ldap_module",
    "ngx_http_auth_pam_module",
    "ngx_http_auth_spnego_module",
    "ngx_http_cache_purge_module",
    "ngx_http_concat_module",
    "ngx_http_dav_ext_module",
    "ngx_http_drizzle_module",
    "ngx_http_dyups_module",
    "ngx_http_encrypted_session_module",
    "ngx_http_f5_metrics_module",
    "ngx_http_fancyindex_module",
    "ngx_http_flv_live_module",
    "ngx_http_footer_filter_module",
    "ngx_http_form_input_module",
    "ngx_http_geoip2_module",
    "ngx_http_geoip_module",
    "ngx_http_hmac_secure_link_module",
    "ngx_http_image_filter_module",
    "ngx_http_internal_redirect_module",
    "ngx_http_js_module",
    "ngx_http_length_hiding_filter_module",
    "ngx_http_lua_upstream_module",
    "ngx_http_memc_module",
    "ngx_http_modsecurity_module",
    "ngx_http_mruby_module",
    "ngx_http_naxsi_module",
    "ngx_http_opentelemetry_module",
    "ngx_http_opentracing_module",
    "ngx_http_passenger_module",
    "ngx_http_perl_module",
    "ngx_http_proxy_connect_module",
    "ngx_http_rds_csv_filter_module",
    "ngx_http_rds_json_filter_module",
    "ngx_http_redis2_module",
    "ngx_http_redis_module",
    "ngx_http_set_misc_module",
    "ngx_http_slowfs_module",
    "ngx_http_sorted_querystring_module",
    "ngx_http_srcache_filter_module",
    "ngx_http_sticky_module",
    "ngx_http_stream_server_traffic_status_module",
    "ngx_http_stream_server_zone_module",
    "ngx_http_sysguard_module",
    "ngx_http_testcookie_access_module",
    "ngx_http_trim_filter_module",
    "ngx_http_ts_module",
    "ngx_http_upload_module",
    "ngx_http_uploadprogress_module",
    "ngx_http_upstream_check_module",
    "ngx_http_upstream_fair_module",
    "ngx_http_upstream_jdomain_module",
    "ngx_http_user_agent_module",
    "ngx_http_vhost_traffic_status_module",
    "ngx_http_vod_module",
    "ngx_http_xslt_filter_module",
    "ngx_mail_module",
    "ngx_nchan_module",
    "ngx_pagespeed",
    "ngx_postgres_module",
    "ngx_rtmp_module",
    "ngx_stream_geoip2_module",
    "ngx_stream_geoip_module",
    "ngx_stream_js_module",
    "ngx_stream_lua_module",
    "ngx_stream_module",
    "ngx_stream_server_traffic_status_module",
    "otel_ngx_module",
];

const DIRECTIVES: &[(&str, &str)] = &[
    ("stream", "Weir does not have \"stream\" yet: TCP and UDP are not proxied"),
    ("mail", "Weir does not have \"mail\": it is no proxy for mail"),
    ("ssl", "\"listen ... ssl\" has taken its place: nginx 1.25.1 and later do not know it either"),
    ("upload_progress", "it is of ngx_http_uploadprogress_module, which Weir does not have"),
    ("rtmp", "it is of ngx_rtmp_module, which Weir does not have"),
];

const PREFIXES: &[(&str, &str)] = &[
    ("auth_jwt", "ngx_http_auth_jwt_module"),
    ("fancyindex", "ngx_http_fancyindex_module"),
    ("geoip2", "ngx_http_geoip2_module"),
    ("geoip_", "ngx_http_geoip_module"),
    ("image_filter", "ngx_http_image_filter_module"),
    ("js_", "ngx_http_js_module"),
    ("modsecurity", "ngx_http_modsecurity_module"),
    ("nchan_", "ngx_nchan_module"),
    ("pagespeed", "ngx_pagespeed"),
    ("passenger_", "ngx_http_passenger_module"),
    ("perl_", "ngx_http_perl_module"),
    ("report_uploads", "ngx_http_uploadprogress_module"),
    ("rtmp_", "ngx_rtmp_module"),
    ("track_uploads", "ngx_http_uploadprogress_module"),
    ("upload_progress_", "ngx_http_uploadprogress_module"),
    ("vhost_traffic_status", "ngx_http_vhost_traffic_status_module"),
    ("vod_", "ngx_http_vod_module"),
    ("xslt_", "ngx_http_xslt_filter_module"),
];

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
}
