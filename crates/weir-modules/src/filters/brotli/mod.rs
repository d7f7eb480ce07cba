//! `brotli`: compresses responses with Brotli, with the directives of ngx_brotli.

mod encode;

use weir_conf::Directive;
use weir_conf::names::{ANY, ANY_OR_IF, FLAG, ONE};
use weir_engine::filter::FilterSlot;
use weir_engine::plan::PlanBuilder;
use weir_engine::variable::Variable;
use weir_engine::{Module, inherit};

use crate::filters::compress::{
    self, CompressionConf, CompressionScheme, ContentCoding, OutputRoom, compression_row, power,
};
use encode::{BrotliCompressor, LEAST_WINDOW};

#[cfg(test)]
pub(crate) use encode::BrotliStream;
pub(crate) use encode::squeezer;

/// The module `brotli`.
pub struct Brotli;

impl Module for Brotli {
    const NAME: &'static str = "brotli";
    type Conf = BrotliConf;
    const DIRECTIVES: &'static [Directive<BrotliConf>] = &[
        BrotliRow::new("brotli", ANY_OR_IF, FLAG, |conf, line| line.flag(&mut conf.common.on))
            .syntax("brotli on | off")
            .default("off")
            .doc("Compresses responses with Brotli for clients that accept `br`.")
            .example(
                "brotli on;\n\
                 brotli_comp_level 5;\n\
                 brotli_types text/css application/javascript application/json;",
            ),
        compression_row!(buffers, "brotli_buffers"),
        compression_row!(types, "brotli_types"),
        BrotliRow::new("brotli_comp_level", ANY, ONE, |conf, line| {
            line.number(&mut conf.common.level, 0..=11)
        })
        .syntax("brotli_comp_level level")
        .default("6")
        .doc(
            "Compression level, from 0 (fastest) to 11 (smallest). A worker runs eight \
                 compressors at a time, of 4 MB each at level 6 and 36 MB at level 9. A \
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
        compression_row!(min_length, "brotli_min_length"),
    ];
    const VARIABLES: &'static [Variable] =
        &compress::ratio_variable("brotli_ratio", |x| compress::ratio(x, ContentCoding::Brotli));

    fn inherit(conf: &mut BrotliConf, parent: &BrotliConf) {
        conf.common.inherit(&parent.common);
        inherit!(conf, parent, window);
    }

    fn install(conf: &BrotliConf, plan: &mut PlanBuilder<'_>) {
        if let Some(offer) = conf.common.offer() {
            let packing = BrotliPacking {
                level: conf.common.level.unwrap_or(6),
                window: conf.window.unwrap_or(19),
                room: conf.common.room(),
            };
            compress::install(plan, Self::NAME, offer, packing);
        }
    }
}

/// Gives the closures of the table the type of their argument.
type BrotliRow = Directive<BrotliConf>;

/// The settings of one block.
#[derive(Clone, Default)]
pub struct BrotliConf {
    common: CompressionConf,
    /// The logarithm to base 2 of the window's bytes; `None`: the default.
    window: Option<u8>,
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
