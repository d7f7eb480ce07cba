//! A plan with less in it: what a fault does not need is taken away.

use crate::files::FilePlan;
use crate::plan::{ClientEnd, Plan};

/// What is taken away from a seed's plan. As text, for the world: `clients=0,3 requests=2 reloads= downs=1 accept=0 files=0
/// crash=0`,
/// words that are not there leave all as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanCut {
    /// The clients that stay, by their places; those of HTTP/2 come after the others, then those of sessions, of datagrams,
    /// and of WebSockets.
    pub clients: Option<Vec<usize>>,
    /// Each client asks at most so often.
    pub requests: Option<usize>,
    /// The reloads that stay.
    pub reloads: Option<Vec<usize>>,
    /// The falls of upstream servers that stay; those of servers of sessions, of datagrams and of WebSockets come after
    /// the others.
    pub downs: Option<Vec<usize>>,
    /// Whether accept(2) never fails.
    pub accepts: bool,
    /// Whether no file has a fault.
    pub files: bool,
    /// Whether the server does not crash.
    pub crash: bool,
    /// The settings that are what nginx has where no line says them: places in [`SETTINGS`].
    pub settings: Vec<usize>,
}

/// What puts a setting to its default.
type SettingDefault = fn(&mut Plan);

/// Settings that can be put to a default, with their names.
pub const SETTINGS: [(&str, SettingDefault); 12] = [
    ("workers", |plan| plan.settings.workers = 1),
    ("keepalive_requests", |plan| plan.settings.keepalive_requests = 1000),
    ("keepalive_timeout", |plan| plan.settings.keepalive_seconds = 75),
    ("proxy_buffering", |plan| plan.settings.buffering = true),
    ("proxy_request_buffering", |plan| plan.settings.request_buffering = true),
    ("keepalive", |plan| plan.settings.upstream_keepalive = 0),
    ("proxy_buffer_size", |plan| plan.settings.buffer = 4096),
    ("reuseport", |plan| plan.settings.reuseport = false),
    ("balance", |plan| plan.settings.balance = ""),
    ("open_file_cache", |plan| plan.settings.keeps_files = false),
    ("access_log_buffer", |plan| plan.settings.buffers_log = false),
    ("pace", |plan| {
        for client in &mut plan.clients {
            (client.piece, client.gap, client.read_gap, client.read) = (1 << 20, 0, 0, 1 << 16);
            client.is_narrow = false;
            if matches!(client.end, ClientEnd::Asks | ClientEnd::Stays) {
                client.end = ClientEnd::Closes;
            }
        }
        for client in &mut plan.http2.clients {
            let pace = &mut client.pace;
            (pace.piece, pace.gap, pace.read_gap, pace.read) = (1 << 20, 0, 0, 1 << 16);
            pace.is_narrow = false;
        }
    }),
];

impl PlanCut {
    /// Reads what [`PlanCut::text`] writes; `None`: it is something else.
    pub fn parse(text: &str) -> Option<PlanCut> {
        let mut cut = PlanCut::default();
        for word in text.split_whitespace() {
            let (name, value) = word.split_once('=')?;
            match name {
                "clients" => cut.clients = Some(places(value)?),
                "requests" => cut.requests = Some(value.parse().ok()?),
                "reloads" => cut.reloads = Some(places(value)?),
                "downs" => cut.downs = Some(places(value)?),
                "files" => cut.files = value == "0",
                "crash" => cut.crash = value == "0",
                "accept" => cut.accepts = value == "0",
                "settings" => {
                    let place = |name: &str| SETTINGS.iter().position(|(one, _)| *one == name);
                    let names = value.split(',').filter(|name| !name.is_empty());
                    cut.settings = names.map(place).collect::<Option<Vec<usize>>>()?;
                }
                _ => return None,
            }
        }
        Some(cut)
    }

    /// The cut as words.
    pub fn text(&self) -> String {
        let list = |places: &[usize]| places.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let mut words = Vec::new();
        let lists = [("clients", &self.clients), ("reloads", &self.reloads), ("downs", &self.downs)];
        for (name, places) in lists {
            words.extend(places.as_ref().map(|places| format!("{name}={}", list(places))));
        }
        words.extend(self.requests.map(|most| format!("requests={most}")));
        words.extend(self.accepts.then(|| "accept=0".to_owned()));
        words.extend(self.files.then(|| "files=0".to_owned()));
        words.extend(self.crash.then(|| "crash=0".to_owned()));
        if !self.settings.is_empty() {
            let names: Vec<&str> = self
                .settings
                .iter()
                .filter_map(|place| SETTINGS.get(*place).map(|(name, _)| *name))
                .collect();
            words.push(format!("settings={}", names.join(",")));
        }
        words.join(" ")
    }
}

fn places(value: &str) -> Option<Vec<usize>> {
    value.split(',').filter(|word| !word.is_empty()).map(|word| word.parse().ok()).collect()
}

/// The entries at `places`; all, where nothing is said.
fn keep<T>(entries: &mut Vec<T>, places: Option<&Vec<usize>>) {
    let mut place = 0..;
    entries.retain(|_| {
        let place = place.next();
        places.is_none_or(|places| place.is_some_and(|place| places.contains(&place)))
    });
}

/// The places of a list that is several of the plan's, one after the other.
struct PlacesLeft(Option<Vec<usize>>);

impl PlacesLeft {
    /// Cuts the next of the plan's lists.
    fn keep<T>(&mut self, entries: &mut Vec<T>) {
        let length = entries.len();
        keep(entries, self.0.as_ref());
        if let Some(places) = &mut self.0 {
            *places = places.iter().filter_map(|place| place.checked_sub(length)).collect();
        }
    }
}

impl Plan {
    /// The plan without what is cut. Requests keep their numbers.
    pub fn without(mut self, cut: &PlanCut) -> Plan {
        let mut clients = PlacesLeft(cut.clients.clone());
        clients.keep(&mut self.clients);
        clients.keep(&mut self.http2.clients);
        clients.keep(&mut self.stream.sessions);
        clients.keep(&mut self.stream.flows.clients);
        clients.keep(&mut self.tunnels.tunnels);
        for client in &mut self.http2.clients {
            client.requests.truncate(cut.requests.unwrap_or(usize::MAX).max(1));
        }
        keep(&mut self.reloads, cut.reloads.as_ref());
        let mut downs = PlacesLeft(cut.downs.clone());
        downs.keep(&mut self.downs);
        downs.keep(&mut self.stream.downs);
        downs.keep(&mut self.stream.flows.downs);
        downs.keep(&mut self.tunnels.downs);
        for client in &mut self.clients {
            client.requests.truncate(cut.requests.unwrap_or(usize::MAX).max(1));
        }
        if cut.accepts {
            self.accept_faults = 0;
        }
        if cut.files {
            self.files = FilePlan::default();
        }
        if cut.crash {
            self.crash = None;
        }
        for (_, set) in cut.settings.iter().filter_map(|place| SETTINGS.get(*place)) {
            set(&mut self);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_is_read_as_it_is_written() {
        let cut = PlanCut {
            clients: Some(vec![0, 3]),
            requests: Some(2),
            reloads: Some(vec![]),
            downs: None,
            accepts: true,
            files: true,
            crash: true,
            settings: vec![0, 11],
        };
        assert_eq!(
            cut.text(),
            "clients=0,3 reloads= requests=2 accept=0 files=0 crash=0 settings=workers,pace"
        );
        assert_eq!(PlanCut::parse(&cut.text()), Some(cut));
        assert_eq!(PlanCut::parse(""), Some(PlanCut::default()));
        for wrong in ["clients", "clients=x", "what=1", "settings=what"] {
            assert_eq!(PlanCut::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_cut_is_gone_and_the_rest_stays() {
        let seed = (0..).find(|seed| Plan::new(*seed).clients.len() >= 10).unwrap_or(0);
        let whole = Plan::new(seed);
        let cut =
            PlanCut { clients: Some(vec![1, 4]), requests: Some(1), accepts: true, ..PlanCut::default() };
        let less = Plan::new(seed).without(&cut);
        assert_eq!(less.clients.len(), 2);
        assert_eq!(less.clients[1].requests[0].number, whole.clients[4].requests[0].number);
        assert!(less.clients.iter().all(|client| client.requests.len() == 1));
        assert_eq!((less.accept_faults, less.reloads.len()), (0, whole.reloads.len()));
    }
}
