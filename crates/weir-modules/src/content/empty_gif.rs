//! `empty_gif`: responds with a transparent GIF of one pixel, from memory (nginx's `ngx_http_empty_gif_module`).

use weir_conf::Directive;
use weir_conf::names::{LOCATION, NONE};
use weir_engine::body::{BodyBuf, ResponseBody};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::plan::PlanBuilder;
use weir_engine::rehearsed::HandlerRehearsal;
use weir_engine::{Exchange, Handler, Module, Verdict};
use weir_http::Method;

/// The module `empty_gif`.
pub struct EmptyGif;

impl Module for EmptyGif {
    const NAME: &'static str = "empty_gif";
    type Conf = EmptyGifConf;
    const DIRECTIVES: &'static [Directive<EmptyGifConf>] =
        &[Directive::<EmptyGifConf>::new("empty_gif", LOCATION, NONE, |conf, line| {
            line.ext::<ConfRegistry>().claim_content(Self::NAME);
            conf.on = true;
            Ok(())
        })
        .syntax("empty_gif")
        .doc("Responds with a transparent GIF image of one pixel.")];

    fn install(conf: &EmptyGifConf, plan: &mut PlanBuilder<'_>) {
        if conf.on {
            plan.content(Self::NAME, GifHandler);
        }
    }
}

/// The setting of one block; it is not inherited.
#[derive(Default)]
pub struct EmptyGifConf {
    on: bool,
}

struct GifHandler;

impl Handler for GifHandler {
    fn rehearsal(&self, _x: &mut Exchange) -> HandlerRehearsal {
        HandlerRehearsal::Ask
    }

    fn is_fixed(&self, _x: &Exchange) -> bool {
        true
    }

    fn handle(&self, x: &mut Exchange) -> Verdict {
        if !matches!(x.request.head.method, Method::Get | Method::Head) {
            return Verdict::Status(405);
        }
        x.response.status = 200;
        x.response.content_type = Some("image/gif".into());
        x.response.last_modified = Some(MODIFIED);
        x.respond(ResponseBody::Whole(BodyBuf::Static(&GIF)))
    }
}

/// nginx's date of the picture: Mon, 28 Sep 1970 06:00:00 GMT.
const MODIFIED: i64 = 23_349_600;

/// GIF89a of 1 x 1 pixels: two colours, the second, transparent one is shown; its image data is the LZW codes clear,
/// 1, end.
const GIF: [u8; 43] = *b"GIF89a\x01\0\x01\0\x80\x01\0\0\0\0\xff\xff\xff\
    !\xf9\x04\x01\0\0\x01\0,\0\0\0\0\x01\0\x01\0\0\x02\x02L\x01\0;";
