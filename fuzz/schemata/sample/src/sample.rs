//! A line `//~` names a mutant of the code above it: function, change, verdict. "refused" are those that do not compile.

/// What is not changed: constants, their functions, types, and what is printed.
pub const LIMIT: u32 = 3 + 4;
pub const fn limit() -> u32 {
    LIMIT * 2
}
impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", 1 + 1)
    }
}

pub fn small(n: u32) -> bool {
    n < 3 && n != 1
}
//~ small: the function's result is true: fails
//~ small: the function's result is false: fails
//~ small: && -> ||: fails
//~ small: < -> ==: fails
//~ small: < -> >: fails
//~ small: < -> <=: passes
//~ small: != -> ==: fails

/// A loop that ends only as it is written.
pub fn steps(mut n: u32) -> u32 {
    let mut steps = 0;
    while n > 0 {
        n -= 1;
        steps += 1;
    }
    steps
}
//~ steps: the function's result is 0: fails
//~ steps: the function's result is 1: fails
//~ steps: > -> ==: fails
//~ steps: > -> <: fails
//~ steps: > -> >=: fails
//~ steps: -= -> +=: time
//~ steps: -= -> /=: time
//~ steps: += -> -=: fails
//~ steps: += -> *=: fails

/// Precedence and nesting: `a + b * c` is `a * (b * c)`, not `a * b * c`.
pub fn sum(a: i32, b: i32, c: i32) -> i32 {
    -(a + b * c)
}
//~ sum: the function's result is 0: fails
//~ sum: the function's result is 1: fails
//~ sum: the function's result is -1: fails
//~ sum: - is deleted: fails
//~ sum: + -> -: fails
//~ sum: + -> *: fails
//~ sum: * -> +: fails
//~ sum: * -> /: fails

#[derive(Default, Clone, PartialEq, Eq)]
pub struct Kind {
    pub name: String,
    pub large: bool,
}

/// A guard, an arm that may be left out, a chain with `let`, fields beside a rest; a text has no `-` for its `+`.
pub fn kind(n: Option<u32>, names: &[&str]) -> Option<Kind> {
    let large = if let Some(n) = n
        && n > 9
    {
        true
    } else {
        false
    };
    match n {
        None => None,
        Some(n) if n == 5 => Some(Kind { name: String::from("five") + "!", ..Kind::default() }),
        Some(2) => Some(Kind { name: "two".into(), large, ..Kind::default() }),
        _ => names.first().map(|name| Kind { name: name.to_string(), large }),
    }
}
//~ kind: the function's result is None: fails
//~ kind: the function's result is Some(Default::default()): fails
//~ kind: > -> ==: fails
//~ kind: > -> <: fails
//~ kind: > -> >=: passes
//~ kind: the arm None is deleted: fails
//~ kind: the guard is true: fails
//~ kind: the guard is false: fails
//~ kind: == -> !=: fails
//~ kind: the field name is left to the rest: fails
//~ kind: + -> -: refused
//~ kind: + -> *: refused
//~ kind: the arm Some(2) is deleted: fails
//~ kind: the field name is left to the rest: fails
//~ kind: the field large is left to the rest: passes

/// No test passes it.
pub fn unused(text: &str) -> usize {
    text.len()
}
//~ unused: the function's result is 0: unreached
//~ unused: the function's result is 1: unreached

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers() {
        assert!(small(2) && !small(1) && !small(4));
    }

    #[test]
    fn steps_are_counted() {
        assert_eq!(steps(3), 3);
    }

    #[test]
    fn sums() {
        assert_eq!(sum(2, 3, 5), -17);
    }

    #[test]
    fn kinds() {
        assert_eq!(kind(None, &["x"]), None);
        assert_eq!(kind(Some(5), &["x"]).unwrap().name, "five!");
        assert_eq!(kind(Some(2), &["x"]).unwrap().name, "two");
        let (three, twenty) = (kind(Some(3), &["x"]).unwrap(), kind(Some(20), &["x"]).unwrap());
        assert!(!three.large && twenty.large && three.name == "x");
    }
}
