//! `brotli`: responses compressed with brotli as they leave, by the directives of ngx_brotli.

mod encode;

use weir_conf::names::{ANY, ANY_OR_IF, FLAG, MORE, ONE, TWO};
use weir_conf::{Bufs, Directive, Result};
use weir_core::filter::Slot;
use weir_core::plan::PlanBuilder;
use weir_core::variable::Variable;
use weir_core::{Module, inherit};

use crate::filters::compress::{self, Coding, Offer, Room, Scheme, power};
use crate::filters::media::MediaTypes;
use encode::{LEAST_WINDOW, Squeezer};

#[cfg(test)]
pub(crate) use encode::Stream;
pub(crate) use encode::squeezer;

/// The module.
pub struct Brotli;

impl Module for Brotli {
    const NAME: &'static str = "brotli";
    type Conf = BrotliConf;
    const DIRECTIVES: &'static [Directive<BrotliConf>] = &[
        Row::new("brotli", ANY_OR_IF, FLAG, |conf, line| line.flag(&mut conf.on))
            .doc("Compresses responses for clients that take br."),
        Row::new("brotli_buffers", ANY, TWO, |conf, line| line.bufs(&mut conf.buffers)).doc(
            "Number and size of buffers: output is handed on in pieces of that size, 512 bytes to 8k, and compressing waits \
             for a client that has left so many unsent, at most 64k; pieces of 8k, of which two may wait.",
        ),
        Row::new("brotli_types", ANY, MORE, |conf, line| MediaTypes::set(&mut conf.types, line))
            .doc("Media types that are compressed besides text/html; * for all."),
        Row::new("brotli_comp_level", ANY, ONE, |conf, line| line.number(&mut conf.level, 0..=11))
            .doc("From 0, the fastest, to 11, the smallest; 6. A worker has eight compressors at work, of 4 MB each at level 6 and 36 at 9: \
                 responses that wait for their clients keep none when others need one."),
        Row::new("brotli_window", ANY, ONE, |conf, line| {
            power(line, &mut conf.window, LEAST_WINDOW..=24, WINDOWS)
        })
        .doc("How far back the compressor looks, 1k to 16m, less for a response known to be shorter; 512k."),
        Row::new("brotli_min_length", ANY, ONE, |conf, line| line.size(&mut conf.min_length))
            .doc("Responses whose Content-Length is less are not compressed; 20."),
    ];
    const VARIABLES: &'static [Variable] =
        &compress::ratio_variable("brotli_ratio", |x| compress::ratio(x, Coding::Brotli));

    fn inherit(conf: &mut BrotliConf, parent: &BrotliConf) {
        inherit!(conf, parent, on, buffers, types, level, window, min_length);
    }

    fn install(conf: &BrotliConf, plan: &mut PlanBuilder<'_>) -> Result {
        if conf.on == Some(true) {
            let offer = Offer::new(&conf.types, conf.min_length);
            let packing = Packing {
                level: conf.level.unwrap_or(6),
                window: conf.window.unwrap_or(19),
                room: Room::new(conf.buffers),
            };
            compress::install(plan, Self::NAME, offer, packing);
        }
        Ok(())
    }
}

/// Tells the closures of the table what they are given.
type Row = Directive<BrotliConf>;

/// The settings of one block.
#[derive(Clone, Default)]
pub struct BrotliConf {
    on: Option<bool>,
    buffers: Option<Bufs>,
    types: Option<MediaTypes>,
    level: Option<u8>,
    /// Its logarithm.
    window: Option<u8>,
    min_length: Option<u64>,
}

/// How a location compresses.
struct Packing {
    level: u8,
    window: u8,
    room: Room,
}

impl Scheme for Packing {
    const CODING: Coding = Coding::Brotli;
    const SLOT: Slot = Slot::Brotli;
    type Coder = Squeezer;

    fn coder(&self, length: Option<u64>) -> Squeezer {
        squeezer(self.level, self.window, length)
    }

    fn room(&self) -> Room {
        self.room
    }
}

const WINDOWS: &str = "1k, 2k, 4k, 8k, 16k, 32k, 64k, 128k, 256k, 512k, 1m, 2m, 4m, 8m or 16m";
