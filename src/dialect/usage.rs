//! Token counts as the providers report them. Unknown stays absent; nothing is estimated here.

/// Token counts of one exchange, normalised: `input` includes cached tokens, `output` includes reasoning.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Usage {
    /// All input tokens, cached included.
    pub input: Option<u64>,
    /// All output tokens, reasoning included.
    pub output: Option<u64>,
    /// Reasoning tokens, inside `output`.
    pub reasoning: Option<u64>,
    /// Input tokens read from a cache, inside `input`.
    pub cached: Option<u64>,
    /// Input tokens written to a cache, inside `input` where the dialect bills them so.
    pub cache_write: Option<u64>,
    /// The provider's own fields, last value each, by the provider's own names.
    pub raw: Vec<(&'static str, u64)>,
}

impl Usage {
    /// Whether the provider reported anything.
    pub const fn is_known(&self) -> bool {
        self.output.is_some() || self.input.is_some()
    }
}
