//! SoftHSM as a device that has keys.

use std::path::{Path, PathBuf};
use std::process::Command;

use weir_test::require_program;

/// A token named `weir` with a key `k`, and what a server needs to use it.
pub(crate) struct Token {
    util: PathBuf,
    module: &'static str,
    /// SoftHSM's own configuration.
    conf: PathBuf,
}

impl Token {
    /// Its files are in `dir`; `None`: there is no SoftHSM.
    pub(crate) fn new(dir: &Path, key: &str) -> Option<Token> {
        const MODULES: [&str; 3] = [
            "/usr/lib/softhsm/libsofthsm2.so",
            "/usr/lib64/pkcs11/libsofthsm2.so",
            "/usr/local/lib/softhsm/libsofthsm2.so",
        ];
        let util = require_program("softhsm2-util")?;
        let module =
            MODULES.into_iter().find(|path| Path::new(path).exists()).expect("softhsm2 has its module");
        std::fs::create_dir(dir.join("tokens")).expect("a new folder");
        let conf = dir.join("softhsm2.conf");
        let text = format!("directories.tokendir = {}\nlog.level = ERROR\n", dir.join("tokens").display());
        std::fs::write(&conf, text).expect("written");
        std::fs::write(dir.join("k.pem"), key).expect("written");
        let token = Token { util, module, conf };
        token.run(&["--init-token", "--free", "--label", "weir", "--so-pin", "4321", "--pin", "1234"]);
        let path = dir.join("k.pem").display().to_string();
        token.run(&["--import", &path, "--token", "weir", "--label", "k", "--id", "07", "--pin", "1234"]);
        Some(token)
    }

    fn run(&self, arguments: &[&str]) {
        let output = Command::new(&self.util).args(arguments).env("SOFTHSM2_CONF", &self.conf).output();
        let output = output.expect("softhsm2-util runs");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    pub(crate) fn name(&self, key: &str, query: &str) -> String {
        format!("pkcs11:token=weir;{key}?module-path={}&{query}", self.module)
    }

    pub(crate) fn conf(&self) -> &str {
        self.conf.to_str().expect("a path in ASCII")
    }
}
