//! nginx's command line.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use weir_conf::did_you_mean;

/// What the command line asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommandLine {
    /// What the program is to do.
    pub action: CommandAction,
    /// `-c`: the path of the configuration file; `None` without it.
    pub conf: Option<PathBuf>,
    /// `-p`: the path of the prefix; `None` without it.
    pub prefix: Option<PathBuf>,
    /// `-e`: the error log before the configuration is read; `None` without it.
    pub error_log: Option<PathBuf>,
    /// `-g`: lines outside of all blocks; `None` without it.
    pub globals: Option<String>,
    /// True with `-q`: only errors are printed.
    pub quiet: bool,
    /// `--fix`, `--diff`: what is done with mendings by `-t`; `None` without them.
    pub mending: Option<MendingMode>,
    /// The first word that is no option: a configuration file or a directory to serve, if there is one of that name.
    pub word: Option<OsString>,
    /// What is served without a configuration file.
    pub embedded: EmbeddedConf,
}

/// A configuration that is part of the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum EmbeddedConf {
    /// The welcome page, and the directory's files under `/files/`.
    #[default]
    Welcome,
    /// The directory's files, on this address.
    Directory(String),
}

/// Where a directory is served without `--listen`: the address in `assets/directory.conf`.
pub(crate) const DIRECTORY_ADDRESS: &str = "127.0.0.1:8080";

/// What `-t` does with what can be mended mechanically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MendingMode {
    /// `--diff`: shows what it would write.
    Show,
    /// `--fix`: writes.
    Write,
}

/// One of the things the program does.
#[derive(Debug, Default, PartialEq, Eq, Clone, Copy)]
pub(crate) enum CommandAction {
    /// Serve.
    #[default]
    Run,
    /// `-h`, `-?`
    Help,
    /// `--help`: to standard output, for a pager.
    LongHelp,
    /// `-v`
    Version,
    /// `--version`: to standard output.
    LongVersion,
    /// `-V`
    Configure,
    /// `-t`
    Test,
    /// `-T`
    Dump,
    /// `-s`
    Signal(SignalName),
}

/// `-s`
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) enum SignalName {
    /// At once.
    Stop,
    /// When all requests have ended.
    Quit,
    /// Log files again.
    Reopen,
    /// The configuration again.
    Reload,
}

/// Reads the arguments as nginx does: letters may share a dash, a value may be glued to its letter. One word may be no
/// option, which nginx refuses: a file or a directory.
///
/// # Errors
/// nginx's words for what is wrong, and in a line of its own what was meant perhaps.
pub(crate) fn parse(arguments: &[OsString]) -> Result<CommandLine, String> {
    let mut line = CommandLine::default();
    let mut arguments = arguments.iter();
    while let Some(word) = arguments.next() {
        match word.as_bytes().strip_prefix(b"-") {
            Some(b"-help") => line.action = CommandAction::LongHelp,
            Some(b"-version") => line.action = CommandAction::LongVersion,
            Some(b"-fix") => line.mending = Some(MendingMode::Write),
            Some(b"-diff") => line.mending = line.mending.or(Some(MendingMode::Show)),
            Some(letters) if letters.starts_with(b"-") => {
                let hint = did_you_mean(&word.to_string_lossy(), LONG_OPTIONS.into_iter())
                    .unwrap_or_else(|| "try \"weir --help\"".to_owned());
                return Err(format!("invalid option: \"-\"\n{hint}"));
            }
            Some(letters) => line.letters(letters, &mut arguments)?,
            None if line.word.is_none() => line.word = Some(word.clone()),
            None => return Err(format!("invalid option: \"{}\"", word.to_string_lossy())),
        }
    }
    if line.mending.is_some() && line.action != CommandAction::Test {
        return Err("\"--fix\" and \"--diff\" belong to \"-t\"".to_owned());
    }
    Ok(line)
}

/// What `-s` takes.
const SIGNALS: [&str; 4] = ["stop", "quit", "reopen", "reload"];
/// Options that are words.
const LONG_OPTIONS: [&str; 4] = ["--help", "--version", "--fix", "--diff"];

/// The command among the arguments, and all others: options may precede it. A word that is the value of one of
/// nginx's options is no command.
pub(crate) fn command(
    arguments: &[OsString],
    is_command: impl Fn(&OsStr) -> bool,
) -> Option<(&OsStr, Vec<OsString>)> {
    let mut at = 0;
    while let Some(word) = arguments.get(at) {
        let takes_value = ["-c", "-p", "-e", "-g", "-s", "--socket"].iter().any(|option| word == option);
        match () {
            () if takes_value => at += 2,
            () if is_command(word) => {
                let rest = arguments[at + 1..].iter().chain(&arguments[..at]).cloned().collect();
                return Some((word, rest));
            }
            () => at += 1,
        }
    }
    None
}

impl CommandLine {
    /// Options that share a dash.
    fn letters<'a>(
        &mut self,
        mut letters: &[u8],
        arguments: &mut impl Iterator<Item = &'a OsString>,
    ) -> Result<(), String> {
        while let Some((&letter, rest)) = letters.split_first() {
            letters = rest;
            match letter {
                b'?' | b'h' => self.action = CommandAction::Help,
                b'v' => self.action = CommandAction::Version,
                b'V' => self.action = CommandAction::Configure,
                b't' if self.action != CommandAction::Dump => {
                    self.action = CommandAction::Test;
                }
                b't' => {}
                b'T' => self.action = CommandAction::Dump,
                b'q' => self.quiet = true,
                b'p' | b'c' | b'e' | b'g' | b's' => return self.set(letter, value(letter, rest, arguments)?),
                other => return Err(format!("invalid option: \"{}\"", char::from(other))),
            }
        }
        Ok(())
    }

    fn set(&mut self, letter: u8, value: OsString) -> Result<(), String> {
        match letter {
            b'p' => self.prefix = Some(value.into()),
            b'c' => self.conf = Some(value.into()),
            b'e' => self.error_log = Some(value.into()),
            b'g' => self.globals = Some(value.to_string_lossy().into_owned()),
            _ => {
                self.action = CommandAction::Signal(match value.as_bytes() {
                    b"stop" => SignalName::Stop,
                    b"quit" => SignalName::Quit,
                    b"reopen" => SignalName::Reopen,
                    b"reload" => SignalName::Reload,
                    _ => {
                        let name = value.to_string_lossy();
                        let hint = did_you_mean(&name, SIGNALS.into_iter())
                            .unwrap_or_else(|| format!("there are: {}", SIGNALS.join(", ")));
                        return Err(format!("invalid option: \"-s {name}\"\n{hint}"));
                    }
                });
            }
        }
        Ok(())
    }
}

fn value<'a>(
    letter: u8,
    rest: &[u8],
    arguments: &mut impl Iterator<Item = &'a OsString>,
) -> Result<OsString, String> {
    if !rest.is_empty() {
        return Ok(OsString::from_vec(rest.to_vec()));
    }
    let wants = match letter {
        b'p' => "directory name",
        b'c' | b'e' => "file name",
        b'g' => "global directives",
        _ => "signal name",
    };
    let found = arguments.next().filter(|value| !value.is_empty());
    found.cloned().ok_or_else(|| format!("option \"-{}\" requires {wants}", char::from(letter)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<CommandLine, String> {
        parse(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn letters_share_a_dash_and_values_may_be_glued() {
        let line = read(&["-tq", "-cnginx.conf", "-p", "/srv/", "-g", "daemon off;"]).expect("valid");
        assert_eq!(line.action, CommandAction::Test);
        assert!(line.quiet);
        assert_eq!(line.conf, Some("nginx.conf".into()));
        assert_eq!(line.prefix, Some("/srv/".into()));
        assert_eq!(line.globals.as_deref(), Some("daemon off;"));
        assert_eq!(
            read(&["-s", "reload"]).map(|line| line.action),
            Ok(CommandAction::Signal(SignalName::Reload))
        );
    }

    #[test]
    fn a_command_is_found_after_options() {
        let found = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let (name, rest) = command(&words, |word| word == "top" || word == "trace")?;
            let rest: Vec<_> = rest.iter().map(|word| word.to_string_lossy()).collect();
            Some(format!("{}: {}", name.to_string_lossy(), rest.join(" ")))
        };
        for (words, expected) in [
            (&["top", "routes", "-c", "f"][..], Some("top: routes -c f")),
            (&["-c", "f", "top", "routes"], Some("top: routes -c f")),
            (&["--json", "-p", "top", "trace", "/x"], Some("trace: /x --json -p top")),
            (&["--socket", "trace", "-n", "3", "top"], Some("top: --socket trace -n 3")),
            (&["-c", "top"], None),
            (&["-s", "trace", "-t"], None),
            (&["-c"], None),
            (&[], None),
        ] {
            assert_eq!(found(words).as_deref(), expected, "{words:?}");
        }
    }

    #[test]
    fn long_words_are_known() {
        for (word, action) in [("--help", CommandAction::LongHelp), ("--version", CommandAction::LongVersion)]
        {
            assert_eq!(read(&[word]).map(|line| line.action), Ok(action), "{word}");
        }
    }

    #[test]
    fn mendings_are_written_or_shown_by_a_test() {
        for (words, mode) in [
            (&["-t", "--fix"][..], Some(MendingMode::Write)),
            (&["--diff", "-t"], Some(MendingMode::Show)),
            (&["-t", "--fix", "--diff"], Some(MendingMode::Write)),
            (&["-t"], None),
        ] {
            assert_eq!(read(words).map(|line| line.mending), Ok(mode), "{words:?}");
        }
    }

    #[test]
    fn mistakes_are_named_as_nginx_names_them() {
        for (words, message) in [
            (&["-x"][..], "invalid option: \"x\""),
            (&["--fix"], "\"--fix\" and \"--diff\" belong to \"-t\""),
            (&["a.conf", "conf"], "invalid option: \"conf\""),
            (&["--hepl"], "invalid option: \"-\"\ndid you mean \"--help\"?"),
            (&["--colours"], "invalid option: \"-\"\ntry \"weir --help\""),
            (&["-c"], "option \"-c\" requires file name"),
            (&["-p"], "option \"-p\" requires directory name"),
            (&["-g"], "option \"-g\" requires global directives"),
            (&["-s", "halt"], "invalid option: \"-s halt\"\nthere are: stop, quit, reopen, reload"),
            (&["-s", "relod"], "invalid option: \"-s relod\"\ndid you mean \"reload\"?"),
        ] {
            assert_eq!(read(words), Err(message.to_owned()), "{words:?}");
        }
    }
}
