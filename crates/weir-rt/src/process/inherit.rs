//! Sockets that pass from one program to the next through exec(2): nginx's way (`NGINX=6;7;`, from an old binary to its
//! successor) and systemd's (`LISTEN_PID`, `LISTEN_FDS`).

use std::ffi::c_int;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::calls::check;

/// Descriptors that were given to this program.
#[derive(Debug, Default)]
pub struct InheritedDescriptors {
    /// The sockets, in order, close-on-exec again.
    pub sockets: Vec<OwnedFd>,
    /// Whether they come from a predecessor that still runs (nginx's way).
    pub upgrade: bool,
    /// The predecessor's secret ([`pass_secret`]).
    pub secret: Option<[u8; SECRET_BYTES]>,
    /// What was wrong with the variables, for the log.
    pub complaints: Vec<String>,
}

impl InheritedDescriptors {
    /// Takes what the environment says was inherited; only the first call of a process finds anything, since the
    /// descriptors have one owner.
    pub fn take() -> InheritedDescriptors {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        if TAKEN.swap(true, Ordering::Relaxed) {
            return InheritedDescriptors::default();
        }
        let variable = |name: &str| std::env::var_os(name)?.into_string().ok();
        if let Some(list) = variable(VARIABLE) {
            let (numbers, complaint) = parse(&list);
            let mut inherited = InheritedDescriptors { upgrade: true, ..InheritedDescriptors::default() };
            inherited.complaints.extend(complaint);
            inherited.adopt(&numbers);
            if let Some(number) = variable(SECRET) {
                inherited.adopt_secret(&number);
            }
            return inherited;
        }
        let number = |name: &str| variable(name)?.parse::<RawFd>().ok();
        match (number("LISTEN_PID"), number("LISTEN_FDS")) {
            (Some(pid), Some(count)) if i64::from(pid) == i64::from(std::process::id()) => {
                let mut inherited = InheritedDescriptors::default();
                inherited.adopt(&(FIRST..FIRST.saturating_add(count.clamp(0, MOST))).collect::<Vec<_>>());
                inherited
            }
            _ => InheritedDescriptors::default(),
        }
    }

    fn adopt_secret(&mut self, number: &str) {
        let mut found = InheritedDescriptors::default();
        found.adopt(number.parse().ok().filter(|fd| *fd >= FIRST).as_slice());
        let secret = found.sockets.pop().map(|fd| {
            let mut secret = [0; SECRET_BYTES];
            std::fs::File::from(fd).read_exact_at(&mut secret, 0).map(|()| secret)
        });
        match secret {
            Some(Ok(secret)) => self.secret = Some(secret),
            Some(Err(error)) => self.complaints.push(format!("{SECRET}={number} can't be read: {error}")),
            None => self.complaints.push(format!("{SECRET}={number} is not an open descriptor")),
        }
    }

    fn adopt(&mut self, numbers: &[RawFd]) {
        for (at, &number) in numbers.iter().enumerate() {
            if numbers[..at].contains(&number) {
                self.complaints.push(format!("socket number {number} is inherited twice, ignored"));
                continue;
            }
            match set_cloexec(number, libc::FD_CLOEXEC) {
                // SAFETY: it is open, as setting its flag has shown, and nothing else owns it: the standard ones are
                // left out, each number is taken once (`TAKEN`, the check above), and what the environment says was
                // open before this program opened anything of its own.
                Ok(()) => self.sockets.push(unsafe { OwnedFd::from_raw_fd(number) }),
                Err(error) => self.complaints.push(format!("inherited socket {number} is not open: {error}")),
            }
        }
    }
}

/// The value of [`VARIABLE`] for these sockets.
pub fn list(sockets: &[BorrowedFd<'_>]) -> String {
    sockets.iter().map(|fd| format!("{};", fd.as_raw_fd())).collect()
}

/// A descriptor for [`SECRET`], which stays open in a program that this process starts.
///
/// # Errors
/// The errno of memfd_create(2), write(2) or fcntl(2).
pub fn pass_secret(secret: &[u8; SECRET_BYTES]) -> io::Result<OwnedFd> {
    let mut file = super::memory_file("weir secret")?;
    file.write_all(secret)?;
    set_inheritable(file.as_fd(), true)?;
    Ok(file.into())
}

/// Whether `fd` stays open in a program that this process, or its copy, becomes by exec(2).
///
/// # Errors
/// The errno of fcntl(2).
pub fn set_inheritable(fd: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    set_cloexec(fd.as_raw_fd(), if on { 0 } else { libc::FD_CLOEXEC })
}

/// Sets the flag to `FD_CLOEXEC` or 0; others stay.
fn set_cloexec(fd: RawFd, flag: c_int) -> io::Result<()> {
    // SAFETY: no pointers; a number that is not open is EBADF.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    check(flags)?;
    let flags = flags & !libc::FD_CLOEXEC | flag;
    // SAFETY: no pointers; the number was open a moment ago, and one that is not any more is EBADF.
    check(unsafe { libc::fcntl(fd, libc::F_SETFD, flags) })
}

/// The numbers in `6;7;`, as far as they are numbers, and nginx's words for what is not.
fn parse(list: &str) -> (Vec<RawFd>, Option<String>) {
    let mut numbers = Vec::new();
    let mut rest = list;
    while let Some((number, after)) = rest.split_once([':', ';']) {
        let Some(fd) = number.parse::<c_int>().ok().filter(|fd| *fd >= FIRST) else {
            let words = format!(
                "invalid socket number \"{number}\" in {VARIABLE} environment variable, ignoring the rest of the variable"
            );
            return (numbers, Some(words));
        };
        numbers.push(fd);
        rest = after;
    }
    let rest = (!rest.is_empty())
        .then(|| format!("invalid socket number \"{rest}\" in {VARIABLE} environment variable, ignoring"));
    (numbers, rest)
}

/// nginx's name for the list.
pub const VARIABLE: &str = "NGINX";
/// The name of the number of [`pass_secret`]'s descriptor: what new processes need to go on with what the old
/// ones have given to clients.
pub const SECRET: &str = "WEIR_SECRET";
/// Bytes of that secret.
pub const SECRET_BYTES: usize = 32;
/// Below are the standard descriptors (systemd's SD_LISTEN_FDS_START).
const FIRST: RawFd = 3;
/// More than systemd passes.
const MOST: RawFd = 4096;

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::process::tests::in_child;

    #[test]
    fn the_variable_is_read_as_far_as_it_is_right() {
        assert_eq!(parse("6;7;"), (vec![6, 7], None));
        assert_eq!(parse("6:12;"), (vec![6, 12], None));
        assert_eq!(parse(""), (vec![], None));
        for (list, numbers, word) in [("6;x;7;", vec![6], "x"), ("2;6;", vec![], "2"), ("6;7", vec![6], "7")]
        {
            let (found, complaint) = parse(list);
            assert_eq!(found, numbers, "{list}");
            assert!(
                complaint.expect("wrong").contains(&format!("invalid socket number \"{word}\" in NGINX")),
                "{list}"
            );
        }
    }

    #[test]
    fn a_list_reads_back() {
        let (one, two) = (File::open("/dev/null").expect("there"), File::open("/dev/null").expect("there"));
        let text = list(&[one.as_fd(), two.as_fd()]);
        assert_eq!(parse(&text), (vec![one.as_raw_fd(), two.as_raw_fd()], None));
    }

    #[test]
    fn a_secret_passes_to_the_next_program() {
        let secret = std::array::from_fn(|at| at as u8);
        let passed = pass_secret(&secret).expect("a descriptor");
        let copy = passed.try_clone().expect("a descriptor");
        let number = std::os::fd::IntoRawFd::into_raw_fd(passed).to_string();
        let mut inherited = InheritedDescriptors::default();
        inherited.adopt_secret(&number);
        assert_eq!((inherited.secret, inherited.complaints.len()), (Some(secret), 0));
        drop(copy);
        for wrong in ["", "x", "1", "901", "-1", "99999999999"] {
            let mut inherited = InheritedDescriptors::default();
            inherited.adopt_secret(wrong);
            assert!(inherited.secret.is_none() && inherited.complaints[0].contains(wrong), "{wrong}");
        }
    }

    #[test]
    fn what_is_open_is_taken_once() {
        let name = "process::inherit::tests::what_is_open_is_taken_once";
        // 0 to 2 are not used; 900 is not open.
        if let Some(out) = in_child(name, &[(VARIABLE, "900;")]) {
            assert!(out.status.success(), "{out:?}");
            return;
        }
        let inherited = InheritedDescriptors::take();
        assert!(inherited.upgrade && inherited.sockets.is_empty());
        assert!(inherited.complaints[0].contains("900"), "{inherited:?}");
        assert!(!InheritedDescriptors::take().upgrade, "once");
    }
}
