//! stub
use crate::config::{Config, Upstream};
use http::{request::Parts, uri::PathAndQuery};
use std::sync::Arc;
/// x
#[derive(Debug)]
pub struct RouteTable {
    entries: Vec<Entry>,
}
/// x
#[derive(Debug)]
pub struct Entry {
    /// x
    pub upstream: Arc<Upstream>,
    /// x
    pub index: usize,
}
impl RouteTable {
    /// x
    pub fn new(config: &Config) -> Self {
        Self {
            entries: config
                .upstreams
                .iter()
                .enumerate()
                .map(|(index, u)| Entry { upstream: u.clone(), index })
                .collect(),
        }
    }
    /// x
    pub fn find(&self, _parts: &Parts) -> Option<&Entry> {
        self.entries.first()
    }
}
/// x
pub fn upstream_path(_entry: &Entry, path: &PathAndQuery) -> PathAndQuery {
    path.clone()
}
