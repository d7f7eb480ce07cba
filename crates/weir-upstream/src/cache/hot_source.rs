//! A response in a worker's memory as the source of responses that are known from the sight of a request.

use std::rc::{Rc, Weak};

use super::hot::{CachedResponse, HotCache};
use weir_engine::body::BodyBuf;
use weir_engine::exchange::ResponseSource;

/// A cached response, as long as it is the one of its key, and fresh.
pub(crate) struct HotSource {
    hot: Rc<HotCache>,
    key: Box<[u8]>,
    response: Weak<CachedResponse>,
}

impl HotSource {
    pub(crate) fn new(hot: &Rc<HotCache>, key: Box<[u8]>, response: &Rc<CachedResponse>) -> HotSource {
        HotSource { hot: hot.clone(), key, response: Rc::downgrade(response) }
    }
}

impl ResponseSource for HotSource {
    fn body(&self) -> Option<BodyBuf> {
        let response = self.hot.find(&self.key)?;
        let same = std::ptr::eq(self.response.as_ptr(), Rc::as_ptr(&response));
        if same && response.times.valid >= weir_rt::unix_time().0 { response.body(&self.hot) } else { None }
    }
}
