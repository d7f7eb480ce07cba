//! `auth_basic`: restricts access by user name and password (RFC 7617), which are looked up in a file with one user
//! per line (nginx's `ngx_http_auth_basic_module`).
//!
//! The file is read for each request, as in nginx: a changed password takes effect at once. Hashes of many rounds are
//! computed on the pool, so that no other request waits for them.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

use weir_conf::names::{ANY, LIMIT_EXCEPT, ONE};
use weir_conf::{Directive, LineCx, Result};
use weir_engine::log::LogLevel;
use weir_engine::plan::PlanBuilder;
use weir_engine::rehearsed::HandlerRehearsal;
use weir_engine::variable::ValueScript;
use weir_engine::variable::core::credentials::{self, BasicCredentials};
use weir_engine::{Exchange, Handler, LocalFuture, Module, Phase, Text, Verdict, inherit};
use weir_http::{KnownField, Method};
use weir_rt::file::errno::ENOENT;
use weir_rt::file::errno_text;
use weir_trace::WaitKind;

use crate::support::password;
use crate::support::value::WorkerValue;

/// The module `auth_basic`.
pub struct AuthBasic;

impl Module for AuthBasic {
    const NAME: &'static str = "auth_basic";
    type Conf = AuthBasicConf;
    const DIRECTIVES: &'static [Directive<AuthBasicConf>] = &[
        Directive::new("auth_basic", ANY.or(LIMIT_EXCEPT), ONE, AuthBasicConf::set_realm)
            .syntax("auth_basic string | off")
            .default("off")
            .doc(
                "Enables HTTP Basic authentication (RFC 7617) with this realm, which may \
                 contain variables; `off` cancels an inherited setting.",
            )
            .example("auth_basic \"Staff only\";\nauth_basic_user_file conf/htpasswd;"),
        Directive::new("auth_basic_user_file", ANY.or(LIMIT_EXCEPT), ONE, AuthBasicConf::set_file)
            .syntax("auth_basic_user_file file")
            .doc(
                "File of user names and passwords, one `user:password[:comment]` per line. \
                 Passwords are hashes of `crypt(3)`, `{PLAIN}`, `{SHA}` or `{SSHA}`. The path \
                 may contain variables.",
            ),
    ];

    fn inherit(conf: &mut AuthBasicConf, parent: &AuthBasicConf) {
        inherit!(conf, parent, realm, file);
    }

    fn install(conf: &AuthBasicConf, plan: &mut PlanBuilder<'_>) {
        if let (Some(realm), Some(file)) = (&conf.realm, &conf.file)
            && realm.constant() != Some(OFF)
        {
            plan.handler(
                Phase::Access,
                Self::NAME,
                PasswordCheck {
                    realm: WorkerValue::new(realm),
                    file: WorkerValue::new(&file.path),
                    prefix: file.prefix.as_slice().into(),
                },
            );
        }
    }
}

/// The module's settings of one block.
#[derive(Default)]
pub struct AuthBasicConf {
    realm: Option<ValueScript>,
    file: Option<UserFile>,
}

/// `auth_basic_user_file`.
#[derive(Clone)]
struct UserFile {
    path: ValueScript,
    /// Where a relative path that variables gave begins: the directory of the configuration.
    prefix: Vec<u8>,
}

impl AuthBasicConf {
    fn set_realm(&mut self, line: &mut LineCx<'_>) -> Result {
        let realm = ValueScript::compile(line, 0)?;
        line.once(&mut self.realm, realm)
    }

    fn set_file(&mut self, line: &mut LineCx<'_>) -> Result {
        let mut prefix = line.paths().conf_prefix.as_os_str().as_bytes().to_vec();
        prefix.push(b'/');
        let path = ValueScript::compile(line, 0)?;
        let path = match path.constant() {
            Some(name) if !name.starts_with(b"/") => ValueScript::literal(&[&prefix, name].concat()),
            _ => path,
        };
        line.once(&mut self.file, UserFile { path, prefix })
    }
}

struct PasswordCheck {
    realm: WorkerValue,
    file: WorkerValue,
    prefix: Box<[u8]>,
}

impl Handler for PasswordCheck {
    fn rehearsal(&self, _x: &mut Exchange) -> HandlerRehearsal {
        HandlerRehearsal::Ask
    }

    fn handle(&self, x: &mut Exchange) -> Verdict {
        let realm = self.realm.get(x);
        if x.text(&realm) == OFF {
            return Verdict::Declined;
        }
        let Some(credentials) = credentials::basic(x) else {
            x.log(LogLevel::Info, &"no user/password was provided for basic authentication");
            return refuse(x, &realm);
        };
        match self.stored(x, credentials) {
            StoredUser::Password(stored) if password::is_slow(&stored) => {
                x.state::<SlowPassword>().0 = Some((credentials, realm, stored));
                Verdict::Wait
            }
            StoredUser::Password(stored) => {
                let right = password::is_right(x.arena.get(credentials.password), &stored);
                decide(x, credentials, &realm, right)
            }
            StoredUser::Nobody => refuse(x, &realm),
            StoredUser::Status(status) => Verdict::Status(status),
        }
    }

    fn wait<'x>(&'x self, x: &'x mut Exchange) -> LocalFuture<'x, Verdict> {
        Box::pin(check_slowly(x))
    }
}

/// What is known of a user whose password takes long to check.
#[derive(Default)]
struct SlowPassword(Option<(BasicCredentials, Text, Vec<u8>)>);

/// What the file says of a user.
enum StoredUser {
    Password(Vec<u8>),
    Nobody,
    /// The file could not be read.
    Status(u16),
}

impl PasswordCheck {
    /// Looks the user up; what goes wrong is logged here.
    fn stored(&self, x: &mut Exchange, credentials: BasicCredentials) -> StoredUser {
        let value = self.file.get(x);
        let path: Rc<[u8]> = match x.text(&value) {
            path @ [b'/', ..] => path.into(),
            path => [&self.prefix, path].concat().into(),
        };
        let name = String::from_utf8_lossy(&path);
        let text = match std::fs::read(Path::new(OsStr::from_bytes(&path))) {
            Ok(text) => text,
            Err(error) => return StoredUser::Status(unreadable(x, &name, &error)),
        };
        let user = x.arena.get(credentials.user);
        match find(&text, user) {
            Some(stored) => StoredUser::Password(stored.to_vec()),
            None => {
                let user = String::from_utf8_lossy(user);
                x.log_error(&format_args!("user \"{user}\" was not found in \"{name}\""));
                StoredUser::Nobody
            }
        }
    }
}

/// nginx's status for a file of users that can't be read.
fn unreadable(x: &Exchange, name: &str, error: &io::Error) -> u16 {
    let errno = error.raw_os_error().unwrap_or_default();
    // A directory can be opened, but not read.
    let call = if error.kind() == io::ErrorKind::IsADirectory { "pread()" } else { "open()" };
    let (level, status) = if errno == ENOENT { (LogLevel::Error, 403) } else { (LogLevel::Crit, 500) };
    x.log(level, &format_args!("{call} \"{name}\" failed ({errno}: {})", errno_text(errno)));
    status
}

/// The password of `user`, which ends with the line or a colon. Empty lines and such that begin with `#` are
/// comments.
pub(crate) fn find<'t>(text: &'t [u8], user: &[u8]) -> Option<&'t [u8]> {
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !matches!(line, [] | [b'#' | b'\r', ..]));
    let mut found = lines.filter_map(|line| line.strip_prefix(user)?.strip_prefix(b":"));
    found.next()?.split(|byte| matches!(byte, b':' | b'\r')).next()
}

/// Checks the password on a thread of the pool.
async fn check_slowly(x: &mut Exchange) -> Verdict {
    let Some((credentials, realm, stored)) = x.state::<SlowPassword>().0.take() else {
        return Verdict::Status(500);
    };
    let password = x.arena.get(credentials.password).to_vec();
    let job = weir_rt::blocking(move || password::is_right(&password, &stored));
    let right = x.waiting_for(WaitKind::ThreadPool, Box::pin(job)).await;
    decide(x, credentials, &realm, right)
}

fn decide(x: &mut Exchange, credentials: BasicCredentials, realm: &Text, right: bool) -> Verdict {
    if right {
        return Verdict::Ok;
    }
    let user = String::from_utf8_lossy(x.arena.get(credentials.user));
    x.log_error(&format_args!("user \"{user}\": password mismatch"));
    refuse(x, realm)
}

/// 401, or 407 for a tunnel, with the realm as it is written: nginx escapes nothing in it.
fn refuse(x: &mut Exchange, realm: &Text) -> Verdict {
    let start = x.arena.mark();
    x.arena.push(b"Basic realm=\"");
    x.arena.append(realm);
    x.arena.push(b"\"");
    let challenge = x.arena.since(start);
    let (field, status) = match x.request.head.method {
        Method::Connect => (KnownField::ProxyAuthenticate, 407),
        _ => (KnownField::WwwAuthenticate, 401),
    };
    x.response.set(field, challenge);
    Verdict::Status(status)
}

const OFF: &[u8] = b"off";

#[cfg(test)]
mod tests {
    use weir_engine::ModuleDef;
    use weir_engine::testing::run_all;
    use weir_http::base64;
    use weir_test::TempDir;

    use crate::testing::{WITH_ONE, decided, whole_core_and};

    use super::*;

    #[test]
    fn users_are_found_in_their_lines() {
        let text =
            b"# a comment\n\nfirst:one\r\nsecond:two:a comment\n#third:three\nsecond:later\n:empty\nlast:end";
        for (user, password) in [
            ("first", Some("one")),
            ("second", Some("two")),
            ("", Some("empty")),
            ("last", Some("end")),
            ("las", None),
            ("#third", None),
            ("third", None),
            ("end", None),
        ] {
            assert_eq!(find(text, user.as_bytes()), password.map(str::as_bytes), "{user}");
        }
    }

    static WHOLE: [ModuleDef; WITH_ONE] = whole_core_and::<AuthBasic>();

    /// What is decided about a request with these credentials, and the challenge.
    fn said(http: &str, credentials: Option<&str>) -> String {
        let mut basic = Vec::new();
        base64::encode(credentials.unwrap_or_default().as_bytes(), &mut basic);
        let field = format!("Authorization: Basic {}\r\n", basic.escape_ascii());
        let fields = credentials.map_or("", |_| &field);
        let head = format!("GET / HTTP/1.1\r\nHost: x\r\nRealm: off\r\n{fields}\r\n");
        run_all(&WHOLE, http, &[&head], async |mut all| {
            let x = &mut all[0];
            let mut verdict = decided(x, Phase::Access);
            if verdict == "Wait" {
                let plan = x.plan.clone();
                verdict = format!("Wait, {:?}", plan.phase(Phase::Access)[0].handler.wait(x).await);
            }
            let challenge = x.response.header(KnownField::WwwAuthenticate).cloned();
            let shown = challenge.map_or(String::new(), |text| format!(" {}", x.text(&text).escape_ascii()));
            verdict + &shown
        })
    }

    #[test]
    fn only_a_user_with_the_right_password_is_let_in() {
        let directory = TempDir::new();
        let hash = "$2b$05$abcdefghijklmnopqrstuuWG29KuyeAicPCJODk1zjyGvyQUU2awu";
        let path = directory.write("users", format!("plain:{{PLAIN}}word\nslow:{hash}\nempty:\n"));
        let path = path.display();
        let refused = "Status(401) Basic realm=\\\"here\\\"";
        for (credentials, verdict) in [
            (Some("plain:word"), "Ok"),
            (Some("plain:other"), refused),
            (Some("plain:"), refused),
            (Some("plain"), refused),
            (Some("empty:"), &format!("Wait, {refused}")),
            (Some("stranger:word"), refused),
            (Some("slow:password"), "Wait, Ok"),
            (Some("slow:word"), &format!("Wait, {refused}")),
            (None, refused),
        ] {
            let lines = format!("auth_basic here; auth_basic_user_file {path};");
            for http in [format!("server {{ {lines} }}"), format!("{lines} server {{ }}")] {
                assert_eq!(said(&http, credentials), verdict, "{credentials:?} {http}");
            }
        }
    }

    #[test]
    fn without_the_file_no_user_is_let_in() {
        let directory = TempDir::new();
        let here = directory.path().display().to_string();
        for (file, verdict) in [
            (format!("{here}/absent"), "Status(403)"),
            (format!("{here}/$http_host"), "Status(403)"),
            ("absent".to_owned(), "Status(403)"),
            (here, "Status(500)"),
        ] {
            let http = format!("server {{ auth_basic here; auth_basic_user_file {file}; }}");
            assert_eq!(said(&http, Some("plain:word")), verdict, "{file}");
        }
    }

    #[test]
    fn off_lets_in() {
        for (http, verdict) in [
            ("auth_basic here; auth_basic_user_file x; server { auth_basic off; }", "Declined"),
            ("server { auth_basic $http_realm; auth_basic_user_file x; }", "Declined"),
            ("server { auth_basic here; }", "Declined"),
            ("server { auth_basic_user_file x; }", "Declined"),
        ] {
            assert_eq!(said(http, Some("plain:word")), verdict, "{http}");
        }
    }
}
