//! `gzip`: responses compressed as they leave (nginx's `ngx_http_gzip_filter_module`).

mod deflate;

use weir_conf::names::{ANY, ANY_OR_IF, FLAG, MORE, ONE, TWO};
use weir_conf::{Bufs, Directive, Result};
use weir_core::filter::Slot;
use weir_core::plan::PlanBuilder;
use weir_core::variable::Variable;
use weir_core::{Module, inherit};
use weir_http::deflate::Settings;

use crate::filters::compress::rules::{PROXIED, VERSIONS};
use crate::filters::compress::{self, Coding, Offer, Room, RulesConf, Scheme, power};
use crate::filters::media::MediaTypes;
pub(crate) use deflate::Deflater;

/// The module.
pub struct Gzip;

impl Module for Gzip {
    const NAME: &'static str = "gzip";
    type Conf = GzipConf;
    const DIRECTIVES: &'static [Directive<GzipConf>] = &[
        Row::new("gzip", ANY_OR_IF, FLAG, |conf, line| line.flag(&mut conf.on))
            .doc("Compresses responses for clients that take gzip."),
        Row::new("gzip_buffers", ANY, TWO, |conf, line| line.bufs(&mut conf.buffers))
            .doc("Number and size of buffers: output is handed on in pieces of that size, 512 bytes to 8k, and compressing waits \
             for a client that has left so many unsent, at most 64k; pieces of 8k, of which two may wait."),
        Row::new("gzip_types", ANY, MORE, |conf, line| MediaTypes::set(&mut conf.types, line))
            .doc("Media types that are compressed besides text/html; * for all."),
        Row::new("gzip_comp_level", ANY, ONE, |conf, line| line.number(&mut conf.level, 1..=9))
            .doc("From 1, the fastest, to 9, the smallest; 1."),
        Row::new("gzip_window", ANY, ONE, |conf, line| power(line, &mut conf.window, 9..=15, "512, 1k, 2k, 4k, 8k, 16k, or 32k"))
            .doc("How far back the compressor looks; what is best for the response's length, 16k at most."),
        Row::new("gzip_hash", ANY, ONE, |conf, line| {
            power(line, &mut conf.hash, 9..=17, "512, 1k, 2k, 4k, 8k, 16k, 32k, 64k, or 128k")
        })
        .doc("The compressor's memory besides the window, in nginx's units; 64k."),
        Row::new("postpone_gzipping", ANY, ONE, |conf, line| line.size(&mut conf.postpone))
            .doc("Compressing begins when there are so many bytes; 0."),
        Row::new("gzip_no_buffer", ANY, FLAG, |conf, line| line.flag(&mut conf.no_buffer))
            .doc("Compressed bytes leave as they come, not in pieces of 8 KB."),
        Row::new("gzip_min_length", ANY, ONE, |conf, line| line.size(&mut conf.min_length))
            .doc("Responses whose Content-Length is less are not compressed; 20."),
        Row::new("gzip_vary", ANY, FLAG, |conf, line| line.flag(&mut conf.rules.vary))
            .doc("\"Vary: Accept-Encoding\" for responses that gzip, gunzip or gzip_static are about."),
        Row::new("gzip_http_version", ANY, ONE, |conf, line| line.one_of(&mut conf.rules.version, VERSIONS))
            .doc("The least version of a request whose response is compressed: 1.0 or 1.1."),
        Row::new("gzip_proxied", ANY, MORE, |conf, line| line.bits(&mut conf.rules.proxied, PROXIED)).doc(
            "Which responses to requests with \"Via\" are compressed: off, any, auth, expired, no-cache, no-store, private, \
             no_last_modified, no_etag.",
        ),
        Row::new("gzip_disable", ANY, MORE, |conf, line| conf.rules.add_disabled(line))
            .doc("Browsers for which is not compressed, by patterns of User-Agent; msie6 for Internet Explorer 4 to 6."),
    ];
    const VARIABLES: &'static [Variable] =
        &compress::ratio_variable("gzip_ratio", |x| compress::ratio(x, Coding::Gzip));

    fn inherit(conf: &mut GzipConf, parent: &GzipConf) {
        inherit!(conf, parent, on, buffers, types, level, window, hash, postpone, no_buffer, min_length);
        conf.rules.inherit(&parent.rules);
    }

    fn install(conf: &GzipConf, plan: &mut PlanBuilder<'_>) -> Result {
        plan.keep(conf.rules.rules());
        if conf.on == Some(true) {
            let offer = Offer::new(&conf.types, conf.min_length);
            let packing = Packing {
                settings: settings(conf),
                room: Room::new(conf.buffers),
                postpone: conf.postpone.unwrap_or(0),
                no_buffer: conf.no_buffer.unwrap_or(false),
            };
            compress::install(plan, Self::NAME, offer, packing);
        }
        Ok(())
    }
}

/// Tells the closures of the table what they are given.
type Row = Directive<GzipConf>;

/// The settings of one block.
#[derive(Clone, Default)]
pub struct GzipConf {
    on: Option<bool>,
    buffers: Option<Bufs>,
    types: Option<MediaTypes>,
    level: Option<u8>,
    /// Its logarithm.
    window: Option<u8>,
    /// Its logarithm.
    hash: Option<u8>,
    postpone: Option<u64>,
    no_buffer: Option<bool>,
    min_length: Option<u64>,
    rules: RulesConf,
}

/// How a location compresses.
struct Packing {
    settings: Settings,
    room: Room,
    postpone: u64,
    no_buffer: bool,
}

impl Scheme for Packing {
    const CODING: Coding = Coding::Gzip;
    const SLOT: Slot = Slot::Gzip;
    type Coder = Deflater;

    fn coder(&self, length: Option<u64>) -> Deflater {
        Deflater::new(self.settings, length)
    }

    fn room(&self) -> Room {
        self.room
    }

    fn postpone(&self) -> u64 {
        self.postpone
    }

    fn at_once(&self) -> bool {
        self.no_buffer
    }
}

/// What the compressor works with.
fn settings(conf: &GzipConf) -> Settings {
    let level = conf.level.unwrap_or(1);
    // Without chains a window of 32 KB costs what one of 16 KB does with them: 135 KB in all.
    let window = if level == 1 { 15 } else { 14 };
    Settings {
        level,
        window: conf.window.unwrap_or(window),
        memory: conf.hash.map_or(MEMORY, |hash| hash.saturating_sub(8).max(1)),
    }
}

/// Tables of 32 KB for places and 24 KB for a block's matches.
const MEMORY: u8 = 7;
