//! What a seed draws of the health of upstream servers: when which of them fails and how, the settings that take it out and bring
//! it back, and who asks meanwhile.

use std::fmt::Write;

use crate::draw::Draw;

/// Where the servers are. Among all upstream servers they come last.
pub const HEALTH_PORTS: [u16; 3] = [9011, 9012, 9013];
/// The numbers of requests for them begin after this.
pub const HEALTH_NUMBERS: u64 = 700_000;
/// `proxy_read_timeout` of their location, seconds.
pub const HEALTH_PATIENCE: u64 = 2;
/// What checks ask for.
pub const CHECK_PATH: &str = "/check";

/// Servers that fail and recover; without any in a plan where nothing of it is drawn.
#[derive(Clone, Debug, Default)]
pub struct HealthPlan {
    /// The servers, in the order of [`HEALTH_PORTS`].
    pub servers: Vec<HealthServerPlan>,
    /// `proxy_next_upstream_tries`.
    pub tries: u64,
    /// `health_check`, if there is one.
    pub check: Option<HealthCheckPlan>,
    /// When they fail.
    pub ills: Vec<ServerIllness>,
}

/// The parameters of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthServerPlan {
    /// `max_fails`.
    pub max_fails: u64,
    /// `fail_timeout`, seconds.
    pub fail_timeout: u64,
}

/// The parameters of `health_check`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthCheckPlan {
    /// `interval`, seconds.
    pub interval: u64,
    /// `fails`.
    pub fails: u64,
    /// `passes`.
    pub passes: u64,
}

/// A time in which a server fails, microseconds after the first client may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerIllness {
    /// Its place in [`HEALTH_PORTS`].
    pub server: usize,
    /// From when.
    pub from: u64,
    /// Until when.
    pub to: u64,
    /// How it fails.
    pub kind: IllnessKind,
}

/// How a server fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IllnessKind {
    /// It refuses connections.
    Gone,
    /// It closes them once it has the request.
    Closes,
    /// It says nothing.
    Stalls,
}

impl HealthPlan {
    /// What `draw` draws.
    pub fn drawn(draw: &mut Draw) -> HealthPlan {
        if draw.chance(3, 4) {
            return HealthPlan::default();
        }
        let servers = HEALTH_PORTS.iter().map(|_| HealthServerPlan {
            max_fails: *draw.one_of(&[0, 1, 1, 2, 3]),
            fail_timeout: *draw.one_of(&[3, 5, 10]),
        });
        let servers = servers.collect();
        let check = draw.chance(1, 3).then(|| HealthCheckPlan {
            interval: *draw.one_of(&[1, 2, 4]),
            fails: draw.between(1, 3),
            passes: draw.between(1, 3),
        });
        let ills = (0..draw.between(1, 6)).map(|_| ServerIllness::drawn(draw)).collect();
        HealthPlan { servers, tries: *draw.one_of(&[0, 0, 1, 2]), check, ills }
    }

    /// Whether nothing is drawn.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// How a server fails at a time, if it does.
    pub fn illness(&self, server: usize, at: u64) -> Option<IllnessKind> {
        let is_it = |ill: &&ServerIllness| ill.server == server && (ill.from..ill.to).contains(&at);
        // Who is gone can do nothing else.
        let mut all: Vec<IllnessKind> = self.ills.iter().filter(is_it).map(|ill| ill.kind).collect();
        all.sort_by_key(|kind| *kind != IllnessKind::Gone);
        all.first().copied()
    }

    /// The block `upstream`.
    pub(crate) fn block(&self) -> String {
        if self.is_empty() {
            return String::new();
        }
        let mut lines = String::new();
        for (server, port) in self.servers.iter().zip(HEALTH_PORTS) {
            let HealthServerPlan { max_fails, fail_timeout } = server;
            let _ = writeln!(
                lines,
                "        server 127.0.0.1:{port} max_fails={max_fails} fail_timeout={fail_timeout}s;"
            );
        }
        if let Some(HealthCheckPlan { interval, fails, passes }) = self.check {
            let _ = writeln!(
                lines,
                "        health_check interval={interval}s fails={fails} passes={passes} uri={CHECK_PATH} status=200;"
            );
        }
        format!("    upstream watched {{\n{lines}    }}\n")
    }

    /// The location.
    pub(crate) fn location(&self) -> String {
        if self.is_empty() {
            return String::new();
        }
        let tries = self.tries;
        format!(
            "        location /watched {{
            proxy_pass http://watched;
            proxy_http_version 1.1;
            proxy_set_header Connection close;
            proxy_connect_timeout 3s;
            proxy_read_timeout {HEALTH_PATIENCE}s;
            proxy_next_upstream_tries {tries};
        }}\n"
        )
    }
}

impl ServerIllness {
    fn drawn(draw: &mut Draw) -> ServerIllness {
        let from = draw.below(HEALTH_SPAN);
        ServerIllness {
            server: draw.below(HEALTH_PORTS.len() as u64) as usize,
            from,
            to: from + *draw.one_of(&[300_000, 3_000_000, 12_000_000]),
            kind: *draw.one_of(&[IllnessKind::Gone, IllnessKind::Closes, IllnessKind::Stalls]),
        }
    }
}

/// Clients come within so many microseconds.
pub(crate) const HEALTH_SPAN: u64 = 30_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_draw_all_of_it_and_most_nothing() {
        let plans: Vec<_> = (0..400).map(|seed| HealthPlan::drawn(&mut Draw::new(seed))).collect();
        let drawn = plans.iter().filter(|plan| !plan.is_empty()).count();
        assert!((60..140).contains(&drawn), "{drawn}");
        let text = format!("{plans:?}");
        for word in ["Gone", "Closes", "Stalls", "max_fails: 0", "max_fails: 3", "passes: 3", "tries: 2"] {
            assert!(text.contains(word), "{word}");
        }
    }

    #[test]
    fn an_illness_has_its_time_and_server() {
        let ill = |server, from, to, kind| ServerIllness { server, from, to, kind };
        let ills = vec![ill(1, 10, 20, IllnessKind::Closes), ill(1, 15, 30, IllnessKind::Gone)];
        let plan = HealthPlan { ills, ..HealthPlan::default() };
        for (server, at, kind) in [
            (1, 9, None),
            (1, 10, Some(IllnessKind::Closes)),
            (1, 15, Some(IllnessKind::Gone)),
            (1, 29, Some(IllnessKind::Gone)),
            (1, 30, None),
            (0, 15, None),
        ] {
            assert_eq!(plan.illness(server, at), kind, "{server} {at}");
        }
    }
}
