//! Names of headers, kept by thread: nearly all that come came before, and to make one costs more than to find it.

use std::cell::RefCell;

use http::{HeaderName, header::InvalidHeaderName};

/// Places for names. Two that fall into one displace each other.
const PLACES: usize = 256;
/// The longest that is kept: what is kept is bounded, whatever comes.
const LONGEST: usize = 64;

/// A name as it was spelled, and what it is.
type Kept = Option<(Box<[u8]>, HeaderName)>;

thread_local! {
    static NAMES: RefCell<[Kept; PLACES]> = const { RefCell::new([const { None }; PLACES]) };
}

/// The name that is spelled so.
///
/// # Errors
/// If it is none.
pub(super) fn name(spelled: &[u8]) -> Result<HeaderName, InvalidHeaderName> {
    NAMES.with_borrow_mut(|names| {
        let kept = &mut names[place(spelled)];
        if let Some((known, name)) = kept
            && **known == *spelled
        {
            return Ok(name.clone());
        }
        let name = HeaderName::from_bytes(spelled)?;
        if spelled.len() <= LONGEST {
            *kept = Some((spelled.into(), name.clone()));
        }
        Ok(name)
    })
}

/// By the length and some letters: those in which names differ.
fn place(spelled: &[u8]) -> usize {
    let length = spelled.len();
    let letter = |at: usize| spelled.get(at).map_or(0, |letter| usize::from(*letter));
    let letters = [0, length / 4, length / 2, length.saturating_sub(4), length.saturating_sub(1)];
    letters.into_iter().fold(length, |place, at| place.wrapping_mul(31).wrapping_add(letter(at))) % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_what_it_is_whatever_came_before_it() {
        let spelled = |number: usize| format!("X-{}-{number}", if number.is_multiple_of(2) { "Some" } else { "other" });
        for round in 0..3 {
            for number in 0..4 * PLACES {
                let spelled = spelled(number);
                assert_eq!(name(spelled.as_bytes()).unwrap().as_str(), spelled.to_lowercase(), "round {round}");
            }
        }
        let long = "x".repeat(LONGEST + 1);
        assert_eq!(name(long.as_bytes()).unwrap().as_str(), long);
        for none in ["", "a b", "ä", "a:"] {
            assert!(name(none.as_bytes()).is_err(), "{none}");
            assert!(name(none.as_bytes()).is_err(), "{none} again");
        }
    }

    #[test]
    fn names_that_clients_send_together_have_places_of_their_own() {
        let names = [
            "Host",
            "Content-Type",
            "Content-Length",
            "Accept",
            "Accept-Encoding",
            "Authorization",
            "User-Agent",
            "Connection",
            "X-Stainless-Lang",
            "X-Stainless-Package-Version",
            "X-Stainless-OS",
            "X-Stainless-Arch",
            "X-Stainless-Runtime",
            "X-Stainless-Runtime-Version",
            "x-stainless-retry-count",
            "x-stainless-async",
            "x-stainless-read-timeout",
            "x-api-key",
            "anthropic-version",
            "traceparent",
        ];
        let places: std::collections::BTreeSet<_> = names.iter().map(|name| place(name.as_bytes())).collect();
        assert!(places.len() >= names.len() - 2, "{} places for {} names", places.len(), names.len());
    }
}
