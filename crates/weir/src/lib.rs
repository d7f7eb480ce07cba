//! Weir as a library: servers inside of other programs, and the modules of this build.
//!
//! ```
//! let server = weir::Server::builder()
//!     .listen("127.0.0.1:0")
//!     .location("/hello", |request, response| {
//!         response.body(format!("Hello, {}!\n", request.query()));
//!     })
//!     .start()?;
//! println!("http://{}/hello?you", server.addresses()[0]);
//! server.stop();
//! # Ok::<(), weir::Error>(())
//! ```
//!
//! `docs/guides/embedding.md` describes the rest.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod check;
pub mod comparison;
mod embed;
pub mod lsp;
pub mod modules;
pub mod reference;
pub mod show;
mod welcome;

pub use embed::{Error, Handler, HandlerEnding, Request, Response, Server, ServerBuilder, body_bytes};
pub use weir_rt::{DriverChoice, SockAddr};
