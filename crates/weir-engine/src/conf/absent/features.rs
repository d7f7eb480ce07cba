//! The table of what Weir does not have.

/// A group of directives and variables that nginx or a module for it has and Weir does not.
#[derive(Debug, PartialEq, Eq)]
pub struct AbsentFeature {
    /// The module, or the feature where it is of several: what follows "Weir does not have".
    pub what: &'static str,
    /// Names of directives; a star at the end or at the beginning matches any text.
    pub directives: &'static [&'static str],
    /// Names of variables, without `$`; stars as in `directives`.
    pub variables: &'static [&'static str],
    /// Why it is absent: a sentence for the manual.
    pub why: &'static str,
    /// What to do about it, for the error and the manual: a clause.
    pub instead: &'static str,
}

impl AbsentFeature {
    /// Whether `name` is one of its directives.
    pub fn has_directive(&self, name: &str) -> bool {
        self.directives.iter().any(|pattern| fits(pattern, name))
    }

    pub(super) fn has_variable(&self, name: &str) -> bool {
        self.variables.iter().any(|pattern| fits(pattern, name))
    }

    /// The hint of an error about one of its names.
    pub fn hint(&self) -> String {
        format!("Weir does not have {}: {} (docs/reference/differences.md)", self.what, self.instead)
    }
}

/// Whether `pattern` matches `name`; a star matches at least one character.
fn fits(pattern: &str, name: &str) -> bool {
    match (pattern.strip_suffix('*'), pattern.strip_prefix('*')) {
        (Some(begin), _) => name.len() > begin.len() && name.starts_with(begin),
        (_, Some(end)) => name.len() > end.len() && name.ends_with(end),
        _ => pattern == name,
    }
}

const COMMERCIAL: &str = "It is of nginx's commercial edition.";
const C_DECODERS: &str = "Its libraries in C decode what strangers send, inside of the server.";
const LUA_DOES: &str = "Lua is the language for programs inside of the server.";
const THIRD_PARTY: &str = "A third-party module.";

/// All of it, by subject; the first group that has a name counts.
pub const ABSENT_FEATURES: &[AbsentFeature] = &[
    // Other protocols.
    AbsentFeature {
        what: "\"mail\"",
        directives: &["mail"],
        variables: &[],
        why: "IMAP, POP3 and SMTP are other protocols with other needs.",
        instead: "it is no proxy for mail; use the mail server's own, or nginx",
    },
    AbsentFeature {
        what: "MQTT (ngx_stream_mqtt_preread_module, ngx_stream_mqtt_filter_module)",
        directives: &["mqtt", "mqtt_*"],
        variables: &["mqtt_preread_*"],
        why: "It is of nginx's commercial edition, inside of `stream`.",
        instead: "let a broker listen itself, or use HAProxy",
    },
    AbsentFeature {
        what: "ngx_rtmp_module",
        directives: &["rtmp", "rtmp_*"],
        variables: &[],
        why: "A third-party module for another protocol.",
        instead: "let a media server take the streams; the HLS and DASH files it writes are served from here",
    },
    // Programs inside of the server.
    AbsentFeature {
        what: "njs (ngx_http_js_module)",
        directives: &["js_*"],
        variables: &[],
        why: LUA_DOES,
        instead: "write it in Lua: \"content_by_lua_block\", \"access_by_lua_block\", \"set_by_lua_block\"",
    },
    AbsentFeature {
        what: "ngx_http_perl_module",
        directives: &["perl", "perl_*"],
        variables: &[],
        why: LUA_DOES,
        instead: "write it in Lua: \"content_by_lua_block\", \"set_by_lua_block\"",
    },
    // Media.
    AbsentFeature {
        what: "ngx_http_hls_module",
        directives: &["hls", "hls_*"],
        variables: &[],
        why: COMMERCIAL,
        instead: "cut files in advance (\"ffmpeg -f hls\"); the pieces are served as files",
    },
    AbsentFeature {
        what: "ngx_http_f4f_module",
        directives: &["f4f", "f4f_*"],
        variables: &[],
        why: "It is of nginx's commercial edition, for players that are made no more.",
        instead: "use HLS or DASH files",
    },
    AbsentFeature {
        what: "the rate limits of ngx_http_mp4_module",
        directives: &["mp4_limit_rate", "mp4_limit_rate_after"],
        variables: &[],
        why: COMMERCIAL,
        instead: "use \"limit_rate\" and \"limit_rate_after\", whose values may be variables",
    },
    AbsentFeature {
        what: "ngx_http_image_filter_module",
        directives: &["image_filter", "image_filter_*"],
        variables: &[],
        why: C_DECODERS,
        instead: "put an image server (imgproxy, thumbor) behind \"proxy_pass\" with \"proxy_cache\"",
    },
    AbsentFeature {
        what: "ngx_http_xslt_module",
        directives: &["xslt_*", "xml_entities", "xml_external_entities"],
        variables: &[],
        why: C_DECODERS,
        instead: "transform documents in the application",
    },
    AbsentFeature {
        what: "ngx_http_vod_module",
        directives: &["vod", "vod_*"],
        variables: &[],
        why: THIRD_PARTY,
        instead: "package files in advance; the pieces are served as files",
    },
    // Identification of the client.
    AbsentFeature {
        what: "ngx_http_geoip_module",
        directives: &["geoip_*"],
        variables: &["geoip_*"],
        why: "The databases that its library reads are made no more.",
        instead: "use \"geo\" with a list of networks, or a reader of MaxMind's databases in Lua",
    },
    AbsentFeature {
        what: "ngx_http_geoip2_module",
        directives: &["geoip2", "geoip2_*"],
        variables: &[],
        why: THIRD_PARTY,
        instead: "use \"geo\" with a list of networks, or a reader of MaxMind's databases in Lua",
    },
    AbsentFeature {
        what: "ngx_http_auth_jwt_module",
        directives: &["auth_jwt", "auth_jwt_*"],
        variables: &["jwt_*"],
        why: COMMERCIAL,
        instead: "use \"auth_request\", or a library for JWT in \"access_by_lua_block\"",
    },
    AbsentFeature {
        what: "ngx_http_oidc_module",
        directives: &["auth_oidc", "oidc_provider"],
        variables: &["oidc_*"],
        why: COMMERCIAL,
        instead: "use \"auth_request\" with oauth2-proxy, or lua-resty-openidc",
    },
    AbsentFeature {
        what: "authentication by LDAP, PAM, Kerberos or digests",
        directives: &[
            "auth_ldap",
            "auth_ldap_*",
            "auth_pam",
            "auth_pam_*",
            "auth_gss",
            "auth_gss_*",
            "auth_digest",
            "auth_digest_*",
        ],
        variables: &[],
        why: "Third-party modules, with libraries in C.",
        instead: "use \"auth_request\" with a small server that asks them",
    },
    AbsentFeature {
        what: "a web application firewall",
        directives: &[
            "modsecurity",
            "modsecurity_*",
            "SecRulesEnabled",
            "LearningMode",
            "DeniedUrl",
            "CheckRule",
            "MainRule",
            "BasicRule",
        ],
        variables: &[],
        why: "Third-party modules (ModSecurity, NAXSI), with libraries in C.",
        instead: "write rules in \"access_by_lua_block\", or put one in front",
    },
    // Certificates and keys.
    AbsentFeature {
        what: "ngx_http_acme_module",
        directives: &["acme_issuer", "acme_certificate", "acme_shared_zone"],
        variables: &["acme_certificate", "acme_certificate_key"],
        why: "Weir does not fetch certificates itself yet.",
        instead: "use certbot, lego or acme.sh with a reload, or \"ssl_certificate_by_lua_block\"",
    },
    AbsentFeature {
        what: "key logs of TLS",
        directives: &["ssl_key_log", "proxy_ssl_key_log", "grpc_ssl_key_log", "uwsgi_ssl_key_log"],
        variables: &[],
        why: "It is of nginx's commercial edition; a server that can write its keys can be made to.",
        instead: "set SSLKEYLOGFILE at the client (curl, Firefox, Chromium), or look at \"weir trace\"",
    },
    // Observing.
    AbsentFeature {
        what: "nginx's ngx_http_api_module and ngx_http_status_module",
        directives: &["api", "status_zone", "status", "status_format", "upstream_conf"],
        variables: &[],
        why: "It is of nginx's commercial edition.",
        instead: "servers, locations and upstreams are all counted: see \"admin\", \"stub_status\" and \"weir top\"",
    },
    AbsentFeature {
        what: "ngx_http_vhost_traffic_status_module",
        directives: &["vhost_traffic_status", "vhost_traffic_status_*"],
        variables: &[],
        why: THIRD_PARTY,
        instead: "servers, locations and upstreams are all counted: see \"admin\", \"stub_status\" and \"weir top\"",
    },
    AbsentFeature {
        what: "ngx_http_session_log_module",
        directives: &["session_log", "session_log_*"],
        variables: &["session_log_*"],
        why: COMMERCIAL,
        instead: "write the session's cookie into \"log_format\" and sum up what the log says",
    },
    AbsentFeature {
        what: "tags of error logs",
        directives: &["error_log_tag"],
        variables: &[],
        why: COMMERCIAL,
        instead: "each line names client, server and request; \"log_format ... json\" writes fields",
    },
    AbsentFeature {
        what: "\"stall_threshold\"",
        directives: &["stall_threshold"],
        variables: &[],
        why: COMMERCIAL,
        instead: "\"profile_blocked\" records turns of the event loop that take too long",
    },
    AbsentFeature {
        what: "ngx_google_perftools_module",
        directives: &["google_perftools_profiles"],
        variables: &[],
        why: "Weir has a profiler of its own.",
        instead: "use \"profile_cpu\" and \"weir flame cpu\"",
    },
    // Upstreams and variables.
    AbsentFeature {
        what: "nginx's dynamic requests (\"*_request_dynamic\", \"*_bind_dynamic\", \"*_allow_upstream\")",
        directives: &["*_request_dynamic", "*_bind_dynamic", "*_allow_upstream"],
        variables: &[],
        why: COMMERCIAL,
        instead: "choose servers, and refuse them, in \"balancer_by_lua_block\"",
    },
    AbsentFeature {
        what: "\"ntlm\"",
        directives: &["ntlm"],
        variables: &[],
        why: "It is of nginx's commercial edition, for an authentication that is retired: it ties a client to a connection.",
        instead: "use Kerberos, or a login of the application",
    },
    AbsentFeature {
        what: "variables of the last upstream server",
        directives: &[],
        variables: &["upstream_last_addr", "upstream_last_server_name"],
        why: COMMERCIAL,
        instead: "the last item of \"$upstream_addr\" is its address",
    },
    AbsentFeature {
        what: "\"$time_iso8601_ms\"",
        directives: &[],
        variables: &["time_iso8601_ms"],
        why: COMMERCIAL,
        instead: "use \"$msec\", which has milliseconds",
    },
    AbsentFeature {
        what: "ngx_http_upstream_check_module",
        directives: &["check", "check_*"],
        variables: &[],
        why: THIRD_PARTY,
        instead: "use \"health_check\"",
    },
    AbsentFeature {
        what: "ngx_http_keyval_module",
        directives: &["keyval", "keyval_zone"],
        variables: &[],
        why: COMMERCIAL,
        instead: "use \"map\", or \"lua_shared_dict\" with \"set_by_lua_block\"",
    },
    AbsentFeature {
        what: "clients of other databases than memcached",
        directives: &[
            "redis_pass",
            "redis2_*",
            "memc_*",
            "srcache_*",
            "drizzle_*",
            "postgres_*",
            "rds_*",
            "mongo",
            "gridfs",
        ],
        variables: &[],
        why: "Third-party modules.",
        instead: "use the libraries for Lua (lua-resty-redis, lua-resty-mysql, pgmoon)",
    },
    // Requests and responses.
    AbsentFeature {
        what: "ngx_http_uploadprogress_module",
        directives: &["upload_progress", "upload_progress_*", "report_uploads", "track_uploads"],
        variables: &["uploadprogress_*"],
        why: "A third-party module from the time before browsers said it themselves.",
        instead: "use the progress events of the browser",
    },
    AbsentFeature {
        what: "ngx_http_upload_module",
        directives: &[
            "upload_pass",
            "upload_store",
            "upload_set_form_field",
            "upload_aggregate_form_field",
            "upload_pass_form_field",
            "upload_cleanup",
            "upload_*",
        ],
        variables: &[],
        why: THIRD_PARTY,
        instead: "use \"client_body_in_file_only\", or lua-resty-upload",
    },
    AbsentFeature {
        what: "ngx_http_fancyindex_module",
        directives: &["fancyindex", "fancyindex_*"],
        variables: &[],
        why: THIRD_PARTY,
        instead: "use \"autoindex\", whose \"autoindex_format json\" feeds any page",
    },
    AbsentFeature {
        what: "ngx_pagespeed",
        directives: &["pagespeed", "pagespeed_*"],
        variables: &[],
        why: "A third-party module that is no longer maintained.",
        instead: "make pages small when they are built",
    },
    AbsentFeature {
        what: "modules that push messages",
        directives: &["nchan_*", "push_stream_*"],
        variables: &[],
        why: "Third-party modules.",
        instead: "pass WebSockets on with \"proxy_upgrade\", or use lua-resty-websocket",
    },
    AbsentFeature {
        what: "Passenger",
        directives: &["passenger_*"],
        variables: &[],
        why: "A third-party module that starts applications.",
        instead: "run the application by itself, behind \"proxy_pass\"",
    },
    AbsentFeature {
        what: "extensions of WebDAV",
        directives: &["dav_ext_*"],
        variables: &[],
        why: THIRD_PARTY,
        instead: "PUT, DELETE, MKCOL, COPY and MOVE are there: \"dav_methods\"",
    },
    AbsentFeature {
        what: "\"limit_zone\"",
        directives: &["limit_zone"],
        variables: &[],
        why: "nginx removed it in 1.7.6.",
        instead: "use \"limit_conn_zone\"",
    },
    // What is to come.
    AbsentFeature {
        what: "\"num_map\" yet",
        directives: &["num_map"],
        variables: &[],
        why: "Of nginx's commercial edition; not built yet.",
        instead: "use \"map\" with expressions, or \"set_by_lua_block\"",
    },
    AbsentFeature {
        what: "\"client_body_early_read\" yet",
        directives: &["client_body_early_read"],
        variables: &[],
        why: "Not built yet.",
        instead: "\"lua_need_request_body\" reads the body before scripts run",
    },
    AbsentFeature {
        what: "\"ssl_object_cache_inheritable\"",
        directives: &["ssl_object_cache_inheritable"],
        variables: &[],
        why: "A reload reads all certificates again.",
        instead: "remove the line",
    },
    AbsentFeature {
        what: "\"$upstream_queue_time\" yet",
        directives: &[],
        variables: &["upstream_queue_time"],
        why: "Not built yet.",
        instead: "look at \"weir trace\"",
    },
    // The process.
    AbsentFeature {
        what: "a license",
        directives: &["mgmt"],
        variables: &[],
        why: "It is of nginx's commercial edition.",
        instead: "nothing is reported to a vendor; remove the block",
    },
    AbsentFeature {
        what: "event methods other than epoll and io_uring",
        directives: &["devpoll_*", "eventport_*", "iocp_*", "kqueue_*", "post_acceptex", "acceptex_read"],
        variables: &[],
        why: "Weir runs on Linux.",
        instead: "remove the line",
    },
    AbsentFeature {
        what: "ngx_http_degradation_module",
        directives: &["degradation", "degrade"],
        variables: &[],
        why: "It looks at sbrk(2), which says little about memory today.",
        instead: "use \"limit_conn\", and the control group's memory limit",
    },
];
