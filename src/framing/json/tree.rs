//! Which fields of a document are asked for: paths, made into nodes once.

use crate::framing::bytes::word;

/// How much of a field's value is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// Whether there is one: of strings only if they are empty, known at their first byte.
    Whether,
    /// The value itself, up to [`super::VALUE_LIMIT`].
    Value,
    /// As [`Self::Value`], of a number that counts something as it goes: the last one matters.
    Count,
}

pub(super) type NodeId = u8;

/// No node: a value nobody asked for.
pub(super) const NONE: NodeId = NodeId::MAX;

/// The asked-for fields of a kind of document.
#[derive(Debug)]
pub struct Tree {
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    /// Which of the edges is the first whose key has this length, so that most unknown keys are known as such by theirs.
    first: [NodeId; LENGTHS],
    edges: Vec<Edge>,
    parent: NodeId,
    element: NodeId,
    field: Option<(u8, Want)>,
}

#[derive(Debug)]
struct Edge {
    /// The first eight bytes of the key.
    head: u64,
    key: Box<[u8]>,
    node: NodeId,
    /// The next edge whose key has the same length.
    next: NodeId,
}

/// Lengths of keys that are told apart; what is longer is as long as the last.
const LENGTHS: usize = 64;

impl Tree {
    /// A tree of the fields at these paths: keys joined by `.`, `[]` behind the key of an array for its elements
    /// (`choices[].delta.content`). Each comes with the number it is given out by and how much of it is wanted.
    ///
    /// Of paths beyond 254 nodes nothing is found; a test of each tree keeps that from happening.
    pub fn new<P: AsRef<str>>(fields: impl IntoIterator<Item = (P, u8, Want)>) -> Self {
        let mut tree = Self { nodes: vec![Node::new(NONE)] };
        for (path, field, want) in fields {
            let mut at = 0;
            for part in path.as_ref().split('.') {
                let key = part.trim_end_matches("[]");
                if !key.is_empty() {
                    at = tree.grow(at, Some(key));
                }
                for _ in 0..(part.len() - key.len()) / 2 {
                    at = tree.grow(at, None);
                }
            }
            if let Some(node) = tree.nodes.get_mut(usize::from(at)) {
                node.field = Some((field, want));
            }
        }
        tree
    }

    /// How many nodes it has.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.nodes.len() == 1
    }

    /// The paths of its fields, written as for [`Self::new`].
    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        let mut open = vec![(0, String::new())];
        while let Some((at, path)) = open.pop() {
            let Some(node) = self.nodes.get(usize::from(at)) else { continue };
            let dot = if path.is_empty() { "" } else { "." };
            open.extend(node.edges.iter().rev().map(|edge| {
                let key = String::from_utf8_lossy(&edge.key);
                (edge.node, format!("{path}{dot}{key}"))
            }));
            open.push((node.element, format!("{path}[]")));
            if node.field.is_some() {
                paths.push(path);
            }
        }
        paths
    }

    fn grow(&mut self, at: NodeId, key: Option<&str>) -> NodeId {
        let new = NodeId::try_from(self.nodes.len()).unwrap_or(NONE);
        let Some(node) = self.nodes.get_mut(usize::from(at)) else { return NONE };
        let known = match key {
            Some(key) => node.edges.iter().find(|edge| *edge.key == *key.as_bytes()).map(|edge| edge.node),
            None => Some(node.element).filter(|&element| element != NONE),
        };
        if let Some(known) = known {
            return known;
        }
        match key {
            Some(key) => {
                let edge = NodeId::try_from(node.edges.len()).unwrap_or(NONE);
                let next = std::mem::replace(&mut node.first[key.len().min(LENGTHS - 1)], edge);
                let head = head(key.as_bytes(), key.len());
                node.edges.push(Edge { head, key: key.as_bytes().into(), node: new, next });
            }
            None => node.element = new,
        }
        if new != NONE {
            self.nodes.push(Node::new(at));
        }
        new
    }

    /// The node behind the key that the first `len` bytes are.
    #[inline]
    pub(super) fn child(&self, at: NodeId, bytes: &[u8], len: usize) -> NodeId {
        let Some(node) = self.nodes.get(usize::from(at)) else { return NONE };
        let mut edge = node.first[len.min(LENGTHS - 1)];
        if edge == NONE {
            return NONE;
        }
        let head = head(bytes, len);
        while let Some(Edge { head: begins, key, node, next }) = node.edges.get(usize::from(edge)) {
            if *begins == head && key.len() == len && (len <= 8 || key[8..] == bytes[8..len]) {
                return *node;
            }
            edge = *next;
        }
        NONE
    }

    #[inline]
    pub(super) fn element(&self, at: NodeId) -> NodeId {
        self.nodes.get(usize::from(at)).map_or(NONE, |node| node.element)
    }

    #[inline]
    pub(super) fn parent(&self, at: NodeId) -> NodeId {
        self.nodes.get(usize::from(at)).map_or(NONE, |node| node.parent)
    }

    /// The field a value of this node is given out by, and how much of it is wanted.
    #[inline]
    pub(super) fn asked(&self, at: NodeId) -> Option<(u8, Want)> {
        self.nodes.get(usize::from(at))?.field
    }

    /// Whether anything inside of this node's object (or array) is asked for.
    #[inline]
    pub(super) fn leads_on(&self, at: NodeId, array: bool) -> bool {
        self.nodes
            .get(usize::from(at))
            .is_some_and(|node| if array { node.element != NONE } else { !node.edges.is_empty() })
    }
}

impl Node {
    const fn new(parent: NodeId) -> Self {
        Self { first: [NONE; LENGTHS], edges: Vec::new(), parent, element: NONE, field: None }
    }
}

/// The first eight bytes of the key that the first `len` bytes are; the rest zero.
#[inline]
fn head(bytes: &[u8], len: usize) -> u64 {
    let mask = if len >= 8 { u64::MAX } else { (1 << (8 * len)) - 1 };
    let word = word(bytes, 0).unwrap_or_else(|| {
        let mut padded = [0; 8];
        for (to, from) in padded.iter_mut().zip(bytes) {
            *to = *from;
        }
        u64::from_le_bytes(padded)
    });
    word & mask
}
