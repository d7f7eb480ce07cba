//! Names of servers are resolved again and again while the configuration is in force.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use weir_conf::{Error, Result};

use crate::block::upstream::Upstream;
use crate::discovery::dns::FollowedName;
use crate::discovery::server_list::{ServerEntry, ServerPlace};
use weir_engine::resolver;
use weir_engine::resolver::{DnsFailure, NameWatch, Resolver};

impl Upstream {
    /// Settles which resolver is asked for names: that of the upstream, else that of `http`.
    ///
    /// # Errors
    /// nginx's words without a resolver, if the upstream has names.
    pub(crate) fn use_resolver(&self, http: Option<&Arc<Resolver>>, timeout: u64) -> Result {
        let names = &self.names;
        match names.own.as_ref().or(http) {
            Some(resolver) => {
                names.resolver.get_or_init(|| (resolver.clone(), names.timeout.unwrap_or(timeout)));
                Ok(())
            }
            None if self.has_names() => {
                let error = Error::new(self.no_resolver());
                Err(match names.place {
                    Some(place) => error.at(place),
                    None => error,
                })
            }
            None => Ok(()),
        }
    }

    fn no_resolver(&self) -> String {
        let name = &self.name;
        format!("no resolver defined to resolve names at run time in upstream \"{name}\"")
    }

    /// Whether a name may be among the servers.
    ///
    /// # Errors
    /// nginx's words when there is no resolver for it.
    pub(crate) fn may_ask(&self) -> std::result::Result<(), String> {
        if self.names.resolver.get().is_some() { Ok(()) } else { Err(self.no_resolver()) }
    }

    /// Begins to follow the names of the upstream.
    pub(crate) fn follow(self: &Arc<Self>) {
        self.names.begun.store(true, Relaxed);
        self.follow_new();
    }

    /// Follows names that are not followed yet.
    pub(crate) fn follow_new(self: &Arc<Self>) {
        let Some((resolver, timeout)) = self.names.resolver.get() else { return };
        if !self.names.begun.load(Relaxed) {
            return;
        }
        let named: Vec<_> = {
            let origins = self.origins();
            let named = origins.list.iter().filter_map(|origin| match &origin.place {
                ServerPlace::Name(named) => Some(named.clone()),
                ServerPlace::Fixed(_) => None,
            });
            named.filter(|named| !named.followed.swap(true, Relaxed)).collect()
        };
        for named in named {
            let (upstream, question, name) =
                (Arc::downgrade(self), named.question.clone(), named.name.clone());
            let reported =
                move |found| upstream.upgrade().is_some_and(|upstream| upstream.found(&named, found));
            resolver.watch(NameWatch { question, name, timeout: *timeout, reported: Box::new(reported) });
        }
    }

    /// For how many milliseconds a request may wait for the first addresses of the upstream's names; `None`: it has none.
    pub(crate) fn name_patience(&self) -> Option<u64> {
        let (_, timeout) = self.names.resolver.get()?;
        self.has_names().then_some(*timeout)
    }

    /// Whether a server of the upstream is a name.
    fn has_names(&self) -> bool {
        self.origins().list.iter().any(|origin| matches!(origin.place, ServerPlace::Name(_)))
    }

    /// Whether a name of the upstream is being looked up for the first time. Once this is false, the peers are those that
    /// were found: look for one after asking this, not before.
    pub(crate) fn awaits_names(&self) -> bool {
        let awaited = |named: &FollowedName| {
            named.followed.load(Relaxed) && !named.settled.load(Relaxed) && named.answer().is_none()
        };
        // `found` holds the list until the peers are there.
        let origins = self.origins();
        origins.list.iter().any(|origin| matches!(&origin.place, ServerPlace::Name(named) if awaited(named)))
    }

    /// What became of a name; `false`: it is no server of the upstream any more. One that is not there has no
    /// addresses; one that no name server could say anything about keeps those it has.
    fn found(&self, named: &Arc<FollowedName>, found: resolver::LookupResult) -> bool {
        let origins = self.origins();
        let listed =
            |origin: &ServerEntry| matches!(&origin.place, ServerPlace::Name(one) if Arc::ptr_eq(one, named));
        if !origins.list.iter().any(listed) {
            return false;
        }
        named.settled.store(true, Relaxed);
        match found {
            Ok(answer) => named.set(Some(answer)),
            Err(DnsFailure::Code(3)) => named.set(None),
            Err(_) => {
                // Nothing waits for its first address any more.
                self.wake_waiting();
                return true;
            }
        }
        self.rebuild(&origins, &self.members());
        self.wake_waiting();
        true
    }
}
