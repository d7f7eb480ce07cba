//! The server as its users have it: one program of tests, a file for each feature.
//!
//! | the feature | its files |
//! |---|---|
//! | the program: options, commands, signals, start, `-t` | `program`, `commands`, `program_start`, `process/` (master, upgrade, systemd), `reload`, `reload_workers` |
//! | configuration files, their errors and tools | `config_tools`, `lsp`, `conf_errors`, `conf_yaml`, `explain_config`, `diff_config`, `directive_rows`, `module_docs`, `not_in_weir` |
//! | workers: shares, rebalancing, a blocked one | `workers`, `workers_rebalance`, `workers_background_services` |
//! | clients: keep-alive, slow ones, wrong requests, bodies | `before_locations`, `client_*`, `request_malformed`, `request_bodies`; what RFCs demand and no other file has in `rfc_demands` |
//! | files, content handlers | `static_freshness`, `static_heads`, `content_handlers`, `media`, `echo`, `redirect_targets`, `set_lines`, `post_action` |
//! | filters | `compress/`, `filter_slow_clients`, `headers_more`, `slice`, `ssi`, `subrequests_share`, `response_broken_off`, `reproxy` |
//! | proxying: heads, bodies, upgrades, causes of errors | `proxy_*`, `fastcgi`, `scgi_uwsgi`, `memcached`, `tunnel`, gRPC in `http2/grpc` |
//! | `upstream` | `upstream_*`: `balancing`, `heads`, `health`, `idle`, `members`, `sources`, `faults`, `spill`, `responses`, `trailers`; names in `resolver` |
//! | `stream` | `stream`, `stream_lua`, `stream_pass`, `stream_tls`, `stream_udp` |
//! | the cache of responses | `cache` (case by case beside nginx), `cache_concurrent` (locks, updates in the background, clients that leave) |
//! | HTTP/2 | `http2/` |
//! | HTTP/3 | `http3`, `quic_sockets` |
//! | TLS | `tls`, `tls_*`: `client_certificates`, `certificate_store`, `conf_command`, `early_data`, `keys`, `ocsp`, `pkcs11`, `upstream` |
//! | Lua: scripts in their phases | `lua_phases`, `lua_handlers`, `lua_known_passes`, `lua_init_worker`, `lua_start_order`, `lua_timers`, `lua_reload`, `lua_cached_reads`, `lua_limits` |
//! | Lua: functions | `lua_functions`, `lua_bodies`, `lua_subrequests`, `lua_threads`, `lua_pipe`, `lua_cli`, `lua_balancer`, `lua_upstream`, `lua_events`, `lua_resolver_and_log`, `lua_libraries`, `lua_c_names`, `lua_kong`, `lua_lmdb`, `lua_luajit`, `lua_compiled_calls`, `lua_profile` |
//! | Lua: sockets and TLS | `lua_sockets`, `lua_socket_buffer`, `lua_socket_reuse`, `lua_socket_errors`, `lua_udp`, `lua_tls`, `lua_tls_connections`, `lua_tls_churn`, `lua_tls_objects`, `lua_tls_secrets` |
//! | Lua: calls that are wrong | `lua_argument_errors`, `lua_call_errors`, `lua_wrong_arguments` (all functions), `lua_random_programs` |
//! | logs, traces, tools (`weir trace`, the admin listener) | `logs`, `log_before_response`, `trace_variables`, `see_commands`, `see_*`, `otel` |
//! | security: what an absent or failing check lets through | `security_absent_settings`, `security_fails_closed`, `see_hostile_socket` |
//! | the system: descriptors, disks, many clients | `system_faults`, `small_files`; directories that are full and scripts that throw in `faults` |
//! | nginx beside Weir | `nginx_differences`, `compare/` (whole configurations) |
//! | examples/ and docs/ do what they say | `example_*`, `module_docs`, `manual/` |
//!
//! Tests that run a server inside of themselves are programs beside this one: `embed`, `phase_waits`, `trace_accuracy*`, `see_accuracy`,
//! `see_stuck`.

mod announced_lengths;
mod before_locations;
mod cache;
mod cache_concurrent;
mod client_faults;
mod client_keepalive;
mod commands;
mod compare;
mod compress;
mod conf_errors;
mod conf_yaml;
mod config_tools;
mod content_handlers;
mod diff_config;
mod directive_rows;
mod early_hint;
mod echo;
mod example_from_openresty;
mod example_gateway;
mod explain_config;
mod fastcgi;
mod faults;
mod filter_slow_clients;
mod headers_more;
mod http2;
mod http3;
mod known_passes;
mod known_responses;
mod log_before_response;
mod logs;
mod lsp;
mod lua_argument_errors;
mod lua_balancer;
mod lua_blocking_ways;
mod lua_bodies;
mod lua_c_names;
mod lua_cached_reads;
mod lua_call_errors;
mod lua_cli;
mod lua_compiled_calls;
mod lua_events;
mod lua_functions;
mod lua_handlers;
mod lua_init_worker;
mod lua_known_passes;
mod lua_kong;
mod lua_libraries;
mod lua_limits;
mod lua_lmdb;
mod lua_luajit;
mod lua_openresty_names;
mod lua_phases;
mod lua_pipe;
mod lua_profile;
mod lua_random_programs;
mod lua_reload;
mod lua_resolver_and_log;
mod lua_socket_buffer;
mod lua_socket_errors;
mod lua_socket_reuse;
mod lua_sockets;
mod lua_start_order;
mod lua_subrequests;
mod lua_table_order;
mod lua_threads;
mod lua_timers;
mod lua_tls;
mod lua_tls_churn;
mod lua_tls_connections;
mod lua_tls_objects;
mod lua_tls_secrets;
mod lua_udp;
mod lua_upstream;
mod lua_wrong_arguments;
mod manual;
mod media;
mod memcached;
mod module_docs;
mod nginx_differences;
mod not_in_weir;
mod otel;
mod otel_metrics;
mod post_action;
mod process;
mod program;
mod program_start;
mod proxy_causes;
mod proxy_early_responses;
mod proxy_passing;
mod proxy_response_heads;
mod quic_sockets;
mod redirect_targets;
mod reload;
mod reload_workers;
mod reproxy;
mod request_bodies;
mod request_malformed;
mod resolver;
mod response_broken_off;
mod rfc_demands;
mod scgi_uwsgi;
mod security_absent_settings;
mod security_fails_closed;
mod see_attach;
mod see_blocked;
mod see_closes;
mod see_commands;
mod see_compare;
mod see_deep;
mod see_fleet;
mod see_h2o_names;
mod see_history;
mod see_hostile_socket;
mod see_kernel;
mod see_keys;
mod see_lines;
mod see_memory;
mod see_names;
mod see_off;
mod see_page;
mod see_page_faults;
mod see_page_hosts;
mod see_page_memory;
mod see_perf;
mod see_profile;
mod see_recordings;
mod see_tls;
mod see_trace;
mod see_upstream_closes;
mod see_usdt;
mod see_why;
mod set_lines;
mod set_misc;
mod slice;
mod small_files;
mod ssi;
mod static_freshness;
mod static_heads;
mod stream;
mod stream_lua;
mod stream_pass;
mod stream_tls;
mod stream_udp;
mod subrequests_share;
mod support;
mod system_faults;
mod tls;
mod tls_certificate_store;
mod tls_client_certificates;
mod tls_conf_command;
mod tls_early_data;
mod tls_first_flight;
mod tls_keys;
mod tls_ocsp;
mod tls_pkcs11;
mod tls_upstream;
mod trace_variables;
mod tunnel;
mod upstream_balancing;
mod upstream_faults;
mod upstream_heads;
mod upstream_health;
mod upstream_idle;
mod upstream_members;
mod upstream_responses;
mod upstream_sources;
mod upstream_spill;
mod upstream_trailers;
mod workers;
mod workers_background_services;
mod workers_rebalance;
