//! `gunzip`: decompresses gzip responses for clients that do not accept gzip (nginx's
//! `ngx_http_gunzip_filter_module`).

mod inflate;
mod reader;

use weir_conf::names::{ANY, FLAG, TWO};
use weir_conf::{BufferSizes, Directive};
use weir_engine::filter::{FilterSlot, HeaderFilter};
use weir_engine::plan::PlanBuilder;
use weir_engine::{Exchange, Module, Verdict, inherit};
use weir_http::KnownField;
use weir_trace::{Site, SiteKind};

use crate::filters::compress::{self, CompressingBody, OutputRoom, PieceFlushing};
pub(crate) use inflate::GunzipCoder;
pub use reader::GunzipReader;

/// The module `gunzip`.
pub struct Gunzip;

impl Module for Gunzip {
    const NAME: &'static str = "gunzip";
    type Conf = GunzipConf;
    const DIRECTIVES: &'static [Directive<GunzipConf>] = &[
        GunzipRow::new("gunzip", ANY, FLAG, |conf, line| line.flag(&mut conf.on))
            .syntax("gunzip on | off")
            .default("off")
            .doc("Decompresses gzip responses for clients that do not accept gzip."),
        GunzipRow::new("gunzip_buffers", ANY, TWO, |conf, line| line.bufs(&mut conf.buffers))
            .syntax("gunzip_buffers number size")
            .default("2 8k")
            .doc(
                "Number and size of output buffers. Decompressed data is passed on in pieces of \
                 this size, 512 bytes to 8k. Decompression pauses while number times size bytes, \
                 64k at most, wait for the client.",
            ),
    ];

    fn inherit(conf: &mut GunzipConf, parent: &GunzipConf) {
        inherit!(conf, parent, on, buffers);
    }

    fn install(conf: &GunzipConf, plan: &mut PlanBuilder<'_>) {
        if conf.on == Some(true) {
            let body = plan.site(SiteKind::BodyFilter, Self::NAME);
            plan.header_filter(
                FilterSlot::Gunzip,
                Self::NAME,
                GunzipFilter { body, room: OutputRoom::new(conf.buffers) },
            );
        }
    }
}

/// Gives the closures of the table the type of their argument.
type GunzipRow = Directive<GunzipConf>;

/// The settings of one block.
#[derive(Clone, Default)]
pub struct GunzipConf {
    on: Option<bool>,
    buffers: Option<BufferSizes>,
}

struct GunzipFilter {
    /// Where unpacking goes.
    body: Site,
    room: OutputRoom,
}

impl HeaderFilter for GunzipFilter {
    fn is_rehearsable(&self) -> bool {
        true
    }

    fn filter(&self, x: &mut Exchange) -> Verdict {
        let coding = x.response.header(KnownField::ContentEncoding);
        if !coding.is_some_and(|coding| x.text(coding).eq_ignore_ascii_case(b"gzip")) {
            return Verdict::Passed;
        }
        compress::vary(x);
        if compress::gzip_ok(x).is_none() {
            self.unpack(x);
        }
        Verdict::Ok
    }

    fn is_plain(&self) -> bool {
        true
    }
}

impl GunzipFilter {
    fn unpack(&self, x: &mut Exchange) {
        x.response.remove(KnownField::ContentEncoding);
        compress::recoded(x);
        if !x.response.header_only {
            self.room.bound(x);
            let packer =
                CompressingBody::new(GunzipCoder::default(), None, 0, PieceFlushing::WhenFull, self.room);
            x.body_filter(FilterSlot::Gunzip, self.body, packer);
        }
    }
}
