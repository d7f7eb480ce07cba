//! Which nginx it is that Weir is compared with.

use std::fmt;
use std::path::Path;
use std::process::Command;

/// `1.22.1`; a part that is not written is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version([u16; 3]);

impl Version {
    /// What the program at `path` says of itself with `-v`.
    pub(crate) fn of(path: &Path) -> Version {
        let said = said_version(path);
        let number = said.split("nginx/").nth(1).unwrap_or_else(|| panic!("no version in {said:?}"));
        let end = number.find(|byte: char| !byte.is_ascii_digit() && byte != '.').unwrap_or(number.len());
        Version::parse(&number[..end])
    }

    /// # Panics
    /// When `text` is no version: those of the tables are ours.
    pub(crate) fn parse(text: &str) -> Version {
        let mut parts = [0; 3];
        for (part, word) in parts.iter_mut().zip(text.split('.')) {
            *part = word.parse().unwrap_or_else(|_| panic!("no version: {text:?}"));
        }
        Version(parts)
    }
}

/// The configuration without lines that say to be for later versions than all of these are.
pub(crate) fn select(conf: &str, versions: &[Version]) -> String {
    let fits = |line: &&str| match line.split_once("# since ") {
        Some((_, since)) => versions.iter().all(|version| *version >= Version::parse(since.trim())),
        None => true,
    };
    conf.lines().filter(fits).map(|line| format!("{line}\n")).collect()
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

/// Versions from one to another.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Versions {
    /// The first one.
    pub(crate) since: Option<Version>,
    /// The first one that is not meant any more.
    pub(crate) until: Option<Version>,
}

impl Versions {
    pub(crate) fn contains(&self, version: &Version) -> bool {
        self.since.is_none_or(|since| *version >= since) && self.until.is_none_or(|until| *version < until)
    }
}

/// What `-v` prints.
pub(crate) fn said_version(path: &Path) -> String {
    let output = Command::new(path).arg("-v").output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}

#[test]
fn versions_are_ordered_by_number() {
    assert!(Version::parse("1.9.15") < Version::parse("1.22"));
    assert!(Version::parse("1.31.5") > Version::parse("1.31.4"));
    let conf = "a;\nb; # since 1.29.3\nc;";
    assert_eq!(select(conf, &[Version::parse("1.29.3"), Version::parse("1.22.1")]), "a;\nc;\n");
    assert_eq!(select(conf, &[Version::parse("1.29.3")]), "a;\nb; # since 1.29.3\nc;\n");
}
