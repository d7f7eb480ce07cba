//! The directives of HTTP/3 and QUIC, which Weir does not speak yet. They are checked as in nginx and have no effect, with
//! a warning, so that a configuration for both can be served over TCP: clients come there without HTTP/3, too.

use std::path::PathBuf;

use weir_conf::names::*;
use weir_conf::{Directive, LineCx, Result};

use crate::exchange::Exchange;
use crate::module::Module;
use crate::text::Text;
use crate::variable::Variable;

/// The module of HTTP/3's directives.
pub(crate) struct Http3;

impl Module for Http3 {
    const NAME: &'static str = "v3";
    type Conf = Http3Conf;
    const DIRECTIVES: &'static [Directive<Http3Conf>] = TABLE;
    const VARIABLES: &'static [Variable] = &[Variable::new("http3", http3)];
}

/// The settings of one block as written: read only to see that no line is there twice, nor wrong.
#[derive(Default)]
pub(crate) struct Http3Conf {
    http3: Option<bool>,
    hq: Option<bool>,
    max_concurrent_streams: Option<u64>,
    stream_buffer_size: Option<u64>,
    active_connection_id_limit: Option<u64>,
    bpf: Option<bool>,
    gso: Option<bool>,
    host_key: Option<PathBuf>,
    retry: Option<bool>,
}

/// `$http3`: empty, as in nginx for requests that came otherwise.
fn http3(_: &mut Exchange) -> Option<Text> {
    Some(Text::EMPTY)
}

/// Reads a flag; one that is on is warned about.
fn flag(slot: &mut Option<bool>, line: &mut LineCx<'_>) -> Result {
    line.flag(slot)?;
    if *slot == Some(true) {
        warn(line);
    }
    Ok(())
}

fn warn(line: &mut LineCx<'_>) {
    let name = line.name().to_owned();
    line.warn(format!("Weir does not speak HTTP/3 yet, the \"{name}\" directive is ignored"));
}

// The alias gives the closures of the table what `c` is.
type Http3Row = Directive<Http3Conf>;

const HTTP_OR_SERVER: weir_conf::Contexts = HTTP.or(SERVER);

const TABLE: &[Http3Row] = &[
    Http3Row::new("http3", HTTP_OR_SERVER, FLAG, |c, line| flag(&mut c.http3, line))
        .syntax("http3 on | off")
        .doc("Ignored: there is no HTTP/3 yet."),
    Http3Row::new("http3_hq", HTTP_OR_SERVER, FLAG, |c, line| flag(&mut c.hq, line))
        .syntax("http3_hq on | off")
        .default("off")
        .doc("Ignored: there is no HTTP/3 yet."),
    Http3Row::new("http3_max_concurrent_streams", HTTP_OR_SERVER, ONE, |c, line| {
        line.number(&mut c.max_concurrent_streams, ..)
    })
    .syntax("http3_max_concurrent_streams number")
    .default("128")
    .doc("Ignored: there is no HTTP/3 yet."),
    Http3Row::new("http3_stream_buffer_size", HTTP_OR_SERVER, ONE, |c, line| {
        line.size(&mut c.stream_buffer_size)
    })
    .syntax("http3_stream_buffer_size size")
    .default("64k")
    .doc("Ignored: there is no HTTP/3 yet."),
    Http3Row::new("quic_active_connection_id_limit", HTTP_OR_SERVER, ONE, |c, line| {
        line.number(&mut c.active_connection_id_limit, ..)
    })
    .syntax("quic_active_connection_id_limit number")
    .default("2")
    .doc("Ignored: there is no QUIC yet."),
    Http3Row::new("quic_bpf", MAIN, FLAG, |c, line| flag(&mut c.bpf, line))
        .syntax("quic_bpf on | off")
        .default("off")
        .doc("Ignored: there is no QUIC yet."),
    Http3Row::new("quic_gso", HTTP_OR_SERVER, FLAG, |c, line| flag(&mut c.gso, line))
        .syntax("quic_gso on | off")
        .default("off")
        .doc("Ignored: there is no QUIC yet."),
    Http3Row::new("quic_host_key", HTTP_OR_SERVER, ONE, |c, line| line.conf_path(&mut c.host_key))
        .syntax("quic_host_key file")
        .doc("Ignored: there is no QUIC yet."),
    Http3Row::new("quic_retry", HTTP_OR_SERVER, FLAG, |c, line| flag(&mut c.retry, line))
        .syntax("quic_retry on | off")
        .default("off")
        .doc("Ignored: there is no QUIC yet."),
];
