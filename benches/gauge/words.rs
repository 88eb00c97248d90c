//! What the benchmarks' streams say.

/// Tokens come in many lengths.
pub(crate) const WORDS: [&str; 16] = [
    " river",
    " a",
    "The",
    ",",
    " measuring",
    " of",
    " \\n",
    " without",
    " streams",
    "ing",
    " it",
    " 42",
    ".",
    " gauge",
    " flow",
    " bank",
];
