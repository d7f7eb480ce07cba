//! `auth_require`: access for requests whose variables are set, as nginx's `ngx_http_auth_require_module` of its
//! commercial edition has it.

use weir_conf::names::{ANY, LIMIT_EXCEPT, MORE};
use weir_conf::{Directive, LineCx, Result, parse_number};
use weir_engine::plan::PlanBuilder;
use weir_engine::rehearsed::HandlerRehearsal;
use weir_engine::variable::ValueScript;
use weir_engine::{Exchange, Handler, Module, Phase, Verdict, inherit};

/// The module.
pub struct AuthRequire;

impl Module for AuthRequire {
    const NAME: &'static str = "auth_require";
    type Conf = AuthRequireConf;
    const DIRECTIVES: &'static [Directive<AuthRequireConf>] = &[Directive::<AuthRequireConf>::new(
        "auth_require",
        ANY.or(LIMIT_EXCEPT),
        MORE,
        AuthRequireConf::add,
    )
    .syntax("auth_require value ... [error=4xx | error=5xx]")
    .doc(
        "Allows access only if all values are neither empty nor `0`; else the status is 403, or that of \
         `error`. Of several lines the first that refuses decides.",
    )
    .example("map $http_x_role $is_admin {\n    admin 1;\n}\nauth_require $is_admin;")];

    /// All lines of the block around, or none.
    fn inherit(conf: &mut AuthRequireConf, parent: &AuthRequireConf) {
        inherit!(conf, parent, requirements);
    }

    fn install(conf: &AuthRequireConf, plan: &mut PlanBuilder<'_>) {
        if let Some(requirements) = &conf.requirements {
            plan.handler(Phase::Access, Self::NAME, RequirementCheck(requirements.as_slice().into()));
        }
    }
}

/// The settings of one block.
#[derive(Default)]
pub struct AuthRequireConf {
    requirements: Option<Vec<Requirement>>,
}

/// One line.
#[derive(Clone)]
struct Requirement {
    values: Vec<ValueScript>,
    /// The status where one of them is empty or `0`.
    status: u16,
}

impl AuthRequireConf {
    fn add(&mut self, line: &mut LineCx<'_>) -> Result {
        let mut requirement = Requirement { values: Vec::new(), status: 403 };
        for at in 0..line.args().len() {
            let Some(status) = line.bytes(at).strip_prefix(b"error=") else {
                requirement.values.push(ValueScript::compile(line, at)?);
                continue;
            };
            let status = parse_number(status).and_then(|number| u16::try_from(number).ok());
            let status = status.filter(|status| (400..600).contains(status));
            requirement.status = status.ok_or_else(|| line.invalid_parameter(at))?;
        }
        if requirement.values.is_empty() {
            return Err(line.fail("\"auth_require\" needs a value"));
        }
        self.requirements.get_or_insert_default().push(requirement);
        Ok(())
    }
}

struct RequirementCheck(Box<[Requirement]>);

impl Handler for RequirementCheck {
    fn rehearsal(&self, _x: &mut Exchange) -> HandlerRehearsal {
        HandlerRehearsal::Ask
    }

    fn handle(&self, x: &mut Exchange) -> Verdict {
        for requirement in &self.0 {
            for value in &requirement.values {
                let value = value.value(x);
                if matches!(x.text(&value), b"" | b"0") {
                    return Verdict::Status(requirement.status);
                }
            }
        }
        Verdict::Ok
    }
}

#[cfg(test)]
mod tests {
    use weir_engine::{ModuleDef, conf};

    use super::*;
    use crate::testing::{WITH_ONE, asked, decided, whole_core_and};

    static WHOLE: [ModuleDef; WITH_ONE] = whole_core_and::<AuthRequire>();

    #[test]
    fn all_values_are_required() {
        let lines = "auth_require $http_a $http_b error=401; auth_require $http_c;";
        for (fields, verdict) in [
            ("A: 1\r\nB: 1\r\nC: 1\r\n", "Ok"),
            ("A: 1\r\nB: 00\r\nC: no\r\n", "Ok"),
            ("A: 1\r\nC: 1\r\n", "Status(401)"),
            ("A: 0\r\nB: 1\r\nC: 1\r\n", "Status(401)"),
            ("A: 1\r\nB: 1\r\n", "Status(403)"),
            ("A: 1\r\nB: 1\r\nC: 0\r\n", "Status(403)"),
            ("", "Status(401)"),
        ] {
            for http in [format!("server {{ {lines} }}"), format!("{lines} server {{ }}")] {
                let found = asked(&WHOLE, &http, ("/", fields), |x| decided(x, Phase::Access));
                assert_eq!(found, verdict, "{fields} {http}");
            }
        }
    }

    #[test]
    fn statuses_are_those_of_errors() {
        let text = |line: &str| format!("events {{ }} http {{ server {{ {line} }} }}");
        for status in ["400", "403", "500", "599"] {
            assert!(conf::test::load(&text(&format!("auth_require $uri error={status};")), &WHOLE).is_ok());
        }
        for (line, words) in [
            ("auth_require $uri error=399;", "invalid parameter \"error=399\""),
            ("auth_require $uri error=600;", "invalid parameter \"error=600\""),
            ("auth_require $uri error=65936;", "invalid parameter \"error=65936\""),
            ("auth_require error=401;", "\"auth_require\" needs a value"),
        ] {
            let found = conf::test::headlines(&text(line), &WHOLE);
            assert!(found[0].starts_with(words), "{line}: {found:?}");
        }
    }
}
