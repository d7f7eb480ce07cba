//! What `gzip`, `brotli` and `zstd` have under names of their own: the settings, and the rows of the directives that are the
//! same but for their names.

use weir_conf::BufferSizes;
use weir_engine::inherit;

use super::{CompressionOffer, OutputRoom};
use crate::filters::media::MediaTypes;

/// The row of a directive that all of them have: what it is, and its name in the module that lists it. It is for the table
/// of a `Module` whose configuration has the field `common`.
macro_rules! compression_row {
    (buffers, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::TWO, |c, l| l.bufs(&mut c.common.buffers))
            .syntax(concat!($name, " number size"))
            .default("2 8k")
            .doc("Number and size of output buffers. Compressed data is passed on in pieces of this size, 512 bytes to 8k. Compression pauses while number times size bytes, 64k at most, wait for the client.")
    };
    (types, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::MORE, |c, l| $crate::filters::media::MediaTypes::set(&mut c.common.types, l))
            .syntax(concat!($name, " mime-type ..."))
            .default("text/html")
            .doc("MIME types that are compressed, besides `text/html`; `*` matches any.")
    };
    (min_length, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::ONE, |c, l| l.size(&mut c.common.min_length))
            .syntax(concat!($name, " length"))
            .default("20")
            .doc("Minimum `Content-Length` of responses that are compressed, in bytes.")
    };
}

pub(crate) use compression_row;

/// The settings of one block for one coding.
#[derive(Clone, Default)]
pub(crate) struct CompressionConf {
    pub(crate) on: Option<bool>,
    pub(crate) buffers: Option<BufferSizes>,
    pub(crate) types: Option<MediaTypes>,
    pub(crate) level: Option<u8>,
    pub(crate) min_length: Option<u64>,
}

impl CompressionConf {
    pub(crate) fn inherit(&mut self, parent: &CompressionConf) {
        inherit!(self, parent, on, buffers, types, level, min_length);
    }

    /// Which responses are compressed; `None`: it is off.
    pub(crate) fn offer(&self) -> Option<CompressionOffer> {
        (self.on == Some(true)).then(|| CompressionOffer::new(&self.types, self.min_length))
    }

    pub(crate) fn room(&self) -> OutputRoom {
        OutputRoom::new(self.buffers)
    }
}
