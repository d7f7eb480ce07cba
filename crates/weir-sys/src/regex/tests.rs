//! Tests of [`super`].

use proptest::prelude::*;

use super::*;

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern.as_bytes(), RegexFlags::default()).expect("the test's pattern is right")
}

fn matcher() -> Matcher {
    Matcher::new().expect("there is memory")
}

fn message(pattern: &str) -> String {
    Regex::new(pattern.as_bytes(), RegexFlags::default()).expect_err("the test's pattern is wrong").message
}

fn is_match(pattern: &str, flags: RegexFlags, subject: &str) -> bool {
    let regex = Regex::new(pattern.as_bytes(), flags).expect("the test's pattern is right");
    regex.is_match(&mut matcher(), subject.as_bytes()).expect("within the limits")
}

#[test]
fn a_location_pattern_matches() {
    let php = regex(r"\.php$");
    let mut matcher = matcher();
    assert_eq!(php.is_match(&mut matcher, b"/index.php"), Ok(true));
    assert_eq!(php.is_match(&mut matcher, b"/index.php5"), Ok(false));
    assert!(php.is_jit() || !cfg!(target_arch = "x86_64"));
}

#[test]
fn groups_are_spans_and_an_unused_one_is_none() {
    let regex = regex("^/(?<user>[a-z]+)(/x)?/(\\d+)(z)?$");
    let mut matcher = matcher();
    let subject = b"/ada/42";
    let captures = regex.captures(&mut matcher, subject).expect("within the limits").expect("matches");
    assert_eq!(captures.len(), 5);
    assert_eq!(captures.span(0), Some(0..7));
    assert_eq!(captures.bytes(1, subject), Some(&b"ada"[..]));
    assert_eq!(captures.span(2), None);
    assert_eq!(captures.bytes(3, subject), Some(&b"42"[..]));
    assert_eq!(captures.span(4), None, "unset behind the last set group");
    assert_eq!(captures.span(5), None, "no such group");
    assert_eq!(captures.span(usize::MAX), None);
}

#[test]
fn a_miss_forgets_the_groups_of_the_match_before() {
    let regex = regex("(a)");
    let mut matcher = matcher();
    assert_eq!(regex.is_match(&mut matcher, b"a"), Ok(true));
    assert_eq!(matcher.last().span(1), Some(0..1));
    assert_eq!(regex.is_match(&mut matcher, b"b"), Ok(false));
    assert_eq!(matcher.last().len(), 0);
    assert_eq!(matcher.last().span(0), None);
}

#[test]
fn named_groups_have_their_numbers() {
    let regex = regex("(?<b>x)(y)(?<a>z)");
    assert_eq!(regex.captures_len(), 3);
    assert_eq!(regex.names(), [("a".to_owned(), 3), ("b".to_owned(), 1)]);
    assert!(self::regex("plain").names().is_empty());
}

#[test]
fn the_same_name_twice_needs_its_flag() {
    let pattern = b"(?<a>x)|(?<a>y)";
    let error = Regex::new(pattern, RegexFlags::default()).expect_err("needs the flag");
    assert!(error.message.contains("two named subpatterns have the same name"), "{error}");
    let regex = Regex::new(pattern, RegexFlags { dupnames: true, ..RegexFlags::default() }).expect("allowed");
    assert_eq!(regex.names(), [("a".to_owned(), 1), ("a".to_owned(), 2)]);
}

#[test]
fn more_groups_than_the_matcher_had_room_for() {
    let pattern = "(.)".repeat(40);
    let subject = [b'x'; 40];
    let regex = regex(&pattern);
    let mut matcher = matcher();
    let captures = regex.captures(&mut matcher, &subject).expect("within the limits").expect("matches");
    assert_eq!(captures.len(), 41);
    assert_eq!(captures.span(40), Some(39..40));
}

#[test]
fn every_flag_changes_what_matches() {
    let none = RegexFlags::default();
    for (pattern, subject, flags) in [
        ("abc", "xABC", RegexFlags { caseless: true, ..none }),
        ("^b", "a\nb", RegexFlags { multiline: true, ..none }),
        ("a.b", "a\nb", RegexFlags { dotall: true, ..none }),
        ("a b # c", "ab", RegexFlags { extended: true, ..none }),
        ("^.$", "ä", RegexFlags { utf: true, ..none }),
    ] {
        assert!(!is_match(pattern, none, subject), "{pattern} without its flag");
        assert!(is_match(pattern, flags, subject), "{pattern} with its flag");
    }
    assert!(is_match("b", none, "ab"));
    assert!(!is_match("b", RegexFlags { anchored: true, ..none }, "ab"));
}

#[test]
fn a_wrong_pattern_is_told_in_nginx_words() {
    assert_eq!(message("("), "pcre2_compile() failed: missing closing parenthesis in \"(\"");
    assert_eq!(
        message("a**b"),
        "pcre2_compile() failed: quantifier does not follow a repeatable item in \"a**b\" at \"*b\""
    );
    let error = Regex::new(b"ab)cd", RegexFlags::default()).expect_err("wrong");
    assert_eq!(
        error.message,
        "pcre2_compile() failed: unmatched closing parenthesis in \"ab)cd\" at \")cd\""
    );
    assert_eq!(error.offset, 2);
}

#[test]
fn endless_backtracking_is_given_up() {
    let regex = regex("^(a+)+$");
    let subject = [&[b'a'; 40][..], b"!"].concat();
    let error = regex.is_match(&mut matcher(), &subject).expect_err("2^40 steps are too many");
    assert_eq!(error, MatchError::Limit);
    assert_eq!(error.to_string(), "pcre2_match() failed: -47");
}

#[test]
fn a_small_match_limit_is_kept() {
    let regex = regex("^(a+)+$");
    let mut tight = Matcher::with_match_limit(10).expect("there is memory");
    assert_eq!(regex.is_match(&mut tight, b"aaaaaaaa!"), Err(MatchError::Limit));
    assert_eq!(regex.is_match(&mut matcher(), b"aaaaaaaa!"), Ok(false));
}

#[test]
fn a_long_subject_does_not_run_out_of_jit_stack_at_32_kib() {
    let regex = regex("^(?:(a)|b)*$");
    let subject = [b'a'; 8000];
    assert_eq!(regex.is_match(&mut matcher(), &subject), Ok(true));
}

#[test]
fn a_subject_that_is_not_utf8_is_an_error_for_a_utf_pattern() {
    let regex = Regex::new(b"a", RegexFlags { utf: true, ..RegexFlags::default() }).expect("right");
    assert_eq!(regex.is_match(&mut matcher(), b"a\xff"), Err(MatchError::Utf(-23)));
    let plain = self::regex("a");
    assert_eq!(plain.is_match(&mut matcher(), b"\xffa"), Ok(true));
}

#[test]
fn empty_pattern_and_empty_subject() {
    let regex = regex("");
    let mut matcher = matcher();
    let captures = regex.captures(&mut matcher, b"").expect("within the limits").expect("matches");
    assert_eq!(captures.span(0), Some(0..0));
}

#[test]
fn a_search_can_begin_inside_the_subject() {
    let regex = regex("(?<=a)b");
    let mut matcher = matcher();
    let found = regex.captures_from(&mut matcher, b"ab ab", 1).expect("within the limits").expect("matches");
    assert_eq!(found.span(0), Some(1..2), "look-behind sees what lies before the start");
    let found = regex.captures_from(&mut matcher, b"ab ab", 2).expect("within the limits").expect("matches");
    assert_eq!(found.span(0), Some(4..5));
    assert!(regex.captures_from(&mut matcher, b"ab", 3).expect("behind the end").is_none());
}

#[test]
fn one_pattern_serves_many_threads() {
    let regex = regex("^/(\\d+)$");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let regex = &regex;
            scope.spawn(move || {
                let mut matcher = matcher();
                for n in 0..500 {
                    let subject = format!("/{}", n * 4 + thread);
                    let found = regex.captures(&mut matcher, subject.as_bytes()).expect("within the limits");
                    assert_eq!(found.expect("matches").span(1), Some(1..subject.len()));
                }
            });
        }
    });
}

proptest! {
    /// Patterns come from scripts too: whatever they are, compiling and matching end without a crash, and every
    /// span lies inside the subject.
    #[test]
    fn any_pattern_on_any_subject(
        pattern in "[\\x01-\\x7f(){}\\[\\]|?*+.^$\\\\a-c]{0,24}",
        subject in proptest::collection::vec(any::<u8>(), 0..64),
        utf: bool,
        caseless: bool,
    ) {
        let flags = RegexFlags { utf, caseless, ..RegexFlags::default() };
        if let Ok(regex) = Regex::new(pattern.as_bytes(), flags) {
            let mut matcher = matcher();
            if let Ok(Some(captures)) = regex.captures(&mut matcher, &subject) {
                for number in 0..captures.len() {
                    if let Some(span) = captures.span(number) {
                        prop_assert!(span.start <= span.end && span.end <= subject.len());
                    }
                }
            }
        }
    }
}

/// PCRE2's own limit, and so nginx's: what takes a few million steps has a result.
#[test]
fn a_match_of_some_million_steps_is_not_given_up() {
    let regex = regex("^(?:a+)+$");
    let subject = [&[b'a'; 22][..], b"!"].concat();
    assert_eq!(regex.is_match(&mut matcher(), &subject), Ok(false));
}

/// Each place of the subject takes 2^21 steps, below the limit; all of them would take a quarter of an hour.
#[test]
fn a_match_that_is_long_at_each_place_is_given_up() {
    let regex = regex("(?:a+)+$");
    let subject = [&[b'a'; 21][..], b"!"].concat().repeat(2000);
    assert_eq!(regex.is_match(&mut matcher(), &subject), Err(MatchError::Limit));
}

/// The JIT does not count what `.*` tries: a subject of 20,000 bytes would take hours.
#[test]
fn repeats_that_machine_code_does_not_count_are_given_up() {
    let regex = regex("^x.*a.*a.*a.*a.*[=]");
    let subject = [b"x", &[b'a'; 20_000][..]].concat();
    assert_eq!(regex.is_match(&mut matcher(), &subject), Err(MatchError::Limit));
}

#[test]
fn a_subject_that_the_jit_has_no_stack_for_is_matched_without_it() {
    let regex = regex("^(?:(a)|b)*$");
    let subject = [b'a'; 60_000];
    let mut matcher = matcher();
    assert_eq!(regex.is_match(&mut matcher, &subject), Ok(true));
    assert_eq!(matcher.last().span(0), Some(0..60_000));
    assert_eq!(regex.is_match(&mut matcher, b"ab"), Ok(true));
}

/// The first match is found where one call would find it, wherever windows end.
#[test]
fn windows_do_not_change_what_is_found() {
    let subject = [&[b'-'; 130][..], b"ab", &[b'-'; 130], b"abc"].concat();
    for (pattern, found) in [
        ("(?<=-)ab", Some(130..132)),
        ("-*abc", Some(132..265)),
        ("a(?!bc)", Some(130..131)),
        ("abc$", Some(262..265)),
        ("$", Some(265..265)),
        ("\\Gab", None),
        ("(*NO_START_OPT)(*COMMIT)ab", None),
        ("^ab", None),
        ("\\Ba", None),
        ("(?m)^ab", None),
        ("zz", None),
    ] {
        let mut matcher = matcher();
        let captures = regex(pattern).captures(&mut matcher, &subject).expect("within the limits");
        assert_eq!(captures.and_then(|captures| captures.span(0)), found, "{pattern}");
    }
}

#[test]
fn spans_of_all_groups_are_those_of_each() {
    let mut matcher = matcher();
    for (pattern, subject) in [
        ("^/(?<user>[a-z]+)(/x)?/(\\d+)(z)?$", "/ada/42"),
        ("a", "bca"),
        ("(?:)", ""),
        ("(b)?(a)(c)?(d)?", "a"),
        ("(a)|(b)|(c)", "c"),
    ] {
        let regex = regex(pattern);
        let found =
            regex.captures(&mut matcher, subject.as_bytes()).expect("within the limits").expect("matches");
        let each: Vec<i32> = (0..found.len())
            .flat_map(|group| found.span(group).map_or([-1, -1], |span| [span.start as i32, span.end as i32]))
            .collect();
        let mut spans = vec![7];
        found.add_spans(&mut spans);
        assert_eq!((spans[0], &spans[1..]), (7, &each[..]), "{pattern}");
    }
}

#[test]
fn a_pattern_that_chooses_its_mode_is_matched_in_it() {
    let mut matcher = matcher();
    let no_jit = regex("(*NO_JIT)^(a+)+b");
    assert_eq!(no_jit.is_match(&mut matcher, b"aab"), Ok(true));
    assert_eq!(no_jit.is_match(&mut matcher, b"aac"), Ok(false));
    let utf = regex("(*UTF)^.$");
    assert_eq!(utf.is_match(&mut matcher, "ä".as_bytes()), Ok(true));
    assert!(matches!(utf.is_match(&mut matcher, b"\xff"), Err(MatchError::Utf(_))));
    assert_eq!(regex("^..$").is_match(&mut matcher, b"\xff\xfe"), Ok(true));
    let begins = regex("\\Gb")
        .captures_from(&mut matcher, b"ab", 1)
        .expect("within the limits")
        .map(|found| found.span(0));
    assert_eq!(begins, Some(Some(1..2)));
}
