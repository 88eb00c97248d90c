//! A wall-clock time as RFC 3339 has it.

use std::time::{SystemTime, UNIX_EPOCH};

/// `2026-11-30T23:50:22.181366Z`, cut to the microsecond. One before 1970 has the first that has such a form; absent behind
/// the year 9999, which has none.
pub(super) fn rfc3339(time: SystemTime) -> Option<[u8; 27]> {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (day, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(day);
    if year > 9999 {
        return None;
    }
    let mut text = *b"0000-00-00T00:00:00.000000Z";
    let numbers = [
        (0..4, year),
        (5..7, month),
        (8..10, day),
        (11..13, second / 3_600),
        (14..16, second / 60 % 60),
        (17..19, second % 60),
        (20..26, since.subsec_micros().into()),
    ];
    for (place, mut number) in numbers {
        for digit in text[place].iter_mut().rev() {
            *digit += (number % 10) as u8;
            number /= 10;
        }
    }
    Some(text)
}

/// Year, month and day of a day since 1970. Years begin in March here, so that the leap day is the last: eras of 400 such
/// years have 146,097 days, and five months from March or August on have 153.
const fn date(day: u64) -> (u64, u64, u64) {
    let from_era_0 = day + 719_468;
    let (era, day) = (from_era_0 / 146_097, from_era_0 % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (next, month) = if month < 10 { (0, month + 3) } else { (1, month - 9) };
    (era * 400 + year + next, month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[track_caller]
    fn assert_as_the_library_has_it(since: Duration) {
        let time = UNIX_EPOCH + since;
        let text = rfc3339(time).map(|text| String::from_utf8(text.into()).unwrap());
        assert_eq!(text, Some(humantime::format_rfc3339_micros(time).to_string()));
    }

    #[test]
    fn every_day_until_the_year_10000_is_as_the_library_has_it() {
        let days = 2_932_897;
        (0..days).step_by(13).for_each(|day| assert_as_the_library_has_it(Duration::from_secs(day * 86_400)));
        // Ends and beginnings of months, of leap years and of centuries.
        (0..50_000).for_each(|day| assert_as_the_library_has_it(Duration::from_secs(day * 86_400 + 86_399)));
        assert_as_the_library_has_it(Duration::new(days * 86_400 - 1, 999_999_999));
        assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_secs(days * 86_400)), None);
        assert_eq!(rfc3339(UNIX_EPOCH - Duration::from_secs(9)).as_ref(), Some(b"1970-01-01T00:00:00.000000Z"));
    }

    proptest::proptest! {
        #[test]
        fn any_time_is_as_the_library_has_it(second in 0_u64..253_402_300_800, nanos in 0_u32..1_000_000_000) {
            assert_as_the_library_has_it(Duration::new(second, nanos));
        }
    }
}
