//! A key in a device: its library, and sessions that sign.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error as Failure, RvError};
use cryptoki::mechanism::Mechanism;
use cryptoki::object::{Attribute, ObjectClass, ObjectHandle};
use cryptoki::session::{Session, UserType};
use cryptoki::slot::Slot;
use cryptoki::types::AuthPin;

use super::Uri;
use crate::error::{Error, content};

/// A key, and the sessions that are free. Threads use it at the same time: each takes a session for a signature.
#[derive(Debug)]
pub(super) struct Device {
    uri: Uri,
    free: Mutex<Vec<Open>>,
}

/// A session, logged in, that has found its key.
#[derive(Debug)]
struct Open {
    session: Session,
    key: ObjectHandle,
    /// Handles do not survive a fork.
    process: u32,
}

impl Device {
    /// Opens a first session.
    ///
    /// # Errors
    /// The library can't be loaded, there is no such token or key, or the PIN is wrong.
    pub(super) fn open(uri: Uri) -> Result<Device, Error> {
        let device = Device { uri, free: Mutex::default() };
        let first = device.session()?;
        device.free().push(first);
        Ok(device)
    }

    /// Signs by `mechanism`. A session that fails is not used again; if another one fails, too, that is told.
    ///
    /// # Errors
    /// The device does not do it.
    pub(super) fn sign(&self, mechanism: &Mechanism<'_>, data: &[u8]) -> Result<Vec<u8>, Error> {
        let process = std::process::id();
        let kept = self.free().pop().filter(|open| open.process == process);
        if let Some(open) = kept {
            if let Ok(signature) = open.session.sign(mechanism, open.key, data) {
                self.free().push(open);
                return Ok(signature);
            }
            // Gone with the device: so are the others.
            self.free().clear();
        }
        let open = self.session()?;
        let signature = open.session.sign(mechanism, open.key, data).map_err(|error| failed(&error))?;
        self.free().push(open);
        Ok(signature)
    }

    fn session(&self) -> Result<Open, Error> {
        let uri = &self.uri;
        let library = library(&uri.module)?;
        let slot = self.slot(&library)?;
        let session = library.open_ro_session(slot).map_err(|error| failed(&error))?;
        if let Some(pin) = &uri.pin {
            let pin = AuthPin::new(pin.as_str().into());
            match session.login(UserType::User, Some(&pin)) {
                // The login counts for all of a process' sessions.
                Ok(()) | Err(Failure::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => {}
                Err(error) => return Err(failed(&error)),
            }
        }
        let mut wanted = vec![Attribute::Class(ObjectClass::PRIVATE_KEY)];
        wanted.extend(uri.object.clone().map(Attribute::Label));
        wanted.extend(uri.id.clone().map(Attribute::Id));
        let found = session.find_objects(&wanted).map_err(|error| failed(&error))?;
        match found[..] {
            [key] => Ok(Open { session, key, process: std::process::id() }),
            [] => Err(content("PKCS#11: the token has no such private key")),
            _ => Err(content("PKCS#11: the token has several such private keys")),
        }
    }

    fn slot(&self, library: &Pkcs11) -> Result<Slot, Error> {
        let uri = &self.uri;
        let is = |wanted: &Option<String>, has: &str| wanted.as_ref().is_none_or(|wanted| wanted == has.trim_end());
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

    fn free(&self) -> MutexGuard<'_, Vec<Open>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The library at `path`, set up for this process. It stays: others may use it, and a process that was forked must set
/// it up itself (PKCS#11, section 6.7.2).
fn library(path: &Path) -> Result<Pkcs11, Error> {
    static LOADED: Mutex<Option<HashMap<(PathBuf, u32), Pkcs11>>> = Mutex::new(None);
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let loaded = loaded.get_or_insert_default();
    let place = (path.to_owned(), std::process::id());
    if let Some(library) = loaded.get(&place) {
        return Ok(library.clone());
    }
    let library = Pkcs11::new(path).map_err(|error| {
        content(format!("PKCS#11: the module \"{}\" can't be loaded: {error}", path.display()))
    })?;
    match library.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK)) {
        Ok(()) | Err(Failure::Pkcs11(RvError::CryptokiAlreadyInitialized, _)) => {}
        Err(error) => return Err(failed(&error)),
    }
    loaded.insert(place, library.clone());
    Ok(library)
}

fn failed(error: &Failure) -> Error {
    match error {
        Failure::Pkcs11(value, function) => content(format!("PKCS#11: {function} failed ({value:?})")),
        other => content(format!("PKCS#11: {other}")),
    }
}
