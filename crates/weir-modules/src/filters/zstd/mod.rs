//! `zstd`: compresses responses with Zstandard (RFC 8878), with the directives of zstd-nginx-module.

mod encode;

use weir_conf::Directive;
use weir_conf::names::{ANY, ANY_OR_IF, FLAG, ONE};
use weir_engine::Module;
use weir_engine::filter::FilterSlot;
use weir_engine::plan::PlanBuilder;
use weir_engine::variable::Variable;

use crate::filters::compress::{
    self, CompressionConf, CompressionScheme, ContentCoding, OutputRoom, compression_row,
};
use encode::ZstdCompressor;

#[cfg(test)]
pub(crate) use encode::ZstdFrame;
pub(crate) use encode::presser;

/// The module `zstd`.
pub struct Zstd;

impl Module for Zstd {
    const NAME: &'static str = "zstd";
    type Conf = ZstdConf;
    const DIRECTIVES: &'static [Directive<ZstdConf>] = &[
        ZstdRow::new("zstd", ANY_OR_IF, FLAG, |conf, line| line.flag(&mut conf.common.on))
            .syntax("zstd on | off")
            .default("off")
            .doc(
                "Compresses responses with Zstandard, with a window of 512 KB, for clients \
                 that accept `zstd`.",
            ),
        compression_row!(buffers, "zstd_buffers"),
        compression_row!(types, "zstd_types"),
        ZstdRow::new("zstd_comp_level", ANY, ONE, |conf, line| line.number(&mut conf.common.level, 1..=22))
            .syntax("zstd_comp_level level")
            .default("1")
            .doc(
                "Compression level, from 1 (fastest) to 22 (smallest). A worker runs eight \
                 compressors at a time, of 1.3 MB each at level 1 and 4 MB at level 6. A \
                 response that waits for its client while another response needs one \
                 continues with a new frame.",
            ),
        compression_row!(min_length, "zstd_min_length"),
    ];
    const VARIABLES: &'static [Variable] =
        &compress::ratio_variable("zstd_ratio", |x| compress::ratio(x, ContentCoding::Zstd));

    fn inherit(conf: &mut ZstdConf, parent: &ZstdConf) {
        conf.common.inherit(&parent.common);
    }

    fn install(conf: &ZstdConf, plan: &mut PlanBuilder<'_>) {
        if let Some(offer) = conf.common.offer() {
            let packing = ZstdPacking { level: conf.common.level.unwrap_or(1), room: conf.common.room() };
            compress::install(plan, Self::NAME, offer, packing);
        }
    }
}

/// Gives the closures of the table the type of their argument.
type ZstdRow = Directive<ZstdConf>;

/// The settings of one block.
#[derive(Clone, Default)]
pub struct ZstdConf {
    common: CompressionConf,
}

/// How a location compresses.
struct ZstdPacking {
    level: u8,
    room: OutputRoom,
}

impl CompressionScheme for ZstdPacking {
    const CODING: ContentCoding = ContentCoding::Zstd;
    const SLOT: FilterSlot = FilterSlot::Zstd;
    type Coder = ZstdCompressor;

    fn coder(&self, length: Option<u64>) -> ZstdCompressor {
        presser(self.level, length)
    }

    fn room(&self) -> OutputRoom {
        self.room
    }
}
