//! What servers and locations are called where their time is shown: as they are written, and where two servers have a
//! location of one name, with the server's name before it, so that each has figures of its own.

use std::collections::{HashMap, HashSet};

use super::server_core::ServerCoreConf;
use super::{Configuration, LocationConf};

/// The names of all servers of a configuration.
pub(super) struct ServerTitles {
    /// First names that several servers have.
    shared: HashSet<String>,
    /// Names of locations that several servers have.
    several: HashSet<String>,
    /// The index of each server's first address.
    first: HashMap<usize, usize>,
}

/// The names of one server and its locations.
pub(super) struct ServerTitle<'t> {
    /// Of its own plan.
    server: String,
    /// Before locations that others have, too.
    prefix: String,
    several: &'t HashSet<String>,
}

impl ServerTitles {
    pub(super) fn new(configuration: &Configuration) -> ServerTitles {
        let (mut seen, mut shared) = (HashSet::new(), HashSet::new());
        for name in configuration.servers().iter().map(|server| server.confs.get::<ServerCoreConf>().name()) {
            if !seen.insert(name) {
                shared.insert(String::from_utf8_lossy(name).into_owned());
            }
        }
        let locations = configuration.servers().iter().map(|server| &server.locations[..]);
        let mut first = HashMap::new();
        for (at, address) in configuration.addresses.iter().enumerate() {
            for server in &address.servers {
                first.entry(*server).or_insert(at);
            }
        }
        ServerTitles { shared, several: several(locations), first }
    }

    /// Those of the server with this index in the file.
    pub(super) fn of(&self, index: usize, configuration: &Configuration) -> ServerTitle<'_> {
        let name = configuration.servers()[index].confs.get::<ServerCoreConf>().name();
        let name = String::from_utf8_lossy(name).into_owned();
        let alone = !self.shared.contains(&name);
        let prefix = if alone && !name.is_empty() {
            name.clone()
        } else {
            self.at_address(configuration, index, &name)
        };
        ServerTitle { server: if alone { name } else { prefix.clone() }, prefix, several: &self.several }
    }

    /// `example.com:8080`: a server that shares its name with others, or has none, by its first address, too.
    fn at_address(&self, configuration: &Configuration, index: usize, name: &str) -> String {
        let Some(first) = self.first.get(&index) else { return name.to_owned() };
        let address = &configuration.addresses[*first].addr;
        match (name, address.port()) {
            ("", _) => address.to_string(),
            (_, Some(port)) => format!("{name}:{port}"),
            (_, None) => format!("{name}@{address}"),
        }
    }
}

impl ServerTitle<'_> {
    /// The server itself: its first name.
    pub(super) fn server(&self) -> &str {
        &self.server
    }

    /// A location that is written as `name`.
    pub(super) fn location(&self, name: String) -> String {
        match () {
            () if !self.several.contains(&name) => name,
            () if name.starts_with('/') => format!("{}{name}", self.prefix),
            () => format!("{} {name}", self.prefix),
        }
    }
}

/// The names that locations of more than one server have.
fn several<'c>(servers: impl Iterator<Item = &'c [LocationConf]>) -> HashSet<String> {
    let (mut seen, mut several) = (HashSet::new(), HashSet::new());
    for locations in servers {
        let mut own = HashSet::new();
        collect(locations, &mut own);
        for name in own {
            match seen.contains(&name) {
                true => several.insert(name),
                false => seen.insert(name),
            };
        }
    }
    several
}

fn collect(locations: &[LocationConf], names: &mut HashSet<String>) {
    for location in locations {
        names.insert(location.matcher.name());
        collect(&location.locations, names);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conf::CORE_MODULES;
    use crate::conf::test::load;

    fn titles(http: &str) -> Vec<(String, Vec<String>)> {
        let conf =
            load(&format!("events {{ }} http {{ {http} }}"), &CORE_MODULES).unwrap_or_else(|e| panic!("{e}"));
        let titles = ServerTitles::new(&conf);
        let names = |(index, server): (usize, &super::super::ServerConf)| {
            let title = titles.of(index, &conf);
            let locations = server.locations.iter().map(|location| title.location(location.matcher.name()));
            (title.server().to_owned(), locations.collect())
        };
        conf.servers().iter().enumerate().map(names).collect()
    }

    fn expect(http: &str, expected: &[(&str, &[&str])]) {
        let expected: Vec<(String, Vec<String>)> = expected
            .iter()
            .map(|(server, names)| {
                ((*server).to_owned(), names.iter().map(|&name| name.to_owned()).collect())
            })
            .collect();
        assert_eq!(titles(http), expected, "{http}");
    }

    #[test]
    fn one_server_s_locations_are_called_as_they_are_written() {
        expect(
            "server { listen 8080; location / { } location = /a { } location ~ x { } }",
            &[("", &["/", "= /a", "~ x"])],
        );
    }

    #[test]
    fn what_several_servers_have_is_told_apart() {
        expect(
            "server { listen 80; server_name a; location / { } location = /x { } location /own { } }
             server { listen 80; server_name b c; location / { } location = /x { } }
             server { listen 81; location / { } }",
            &[("a", &["a/", "a = /x", "/own"]), ("b", &["b/", "b = /x"]), ("", &["0.0.0.0:81/"])],
        );
    }

    #[test]
    fn servers_of_one_name_are_told_apart_by_their_addresses() {
        expect(
            "server { listen 80; server_name a; location / { } } server { listen 443; server_name a; location / { } }
             server { listen 81; } server { listen unix:/s; }",
            &[("a:80", &["a:80/"]), ("a:443", &["a:443/"]), ("0.0.0.0:81", &[]), ("unix:/s", &[])],
        );
    }
}
