//! The directives of a `*_pass` module about responses that are cached: `_cache…`, `_no_cache`, `_store…`.

use std::sync::Arc;

use weir_conf::{Error, LineCx, Result, Span as Place, parse_number, parse_time_s};
use weir_http::Method;

use crate::cache::place;
use crate::config::failure_reason::FailureReason;
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::inherit;
use weir_engine::variable::ValueScript;
use weir_engine::zone::{SharedZone, SharedZones};

/// The settings of one block as written: `None` where the directive is absent in this block. Times are milliseconds
/// where not said.
#[derive(Clone, Debug, Default)]
pub struct CacheFamily {
    /// `_cache`; `Some(None)`: `off`.
    pub zone: Option<Option<CacheZoneSetting>>,
    /// `_cache_key`: the key, a text with variables.
    pub key: Option<ValueScript>,
    /// `_cache_valid`: statuses, 0 for all, and seconds.
    pub valid: Option<Vec<(u16, u64)>>,
    /// `_cache_min_uses`: number of requests after which a response is cached.
    pub min_uses: Option<u64>,
    /// `_cache_methods`: bits by `Method as u32`.
    pub methods: Option<u32>,
    /// `_cache_bypass`: the response is not taken from the cache where one of these is neither empty nor `0`.
    pub bypass: Option<Vec<ValueScript>>,
    /// `_no_cache`: the response is not cached where one of these is neither empty nor `0`.
    pub no_cache: Option<Vec<ValueScript>>,
    /// `_cache_purge`: the request removes the cached response where one of these is neither empty nor `0`.
    pub purge: Option<Vec<ValueScript>>,
    /// `_cache_use_stale`: bits of [`FailureReason`] and [`UPDATING`].
    pub use_stale: Option<u32>,
    /// `_cache_background_update`: whether stale responses are fetched again in the background.
    pub background_update: Option<bool>,
    /// `_cache_revalidate`: whether stale responses are revalidated by conditional requests.
    pub revalidate: Option<bool>,
    /// `_cache_lock`: whether only one request at a time fetches a response.
    pub lock: Option<bool>,
    /// `_cache_lock_age`, in milliseconds.
    pub lock_age: Option<u64>,
    /// `_cache_lock_timeout`, in milliseconds.
    pub lock_timeout: Option<u64>,
    /// `_cache_convert_head`: whether HEAD is sent as GET.
    pub convert_head: Option<bool>,
    /// `_cache_max_range_offset`, in bytes.
    pub max_range_offset: Option<u64>,
    /// `_store`; `Some(None)`: `off`.
    pub store: Option<Option<StoreTarget>>,
    /// `_store_access`: permission bits of stored files.
    pub store_access: Option<u32>,
}

/// The argument of `_cache`: a zone, a text with variables, or `off`.
#[derive(Clone)]
pub enum CacheZoneSetting {
    /// A zone, and where it is named.
    Fixed(Arc<SharedZone>, Place),
    /// A name that is computed.
    Computed(ValueScript),
}

impl std::fmt::Debug for CacheZoneSetting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CacheZoneSetting::Fixed(zone, _) => write!(f, "Fixed({})", zone.name),
            CacheZoneSetting::Computed(script) => write!(f, "Computed({script:?})"),
        }
    }
}

/// Where `_store` puts responses.
#[derive(Clone, Debug)]
pub enum StoreTarget {
    /// Where `root` or `alias` has the URI's file.
    Mapped,
    /// At a path that is computed.
    At(ValueScript),
}

/// The settings of a location that caches responses.
#[derive(Clone, Debug)]
pub struct CacheSettings {
    /// See [`CacheFamily`]; so are all others.
    pub zone: CacheZoneSetting,
    /// The directive that declares its zones.
    pub owner: &'static str,
    /// `None`: the protocol's own.
    pub key: Option<ValueScript>,
    /// Statuses, 0 for all, and seconds.
    pub valid: Vec<(u16, u64)>,
    /// From this use on responses are cached.
    pub min_uses: u64,
    /// Bits by `Method as u32`.
    pub methods: u32,
    /// The cache is not asked where one of these is true.
    pub bypass: Vec<ValueScript>,
    /// Nothing is cached where one of these is true.
    pub no_cache: Vec<ValueScript>,
    /// The response is removed where one of these is true.
    pub purge: Vec<ValueScript>,
    /// Bits of [`FailureReason`] and [`UPDATING`].
    pub use_stale: u32,
    /// True when what is stale is fetched again in the background.
    pub background_update: bool,
    /// True when what is too old is asked for with conditions.
    pub revalidate: bool,
    /// One request at a time fetches a response, for this many milliseconds (`_cache_lock_age`); `None` without
    /// `_cache_lock`.
    pub lock: Option<u64>,
    /// Other requests wait for it this many milliseconds (`_cache_lock_timeout`).
    pub lock_timeout: u64,
    /// True when HEAD is asked as GET.
    pub convert_head: bool,
    /// Ranges that begin beyond this byte are the server's business (`_cache_max_range_offset`); `None`: no limit.
    pub max_range_offset: Option<u64>,
}

/// Gives the macro `$use` the settings of [`CacheFamily`] beside zone and store, after its own arguments.
macro_rules! written_settings {
    ($use:ident, $($argument:expr),+) => {
        $use!(
            $($argument),+,
            key,
            valid,
            min_uses,
            methods,
            bypass,
            no_cache,
            purge,
            use_stale,
            background_update,
            revalidate,
            lock,
            lock_age,
            lock_timeout,
            convert_head,
            max_range_offset,
            store_access,
        )
    };
}

impl CacheFamily {
    /// Takes from the block around what is not set.
    pub fn inherit(&mut self, parent: &CacheFamily) {
        let (conf, parent) = (self, parent);
        // One of the two at a time: what a block says itself ends the other.
        if conf.zone.is_none() && !matches!(conf.store, Some(Some(_))) {
            conf.zone = parent.zone.clone();
        }
        if conf.store.is_none() && !matches!(conf.zone, Some(Some(_))) {
            conf.store = parent.store.clone();
        }
        written_settings!(inherit, conf, parent);
    }

    /// Whether this block says nothing of it.
    pub(crate) fn is_unwritten(&self) -> bool {
        macro_rules! unwritten {
            ($family:expr, $($field:ident),+ $(,)?) => {{
                let CacheFamily { $($field,)+ zone, store } = $family;
                true $(&& $field.is_none())+ && zone.is_none() && store.is_none()
            }};
        }
        written_settings!(unwritten, self)
    }

    /// The settings; `None` where nothing is cached.
    ///
    /// # Errors
    /// nginx's words for a zone that is not declared.
    pub(crate) fn resolve(&self, prefix: &'static str) -> Result<Option<Arc<CacheSettings>>> {
        let Some(Some(zone)) = &self.zone else { return Ok(None) };
        if let CacheZoneSetting::Fixed(zone, at) = zone
            && zone.settings::<place::CacheZone>().is_none()
        {
            let words = format!("\"{prefix}_cache\" zone \"{}\" is unknown", zone.name);
            return Err(Error::new(words).at(*at));
        }
        let mut use_stale = self.use_stale.unwrap_or(0);
        if use_stale & FailureReason::OFF.0 != 0 {
            use_stale = 0;
        }
        if use_stale & FailureReason::ERROR.0 != 0 {
            use_stale |= FailureReason::NO_LIVE.0;
        }
        let key = match (&self.key, prefix) {
            (None, "proxy") => None,
            (None, _) => Some(ValueScript::literal(b"")),
            (key, _) => key.clone(),
        };
        Ok(Some(Arc::new(CacheSettings {
            zone: zone.clone(),
            owner: place::owner(prefix),
            key,
            valid: self.valid.clone().unwrap_or_default(),
            min_uses: self.min_uses.unwrap_or(1),
            methods: self.methods.unwrap_or(0) | 1 << Method::Get as u32 | 1 << Method::Head as u32,
            bypass: self.bypass.clone().unwrap_or_default(),
            no_cache: self.no_cache.clone().unwrap_or_default(),
            purge: self.purge.clone().unwrap_or_default(),
            use_stale,
            background_update: self.background_update.unwrap_or(false),
            revalidate: self.revalidate.unwrap_or(false),
            lock: self.lock.unwrap_or(false).then(|| self.lock_age.unwrap_or(5000)),
            lock_timeout: self.lock_timeout.unwrap_or(5000),
            convert_head: self.convert_head.unwrap_or(prefix == "proxy"),
            max_range_offset: self.max_range_offset,
        })))
    }

    /// Sets `_cache zone | off`.
    ///
    /// # Errors
    /// nginx's words.
    pub fn set_zone(&mut self, line: &mut LineCx<'_>) -> Result {
        if matches!(self.store, Some(Some(_))) {
            let store = line.name().replace("_cache", "_store");
            return Err(line.refuse(format!("is incompatible with \"{store}\"")));
        }
        let mut zone = None;
        if line.arg(0) != "off" {
            let script = ValueScript::compile(line, 0)?;
            zone = Some(match script.constant() {
                None => CacheZoneSetting::Computed(script),
                Some(_) => {
                    let (owner, name) = (place::owner(line.name()), line.arg(0).to_owned());
                    let known = line.ext::<ConfRegistry>().shared::<SharedZones>().named(owner, &name);
                    CacheZoneSetting::Fixed(
                        known.map_err(|words| line.fail_arg(0, words))?,
                        line.args()[0].span,
                    )
                }
            });
        }
        line.once(&mut self.zone, zone)
    }

    /// Sets `_cache_key text`.
    ///
    /// # Errors
    /// As [`ValueScript::compile`].
    pub fn set_key(&mut self, line: &mut LineCx<'_>) -> Result {
        let key = ValueScript::compile(line, 0)?;
        line.once(&mut self.key, key)
    }

    /// `_cache_valid [code …] time`
    ///
    /// # Errors
    /// nginx's words for what is neither.
    pub fn set_valid(&mut self, line: &mut LineCx<'_>) -> Result {
        let last = line.args().len() - 1;
        let invalid_time = || line.fail_arg(last, format!("invalid time value \"{}\"", line.arg(last)));
        let seconds = parse_time_s(line.bytes(last)).ok_or_else(invalid_time)?;
        let list = self.valid.get_or_insert_default();
        if last == 0 {
            list.extend([200, 301, 302].map(|status| (status, seconds)));
        }
        for i in 0..last {
            let invalid = || line.fail_arg(i, format!("invalid status \"{}\"", line.arg(i)));
            let status = match line.bytes(i) {
                b"any" => 0,
                text => parse_number(text)
                    .filter(|status| (100..=599).contains(status))
                    .and_then(|status| u16::try_from(status).ok())
                    .ok_or_else(invalid)?,
            };
            list.push((status, seconds));
        }
        Ok(())
    }

    /// `_cache_bypass`, `_no_cache`, `_cache_purge`: values of which one may be true.
    ///
    /// # Errors
    /// As [`ValueScript::compile`].
    pub fn set_tests(slot: &mut Option<Vec<ValueScript>>, line: &mut LineCx<'_>) -> Result {
        for i in 0..line.args().len() {
            let script = ValueScript::compile(line, i)?;
            slot.get_or_insert_default().push(script);
        }
        Ok(())
    }

    /// Sets `_store on | off | path`.
    ///
    /// # Errors
    /// nginx's words.
    pub fn set_store(&mut self, line: &mut LineCx<'_>) -> Result {
        let store = match line.arg(0) {
            "off" => None,
            _ if matches!(self.zone, Some(Some(_))) => {
                let cache = line.name().replace("_store", "_cache");
                return Err(line.refuse(format!("is incompatible with \"{cache}\"")));
            }
            "on" => Some(StoreTarget::Mapped),
            "" => return Err(line.fail_arg(0, "empty path")),
            _ => Some(StoreTarget::At(ValueScript::compile(line, 0)?)),
        };
        line.once(&mut self.store, store)
    }
}

impl CacheSettings {
    /// For how many seconds a response with `status` is cached that does not say so itself.
    pub(crate) fn valid(&self, status: u16) -> Option<u64> {
        let found = self.valid.iter().find(|(known, _)| *known == 0 || *known == status);
        found.map(|(_, seconds)| *seconds).filter(|seconds| *seconds > 0)
    }
}

/// Bit of `_cache_use_stale`: a request fetches a newer one.
pub const UPDATING: u32 = 0x1000;

/// The words of `_cache_use_stale`: those of `_next_upstream`, but that nothing is repeated here.
pub const STALE: [(&str, u32); FailureReason::WORDS.len()] = FailureReason::WORDS;

/// The words of `_cache_methods`.
pub const METHODS: [(&str, u32); 3] = [
    ("GET", 1 << Method::Get as u32),
    ("HEAD", 1 << Method::Head as u32),
    ("POST", 1 << Method::Post as u32),
];
