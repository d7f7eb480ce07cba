//! `brotli`: responses compressed with brotli as they leave, by the directives of ngx_brotli.

mod encode;

use weir_conf::names::{ANY, ANY_OR_IF, FLAG, MORE, ONE, TWO};
use weir_conf::{BufferSizes, Directive, Result};
use weir_engine::filter::FilterSlot;
use weir_engine::plan::PlanBuilder;
use weir_engine::variable::Variable;
use weir_engine::{Module, inherit};

use crate::filters::compress::{self, CompressionOffer, CompressionScheme, ContentCoding, OutputRoom, power};
use crate::filters::media::MediaTypes;
use encode::{BrotliCompressor, LEAST_WINDOW};

#[cfg(test)]
pub(crate) use encode::BrotliStream;
pub(crate) use encode::squeezer;

/// The module.
pub struct Brotli;

impl Module for Brotli {
    const NAME: &'static str = "brotli";
    type Conf = BrotliConf;
    const DIRECTIVES: &'static [Directive<BrotliConf>] = &[
        BrotliRow::new("brotli", ANY_OR_IF, FLAG, |conf, line| line.flag(&mut conf.on))
            .syntax("brotli on | off")
            .default("off")
            .doc("Compresses responses with Brotli for clients that accept `br`.")
            .example(
                "brotli on;\n\
                 brotli_comp_level 5;\n\
                 brotli_types text/css application/javascript application/json;",
            ),
        BrotliRow::new("brotli_buffers", ANY, TWO, |conf, line| line.bufs(&mut conf.buffers))
            .syntax("brotli_buffers number size")
            .default("2 8k")
            .doc(
                "Number and size of output buffers: compressed data is passed on in pieces of \
                 this size (512 bytes to 8k), and compression pauses while number times size \
                 bytes, 64k at most, wait for the client.",
            ),
        BrotliRow::new("brotli_types", ANY, MORE, |conf, line| MediaTypes::set(&mut conf.types, line))
            .syntax("brotli_types mime-type ...")
            .default("text/html")
            .doc("MIME types that are compressed, besides `text/html`; `*` matches any."),
        BrotliRow::new("brotli_comp_level", ANY, ONE, |conf, line| line.number(&mut conf.level, 0..=11))
            .syntax("brotli_comp_level level")
            .default("6")
            .doc(
                "Compression level, from 0 (fastest) to 11 (smallest). A worker runs eight \
                 compressors at a time, of 4 MB each at level 6 and 36 MB at level 9; a \
                 response that waits for its client gives its compressor up when another \
                 response needs one.",
            ),
        BrotliRow::new("brotli_window", ANY, ONE, |conf, line| {
            power(line, &mut conf.window, LEAST_WINDOW..=24, WINDOWS)
        })
        .syntax("brotli_window size")
        .default("512k")
        .doc(
            "Window size, from 1k to 16m, by powers of two; smaller for responses that are \
             known to be shorter.",
        ),
        BrotliRow::new("brotli_min_length", ANY, ONE, |conf, line| line.size(&mut conf.min_length))
            .syntax("brotli_min_length length")
            .default("20")
            .doc("Minimum `Content-Length` of responses that are compressed, in bytes."),
    ];
    const VARIABLES: &'static [Variable] =
        &compress::ratio_variable("brotli_ratio", |x| compress::ratio(x, ContentCoding::Brotli));

    fn inherit(conf: &mut BrotliConf, parent: &BrotliConf) {
        inherit!(conf, parent, on, buffers, types, level, window, min_length);
    }

    fn install(conf: &BrotliConf, plan: &mut PlanBuilder<'_>) -> Result {
        if conf.on == Some(true) {
            let offer = CompressionOffer::new(&conf.types, conf.min_length);
            let packing = BrotliPacking {
                level: conf.level.unwrap_or(6),
                window: conf.window.unwrap_or(19),
                room: OutputRoom::new(conf.buffers),
            };
            compress::install(plan, Self::NAME, offer, packing);
        }
        Ok(())
    }
}

/// Gives the closures of the table the type of their argument.
type BrotliRow = Directive<BrotliConf>;

/// The settings of one block.
#[derive(Clone, Default)]
pub struct BrotliConf {
    on: Option<bool>,
    buffers: Option<BufferSizes>,
    types: Option<MediaTypes>,
    level: Option<u8>,
    /// Its logarithm.
    window: Option<u8>,
    min_length: Option<u64>,
}

/// How a location compresses.
struct BrotliPacking {
    level: u8,
    window: u8,
    room: OutputRoom,
}

impl CompressionScheme for BrotliPacking {
    const CODING: ContentCoding = ContentCoding::Brotli;
    const SLOT: FilterSlot = FilterSlot::Brotli;
    type Coder = BrotliCompressor;

    fn coder(&self, length: Option<u64>) -> BrotliCompressor {
        squeezer(self.level, self.window, length)
    }

    fn room(&self) -> OutputRoom {
        self.room
    }
}

const WINDOWS: &str = "1k, 2k, 4k, 8k, 16k, 32k, 64k, 128k, 256k, 512k, 1m, 2m, 4m, 8m or 16m";
