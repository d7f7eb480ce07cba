//! `stream_core`: how sessions begin, and what variables say of them (nginx's `ngx_stream_core_module`).

use weir_conf::Directive;
use weir_conf::names::{ONE, STREAM_ANY};
use weir_engine::plan::{PlanBuilder, PlanLevel};
use weir_engine::settings::session::SessionSettings;
use weir_engine::variable::Variable;
use weir_engine::{Exchange, Module, Text, inherit};
use weir_http::h1;

/// The module `stream_core`.
pub struct StreamCore;

impl Module for StreamCore {
    const NAME: &'static str = "stream_core";
    type Conf = StreamCoreConf;
    const DIRECTIVES: &'static [Directive<StreamCoreConf>] = &[
        StreamCoreRow::new("proxy_protocol_timeout", STREAM_ANY, ONE, |c, line| {
            line.time_ms(&mut c.proxy_protocol_timeout)
        })
        .syntax("proxy_protocol_timeout time")
        .default("30s")
        .doc("Timeout for reading the PROXY protocol header; then the session ends with 400."),
        StreamCoreRow::new("preread_buffer_size", STREAM_ANY, ONE, |c, line| {
            line.size(&mut c.preread_buffer_size)
        })
        .syntax("preread_buffer_size size")
        .default("16k")
        .doc("How many bytes of a session may be looked at before its content; more end it with 400."),
        StreamCoreRow::new("preread_timeout", STREAM_ANY, ONE, |c, line| {
            line.time_ms(&mut c.preread_timeout)
        })
        .syntax("preread_timeout time")
        .default("30s")
        .doc("Timeout for the bytes that are looked at before the content."),
    ];
    const VARIABLES: &'static [Variable] = &[
        Variable::new("bytes_received", bytes_received).volatile(),
        Variable::new("bytes_sent", bytes_sent).volatile(),
        Variable::new("protocol", |x| {
            Some(Text::Static(if x.connection.is_flow() { b"UDP" } else { b"TCP" }))
        }),
        Variable::new("session_time", session_time).volatile(),
    ];

    fn inherit(conf: &mut StreamCoreConf, parent: &StreamCoreConf) {
        inherit!(conf, parent, proxy_protocol_timeout, preread_buffer_size, preread_timeout);
    }

    fn install(conf: &StreamCoreConf, plan: &mut PlanBuilder<'_>) {
        if plan.level == PlanLevel::Session {
            let usual = SessionSettings::default();
            plan.keep(SessionSettings {
                proxy_protocol_timeout: conf.proxy_protocol_timeout.unwrap_or(usual.proxy_protocol_timeout),
                preread_buffer_size: conf.preread_buffer_size.unwrap_or(usual.preread_buffer_size),
                preread_timeout: conf.preread_timeout.unwrap_or(usual.preread_timeout),
            });
        }
    }
}

/// Gives the closures of the table the type of their argument.
type StreamCoreRow = Directive<StreamCoreConf>;

/// The settings of one block; `None` where nothing was said.
#[derive(Default)]
pub struct StreamCoreConf {
    /// In milliseconds.
    proxy_protocol_timeout: Option<u64>,
    /// In bytes.
    preread_buffer_size: Option<u64>,
    /// In milliseconds.
    preread_timeout: Option<u64>,
}

fn bytes_received(x: &mut Exchange) -> Option<Text> {
    let bytes = x.session()?.from_client.get();
    Some(Text::Span(x.arena.write(|out| h1::number(out, bytes))))
}

fn bytes_sent(x: &mut Exchange) -> Option<Text> {
    let bytes = x.bytes_sent();
    Some(Text::Span(x.arena.write(|out| h1::number(out, bytes))))
}

/// `$session_time`: seconds with three decimals.
fn session_time(x: &mut Exchange) -> Option<Text> {
    let ms = weir_rt::now_ms().saturating_sub(x.start_ms);
    Some(Text::Span(x.arena.write(|out| h1::thousandths(out, ms))))
}
