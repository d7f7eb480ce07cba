//! `proxy_cache_path` and its like: where responses are cached, how many, and for how long.

use std::path::PathBuf;
use std::sync::Arc;

use weir_conf::{LineCx, Result, parse_number, parse_offset, parse_size, parse_time_ms, parse_time_s};

use super::CacheIndex;
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::conf::temp_path::TempPaths;
use weir_engine::zone::{SharedZone, SharedZones};

/// What the directive says. Times are milliseconds where not said, sizes bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheZone {
    /// The path of the directory.
    pub path: Arc<PathBuf>,
    /// How many characters of a file's name name the directory of each level; 0: no such level.
    pub levels: [u8; 3],
    /// True when files are written in the directory of temporary files first, and not beside their place.
    pub use_temp_path: bool,
    /// What was not asked for in this many seconds is removed.
    pub inactive: u64,
    /// Maximum of bytes of all files together (`max_size=`); above it what was not requested for longest is removed.
    /// `None`: no limit.
    pub max_size: Option<u64>,
    /// Bytes that the file system must have free (`min_free=`); `None`: not checked.
    pub min_free: Option<u64>,
    /// How fast files are removed.
    pub manager: KeeperPace,
    /// How fast the directory is read when the server starts.
    pub loader: KeeperPace,
}

/// The pace of work in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeeperPace {
    /// Number of files handled at a time.
    pub files: u64,
    /// The pause after them, in milliseconds.
    pub sleep: u64,
    /// How long they may take, in milliseconds.
    pub threshold: u64,
}

impl Default for KeeperPace {
    fn default() -> KeeperPace {
        KeeperPace { files: 100, sleep: 50, threshold: 200 }
    }
}

/// All places of a configuration: their zones.
#[derive(Default)]
pub struct CacheZones(Vec<Arc<SharedZone>>);

impl CacheZones {
    /// The cache zone `name` that the directive `owner` (`proxy_cache_path`) declares; `None` if that directive
    /// declares no such zone.
    pub fn named(&self, owner: &str, name: &[u8]) -> Option<Arc<CacheIndex>> {
        let zone = self.0.iter().find(|zone| zone.owner() == owner && zone.name.as_bytes() == name)?;
        of(zone)
    }

    /// Takes the places into use: settings that a reload has changed count from now on, directories are read, what
    /// is not requested is removed.
    pub fn start(&self) {
        for zone in &self.0 {
            if let (Some(cache), Some(place)) = (of(zone), zone.settings::<CacheZone>()) {
                cache.adjust(place);
                super::keeper::keep(&cache);
            }
        }
    }
}

/// The cache that `zone` is; `None`: it is not declared.
pub fn of(zone: &SharedZone) -> Option<Arc<CacheIndex>> {
    let place = zone.settings::<CacheZone>()?;
    Some(zone.store(|size| CacheIndex::new(place, size)))
}

impl CacheZone {
    /// `proxy_cache_path path [levels=…] [use_temp_path=…] keys_zone=name:size [inactive=…] [max_size=…] …`
    ///
    /// # Errors
    /// nginx's words.
    pub fn set(line: &mut LineCx<'_>) -> Result {
        let mut path = None;
        line.path(&mut path)?;
        let mut place = CacheZone {
            path: Arc::new(path.unwrap_or_default()),
            levels: [0; 3],
            use_temp_path: true,
            inactive: 600,
            max_size: None,
            min_free: None,
            manager: KeeperPace::default(),
            loader: KeeperPace::default(),
        };
        let mut keys = None;
        for i in 1..line.args().len() {
            match line.bytes(i).strip_prefix(b"keys_zone=") {
                Some(text) => keys = Some((keys_zone(line, i, text)?, i)),
                None => place.parameter(line, i)?,
            }
        }
        let Some((zone, at)) = keys.filter(|(zone, _)| !zone.name.is_empty()) else {
            return Err(line.fail(format!("\"{}\" must have \"keys_zone\" parameter", line.name())));
        };
        place.declare(line, &zone, at)
    }

    fn declare(self, line: &mut LineCx<'_>, zone: &KeysZone, at: usize) -> Result {
        let KeysZone { name, size } = zone;
        let owner = owner(line.name());
        let path = self.path.clone();
        let registry: &mut ConfRegistry = line.ext();
        registry.shared::<TempPaths>().add(&path);
        let zone = registry.shared::<SharedZones>().named(owner, name);
        let zone = zone.map_err(|message| line.fail_arg(at, message))?;
        if zone.settings::<CacheZone>().is_some() {
            return Err(line.fail(format!("duplicate zone \"{name}\"")));
        }
        zone.declare(*size, &path.display().to_string(), self).map_err(|message| line.fail(message))?;
        line.ext::<ConfRegistry>().shared::<CacheZones>().0.push(zone);
        Ok(())
    }

    /// One of `name=value`.
    fn parameter(&mut self, line: &LineCx<'_>, i: usize) -> Result {
        let Some((name, value)) = line.arg(i).split_once('=') else { return Err(line.invalid_parameter(i)) };
        let text = value.as_bytes();
        let invalid = || line.fail_arg(i, format!("invalid {name} value \"{}\"", line.arg(i)));
        let (pace, part) = match name.split_once('_') {
            Some(("manager", part)) => (&mut self.manager, part),
            Some(("loader", part)) => (&mut self.loader, part),
            _ => return self.own_parameter(line, i, name, text),
        };
        match part {
            "files" => pace.files = parse_number(text).ok_or_else(invalid)?,
            "sleep" => pace.sleep = parse_time_ms(text).ok_or_else(invalid)?,
            "threshold" => pace.threshold = parse_time_ms(text).ok_or_else(invalid)?,
            _ => return Err(line.invalid_parameter(i)),
        }
        Ok(())
    }

    fn own_parameter(&mut self, line: &LineCx<'_>, i: usize, name: &str, text: &[u8]) -> Result {
        let invalid = || line.fail_arg(i, format!("invalid {name} value \"{}\"", line.arg(i)));
        match name {
            "levels" => {
                let wrong = || line.fail_arg(i, format!("invalid \"levels\" \"{}\"", line.arg(i)));
                self.levels = levels(text).ok_or_else(wrong)?;
            }
            "use_temp_path" => {
                self.use_temp_path = match text {
                    b"on" => true,
                    b"off" => false,
                    _ => {
                        let wrong = format!(
                            "invalid use_temp_path value \"{}\", it must be \"on\" or \"off\"",
                            line.arg(i)
                        );
                        return Err(line.fail_arg(i, wrong));
                    }
                };
            }
            "inactive" => self.inactive = parse_time_s(text).ok_or_else(invalid)?,
            "max_size" => self.max_size = Some(parse_offset(text).ok_or_else(invalid)?),
            "min_free" => self.min_free = Some(parse_offset(text).ok_or_else(invalid)?),
            _ if name == "purger" || name.starts_with("purger_") => {
                let words = format!(
                    "\"{name}\" belongs to nginx plus, where a key with an asterisk purges many answers; this server \
                     purges one answer at a time, and at once"
                );
                return Err(line.fail_arg(i, words));
            }
            _ => return Err(line.invalid_parameter(i)),
        }
        Ok(())
    }
}

/// The directive that declares caches for the module of `directive` (`proxy_cache` and others).
pub fn owner(directive: &str) -> &'static str {
    match directive.split('_').next() {
        Some("fastcgi") => "fastcgi_cache_path",
        Some("scgi") => "scgi_cache_path",
        Some("uwsgi") => "uwsgi_cache_path",
        _ => "proxy_cache_path",
    }
}

/// `name:size`
/// `keys_zone=name:size`.
struct KeysZone {
    name: String,
    /// In bytes.
    size: u64,
}

fn keys_zone(line: &LineCx<'_>, i: usize, text: &[u8]) -> Result<KeysZone> {
    let invalid = || line.fail_arg(i, format!("invalid keys zone size \"{}\"", line.arg(i)));
    let colon = text.iter().position(|byte| *byte == b':').ok_or_else(invalid)?;
    let size = parse_size(&text[colon + 1..]).ok_or_else(invalid)?;
    if size < SMALLEST {
        return Err(line.fail_arg(i, format!("keys zone \"{}\" is too small", line.arg(i))));
    }
    Ok(KeysZone { name: String::from_utf8_lossy(&text[..colon]).into_owned(), size })
}

/// `1:2:2`: one to three numbers, each 1 or 2.
fn levels(text: &[u8]) -> Option<[u8; 3]> {
    let mut levels = [0; 3];
    let mut places = levels.iter_mut();
    for part in text.split(|byte| *byte == b':') {
        *places.next()? = match part {
            b"1" => 1,
            b"2" => 2,
            _ => return None,
        };
    }
    Some(levels)
}

/// nginx's smallest zone of keys: two pages.
const SMALLEST: u64 = 2 * 4096;

#[cfg(test)]
mod tests {
    use super::levels;

    #[test]
    fn levels_are_up_to_three_ones_and_twos() {
        assert_eq!(levels(b"1:2"), Some([1, 2, 0]));
        assert_eq!(levels(b"2:2:2"), Some([2, 2, 2]));
        for wrong in [&b""[..], b"3", b"1:", b"1:2:2:1", b"12"] {
            assert_eq!(levels(wrong), None);
        }
    }
}
