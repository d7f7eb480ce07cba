//! HTTP/1 as a protocol of upstreams.

use std::sync::Arc;

use weir_engine::variable::{ValueBasis, ValueScript};
use weir_engine::worker::UpstreamCloseProtocol;
use weir_engine::{Exchange, Span, Text, Verdict};
use weir_http::h1::{
    BodyLength, ChunkStrictness, ChunkedDecoder, HeadLimits, HeadParse, ResponseHead, TrailerLimits,
    TrailerMisfit,
};
use weir_http::{Field, KnownField, Method, Version};
use weir_upstream::UpstreamSettings;
use weir_upstream::protocol::{
    BodyDecoder, HeadProgress, IncomingHead, KnownHead, OutgoingRequest, UpstreamProtocol,
};
use weir_upstream::tls_client::SecureUpstream;
use weir_upstream::tls_client::client::ClientTls;

use super::known_response::KnownResponse;
use super::pass::PassGoal;
use super::request::{self, RequestFields};
use super::rewrite::{self, CookieRules, ValueRule};
use super::upgrade::{self, UpgradeProtocols};
use crate::gateway::answer_head;

/// A location's way of speaking HTTP.
pub(super) struct HttpPass {
    pub(super) fields: RequestFields,
    pub(super) version: u8,
    /// The protocols that a client may change to.
    pub(super) upgrade: UpgradeProtocols,
    pub(super) method: Option<ValueScript>,
    pub(super) body: Option<ValueScript>,
    pub(super) settings: Arc<UpstreamSettings>,
    pub(super) redirects: Vec<ValueRule>,
    pub(super) cookies: CookieRules,
    /// `proxy_ssl_...`, where servers may speak TLS.
    pub(super) tls: Option<Arc<ClientTls>>,
    pub(super) known: KnownResponse,
}

impl UpstreamProtocol for HttpPass {
    fn closes_as(&self) -> UpstreamCloseProtocol {
        match self.multiplexes() {
            true => UpstreamCloseProtocol::Http2,
            false => UpstreamCloseProtocol::Http1,
        }
    }

    fn scheme(&self) -> &'static str {
        "http://"
    }

    fn secure(&self, x: &mut Exchange) -> Option<SecureUpstream> {
        let tls = self.tls.as_ref()?;
        let goal = PassGoal::of(x).filter(|goal| goal.https)?;
        let host = goal.host.clone()?;
        let host = String::from_utf8_lossy(x.text(&host)).into_owned();
        Some(tls.secure(x, &host))
    }

    fn is_plain(&self) -> bool {
        self.version != 20
    }

    fn multiplexes(&self) -> bool {
        self.version == 20
    }

    fn cache_key(&self, x: &mut Exchange) -> Result<Span, Verdict> {
        request::cache_key(x)
    }

    fn request(&self, x: &mut Exchange, out: &mut OutgoingRequest) -> Result<(), Verdict> {
        request::compose(self, x, out)
    }

    fn head(
        &self,
        x: &mut Exchange,
        bytes: &[u8],
        incoming: &mut IncomingHead,
    ) -> Result<HeadProgress, String> {
        let most = self.settings.buffer_size as usize;
        let limits = HeadLimits { max_line: most, max_head: most, ..HeadLimits::default() };
        let mut fields = std::mem::take(&mut incoming.fields);
        fields.reserve(FIELDS);
        let mut head = ResponseHead { fields, ..ResponseHead::default() };
        if self.known.recall(bytes, &mut head) {
            incoming.memo = self.known.memo();
            return self.fill(x, bytes, head, incoming);
        }
        match head.parse(bytes, &limits) {
            Ok(HeadParse::Incomplete { .. }) => return Ok(HeadProgress::Incomplete),
            Ok(HeadParse::Complete) => {}
            Err(bad) => return Err(answer_head::complaint(&head, bad, bytes)),
        }
        if (100..200).contains(&head.status) && head.status != 101 {
            if head.status == 103 {
                if head.version < Version::V11 {
                    return Err("upstream sent HTTP/1.0 response with early hints".to_owned());
                }
                incoming.fields = std::mem::take(&mut head.fields);
            }
            incoming.status = head.status;
            return Ok(HeadProgress::Interim(head.len));
        }
        self.known.keep(bytes, &head);
        self.fill(x, bytes, head, incoming)
    }

    fn basis(&self, x: &Exchange) -> ValueBasis {
        let values = self.fields.basis(x);
        let method = self.method.as_ref().map_or(ValueBasis::Head, |method| method.basis(x));
        if self.body.is_some() || self.multiplexes() { ValueBasis::Request } else { values.max(method) }
    }

    fn known_head(&self, bytes: &[u8]) -> Option<KnownHead> {
        // Another method may have no body where a GET has one.
        if self.method.is_some() { None } else { self.known.sight(bytes) }
    }

    fn speaks_for_server(&self) -> bool {
        true
    }

    fn field(&self, x: &mut Exchange, field: &Field) -> Option<Text> {
        let value = || x.arena.get(field.value).to_vec();
        let new = match field.known {
            KnownField::Location if !self.redirects.is_empty() => {
                let value = value();
                rewrite::first(&self.redirects, x, &value, 0)
            }
            KnownField::SetCookie if !self.cookies.is_empty() => {
                let value = value();
                self.cookies.rewrite(x, &value)
            }
            _ if !self.redirects.is_empty() && x.arena.get(field.name).eq_ignore_ascii_case(b"refresh") => {
                let value = value();
                rewrite::first(&self.redirects, x, &value, rewrite::refresh_url(&value)?)
            }
            _ => None,
        };
        new.map(|new| Text::Span(x.arena.push(&new)))
    }
}

impl HttpPass {
    /// Moves the head into the arena.
    fn fill(
        &self,
        x: &mut Exchange,
        bytes: &[u8],
        head: ResponseHead,
        incoming: &mut IncomingHead,
    ) -> Result<HeadProgress, String> {
        let method = if request::is_head(self, x) { Method::Head } else { Method::Get };
        let upgraded = head.status == 101;
        if upgraded && !upgrade::was_asked(self, x) {
            return Err("upstream sent 101 to a request that asked for no other protocol".to_owned());
        }
        incoming.keep_alive = head.keep_alive() && head.status != 101;
        incoming.upgraded = upgraded;
        incoming.decoder = match head.body_length(method) {
            BodyLength::None => BodyDecoder::None,
            BodyLength::Bytes(0) => BodyDecoder::None,
            BodyLength::Bytes(length) => BodyDecoder::Length(length),
            BodyLength::Chunked => {
                let decoder = ChunkedDecoder::new(ChunkStrictness::Upstream, self.trailer_limits());
                BodyDecoder::Chunked(Box::new(decoder))
            }
            BodyLength::UntilClose => {
                incoming.keep_alive = false;
                BodyDecoder::UntilClose
            }
        };
        let len = head.len;
        answer_head::keep(x, bytes, head, incoming);
        Ok(HeadProgress::Complete(len))
    }
}

impl HttpPass {
    /// As in nginx a trailer section that is passed on has as much room as a head, and one that is not may be anything.
    fn trailer_limits(&self) -> TrailerLimits {
        match self.settings.pass_trailers {
            true => TrailerLimits {
                bytes: self.settings.buffer_size as usize,
                fields: usize::MAX,
                misfit: TrailerMisfit::Refused,
            },
            false => TrailerLimits::SKIPPED,
        }
    }
}

/// Room for the fields of most responses.
const FIELDS: usize = 12;
