//! Dates in and out.

use proptest::prelude::*;

use super::*;

const NOVEMBER_1994: i64 = 784_111_777;

fn text<const N: usize>(bytes: [u8; N]) -> String {
    String::from_utf8(bytes.to_vec()).expect("dates are ASCII")
}

#[test]
fn the_usual_form_is_read_as_any_other() {
    let good = *b"Sun, 29 Feb 2004 08:49:37 GMT";
    assert!(usual_form(&good).is_some());
    for at in 0..good.len() {
        for byte in 0..=255 {
            let mut bytes = good;
            bytes[at] = byte;
            let found = usual_form(&bytes);
            assert!(found.is_none() || found == any_form(&bytes), "{}", bytes.escape_ascii());
        }
    }
}

#[test]
fn all_three_forms_are_read() {
    for form in [
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
        "Sun Nov 06 08:49:37 1994",
        "Mon, 06 Nov 1994 08:49:37",
        "Sun,06 Nov 1994 08:49:37 +0100",
    ] {
        assert_eq!(parse(form.as_bytes()), Some(NOVEMBER_1994), "{form}");
    }
    assert_eq!(parse(b"Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
    assert_eq!(parse(b"Wednesday, 31-Dec-69 23:59:59 GMT"), Some(3_155_759_999));
    assert_eq!(parse(b"Thu, 29 Feb 2024 00:00:00 GMT"), Some(1_709_164_800));
    assert_eq!(parse(b"Wed, 31 Dec 1969 23:59:59 GMT"), Some(-1));
}

#[test]
fn what_is_no_date_is_none() {
    for form in [
        "",
        "Sun",
        "Sun,",
        "Sun, ",
        "Sun, 06 Nov 1994",
        "Sun, 06 Nov 1994 08:49:3",
        "Sun, 6 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 94 08:49:37 GMT",
        "Sun, 06 Nox 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 24:49:37 GMT",
        "Sun, 06 Nov 1994 08:60:37 GMT",
        "Sun, 06 Nov 1994 08:49:60 GMT",
        "Sun, 31 Nov 1994 08:49:37 GMT",
        "Sun, 00 Nov 1994 08:49:37 GMT",
        "Sun, 29 Feb 2023 08:49:37 GMT",
        "Sun, 29 Feb 2100 08:49:37 GMT",
        "Sun, +6 Nov 1994 08:49:37 GMT",
        "Sun, 06-Nov 94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 94",
        "784111777",
    ] {
        assert_eq!(parse(form.as_bytes()), None, "{form}");
    }
}

#[test]
fn every_form_is_written_as_nginx_writes_it() {
    assert_eq!(text(http(NOVEMBER_1994)), "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_eq!(text(local(NOVEMBER_1994, 0)), "06/Nov/1994:08:49:37 +0000");
    assert_eq!(text(local(NOVEMBER_1994, 330)), "06/Nov/1994:14:19:37 +0530");
    assert_eq!(text(local(NOVEMBER_1994, -570)), "05/Nov/1994:23:19:37 -0930");
    assert_eq!(text(iso8601(NOVEMBER_1994, 0)), "1994-11-06T08:49:37+00:00");
    assert_eq!(text(iso8601(NOVEMBER_1994, -60)), "1994-11-06T07:49:37-01:00");
    assert_eq!(text(error_log(NOVEMBER_1994, 0)), "1994/11/06 08:49:37");
    assert_eq!(text(syslog(NOVEMBER_1994, 0)), "Nov  6 08:49:37");
    assert_eq!(text(syslog(NOVEMBER_1994 + 9 * DAY, 0)), "Nov 15 08:49:37");
    let cookie = |seconds| {
        let mut out = Vec::new();
        cookie(&mut out, seconds);
        String::from_utf8(out).expect("dates are ASCII")
    };
    assert_eq!(cookie(NOVEMBER_1994), "Sun, 06-Nov-94 08:49:37 GMT");
    assert_eq!(cookie(2_145_916_799), "Thu, 31-Dec-37 23:59:59 GMT");
    assert_eq!(cookie(2_145_916_800), "Fri, 01-Jan-2038 00:00:00 GMT");
}

#[test]
fn times_out_of_range_are_clamped() {
    assert_eq!(text(http(i64::MIN)), "Thu, 01 Jan 1970 00:00:00 GMT");
    assert_eq!(text(http(i64::MAX)), "Fri, 31 Dec 9999 23:59:59 GMT");
    assert_eq!(text(local(i64::MAX, i32::MAX)).len(), 26);
}

#[test]
fn days_count_up_through_a_whole_era_of_the_calendar() {
    let (mut year, mut month, mut day) = (1970, 1, 1);
    for days in 0..146_097 {
        assert_eq!(civil_from_days(days), (year, month, day));
        assert_eq!(days_from_civil(year, month, day), days);
        day += 1;
        if day > days_of_month(year, month) {
            (month, day) = (month + 1, 1);
        }
        if month > 12 {
            (year, month) = (year + 1, 1);
        }
    }
}

#[test]
fn the_cache_formats_when_the_second_changes() {
    let mut now = CachedTime::new(NOVEMBER_1994, 60);
    assert!(!now.update(NOVEMBER_1994, 60));
    assert_eq!(now.local(), b"06/Nov/1994:09:49:37 +0100");
    assert!(now.update(NOVEMBER_1994 + 1, 60));
    assert_eq!(now.http(), b"Sun, 06 Nov 1994 08:49:38 GMT");
    assert_eq!(now.iso8601(), b"1994-11-06T09:49:38+01:00");
    assert_eq!(now.error_log(), b"1994/11/06 09:49:38");
    assert_eq!(now.syslog(), b"Nov  6 09:49:38");
    assert!(now.update(NOVEMBER_1994 + 1, 0));
    assert_eq!((now.seconds(), now.error_log()), (NOVEMBER_1994 + 1, b"1994/11/06 08:49:38"));
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(seconds in 0..=LAST) {
        prop_assert_eq!(parse(&http(seconds)), Some(seconds));
    }

    #[test]
    fn cookie_dates_are_read_back_while_their_year_has_two_digits(seconds in 0..2_145_916_800_i64) {
        let mut out = Vec::new();
        cookie(&mut out, seconds);
        prop_assert_eq!(parse(&out), Some(seconds));
    }

    #[test]
    fn no_bytes_make_it_panic(text in proptest::collection::vec(any::<u8>(), 0..40), at in 0usize..29) {
        let _ = parse(&text);
        let mut date = *b"Sun, 06 Nov 1994 08:49:37 GMT";
        date[at] = text.first().copied().unwrap_or(0);
        let _ = parse(&date);
        let _ = parse(&date[..at]);
    }
}
