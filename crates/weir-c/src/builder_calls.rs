//! `weir_builder_*`.

use std::ffi::{c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::Arc;

use weir::DriverChoice;

use crate::builder::{BuildStep, ForeignBuilder, RegisteredHandler};
use crate::code::{CallFailure, WEIR_OK, guard, guard_value};
use crate::data::{FreeFunction, OwnedData};
use crate::serving::HandlerFunction;
use crate::text::{bytes, string, utf8};

/// The driver that works best.
pub(crate) const WEIR_DRIVER_AUTO: c_int = 0;
/// epoll.
pub(crate) const WEIR_DRIVER_EPOLL: c_int = 1;
/// io_uring.
pub(crate) const WEIR_DRIVER_IO_URING: c_int = 2;

#[unsafe(no_mangle)]
pub(crate) extern "C" fn weir_builder_new() -> *mut ForeignBuilder {
    guard_value(std::ptr::null_mut(), || Ok(Box::into_raw(Box::default())))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_builder_free(builder: *mut ForeignBuilder) {
    guard(|| {
        if !builder.is_null() {
            // SAFETY: it came from `weir_builder_new`, and the program frees it once.
            drop(unsafe { Box::from_raw(builder) });
        }
        Ok(WEIR_OK)
    });
}

/// Adds a step to the builder.
///
/// # Safety
/// NULL, or a builder that no other thread uses at the same time.
unsafe fn add(builder: *mut ForeignBuilder, step: impl FnOnce() -> Result<BuildStep, CallFailure>) -> c_int {
    let add = |builder: &mut ForeignBuilder| {
        builder.add(step()?);
        Ok(WEIR_OK)
    };
    // SAFETY: as the caller says.
    unsafe { with(builder, add) }
}

/// Calls `f` with a builder.
///
/// # Safety
/// NULL, or a builder that no other thread uses at the same time.
unsafe fn with(
    builder: *mut ForeignBuilder,
    f: impl FnOnce(&mut ForeignBuilder) -> Result<c_int, CallFailure>,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller says.
        let builder = unsafe { builder.as_mut() };
        f(builder.ok_or_else(|| CallFailure::argument("builder is NULL"))?)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_builder_listen(
    builder: *mut ForeignBuilder,
    address: *const c_char,
) -> c_int {
    // SAFETY: the header's rules for builders and strings.
    unsafe { add(builder, || Ok(BuildStep::Listen(string(address, "address")?.to_owned()))) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_builder_root(
    builder: *mut ForeignBuilder,
    directory: *const c_char,
) -> c_int {
    // SAFETY: the header's rules for builders and strings.
    unsafe { add(builder, || Ok(BuildStep::Root(string(directory, "directory")?.to_owned()))) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_builder_host(
    builder: *mut ForeignBuilder,
    names: *const c_char,
) -> c_int {
    let step = || {
        // SAFETY: the header's rules for strings.
        let names = unsafe { string(names, "names")? };
        if names.trim().is_empty() {
            return Err(CallFailure::argument("names is empty"));
        }
        Ok(BuildStep::Host(names.to_owned()))
    };
    // SAFETY: the header's rules for builders.
    unsafe { add(builder, step) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_builder_body_limit(builder: *mut ForeignBuilder, limit: u64) -> c_int {
    // SAFETY: the header's rules for builders.
    unsafe { add(builder, || Ok(BuildStep::BodyLimit(limit))) }
}

/// A handler as C gives it. Only one that is taken frees its data.
fn registered(
    function: Option<HandlerFunction>,
    data: *mut c_void,
    free: Option<FreeFunction>,
) -> Result<RegisteredHandler, CallFailure> {
    let function = function.ok_or_else(|| CallFailure::argument("handler is NULL"))?;
    Ok(RegisteredHandler { function, data: Arc::new(OwnedData::new(data, free)) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_builder_location(
    builder: *mut ForeignBuilder,
    path: *const c_char,
    handler: Option<HandlerFunction>,
    data: *mut c_void,
    free_data: Option<FreeFunction>,
) -> c_int {
    let step = || {
        // SAFETY: the header's rules for strings.
        let path = unsafe { string(path, "path")? }.to_owned();
        Ok(BuildStep::Location(path, registered(handler, data, free_data)?))
    };
    // SAFETY: the header's rules for builders.
    unsafe { add(builder, step) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_builder_handler(
    builder: *mut ForeignBuilder,
    name: *const c_char,
    handler: Option<HandlerFunction>,
    data: *mut c_void,
    free_data: Option<FreeFunction>,
) -> c_int {
    let step = || {
        // SAFETY: the header's rules for strings.
        let name = unsafe { string(name, "name")? }.to_owned();
        Ok(BuildStep::Handler(name, registered(handler, data, free_data)?))
    };
    // SAFETY: the header's rules for builders.
    unsafe { add(builder, step) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_builder_conf(
    builder: *mut ForeignBuilder,
    text: *const c_char,
    length: usize,
) -> c_int {
    let step = || {
        // SAFETY: the header's rules for bytes.
        let text = utf8(unsafe { bytes(text, length, "text")? }, "text")?;
        Ok(BuildStep::Configuration(text.to_owned()))
    };
    // SAFETY: the header's rules for builders.
    unsafe { add(builder, step) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_builder_conf_file(
    builder: *mut ForeignBuilder,
    path: *const c_char,
) -> c_int {
    // SAFETY: the header's rules for builders and strings.
    unsafe { add(builder, || Ok(BuildStep::File(PathBuf::from(string(path, "path")?)))) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_builder_prefix(
    builder: *mut ForeignBuilder,
    directory: *const c_char,
) -> c_int {
    // SAFETY: the header's rules for builders and strings.
    unsafe { add(builder, || Ok(BuildStep::Prefix(PathBuf::from(string(directory, "directory")?)))) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_builder_workers(builder: *mut ForeignBuilder, count: c_int) -> c_int {
    let step = || match usize::try_from(count) {
        Ok(count @ 1..=255) => Ok(BuildStep::Workers(count)),
        _ => Err(CallFailure::argument("there may be from 1 to 255 workers")),
    };
    // SAFETY: the header's rules for builders.
    unsafe { add(builder, step) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_builder_driver(builder: *mut ForeignBuilder, driver: c_int) -> c_int {
    let step = || match driver {
        WEIR_DRIVER_AUTO => Ok(BuildStep::Driver(DriverChoice::Auto)),
        WEIR_DRIVER_EPOLL => Ok(BuildStep::Driver(DriverChoice::Epoll)),
        WEIR_DRIVER_IO_URING => Ok(BuildStep::Driver(DriverChoice::IoUring)),
        _ => Err(CallFailure::argument("driver is none of WEIR_DRIVER_*")),
    };
    // SAFETY: the header's rules for builders.
    unsafe { add(builder, step) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn weir_builder_foreign_loop(builder: *mut ForeignBuilder, on: c_int) -> c_int {
    let set = |builder: &mut ForeignBuilder| {
        builder.set_foreign_loop(on != 0);
        Ok(WEIR_OK)
    };
    // SAFETY: the header's rules for builders.
    unsafe { with(builder, set) }
}
