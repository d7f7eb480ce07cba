//! Shared zones: memory by name, of all workers, that lives through reloads (nginx's `zone=name:size`).
//!
//! A configuration declares zones in its [`SharedZones`]; a module that uses one, before or after its declaration,
//! holds the same [`SharedZone`]. What is in it is made when first asked for, and a reload takes over what the
//! configuration before had under the same name, owner and size ([`SharedZones::adopt`]). [`ZoneTable`] is what most
//! zones hold.

pub mod survival;
mod survivors;
mod table;

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

pub use survivors::SurvivingValue;
pub use table::{EntryHandle, LockedEntries, ZoneTable};

/// The zones of one configuration; lent by `ConfRegistry::shared`.
#[derive(Default)]
pub struct SharedZones(Vec<Arc<SharedZone>>);

/// A named zone that workers share: its size, owner and content.
pub struct SharedZone {
    /// Its name, unique among the zones of its directive.
    pub name: Box<str>,
    /// The directive that declares zones of this use.
    owner: &'static str,
    declared: OnceLock<DeclaredZone>,
    store: OnceLock<Arc<dyn ZoneStore + Send + Sync>>,
    /// What is in it is the configuration's before.
    adopted: AtomicBool,
}

/// What a zone holds, for a caller that looks from outside.
pub trait ZoneStore: Any {
    /// How full it is.
    fn usage(&self) -> ZoneUsage;

    /// Why a zone `name` of a later configuration, whose directive says `next`, can't go on with what is in this one.
    fn refuses(&self, _name: &str, _next: &dyn Any) -> Option<String> {
        None
    }
}

/// How full a zone is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneUsage {
    /// Bytes in use, as nginx would count them.
    pub used: u64,
    /// Bytes of the zone.
    pub size: u64,
    /// Number of times there was no room for an entry: others were evicted for it, or it was refused.
    pub full: u64,
}

struct DeclaredZone {
    size: u64,
    key: Box<str>,
    settings: Box<dyn Any + Send + Sync>,
}

impl SharedZones {
    /// The zone `name`, which directives of `owner` declare; it may not be declared yet.
    ///
    /// # Errors
    /// nginx's words when zones of another use have the name.
    pub fn named(&mut self, owner: &'static str, name: &str) -> Result<Arc<SharedZone>, String> {
        if let Some(zone) = self.0.iter().find(|zone| &*zone.name == name) {
            return match zone.owner == owner {
                true => Ok(zone.clone()),
                false => {
                    Err(format!("the shared memory zone \"{name}\" is already declared for a different use"))
                }
            };
        }
        let zone = SharedZone {
            name: Box::from(name),
            owner,
            declared: OnceLock::new(),
            store: OnceLock::new(),
            adopted: AtomicBool::new(false),
        };
        self.0.push(Arc::new(zone));
        Ok(self.0.last().expect("pushed above").clone())
    }

    /// The zones in use: the directive that declared each, its name, and how full it is.
    pub fn usage(&self) -> impl Iterator<Item = (&'static str, &str, ZoneUsage)> {
        let used = self.0.iter().filter_map(|zone| Some((zone, zone.store.get()?)));
        used.map(|(zone, store)| (zone.owner, &*zone.name, store.usage()))
    }

    /// Those that directives of `owner` declare.
    pub fn of<'z>(&'z self, owner: &'static str) -> impl Iterator<Item = &'z Arc<SharedZone>> + use<'z> {
        self.0.iter().filter(move |zone| zone.owner == owner)
    }

    /// Takes over what `before` has; a zone of another size begins empty. Nothing changes when it fails.
    ///
    /// # Errors
    /// A zone has another key than before, or what is in it can't be used as its directive says now. In nginx's words.
    pub fn adopt(&self, before: &SharedZones) -> Result<(), String> {
        let pairs = || {
            self.0.iter().filter_map(|zone| {
                let old = before.0.iter().find(|old| old.name == zone.name && old.owner == zone.owner)?;
                let (new, was) = (zone.declared.get()?, old.declared.get()?);
                (new.size == was.size).then_some((zone, old, new, was))
            })
        };
        if let Some((zone, _, new, was)) = pairs().find(|(_, _, new, was)| new.key != was.key) {
            let name = &zone.name;
            let (what, kind) = match zone.owner.strip_suffix("_cache_path") {
                Some(_) => ("cache", "cache path"),
                None => (zone.owner, "key"),
            };
            return Err(format!(
                "{what} \"{name}\" uses the \"{}\" {kind} while previously it used the \"{}\" {kind}",
                new.key, was.key
            ));
        }
        let refusal =
            |(zone, old, new, _): (&Arc<SharedZone>, &Arc<SharedZone>, &DeclaredZone, &DeclaredZone)| {
                old.store.get()?.refuses(&zone.name, &*new.settings)
            };
        if let Some(refusal) = pairs().find_map(refusal) {
            return Err(refusal);
        }
        for (zone, old, ..) in pairs() {
            if let Some(store) = old.store.get() {
                // Taken already when the same configuration is taken into use again.
                let _ = zone.store.set(store.clone());
                zone.adopted.store(true, Relaxed);
            }
        }
        Ok(())
    }
}

impl SharedZone {
    /// Declares the zone: its size in bytes, the text of its key, and what else its directive says.
    ///
    /// # Errors
    /// nginx's words when it is declared already.
    pub fn declare(&self, size: u64, key: &str, settings: impl Any + Send + Sync) -> Result<(), String> {
        let declared = DeclaredZone { size, key: Box::from(key), settings: Box::new(settings) };
        if let Some(known) = self.declared.get() {
            let name = &self.name;
            return Err(match known.size == size {
                true => format!("{} \"{name}\" is already bound to key \"{}\"", self.owner, known.key),
                false => format!(
                    "the size {size} of shared memory zone \"{name}\" conflicts with already declared size {}",
                    known.size
                ),
            });
        }
        self.declared.get_or_init(|| declared);
        Ok(())
    }

    /// What the zone's directive says, if it is of type `S`; `None` when it is absent.
    pub fn settings<S: 'static>(&self) -> Option<&S> {
        self.declared.get()?.settings.downcast_ref()
    }

    /// The directive that declares the zone, without its arguments: `limit_req_zone`.
    pub fn owner(&self) -> &'static str {
        self.owner
    }

    /// Its size in bytes; `None` where it is not declared.
    pub fn size(&self) -> Option<u64> {
        self.declared.get().map(|declared| declared.size)
    }

    /// Whether a reload has brought what is in it.
    pub fn is_adopted(&self) -> bool {
        self.adopted.load(Relaxed)
    }

    /// The text of its key, for messages.
    pub fn key(&self) -> &str {
        self.declared.get().map_or("", |declared| &declared.key)
    }

    /// What is in it, made by `make` of the zone's size in bytes if it is not made yet.
    pub fn store<T: ZoneStore + Send + Sync>(&self, make: impl FnOnce(u64) -> T) -> Arc<T> {
        let size = self.declared.get().map_or(0, |declared| declared.size);
        let store: Arc<dyn Any + Send + Sync> = self.store.get_or_init(|| Arc::new(make(size))).clone();
        store.downcast().expect("the owner of a zone decides what is in it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl ZoneStore for &'static str {
        fn usage(&self) -> ZoneUsage {
            ZoneUsage { used: self.len() as u64, size: 10, ..ZoneUsage::default() }
        }
    }

    fn zones(declared: &[(&'static str, &str, u64, &str)]) -> SharedZones {
        let mut zones = SharedZones::default();
        for (owner, name, size, key) in declared {
            zones.named(owner, name).unwrap().declare(*size, key, 7_u32).unwrap();
        }
        zones
    }

    #[test]
    fn a_zone_has_one_use_and_one_declaration() {
        let mut zones = zones(&[("limit_req_zone", "one", 65536, "$a")]);
        let zone = zones.named("limit_req_zone", "one").unwrap();
        assert_eq!(zone.settings::<u32>(), Some(&7));
        assert_eq!(
            zone.declare(65536, "$b", 0).unwrap_err(),
            "limit_req_zone \"one\" is already bound to key \"$a\""
        );
        assert_eq!(
            zone.declare(1, "$a", 0).unwrap_err(),
            "the size 1 of shared memory zone \"one\" conflicts with already declared size 65536"
        );
        assert_eq!(
            zones.named("limit_conn_zone", "one").err().unwrap(),
            "the shared memory zone \"one\" is already declared for a different use"
        );
    }

    #[test]
    fn a_reload_takes_over_what_is_the_same_zone() {
        let old = zones(&[("r", "same", 10, "$a"), ("r", "grown", 10, "$a"), ("c", "other", 10, "$a")]);
        for zone in &old.0 {
            zone.store(|_| "old");
        }
        let new = zones(&[("r", "same", 10, "$a"), ("r", "grown", 20, "$a"), ("r", "other", 10, "$a")]);
        new.adopt(&old).unwrap();
        let stores: Vec<_> = new.0.iter().map(|zone| *zone.store(|_| "new")).collect();
        assert_eq!(stores, ["old", "new", "new"]);
        let usage: Vec<_> = old.usage().map(|(owner, name, usage)| (owner, name, usage.used)).collect();
        assert_eq!(usage, [("r", "same", 3), ("r", "grown", 3), ("c", "other", 3)]);
    }

    #[test]
    fn a_reload_with_another_key_is_refused() {
        let (old, new) = (zones(&[("r", "one", 10, "$a")]), zones(&[("r", "one", 10, "$b")]));
        assert_eq!(
            new.adopt(&old).unwrap_err(),
            "r \"one\" uses the \"$b\" key while previously it used the \"$a\" key"
        );
    }
}
