//! The core's settings of a location, resolved: what every request reads.
//!
//! The list of them is in [`super::location_list`], the directives that fill it are in [`http_core`](crate::conf::http_core).

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use weir_http::mime::MediaTypeTable;
pub use weir_rt::small_write::SmallWrites;

use super::location_list::location_settings;
use crate::log::ErrorLog;
pub use crate::open_file::FileCache;
use crate::resolver::Resolver;
use crate::value_script::ValueScript;

macro_rules! make_core {
    (
        plain { $($(#[$plain_doc:meta])* $plain:ident: $plain_type:ty = $default:expr,)* }
        written { $($(#[$written_doc:meta])* $written:ident: $written_type:ty,)* }
        resolved { $($(#[$doc:meta])* $name:ident: $type:ty = |$conf:ident| $value:expr,)* }
    ) => {
        /// The settings of one location, after inheritance and defaults. Times are milliseconds, sizes bytes.
        #[derive(Clone)]
        pub struct CoreSettings {
            $($(#[$plain_doc])* pub $plain: $plain_type,)*
            $($(#[$doc])* pub $name: $type,)*
        }
    };
}

location_settings!(make_core);

/// What `alias` replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AliasedPart {
    /// This many first bytes of the URI.
    Prefix(usize),
    /// All of it: the location is a regular expression.
    Whole,
}

/// One `error_page` line, for one status.
#[derive(Clone, Debug)]
pub struct ErrorPage {
    /// The status it is for.
    pub status: u16,
    /// `=CODE`: the response's status; `Some(0)` for a bare `=`, which takes the status of the page itself; `None`
    /// keeps the original status.
    pub overwrite: Option<u16>,
    /// Where to: a path, `@name`, or an address.
    pub target: ValueScript,
}

/// `client_body_in_file_only`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InFileOnly {
    /// In memory as long as it fits.
    Off,
    /// In a file that stays.
    On,
    /// In a file that is removed after the request.
    Clean,
}

/// `lingering_close`: when the rest of a request's body is read before the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LingeringClose {
    /// Never: the connection is closed at once.
    Off,
    /// Where the client may still be sending (nginx's default).
    On,
    /// In any case, whether or not the client may still be sending.
    Always,
}

/// `server_tokens`: what the `Server` field and error pages say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerTokens {
    /// Product and version.
    On,
    /// The product's name only.
    Off,
    /// Product, version and build name.
    Build,
}

/// `if_modified_since`: how the field's date is compared with the file's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfModifiedSince {
    /// The field is not looked at.
    Off,
    /// The same time.
    Exact,
    /// The same time or a later one.
    Before,
}

/// `disable_symlinks`: which symbolic links in a file's path are refused.
#[derive(Clone, Debug)]
pub enum DisableSymlinks {
    /// Links are followed.
    Off,
    /// No component may be a link; `from=` names the part of the path that is not looked at.
    On(Option<ValueScript>),
    /// A link must belong to the owner of what it leads to.
    IfNotOwner(Option<ValueScript>),
}
