//! `scgi_temp_path` and its like: the folders of the modules that talk to other servers.
//!
//! Those modules do not exist yet, but nearly every nginx.conf made by a packager names their folders. The directives
//! are checked as nginx does, and the folders that are named are made when the server starts; each directive moves to
//! its own module, with its default, when that is there.

use weir_conf::names::{ANY, ONE, TWO};
use weir_conf::{Args, Directive, Error};
use weir_core::Module;
use weir_core::conf::registry::Registry;
use weir_core::conf::temp_path::{TempPath, TempPaths};

/// The module.
pub struct TempFolders;

impl Module for TempFolders {
    const NAME: &'static str = "temp_paths";
    type Conf = TempFoldersConf;
    const DIRECTIVES: &'static [Directive<TempFoldersConf>] = TABLE;

    fn resolve(conf: &mut TempFoldersConf, registry: &mut Registry) -> Result<(), Error> {
        for folder in [&conf.uwsgi, &conf.scgi].into_iter().flatten() {
            registry.shared::<TempPaths>().add(&folder.path);
        }
        Ok(())
    }
}

/// The folders that one block names.
#[derive(Default)]
pub struct TempFoldersConf {
    uwsgi: Option<TempPath>,
    scgi: Option<TempPath>,
}

// The alias tells the closures of the table what `c` is.
type Row = Directive<TempFoldersConf>;

const TABLE: &[Row] = &[
    Row::new("uwsgi_temp_path", ANY, ONE_TO_FOUR, |c, line| TempPath::set(&mut c.uwsgi, line))
        .doc("The folder of responses of uwsgi servers; made, not used yet."),
    Row::new("scgi_temp_path", ANY, ONE_TO_FOUR, |c, line| TempPath::set(&mut c.scgi, line))
        .doc("The folder of responses of SCGI servers; made, not used yet."),
];

const ONE_TO_FOUR: Args = ONE.or(TWO).or(Args::range(3, 4));

#[cfg(test)]
mod tests {
    use weir_core::ModuleDef;
    use weir_core::conf::test::{headlines, load};

    use super::*;
    use crate::testing::core_and;

    static MODULES: [ModuleDef; 4] = core_and::<TempFolders>();

    #[test]
    fn folders_that_are_named_are_made() {
        let conf = load("http { uwsgi_temp_path p 1 2; server { scgi_temp_path /t; } }", &MODULES)
            .unwrap_or_else(|error| panic!("{error}"));
        let paths = &conf.tables.shared::<TempPaths>().expect("the core adds its own").0;
        let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
        assert_eq!(paths, ["/srv/weir/client_body_temp", "/srv/weir/p", "/t"]);
    }

    #[test]
    fn mistakes_have_nginx_s_words() {
        let found = headlines("http { uwsgi_temp_path a 5 6; scgi_temp_path b 0; }", &MODULES);
        assert_eq!(
            found,
            [
                "\"uwsgi_temp_path\" directive invalid value in weir.conf:1:8",
                "\"scgi_temp_path\" directive invalid value in weir.conf:1:48"
            ]
        );
    }
}
