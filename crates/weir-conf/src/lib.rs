//! nginx's configuration language.
//!
//! Text becomes a [`ConfTree`] of [`DirectiveLine`]s that know where they are written ([`load`]); a module declares
//! what it understands as a table of [`Directive`]s, whose setters read one line through a [`LineCx`] and record the
//! values as written. What a directive *means* is its module's business: nothing here knows HTTP.
//!
//! ```
//! use weir_conf::{Directive, Error, LineCx, MemoryFiles, check, load, names::*};
//!
//! #[derive(Default)]
//! struct Gzip { on: Option<bool>, level: Option<u8> }
//!
//! // The alias gives the table's closures the type of `c`.
//! type Row = Directive<Gzip>;
//! const TABLE: &[Row] = &[
//!     Row::new("gzip", ANY_OR_IF, FLAG, |c, line| line.flag(&mut c.on)).doc("Compresses responses."),
//!     Row::new("gzip_comp_level", ANY, ONE, |c, line| line.number(&mut c.level, 1..=9)).doc("1 to 9."),
//! ];
//!
//! let files = MemoryFiles::new().with("/etc/nginx.conf", "gzip on;\ngzip_comp_level 10;\n");
//! let tree = load("/etc/nginx.conf".as_ref(), "/etc".as_ref(), &files, |_| false, None).unwrap();
//! let (mut conf, mut warnings) = (Gzip::default(), Vec::new());
//! let errors: Vec<Error> = tree.lines.iter().filter_map(|line| {
//!     let directive = TABLE.iter().find(|d| line.name.is(d.name))?;
//!     let mut nothing = ();
//!     let mut cx = LineCx::new(line, HTTP, &tree.source, &tree.paths, &mut nothing, &mut warnings);
//!     check(directive, line, HTTP).and_then(|()| (directive.set)(&mut conf, &mut cx)).err()
//! }).collect();
//! assert_eq!(conf.on, Some(true));
//! assert_eq!(errors[0].render(&tree.source), concat!(
//!     "value must be between 1 and 9 in /etc/nginx.conf:2:17\n",
//!     "gzip_comp_level 10;\n",
//!     "                ^^"));
//! ```
#![forbid(unsafe_code)]

mod context;
mod directive;
mod error;
mod fix;
mod format;
mod glob;
mod include;
mod lexer;
mod line;
mod nearest;
mod parameter;
mod parser;
mod raw;
mod source;
mod tree;
mod value;
mod yaml;

pub use context::{ArgCount, Contexts, DirectiveEnd, names};
pub use directive::{Directive, DirectiveSignature, INCLUDE, check};
pub use error::{Error, Errors, LevelName, Result};
pub use fix::{DiagnosticFix, TextEdit, apply_edits};
pub use format::format;
pub use include::{ConfFiles, MemoryFiles, OverlaidFiles, RealFiles};
pub use line::{LineCx, TextValue};
pub use nearest::{did_you_mean, nearest};
pub use parameter::NamedParameter;
pub use parser::{load, outline, read_one};
pub use source::{ConfSource, FileId, SourceFile, SourcePlace, Span, Word};
pub use tree::{Block, ConfPaths, ConfTree, DirectiveLine, LoadFailure, RawBlock};
pub use value::{
    BufferSizes, parse_fixed, parse_flag, parse_number, parse_offset, parse_size, parse_time_ms,
    parse_time_s, split_port,
};
pub use yaml::{h2o_keys, is_h2o_language};
