//! What a seed draws of the cache: its settings. The objects that clients ask for through it are those of [`crate::request`].

use crate::draw::Draw;

/// The settings of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachePlan {
    /// `proxy_cache_valid`, seconds.
    pub valid_seconds: u64,
    /// `use_temp_path`.
    pub uses_temporary: bool,
    /// `proxy_cache_lock`.
    pub locks: bool,
    /// `proxy_cache_revalidate`.
    pub revalidates: bool,
    /// `proxy_cache_use_stale` and `proxy_cache_background_update`.
    pub uses_stale: bool,
    /// `max_size`, kilobytes; 0: not there.
    pub most_kilobytes: u64,
}

impl CachePlan {
    /// What `draw` draws.
    pub fn drawn(draw: &mut Draw) -> CachePlan {
        CachePlan {
            valid_seconds: *draw.one_of(&[1, 1, 3600]),
            uses_temporary: draw.chance(1, 2),
            locks: draw.chance(1, 2),
            revalidates: draw.chance(1, 2),
            uses_stale: draw.chance(1, 2),
            most_kilobytes: *draw.one_of(&[0, 0, 200]),
        }
    }

    /// The line of `http`.
    pub fn configuration(&self, directory: &str) -> String {
        let temporary = word(self.uses_temporary);
        let size = match self.most_kilobytes {
            0 => String::new(),
            most => format!(" max_size={most}k"),
        };
        format!(
            "    proxy_cache_path {directory}/cache levels=1:2 keys_zone=objects:1m use_temp_path={temporary}{size};\n"
        )
    }

    /// The location; `proxied` has the lines of all locations with an upstream server.
    pub fn location(&self, proxied: &str) -> String {
        let mut lines = format!("            proxy_cache_valid 200 {}s;\n", self.valid_seconds);
        if self.uses_stale {
            lines.push_str("            proxy_cache_use_stale error timeout updating;\n");
            lines.push_str("            proxy_cache_background_update on;\n");
        }
        format!(
            "        location /cached/ {{
            proxy_cache objects;
            proxy_cache_key $uri$arg_o;
            proxy_cache_lock {locks};
            proxy_cache_revalidate {revalidates};
            proxy_buffering on;
{lines}{proxied}        }}\n",
            locks = word(self.locks),
            revalidates = word(self.revalidates),
        )
    }
}

fn word(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}
