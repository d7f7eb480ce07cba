//! Command lines of the commands: options from the command's table, which is also its help.

use std::ffi::OsString;

use super::help::{CommandHelp, CommandOption};
use super::selector::ServerSelector;

/// A command line that was understood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// What is no option.
    pub words: Vec<String>,
    /// Which server is meant: `-c`, `-p`, `--socket`.
    pub place: ServerSelector,
    values: Vec<(&'static str, String)>,
}

impl CommandLine {
    /// Reads what follows the command's name. After `--` nothing is an option.
    ///
    /// # Errors
    /// What is unknown or incomplete.
    pub fn parse(arguments: &[OsString], command: &CommandHelp) -> Result<CommandLine, String> {
        let mut asked = CommandLine::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let word = argument.to_string_lossy().into_owned();
            if word == "--" {
                asked.words.extend(arguments.map(|word| word.to_string_lossy().into_owned()));
                break;
            }
            if !word.starts_with('-') || word == "-" {
                asked.words.push(word);
                continue;
            }
            let (name, glued) = match word.split_once('=').filter(|_| word.starts_with("--")) {
                Some((name, value)) => (name.to_owned(), Some(OsString::from(value))),
                // As nginx's: `-cFILE`.
                None => match command.all_options().find(|option| glues(option, &word)) {
                    Some(option) => {
                        (option.name.to_owned(), Some(OsString::from(&word[option.name.len()..])))
                    }
                    None => (word, None),
                },
            };
            let option = command.option(&name)?;
            let value = match (option.value, glued) {
                ("", None) => OsString::new(),
                ("", Some(_)) => return Err(format!("\"{name}\" takes no value")),
                (_, Some(value)) => value,
                (_, None) => arguments.next().cloned().ok_or_else(|| format!("\"{name}\" needs a value"))?,
            };
            asked.take(option.name, value);
        }
        Ok(asked)
    }

    /// The value of an option; the last one counts.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&str> {
        self.values(name).last()
    }

    /// All values of an option, in order.
    pub fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        self.values.iter().filter(move |(given, _)| *given == name).map(|(_, value)| value.as_str())
    }

    /// Whether an option was given.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// No more than `count` words.
    ///
    /// # Errors
    /// There are more: the first of those.
    pub fn at_most(&self, count: usize) -> Result<(), String> {
        match self.words.get(count) {
            Some(word) => Err(format!("\"{word}\" is one word too many")),
            None => Ok(()),
        }
    }

    fn take(&mut self, name: &'static str, value: OsString) {
        match name {
            "--socket" => self.place.socket = Some(value.into()),
            "-c" => self.place.conf = Some(value.into()),
            "-p" => self.place.prefix = Some(value.into()),
            _ => self.values.push((name, value.to_string_lossy().into_owned())),
        }
    }
}

/// Whether `word` is this option, of one letter, with its value right after it.
fn glues(option: &CommandOption, word: &str) -> bool {
    option.name.len() == 2 && !option.value.is_empty() && word.len() > 2 && word.starts_with(option.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMAND: CommandHelp = CommandHelp {
        name: "trace",
        words: "",
        about: "",
        options: &[CommandOption::new("-n", "N", "how many"), CommandOption::new("--flow", "", "one by one")],
        asks_server: true,
        examples: &[],
    };

    fn read(words: &[&str]) -> Result<CommandLine, String> {
        CommandLine::parse(&words.iter().map(OsString::from).collect::<Vec<_>>(), &COMMAND)
    }

    #[test]
    fn options_and_words_may_be_mixed() {
        let asked =
            read(&["/img/", "-n", "3", "--flow", "--socket=/run/s", "-p", "/srv", "-n", "4"]).expect("valid");
        assert_eq!((asked.words.as_slice(), asked.value("-n")), (&["/img/".to_owned()][..], Some("4")));
        assert!(asked.has("--flow") && !asked.has("--json"));
        assert_eq!(asked.values("-n").collect::<Vec<_>>(), ["3", "4"]);
        let glued = read(&["-c/etc/a.conf", "-n5"]).expect("valid");
        assert_eq!(glued.value("-n"), Some("5"));
        assert_eq!(glued.place.conf, Some("/etc/a.conf".into()));
        assert_eq!((asked.place.socket, asked.place.prefix), (Some("/run/s".into()), Some("/srv".into())));
        assert_eq!(read(&["--", "--flow", "-x"]).expect("valid").words, ["--flow", "-x"]);
    }

    #[test]
    fn mistakes_are_named() {
        assert!(read(&["--what"]).is_err_and(|text| text.contains("--what")));
        assert!(read(&["-n"]).is_err_and(|text| text.contains("needs a value")));
        assert!(read(&["--flow=1"]).is_err_and(|text| text.contains("takes no value")));
        assert!(read(&["a", "b"]).expect("words").at_most(1).is_err_and(|text| text.contains("\"b\"")));
    }
}
