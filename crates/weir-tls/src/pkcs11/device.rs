//! A key in a device: its library, and sessions that sign.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error as Failure, RvError};
use cryptoki::mechanism::Mechanism;
use cryptoki::object::{Attribute, ObjectClass, ObjectHandle};
use cryptoki::session::{Session, UserType};
use cryptoki::slot::Slot;
use cryptoki::types::AuthPin;

use super::KeyUri;
use crate::error::{Error, content};

/// A key, and the sessions that are free. Threads use it at the same time: each takes a session for a signature.
#[derive(Debug)]
pub(super) struct OpenDevice {
    uri: KeyUri,
    free: Mutex<Vec<DeviceSession>>,
    /// The token has refused the PIN. It is not tried again: most tokens lock themselves after a few wrong ones.
    refused: AtomicBool,
}

/// A session, logged in, that has found its key. It is not closed when it is dropped: by then its number may be
/// another's ([`SetUp`]).
#[derive(Debug)]
struct DeviceSession {
    session: Session,
    key: ObjectHandle,
    of: SetUp,
}

/// Which setting up of a library a session belongs to: no handle outlives it, and numbers are used again. A forked
/// process must set up its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SetUp {
    process: u32,
    number: u64,
}

impl OpenDevice {
    /// Opens a first session.
    ///
    /// # Errors
    /// The library can't be loaded, there is no such token or key, or the PIN is wrong.
    pub(super) fn open(uri: KeyUri) -> Result<OpenDevice, Error> {
        let device = OpenDevice { uri, free: Mutex::default(), refused: AtomicBool::new(false) };
        device.check_new_pin()?;
        let first = device.with_library(|library| device.session(library))??;
        device.free().push(first);
        Ok(device)
    }

    /// Signs by `mechanism`. If the device was lost, its library is set up again, since many find only tokens that were
    /// there at that time.
    ///
    /// # Errors
    /// The device does not do it.
    pub(super) fn sign(&self, mechanism: &Mechanism<'_>, data: &[u8]) -> Result<Vec<u8>, Error> {
        let attempt = || self.with_library(|library| self.sign_with(library, mechanism, data))?;
        attempt().or_else(|error| {
            // A refused PIN is not made good by it, and would take the sessions of other keys each time.
            let helps = !self.refused.load(Relaxed) && set_up_anew(&self.uri.module);
            if helps { attempt() } else { Err(error) }
        })
    }

    /// A session that fails is not used again, nor are the others; then another one is tried.
    fn sign_with(
        &self,
        library: &DeviceLibrary,
        mechanism: &Mechanism<'_>,
        data: &[u8],
    ) -> Result<Vec<u8>, Error> {
        let kept = self.free().pop().filter(|open| open.of == library.set_up);
        if let Some(open) = kept {
            match open.session.sign(mechanism, open.key, data) {
                Ok(signature) => {
                    self.free().push(open);
                    return Ok(signature);
                }
                Err(_) => self.close(std::iter::once(open), library),
            }
            let others = std::mem::take(&mut *self.free());
            self.close(others.into_iter(), library);
        }
        let open = self.session(library)?;
        match open.session.sign(mechanism, open.key, data) {
            Ok(signature) => {
                self.free().push(open);
                Ok(signature)
            }
            Err(error) => {
                self.close(std::iter::once(open), library);
                Err(failed(&error))
            }
        }
    }

    /// Closes sessions. That it fails is no news: so did they.
    fn close(&self, sessions: impl Iterator<Item = DeviceSession>, library: &DeviceLibrary) {
        for open in sessions.filter(|open| open.of == library.set_up) {
            let _ = open.session.close();
        }
    }

    fn session(&self, library: &DeviceLibrary) -> Result<DeviceSession, Error> {
        let slot = self.slot(&library.context)?;
        let session = library.context.open_ro_session_no_drop(slot).map_err(|error| failed(&error))?;
        match self.find(library, slot, &session) {
            Ok(key) => Ok(DeviceSession { session, key, of: library.set_up }),
            Err(error) => {
                let _ = session.close(); // what failed is reported
                Err(error)
            }
        }
    }

    /// Logs in and finds the key.
    fn find(&self, library: &DeviceLibrary, slot: Slot, session: &Session) -> Result<ObjectHandle, Error> {
        let uri = &self.uri;
        if self.refused.load(Relaxed) {
            return Err(content(
                "PKCS#11: the token has refused the PIN, which is not tried again before a reload",
            ));
        }
        if let Some(pin) = &uri.pin {
            let pin = AuthPin::new(pin.as_str().into());
            match session.login(UserType::User, Some(&pin)) {
                Ok(()) => library.remember(slot, &uri.pin),
                // The login counts for all of a process' sessions.
                Err(Failure::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => {}
                Err(error) => {
                    let wrong =
                        matches!(error, Failure::Pkcs11(RvError::PinIncorrect | RvError::PinLocked, _));
                    self.refused.store(wrong, Relaxed);
                    return Err(failed(&error));
                }
            }
        }
        let mut wanted = vec![Attribute::Class(ObjectClass::PRIVATE_KEY)];
        wanted.extend(uri.object.clone().map(Attribute::Label));
        wanted.extend(uri.id.clone().map(Attribute::Id));
        match session.find_objects(&wanted).map_err(|error| failed(&error))?[..] {
            [key] => Ok(key),
            [] => Err(content("PKCS#11: the token has no such private key")),
            _ => Err(content("PKCS#11: the token has several such private keys")),
        }
    }

    /// A token that is open does not look at a PIN. One that is not the PIN it was opened with is tried by logging out
    /// and in again: a wrong one is an error now, not at the next start. Private keys' handles end with the login;
    /// signatures that find theirs gone open a session of their own again.
    fn check_new_pin(&self) -> Result<(), Error> {
        let Some(pin) = &self.uri.pin else { return Ok(()) };
        let libraries = write();
        let Some(library) = libraries.get(&(self.uri.module.clone(), std::process::id())) else {
            return Ok(());
        };
        let slot = self.slot(&library.context)?;
        let Some(before) = library.pin(slot).filter(|before| before != pin) else { return Ok(()) };
        let session = library.context.open_ro_session(slot).map_err(|error| failed(&error))?;
        session.logout().map_err(|error| failed(&error))?;
        let log_in = |pin: &str| session.login(UserType::User, Some(&AuthPin::new(pin.into())));
        match log_in(pin) {
            Ok(()) => library.remember(slot, &self.uri.pin),
            Err(error) => {
                // That it fails, too, is seen by the next signature, which logs in itself.
                let _ = log_in(&before);
                return Err(failed(&error));
            }
        }
        Ok(())
    }

    fn slot(&self, library: &Pkcs11) -> Result<Slot, Error> {
        let uri = &self.uri;
        let is = |wanted: &Option<String>, has: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == has.trim_end())
        };
        for slot in library.get_slots_with_token().map_err(|error| failed(&error))? {
            let Ok(token) = library.get_token_info(slot) else { continue };
            if is(&uri.token, token.label())
                && is(&uri.serial, token.serial_number())
                && is(&uri.manufacturer, token.manufacturer_id())
                && is(&uri.model, token.model())
                && uri.slot.is_none_or(|wanted| wanted == slot.id())
            {
                return Ok(slot);
            }
        }
        Err(content("PKCS#11: there is no such token"))
    }

    /// Runs `f` with the library, which is not set up again meanwhile.
    fn with_library<R>(&self, f: impl FnOnce(&DeviceLibrary) -> R) -> Result<R, Error> {
        let place = (self.uri.module.clone(), std::process::id());
        if !read().contains_key(&place) {
            let mut libraries = write();
            // Of several that come at the same time the first does it.
            if !libraries.contains_key(&place) {
                let library = DeviceLibrary::load(&self.uri.module)?;
                libraries.insert(place.clone(), library);
            }
        }
        match read().get(&place) {
            Some(library) => Ok(f(library)),
            None => Err(content("PKCS#11: the module was lost")),
        }
    }

    fn free(&self) -> MutexGuard<'_, Vec<DeviceSession>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        let sessions = std::mem::take(&mut *self.free());
        // Without the library there is nothing to be closed.
        let _ = self.with_library(|library| self.close(sessions.into_iter(), library));
    }
}

/// A device's library, set up for this process. It stays until the process ends: others may use it.
struct DeviceLibrary {
    context: Pkcs11,
    set_up: SetUp,
    since: Instant,
    /// The PINs that tokens were opened with, by slot.
    pins: Mutex<HashMap<u64, String>>,
}

impl DeviceLibrary {
    fn load(path: &Path) -> Result<DeviceLibrary, Error> {
        let context = Pkcs11::new(path).map_err(|error| {
            content(format!("PKCS#11: the module \"{}\" can't be loaded: {error}", path.display()))
        })?;
        initialize(&context)?;
        let set_up = SetUp { process: std::process::id(), number: 0 };
        Ok(DeviceLibrary { context, set_up, since: Instant::now(), pins: Mutex::default() })
    }

    fn remember(&self, slot: Slot, pin: &Option<String>) {
        if let Some(pin) = pin {
            self.pins().insert(slot.id(), pin.clone());
        }
    }

    fn pin(&self, slot: Slot) -> Option<String> {
        self.pins().get(&slot.id()).cloned()
    }

    fn pins(&self) -> MutexGuard<'_, HashMap<u64, String>> {
        self.pins.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sets the library at `path` up again, unless that was done just now; whether it did.
fn set_up_anew(path: &Path) -> bool {
    /// Other tokens lose their sessions by it.
    const AT_MOST_EVERY: Duration = Duration::from_secs(1);
    let mut libraries = write();
    let Some(library) = libraries.get_mut(&(path.to_owned(), std::process::id())) else { return false };
    if library.since.elapsed() < AT_MOST_EVERY {
        return false;
    }
    library.since = Instant::now();
    library.set_up.number += 1;
    library.pins().clear();
    // No thread is within the library: a thread that is holds the lock. If it can't be finalized, setting it up again
    // fails.
    let _ = library.context.clone().finalize();
    initialize(&library.context).is_ok()
}

fn initialize(context: &Pkcs11) -> Result<(), Error> {
    match context.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK)) {
        Ok(()) | Err(Failure::Pkcs11(RvError::CryptokiAlreadyInitialized, _)) => Ok(()),
        Err(error) => Err(failed(&error)),
    }
}

/// By path and process.
type LibraryTable = HashMap<(PathBuf, u32), DeviceLibrary>;

static LIBRARIES: LazyLock<RwLock<LibraryTable>> = LazyLock::new(RwLock::default);

fn read() -> RwLockReadGuard<'static, LibraryTable> {
    LIBRARIES.read().unwrap_or_else(PoisonError::into_inner)
}

fn write() -> RwLockWriteGuard<'static, LibraryTable> {
    LIBRARIES.write().unwrap_or_else(PoisonError::into_inner)
}

fn failed(error: &Failure) -> Error {
    match error {
        Failure::Pkcs11(value, function) => content(format!("PKCS#11: {function} failed ({value:?})")),
        other => content(format!("PKCS#11: {other}")),
    }
}
