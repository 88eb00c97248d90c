//! Prompts made to size. Their words are drawn at random, so that no two begin alike and no prefix cache helps; which words
//! they are follows from a seed alone.

use fastrand::Rng;

/// Words that nearly every tokenizer has as one token, with the space before them.
const WORDS: &str = "time year people way day man thing woman life child world school state family student group country \
    problem hand part place case week company system program question work government number night point home water \
    room mother area money story fact month lot right study book eye job word business issue side kind head house \
    service friend father power hour game line end member law car city name president team minute idea kid body \
    information back parent face others level office door health person art war history party result change morning \
    reason research girl guy moment air teacher force education foot boy age policy music market sense nation plan \
    college interest death experience effect use class control field development role effort rate heart drug show \
    leader light voice wife police mind price report decision son view relationship town road arm difference value \
    building action season society tax director position player record paper space ground form event official matter \
    center couple site project activity star table need court oil situation cost industry figure street image phone \
    data picture practice piece land product doctor wall patient worker news test movie north love support technology";

/// A prompt of about so many words, the instruction at its end included, which is not cut.
///
/// What comes first is drawn at random: two seeds give prompts that differ within their first words.
pub(super) fn prompt(words: usize, output_tokens: u64, seed: u64) -> String {
    let vocabulary: Vec<&str> = WORDS.split_ascii_whitespace().collect();
    let mut rng = Rng::with_seed(seed);
    let instruction = format!(
        "\n\nWrite a long story in which many of these words occur. Do not stop early and do not ask anything: it must be \
         longer than {output_tokens} words."
    );
    let filler = words.saturating_sub(instruction.split_ascii_whitespace().count()).max(LEAST);
    let mut text = String::with_capacity(filler * 7 + instruction.len());
    for index in 0..filler {
        if index > 0 {
            text.push(' ');
        }
        text.push_str(vocabulary[rng.usize(..vocabulary.len())]);
    }
    text + &instruction
}

/// Drawn words at the least: enough for no two prompts to be the same.
const LEAST: usize = 4;

/// The first guess: each of the words is a token.
#[expect(clippy::cast_possible_truncation, reason = "flags end at two millions")]
pub(super) const fn guess(tokens: u64) -> usize {
    tokens as usize
}

/// How many words come nearest to `wanted` tokens, when the provider counted `counted` in a prompt of `words`. Providers
/// put something of their own around a prompt, so a count far off is believed in part only: four times less, four times more.
pub(super) fn resized(words: usize, counted: u64, wanted: u64) -> usize {
    if counted == 0 {
        return words;
    }
    let fits = (words as u128 * u128::from(wanted)).div_ceil(u128::from(counted));
    let fits = usize::try_from(fits).unwrap_or(usize::MAX);
    fits.clamp(guess(wanted) / 4, guess(wanted).saturating_mul(4)).max(1)
}

/// One seed out of several numbers, so that each tuple of them is a sequence of its own.
pub(super) fn mixed(numbers: &[u64]) -> u64 {
    // The finalizer of SplitMix64.
    numbers.iter().fold(0x9e37_79b9_7f4a_7c15, |state: u64, number| {
        let z = (state ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn count(text: &str) -> usize {
        text.split_whitespace().count()
    }

    #[test]
    fn a_prompt_has_the_words_asked_for_and_the_seed_makes_it() {
        for words in [50, 1_000, 20_000] {
            assert_eq!(count(&prompt(words, 200, 7)), words);
        }
        assert_eq!(prompt(100, 200, 7), prompt(100, 200, 7));
        assert!(count(&prompt(1, 200, 7)) < 40, "as short as it gets");
    }

    #[test]
    fn no_two_prompts_begin_alike() {
        let begin = |seed| prompt(60, 10, seed).split(' ').take(LEAST).collect::<Vec<_>>().join(" ");
        let begins: HashSet<String> = (0..2_000).map(|number| begin(mixed(&[1, 0, 0, number]))).collect();
        assert!(begins.len() >= 1_998, "{} of 2000", begins.len());
        let words: HashSet<&str> = WORDS.split_ascii_whitespace().collect();
        assert!(words.len() > 190 && words.len() == WORDS.split_ascii_whitespace().count());
    }

    #[test]
    fn the_providers_own_count_sizes_the_next_prompt() {
        assert_eq!(resized(1_000, 1_250, 1_000), 800);
        assert_eq!(resized(800, 1_000, 1_000), 800);
        assert_eq!(resized(1_000, 500, 1_000), 2_000);
        assert_eq!(resized(1_000, 0, 1_000), 1_000, "not counted");
        assert_eq!(resized(10, 1_000, 10), 2, "a template of the provider's own");
        assert_eq!(resized(1_000, 3, 1_000), 4_000, "a count of something else");
    }

    #[test]
    fn mixing_tells_order_and_length_apart() {
        let all = [mixed(&[]), mixed(&[0]), mixed(&[0, 0]), mixed(&[1, 0]), mixed(&[0, 1])];
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
    }
}
