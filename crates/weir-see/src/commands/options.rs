//! Command lines of the commands: options from a table, which is also their help.

use std::ffi::OsString;

use super::selector::ServerSelector;

/// An option of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommandOption {
    /// `--name` or `-n`.
    pub(super) name: &'static str,
    /// What its value is called; empty without value.
    pub(super) value: &'static str,
    pub(super) about: &'static str,
}

/// A command line that was understood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CommandLine {
    /// What is no option.
    pub(super) words: Vec<String>,
    pub(super) place: ServerSelector,
    values: Vec<(&'static str, String)>,
}

impl CommandLine {
    /// Reads what follows the command's name.
    ///
    /// # Errors
    /// What is unknown or incomplete.
    pub(super) fn parse(
        arguments: &[OsString],
        choices: &'static [CommandOption],
    ) -> Result<CommandLine, String> {
        let mut asked = CommandLine::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let word = argument.to_string_lossy().into_owned();
            if !word.starts_with('-') || word == "-" {
                asked.words.push(word);
                continue;
            }
            let known = || choices.iter().chain(COMMON);
            let (name, glued) = match word.split_once('=').filter(|_| word.starts_with("--")) {
                Some((name, value)) => (name.to_owned(), Some(OsString::from(value))),
                // As nginx's: `-cFILE`.
                None => match known().find(|choice| glues(choice, &word)) {
                    Some(choice) => {
                        (choice.name.to_owned(), Some(OsString::from(&word[choice.name.len()..])))
                    }
                    None => (word, None),
                },
            };
            let choice = known().find(|choice| choice.name == name);
            let Some(choice) = choice else {
                return Err(format!("unknown option \"{name}\"; --help lists those there are"));
            };
            let value = match (choice.value, glued) {
                ("", None) => OsString::new(),
                ("", Some(_)) => return Err(format!("\"{name}\" takes no value")),
                (_, Some(value)) => value,
                (_, None) => arguments.next().cloned().ok_or_else(|| format!("\"{name}\" needs a value"))?,
            };
            asked.take(choice.name, value);
        }
        Ok(asked)
    }

    /// The value of an option; the last one counts.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.values.iter().rev().find(|(given, _)| *given == name).map(|(_, value)| value.as_str())
    }

    /// Whether an option was given.
    pub(super) fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// No more than `count` words.
    ///
    /// # Errors
    /// There are more: the first of those.
    pub(super) fn at_most(&self, count: usize) -> Result<(), String> {
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
fn glues(choice: &CommandOption, word: &str) -> bool {
    choice.name.len() == 2 && !choice.value.is_empty() && word.len() > 2 && word.starts_with(choice.name)
}

/// What `--help` prints.
pub(super) fn help(name: &str, words: &str, about: &str, choices: &[CommandOption]) -> String {
    let mut out = format!("usage: weir {name} {words}").trim_end().to_owned();
    out.push_str(" [options]\n\n");
    out.push_str(&filled(about));
    out.push_str("\noptions:\n");
    for choice in choices.iter().chain(COMMON) {
        let option = format!("{} {}", choice.name, choice.value);
        out.push_str(&format!("  {:<18} {}\n", option.trim_end(), choice.about));
    }
    out
}

/// `text` in lines of at most 100 letters.
fn filled(text: &str) -> String {
    let mut out = String::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if line.len() + word.len() > 100 {
            out.push_str(line.trim_end());
            out.push('\n');
            line.clear();
        }
        line.push_str(word);
        line.push(' ');
    }
    out.push_str(line.trim_end());
    out.push('\n');
    out
}

/// What every command takes.
const COMMON: &[CommandOption] = &[
    CommandOption { name: "--json", value: "", about: "for programs: JSON, times in nanoseconds" },
    CommandOption { name: "-c", value: "FILE", about: "the server's configuration file" },
    CommandOption { name: "-p", value: "PREFIX", about: "its prefix" },
    CommandOption { name: "--socket", value: "FILE", about: "its control socket, instead of both" },
];

#[cfg(test)]
mod tests {
    use super::*;

    const CHOICES: &[CommandOption] = &[
        CommandOption { name: "-n", value: "N", about: "how many" },
        CommandOption { name: "--flow", value: "", about: "one by one" },
    ];

    fn read(words: &[&str]) -> Result<CommandLine, String> {
        CommandLine::parse(&words.iter().map(OsString::from).collect::<Vec<_>>(), CHOICES)
    }

    #[test]
    fn options_and_words_may_be_mixed() {
        let asked =
            read(&["/img/", "-n", "3", "--flow", "--socket=/run/s", "-p", "/srv", "-n", "4"]).expect("valid");
        assert_eq!((asked.words.as_slice(), asked.value("-n")), (&["/img/".to_owned()][..], Some("4")));
        assert!(asked.has("--flow") && !asked.has("--json"));
        let glued = read(&["-c/etc/a.conf", "-n5"]).expect("valid");
        assert_eq!(glued.value("-n"), Some("5"));
        assert_eq!(glued.place.conf, Some("/etc/a.conf".into()));
        assert_eq!((asked.place.socket, asked.place.prefix), (Some("/run/s".into()), Some("/srv".into())));
    }

    #[test]
    fn mistakes_are_named() {
        assert!(read(&["--what"]).is_err_and(|text| text.contains("--what")));
        assert!(read(&["-n"]).is_err_and(|text| text.contains("needs a value")));
        assert!(read(&["--flow=1"]).is_err_and(|text| text.contains("takes no value")));
        assert!(read(&["a", "b"]).expect("words").at_most(1).is_err_and(|text| text.contains("\"b\"")));
    }

    #[test]
    fn help_is_the_table() {
        let text = help("trace", "[URL]", "Shows it.", CHOICES);
        assert!(text.starts_with("usage: weir trace [URL] [options]\n\nShows it.\n\noptions:\n"), "{text}");
        assert!(text.contains("  -n N               how many\n") && text.contains("  --json "), "{text}");
    }
}
