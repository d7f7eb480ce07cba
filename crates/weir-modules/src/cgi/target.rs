//! Where requests go: the argument of `fastcgi_pass` and its like, a group or an address without a URI.

use std::rc::Rc;
use std::sync::Arc;

use weir_conf::{Error, LineCx, Result, Span as Place};
use weir_core::conf::registry::Registry;
use weir_core::upstream::Upstreams;
use weir_core::upstream::group::{Group, lacks_port};
use weir_core::upstream::local::LocalGroup;
use weir_core::variable::Script;
use weir_core::worker::Worker;
use weir_core::{Exchange, Verdict};

/// The argument, as written and as resolved.
#[derive(Clone)]
pub(crate) struct Pass {
    place: Place,
    script: Script,
    group: Option<Arc<Group>>,
}

impl Pass {
    pub(crate) fn set(slot: &mut Option<Pass>, line: &mut LineCx<'_>) -> Result {
        Pass::set_behind(slot, line, "")
    }

    /// As [`Pass::set`]; `scheme` may stand before an address that is known when the configuration is read.
    pub(crate) fn set_behind(slot: &mut Option<Pass>, line: &mut LineCx<'_>, scheme: &str) -> Result {
        if slot.is_some() {
            return Err(line.refuse("is duplicate"));
        }
        let mut script = Script::compile(line, 0)?;
        if !scheme.is_empty()
            && let Some(address) = script.constant().and_then(|text| text.strip_prefix(scheme.as_bytes()))
        {
            script = Script::literal(address);
        }
        if script.constant().is_some_and(<[u8]>::is_empty) {
            return Err(line.fail_arg(0, "no host in upstream \"\""));
        }
        *slot = Some(Pass { place: line.args()[0].span, script, group: None });
        Ok(())
    }

    /// Finds the group: an `upstream` of that name, wherever in the file, or the address, which must have a port.
    pub(crate) fn resolve(&mut self, registry: &mut Registry) -> Result {
        let Some(text) = self.script.constant() else { return Ok(()) };
        let text = String::from_utf8_lossy(text).into_owned();
        let found = registry.shared::<Upstreams>().named(&text, None);
        self.group = Some(found.map_err(|message| Error::new(message).at(self.place))?);
        Ok(())
    }

    pub(crate) fn install(&self, worker: &Rc<Worker>) -> Target {
        match &self.group {
            Some(group) => Target::Fixed(worker.upstreams.group(group)),
            None => Target::Computed(self.script.clone()),
        }
    }
}

/// Where a location's requests go, on one worker.
pub(crate) enum Target {
    /// Known when the configuration is read.
    Fixed(Rc<LocalGroup>),
    /// Computed for each request.
    Computed(Script),
}

impl weir_core::upstream::Target for Target {
    async fn choose(&self, x: &mut Exchange) -> std::result::Result<Rc<LocalGroup>, Verdict> {
        let script = match self {
            Target::Fixed(group) => return Ok(group.clone()),
            Target::Computed(script) => script,
        };
        let value = script.value(x);
        let host = String::from_utf8_lossy(x.text(&value)).into_owned();
        let link = x.server.generation();
        let known =
            link.configuration.tables.shared::<Upstreams>().is_some_and(|all| all.find(&host).is_some());
        let wrong = match () {
            () if host.is_empty() => "no host",
            () if !known && lacks_port(&host) => "no port",
            () => return weir_core::upstream::computed(x, &host, NO_PORT).await,
        };
        x.log_error(&format_args!("{wrong} in upstream \"{host}\""));
        Err(Verdict::Status(500))
    }
}

/// Never used: hosts without a port are refused before.
const NO_PORT: u16 = 0;
