//! `gzip`: compresses responses with gzip (nginx's `ngx_http_gzip_filter_module`).

mod deflate;

use weir_conf::Directive;
use weir_conf::names::{ANY, ANY_OR_IF, FLAG, MORE, ONE};
use weir_engine::filter::FilterSlot;
use weir_engine::plan::PlanBuilder;
use weir_engine::variable::Variable;
use weir_engine::{Module, inherit};
use weir_http::deflate::DeflateSettings;

use crate::filters::compress::rules::{PROXIED, VERSIONS};
use crate::filters::compress::{
    self, CompressionConf, CompressionScheme, ContentCoding, OutputRoom, PieceFlushing, RulesConf,
    compression_row, power,
};
pub(crate) use deflate::GzipCoder;

/// The module `gzip`.
pub struct Gzip;

impl Module for Gzip {
    const NAME: &'static str = "gzip";
    type Conf = GzipConf;
    const DIRECTIVES: &'static [Directive<GzipConf>] = &[
        GzipRow::new("gzip", ANY_OR_IF, FLAG, |conf, line| line.flag(&mut conf.common.on))
            .syntax("gzip on | off")
            .default("off")
            .doc("Compresses responses with gzip for clients that accept it.")
            .example(
                "gzip on;\n\
                 gzip_types text/css application/javascript application/json;\n\
                 gzip_min_length 1000;\n\
                 gzip_vary on;",
            ),
        compression_row!(buffers, "gzip_buffers"),
        compression_row!(types, "gzip_types"),
        GzipRow::new("gzip_comp_level", ANY, ONE, |conf, line| line.number(&mut conf.common.level, 1..=9))
            .syntax("gzip_comp_level level")
            .default("1")
            .doc("Compression level, from 1 (fastest) to 9 (smallest)."),
        GzipRow::new("gzip_window", ANY, ONE, |conf, line| {
            power(line, &mut conf.window, 9..=15, "512, 1k, 2k, 4k, 8k, 16k, or 32k")
        })
        .syntax("gzip_window size")
        .doc(
            "Window size, from 512 to 32k, by powers of two; by default 32k at level 1 and \
             16k at others.",
        ),
        GzipRow::new("gzip_hash", ANY, ONE, |conf, line| {
            power(line, &mut conf.hash, 9..=17, "512, 1k, 2k, 4k, 8k, 16k, 32k, 64k, or 128k")
        })
        .syntax("gzip_hash size")
        .default("32k")
        .doc("Memory of the compressor's hash tables, from 512 to 128k, by powers of two."),
        GzipRow::new("postpone_gzipping", ANY, ONE, |conf, line| line.size(&mut conf.postpone))
            .syntax("postpone_gzipping size")
            .default("0")
            .doc(
                "Compression begins when this many bytes of the response are there; shorter \
                 responses are sent uncompressed.",
            ),
        GzipRow::new("gzip_no_buffer", ANY, FLAG, |conf, line| line.flag(&mut conf.no_buffer))
            .syntax("gzip_no_buffer on | off")
            .default("off")
            .doc("Passes compressed data on as it is produced, not in pieces of the buffer size."),
        compression_row!(min_length, "gzip_min_length"),
        GzipRow::new("gzip_vary", ANY, FLAG, |conf, line| line.flag(&mut conf.rules.vary))
            .syntax("gzip_vary on | off")
            .default("off")
            .doc(
                "Adds `Vary: Accept-Encoding` to responses that `gzip`, `gunzip` or \
                 `gzip_static` apply to.",
            ),
        GzipRow::new("gzip_http_version", ANY, ONE, |conf, line| {
            line.one_of(&mut conf.rules.version, VERSIONS)
        })
        .syntax("gzip_http_version 1.0 | 1.1")
        .default("1.1")
        .doc("Minimum HTTP version of requests whose responses are compressed."),
        GzipRow::new("gzip_proxied", ANY, MORE, |conf, line| line.bits(&mut conf.rules.proxied, PROXIED))
            .syntax(
                "gzip_proxied off | expired | no-cache | no-store | private | \
                      no_last_modified | no_etag | auth | any ...",
            )
            .default("off")
            .doc(
                "Which responses are compressed if the request comes from a proxy, with a `Via` \
                 field. `expired` means `Expires` in the past, `auth` a request with \
                 `Authorization`, and `any` all responses. The `no_` words mean a response without \
                 that field, others a directive of its `Cache-Control`.",
            ),
        GzipRow::new("gzip_disable", ANY, MORE, |conf, line| conf.rules.add_disabled(line))
            .syntax("gzip_disable regex ...")
            .doc(
                "Disables compression for requests whose `User-Agent` matches a regular \
                 expression; `msie6` means Internet Explorer 4 to 6.",
            ),
    ];
    const VARIABLES: &'static [Variable] =
        &compress::ratio_variable("gzip_ratio", |x| compress::ratio(x, ContentCoding::Gzip));

    fn inherit(conf: &mut GzipConf, parent: &GzipConf) {
        conf.common.inherit(&parent.common);
        inherit!(conf, parent, window, hash, postpone, no_buffer);
        conf.rules.inherit(&parent.rules);
    }

    fn install(conf: &GzipConf, plan: &mut PlanBuilder<'_>) {
        plan.keep(conf.rules.rules());
        if let Some(offer) = conf.common.offer() {
            let packing = GzipPacking {
                settings: settings(conf),
                room: conf.common.room(),
                postpone: conf.postpone.unwrap_or(0),
                no_buffer: conf.no_buffer.unwrap_or(false),
            };
            compress::install(plan, Self::NAME, offer, packing);
        }
    }
}

/// Gives the closures of the table the type of their argument.
type GzipRow = Directive<GzipConf>;

/// The settings of one block.
#[derive(Clone, Default)]
pub struct GzipConf {
    common: CompressionConf,
    /// The logarithm to base 2 of the window's bytes; `None`: the default.
    window: Option<u8>,
    /// The logarithm to base 2 of the size of the hash table; `None`: the default.
    hash: Option<u8>,
    postpone: Option<u64>,
    no_buffer: Option<bool>,
    rules: RulesConf,
}

/// How a location compresses.
struct GzipPacking {
    settings: DeflateSettings,
    room: OutputRoom,
    postpone: u64,
    no_buffer: bool,
}

impl CompressionScheme for GzipPacking {
    const CODING: ContentCoding = ContentCoding::Gzip;
    const SLOT: FilterSlot = FilterSlot::Gzip;
    type Coder = GzipCoder;

    fn coder(&self, length: Option<u64>) -> GzipCoder {
        GzipCoder::new(self.settings, length)
    }

    fn room(&self) -> OutputRoom {
        self.room
    }

    fn postpone(&self) -> u64 {
        self.postpone
    }

    fn flushing(&self) -> PieceFlushing {
        if self.no_buffer { PieceFlushing::AtOnce } else { PieceFlushing::WhenFull }
    }
}

/// What the compressor works with.
fn settings(conf: &GzipConf) -> DeflateSettings {
    let level = conf.common.level.unwrap_or(1);
    // Without chains a window of 32 KB costs what one of 16 KB does with them: 135 KB in all.
    let window = if level == 1 { 15 } else { 14 };
    DeflateSettings {
        level,
        window: conf.window.unwrap_or(window),
        memory: conf.hash.map_or(MEMORY, |hash| hash.saturating_sub(8).max(1)),
    }
}

/// Tables of 32 KB for places and 24 KB for a block's matches.
const MEMORY: u8 = 7;
