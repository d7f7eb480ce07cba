//! `zstd`: responses compressed with Zstandard (RFC 8878) as they leave, by the directives of zstd-nginx-module.

mod encode;

use weir_conf::names::{ANY, ANY_OR_IF, FLAG, MORE, ONE, TWO};
use weir_conf::{BufferSizes, Directive, Result};
use weir_engine::filter::FilterSlot;
use weir_engine::plan::PlanBuilder;
use weir_engine::variable::Variable;
use weir_engine::{Module, inherit};

use crate::filters::compress::{self, CompressionOffer, CompressionScheme, ContentCoding, OutputRoom};
use crate::filters::media::MediaTypes;
use encode::ZstdCompressor;

#[cfg(test)]
pub(crate) use encode::ZstdFrame;
pub(crate) use encode::presser;

/// The module.
pub struct Zstd;

impl Module for Zstd {
    const NAME: &'static str = "zstd";
    type Conf = ZstdConf;
    const DIRECTIVES: &'static [Directive<ZstdConf>] = &[
        ZstdRow::new("zstd", ANY_OR_IF, FLAG, |conf, line| line.flag(&mut conf.on))
            .syntax("zstd on | off")
            .default("off")
            .doc(
                "Compresses responses with Zstandard, with a window of 512 KB, for clients \
                 that accept `zstd`.",
            ),
        ZstdRow::new("zstd_buffers", ANY, TWO, |conf, line| line.bufs(&mut conf.buffers))
            .syntax("zstd_buffers number size")
            .default("2 8k")
            .doc(
                "Number and size of output buffers: compressed data is passed on in pieces of \
                 this size (512 bytes to 8k), and compression pauses while number times size \
                 bytes, 64k at most, wait for the client.",
            ),
        ZstdRow::new("zstd_types", ANY, MORE, |conf, line| MediaTypes::set(&mut conf.types, line))
            .syntax("zstd_types mime-type ...")
            .default("text/html")
            .doc("MIME types that are compressed, besides `text/html`; `*` matches any."),
        ZstdRow::new("zstd_comp_level", ANY, ONE, |conf, line| line.number(&mut conf.level, 1..=22))
            .syntax("zstd_comp_level level")
            .default("1")
            .doc(
                "Compression level, from 1 (fastest) to 22 (smallest). A worker runs eight \
                 compressors at a time, of 1.3 MB each at level 1 and 4 MB at level 6; a \
                 response that waits for its client while another response needs one \
                 continues with a new frame.",
            ),
        ZstdRow::new("zstd_min_length", ANY, ONE, |conf, line| line.size(&mut conf.min_length))
            .syntax("zstd_min_length length")
            .default("20")
            .doc("Minimum `Content-Length` of responses that are compressed, in bytes."),
    ];
    const VARIABLES: &'static [Variable] =
        &compress::ratio_variable("zstd_ratio", |x| compress::ratio(x, ContentCoding::Zstd));

    fn inherit(conf: &mut ZstdConf, parent: &ZstdConf) {
        inherit!(conf, parent, on, buffers, types, level, min_length);
    }

    fn install(conf: &ZstdConf, plan: &mut PlanBuilder<'_>) -> Result {
        if conf.on == Some(true) {
            let offer = CompressionOffer::new(&conf.types, conf.min_length);
            compress::install(
                plan,
                Self::NAME,
                offer,
                ZstdPacking { level: conf.level.unwrap_or(1), room: OutputRoom::new(conf.buffers) },
            );
        }
        Ok(())
    }
}

/// Gives the closures of the table the type of their argument.
type ZstdRow = Directive<ZstdConf>;

/// The settings of one block.
#[derive(Clone, Default)]
pub struct ZstdConf {
    on: Option<bool>,
    buffers: Option<BufferSizes>,
    types: Option<MediaTypes>,
    level: Option<u8>,
    min_length: Option<u64>,
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
