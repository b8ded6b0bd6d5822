//! [`NodeIds`]: what a user calls the nodes.

use crate::{Buffer, Error, Result};

/// The names of nodes as their files have them, one after another in one buffer.
///
/// ```
/// use lacis_core::NodeIds;
/// let ids: NodeIds = ["ada", "bob"].into_iter().collect();
/// assert_eq!((ids.len(), ids.get(1)), (2, "bob"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct NodeIds {
    text: Buffer<u8>,
    ends: Buffer<u64>,
}

impl NodeIds {
    /// From all names in one text, and where each of them ends.
    ///
    /// # Errors
    /// When an end is not in the text, not on a character, or before the one before it.
    pub fn new(text: Buffer<u8>, ends: Buffer<u64>) -> Result<Self> {
        let bad = |problem: String| Err(Error::argument("node ids", problem));
        let Ok(whole) = std::str::from_utf8(&text) else {
            return bad("the names are no UTF-8".to_owned());
        };
        let mut start = 0;
        for (at, &end) in ends.iter().enumerate() {
            let fits = usize::try_from(end).is_ok_and(|end| whole.is_char_boundary(end));
            if end < start || !fits {
                return bad(format!("end {end} at position {at} is outside the names"));
            }
            start = end;
        }
        if start != text.len() as u64 {
            return bad(format!("{} bytes of names, but the last ends at {start}", text.len()));
        }
        Ok(NodeIds { text, ends })
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The name of node `i`.
    pub fn get(&self, i: usize) -> &str {
        let start = if i == 0 { 0 } else { self.ends[i - 1] as usize };
        let bytes = &self.text[start..self.ends[i] as usize];
        std::str::from_utf8(bytes).expect("checked when made")
    }

    /// All names, in the nodes' order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|i| self.get(i))
    }

    /// All names in one text.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Where each name ends in the text.
    pub fn ends(&self) -> &[u64] {
        &self.ends
    }
}

impl<S: AsRef<str>> FromIterator<S> for NodeIds {
    fn from_iter<I: IntoIterator<Item = S>>(names: I) -> Self {
        let (mut text, mut ends) = (Vec::new(), Vec::new());
        for name in names {
            text.extend_from_slice(name.as_ref().as_bytes());
            ends.push(text.len() as u64);
        }
        NodeIds { text: text.into(), ends: ends.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_do_not_fit_are_refused() {
        let made = |text: &str, ends: &[u64]| {
            NodeIds::new(Buffer::copied(text.as_bytes()), Buffer::copied(ends))
        };
        let ids = made("aébc", &[1, 3, 3, 5]).unwrap();
        assert_eq!(ids.iter().collect::<Vec<_>>(), ["a", "é", "", "bc"]);
        assert_eq!(ids, ids.iter().collect());
        for ends in [&[1, 2, 5][..], &[3, 1, 5], &[1, 3], &[1, 3, 9], &[]] {
            assert!(made("aébc", ends).is_err(), "{ends:?}");
        }
        assert!(NodeIds::new(vec![0xff].into(), vec![1].into()).is_err());
        assert!(made("", &[]).unwrap().is_empty());
    }
}
