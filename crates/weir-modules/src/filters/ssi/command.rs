//! The commands and their parameters.

use weir_http::ssi::SsiCommand;

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandName {
    Include,
    Echo,
    Config,
    Set,
    If,
    Elif,
    Else,
    Endif,
    Block,
    Endblock,
}

/// A command's line in the table.
pub(super) struct CommandEntry {
    pub(super) name: CommandName,
    written: &'static [u8],
    /// Parameters, and whether they must be there.
    params: &'static [(&'static [u8], bool)],
    /// It belongs to a condition: where this many of its marks (if 1, else 2) may have been met.
    pub(super) conditional: u8,
}

impl CommandEntry {
    /// The entry of the command of that name.
    pub(super) fn find(name: &[u8]) -> Option<&'static CommandEntry> {
        COMMANDS.iter().find(|entry| entry.written == name)
    }

    /// Whether it ends a block, and so is heeded within one.
    pub(super) fn ends_block(&self) -> bool {
        self.name == CommandName::Endblock
    }

    /// The values of the command's parameters, in the order of the table.
    ///
    /// # Errors
    /// What is wrong with them, in nginx's words.
    pub(super) fn arrange(&self, command: SsiCommand) -> Result<Vec<Option<Vec<u8>>>, Vec<u8>> {
        if command.params.len() > MOST_PARAMS {
            return Err([b"too many SSI command parameters: \"", &command.name[..], b"\""].concat());
        }
        let inside = [b"in \"", &command.name[..], b"\" SSI command"].concat();
        let mut values = vec![None; self.params.len()];
        for (key, value) in command.params {
            let Some(at) = self.params.iter().position(|(name, _)| *name == key) else {
                return Err([b"invalid parameter name: \"", &key[..], b"\" ", &inside].concat());
            };
            if values[at].is_some() {
                return Err([b"duplicate \"", &key[..], b"\" parameter ", &inside].concat());
            }
            values[at] = Some(value);
        }
        for ((name, mandatory), value) in self.params.iter().zip(&values) {
            if *mandatory && value.is_none() {
                return Err([b"mandatory \"", *name, b"\" parameter is absent ", &inside].concat());
            }
        }
        Ok(values)
    }
}

/// The command as it may have been written, for a block that holds it.
pub(super) fn text(command: &SsiCommand) -> Vec<u8> {
    let mut text = [b"<!--#", &command.name[..]].concat();
    for (key, value) in &command.params {
        text.extend_from_slice(&[b" ", &key[..], b"=\"", value, b"\""].concat());
    }
    text.extend_from_slice(b" -->");
    text
}

const fn entry(
    name: CommandName,
    written: &'static [u8],
    params: &'static [(&'static [u8], bool)],
    conditional: u8,
) -> CommandEntry {
    CommandEntry { name, written, params, conditional }
}

static COMMANDS: &[CommandEntry] = &[
    entry(
        CommandName::Include,
        b"include",
        &[(b"virtual", false), (b"file", false), (b"wait", false), (b"set", false), (b"stub", false)],
        0,
    ),
    entry(CommandName::Echo, b"echo", &[(b"var", true), (b"default", false), (b"encoding", false)], 0),
    entry(CommandName::Config, b"config", &[(b"errmsg", false), (b"timefmt", false)], 0),
    entry(CommandName::Set, b"set", &[(b"var", true), (b"value", true)], 0),
    entry(CommandName::If, b"if", &[(b"expr", true)], 0),
    entry(CommandName::Elif, b"elif", &[(b"expr", true)], 1),
    entry(CommandName::Else, b"else", &[], 1),
    entry(CommandName::Endif, b"endif", &[], 2),
    entry(CommandName::Block, b"block", &[(b"name", true)], 0),
    entry(CommandName::Endblock, b"endblock", &[], 0),
];

/// nginx's `NGX_HTTP_SSI_MAX_PARAMS`.
const MOST_PARAMS: usize = 16;
