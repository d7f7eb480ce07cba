//! `access`: restricts access by the client's address with `allow` and `deny`; the first rule that matches decides
//! (nginx's `ngx_http_access_module`).

use weir_conf::names::{ANY_OR_STREAM, LIMIT_EXCEPT, ONE};
use weir_conf::{Directive, LineCx, Result};
use weir_engine::plan::PlanBuilder;
use weir_engine::rehearsed::HandlerRehearsal;
use weir_engine::{Exchange, Handler, Module, Phase, Verdict, inherit};
use weir_rt::net::SockAddr;

use weir_engine::cidr::{self, Cidr};

/// The module `access`.
pub struct Access;

impl Module for Access {
    const NAME: &'static str = "access";
    type Conf = AccessConf;
    const DIRECTIVES: &'static [Directive<AccessConf>] = &[
        Directive::<AccessConf>::new("allow", ANY_OR_STREAM.or(LIMIT_EXCEPT), ONE, |c, line| {
            c.add(line, AccessEffect::Allow)
        })
        .syntax("allow address | CIDR | unix: | all")
        .doc(
            "Allows access for clients with this address, from this network, over \
                 UNIX-domain sockets (`unix:`), or for all. Rules are checked in order; the \
                 first that matches decides.",
        )
        .example("allow 192.168.1.0/24;\nallow 2001:db8::/32;\ndeny all;"),
        Directive::<AccessConf>::new("deny", ANY_OR_STREAM.or(LIMIT_EXCEPT), ONE, |c, line| {
            c.add(line, AccessEffect::Deny)
        })
        .syntax("deny address | CIDR | unix: | all")
        .doc(
            "Denies access with 403 to clients with this address, from this network, over \
                 UNIX-domain sockets (`unix:`), or to all. Rules are checked in order; the \
                 first that matches decides.",
        ),
    ];

    /// All rules of the block around, or none: a block with one of its own has only its own.
    fn inherit(conf: &mut AccessConf, parent: &AccessConf) {
        inherit!(conf, parent, rules);
    }

    fn install(conf: &AccessConf, plan: &mut PlanBuilder<'_>) {
        if let Some(rules) = &conf.rules {
            plan.handler(Phase::Access, Self::NAME, AccessCheck { rules: rules.as_slice().into() });
        }
    }
}

/// The module's settings of one block.
#[derive(Default)]
pub struct AccessConf {
    /// `allow` and `deny`, in order.
    rules: Option<Vec<AccessRule>>,
}

/// One line.
#[derive(Clone, Debug)]
struct AccessRule {
    /// Whom it is about; `None`: `all`.
    who: Option<Cidr>,
    effect: AccessEffect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AccessEffect {
    Allow,
    Deny,
}

impl AccessConf {
    fn add(&mut self, line: &mut LineCx<'_>, effect: AccessEffect) -> Result {
        let who = if line.bytes(0) == b"all" { None } else { Some(Cidr::required(line, 0)?) };
        self.rules.get_or_insert_default().push(AccessRule { who, effect });
        Ok(())
    }
}

struct AccessCheck {
    rules: Box<[AccessRule]>,
}

impl AccessCheck {
    /// What the first rule about `client` says; `None` where no rule speaks of it.
    fn effect_on(&self, client: &SockAddr) -> Option<AccessEffect> {
        let ip = cidr::canonical(client);
        let rule = self.rules.iter().find(|rule| rule.who.is_none_or(|who| who.contains_ip(ip)))?;
        Some(rule.effect)
    }
}

impl Handler for AccessCheck {
    fn rehearsal(&self, _x: &mut Exchange) -> HandlerRehearsal {
        HandlerRehearsal::Ask
    }

    fn handle(&self, x: &mut Exchange) -> Verdict {
        match self.effect_on(x.client()) {
            None => Verdict::Declined,
            Some(AccessEffect::Allow) => Verdict::Ok,
            Some(AccessEffect::Deny) => {
                // Under `satisfy any` another handler may still let the request pass; the phase's end logs it.
                if !x.plan.core.satisfy_any {
                    x.log_error(&"access forbidden by rule");
                }
                Verdict::Status(403)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{WITH_ONE, asked, decided, whole_core_and};
    use std::net::SocketAddr;

    use weir_engine::ModuleDef;
    use weir_engine::conf;

    use super::*;
    use crate::testing::core_and;

    static MODULES: [ModuleDef; 4] = core_and::<Access>();

    fn text(http: &str, server: &str) -> String {
        format!("events {{ }} http {{ {http} server {{\n{server} }} }}")
    }

    /// What the rules say of `client`: whether it is denied.
    fn denied(http: &str, server: &str, client: &str) -> Option<bool> {
        let loaded =
            conf::test::load(&text(http, server), &MODULES).unwrap_or_else(|errors| panic!("{errors}"));
        let conf: &AccessConf = loaded.servers()[0].confs.get();
        let client: SocketAddr = client.parse().expect("an address");
        AccessCheck { rules: conf.rules.clone()?.into() }
            .effect_on(&client.into())
            .map(|effect| effect == AccessEffect::Deny)
    }

    #[test]
    fn the_first_rule_that_fits_counts() {
        let rules = "deny 192.0.2.1; allow 192.0.2.0/24; allow 2001:db8::/32; deny all;";
        for (client, expected) in [
            ("192.0.2.1:5", Some(true)),
            ("192.0.2.2:5", Some(false)),
            ("[2001:db8::1]:5", Some(false)),
            ("[::1]:5", Some(true)),
            ("198.51.100.1:5", Some(true)),
        ] {
            assert_eq!(denied("", rules, client), expected, "{client}");
        }
        assert_eq!(denied("", "deny 192.0.2.1;", "192.0.2.9:5"), None);
        assert_eq!(denied("", "", "192.0.2.9:5"), None);
    }

    #[test]
    fn rules_are_inherited_together_or_not_at_all() {
        assert_eq!(denied("deny all;", "", "192.0.2.9:5"), Some(true));
        assert_eq!(denied("deny all;", "allow 192.0.2.1;", "192.0.2.9:5"), None);
    }

    #[test]
    fn wrong_addresses_are_refused_in_nginx_words() {
        for wrong in ["localhost", "10.0.0.0/40", "ALL"] {
            let lines = conf::test::headlines(&text("", &format!("allow {wrong};")), &MODULES);
            assert_eq!(lines.len(), 1, "{lines:?}");
            let message = format!("invalid parameter \"{wrong}\" in weir.conf:2:7");
            assert!(lines[0].ends_with(&message), "{}", lines[0]);
        }
    }

    #[test]
    fn the_phase_ends_as_the_rules_say() {
        static WHOLE: [ModuleDef; WITH_ONE] = whole_core_and::<Access>();
        for (rules, verdict) in [
            ("deny all;", "Status(403)"),
            ("satisfy any; deny all;", "Status(403)"),
            ("deny 192.0.2.1;", "Status(403)"),
            ("allow 192.0.2.0/24; deny all;", "Ok"),
            ("deny 198.51.100.1;", "Declined"),
            ("", "Declined"),
        ] {
            for http in [format!("server {{ {rules} }}"), format!("{rules} server {{ }}")] {
                let found = asked(&WHOLE, &http, ("/", ""), |x| decided(x, Phase::Access));
                assert_eq!(found, verdict, "{http}");
            }
        }
    }
}
