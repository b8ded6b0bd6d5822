//! Python's pickle, read as data: nothing is imported, called or executed.
//!
//! A pickle is a program for a small stack machine. This one runs it with three restrictions:
//! a global is a name from a fixed list ([`Global`]) or an error; "calling" one only notes what was
//! called with what; and values live in an arena and refer to each other by number.
//!
//! ```text
//!  opcodes ──► stack of Items ──► arena of Nodes ──► Pickle: root Item + typed look-ups
//!              Copy, 24 bytes     lists, dicts, …     array(), pairs(), items(), …
//! ```
//! Every opcode is at least one byte and makes at most one node and a few items, so memory is a
//! constant times the file's length; shared values are shared, and no walk is recursive.

mod machine;

use std::borrow::Cow;
use std::path::Path;

use lacis_core::{Error, Place, Result};

use crate::npy::{Dtype, Header, Order, convert, is_convertible};

pub use machine::load;

/// No name of an attribute and no number is longer.
const SHORT: usize = 64;
/// As many axes as numpy allows.
const MAX_AXES: usize = 64;

/// What a pickle may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Global {
    /// `numpy.core.multiarray._reconstruct`: makes an array that a later state fills.
    Reconstruct,
    /// `numpy.core.multiarray.scalar`: one number.
    Scalar,
    /// `numpy.ndarray`.
    Array,
    /// `numpy.dtype`.
    Dtype,
    /// SciPy's `csr_matrix` (or `csr_array`), under any of its module names.
    CsrMatrix,
    /// `dict` and its kin.
    Dict,
    /// `list`.
    List,
    /// `object`, the base that `copy_reg` names.
    Object,
    /// `copy_reg._reconstructor`: makes an instance that a later state fills.
    Reconstructor,
    /// `_codecs.encode`: how bytes were written from Python 3 for Python 2.
    Encode,
}

/// Every global that is understood, under the names that different versions gave it.
static GLOBALS: &[(&str, &str, Global)] = &[
    ("numpy.core.multiarray", "_reconstruct", Global::Reconstruct),
    ("numpy._core.multiarray", "_reconstruct", Global::Reconstruct),
    ("numpy.core.multiarray", "scalar", Global::Scalar),
    ("numpy._core.multiarray", "scalar", Global::Scalar),
    ("numpy", "ndarray", Global::Array),
    ("numpy", "dtype", Global::Dtype),
    ("scipy.sparse.csr", "csr_matrix", Global::CsrMatrix),
    ("scipy.sparse._csr", "csr_matrix", Global::CsrMatrix),
    ("scipy.sparse._csr", "csr_array", Global::CsrMatrix),
    ("scipy.sparse", "csr_matrix", Global::CsrMatrix),
    ("collections", "defaultdict", Global::Dict),
    ("collections", "OrderedDict", Global::Dict),
    ("__builtin__", "dict", Global::Dict),
    ("builtins", "dict", Global::Dict),
    ("__builtin__", "list", Global::List),
    ("builtins", "list", Global::List),
    ("__builtin__", "object", Global::Object),
    ("builtins", "object", Global::Object),
    ("copy_reg", "_reconstructor", Global::Reconstructor),
    ("copyreg", "_reconstructor", Global::Reconstructor),
    ("_codecs", "encode", Global::Encode),
];

impl Global {
    fn find(module: &str, name: &str) -> Option<Self> {
        let found = GLOBALS.iter().find(|(m, n, _)| (*m, *n) == (module, name));
        found.map(|(_, _, global)| *global)
    }
}

/// A value on the stack: a small one itself, a string as its place in the file, else a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Item {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// A string of Python 2, or bytes: `file[start..][..len]`.
    Bytes {
        /// Where it starts in the file.
        start: usize,
        /// How long it is.
        len: usize,
    },
    /// A Unicode string, as UTF-8: `file[start..][..len]`.
    Text {
        /// Where it starts in the file.
        start: usize,
        /// How long it is.
        len: usize,
    },
    /// Something that may be called.
    Global(Global),
    /// A node of the arena.
    Node(usize),
}

/// A value that holds others.
#[derive(Debug)]
enum Node {
    Tuple(Vec<Item>),
    List(Vec<Item>),
    Dict(Vec<(Item, Item)>),
    /// A string that was written with escapes.
    Unescaped(Vec<u8>),
    /// `_codecs.encode(text, 'latin1')`, not carried out until somebody looks.
    Encoded(Item),
    /// An instance, what it was made with, and the state it was given.
    Instance {
        class: Global,
        args: Item,
        state: Item,
    },
}

/// A node and the byte at which it was made, which errors name.
#[derive(Debug)]
struct Placed {
    node: Node,
    at: usize,
}

/// A pickle that was read.
#[derive(Debug)]
pub struct Pickle<'a> {
    path: &'a Path,
    file: &'a [u8],
    nodes: Vec<Placed>,
    root: Item,
}

/// An array of a pickle: its header, and its items as bytes.
#[derive(Debug)]
pub struct RawArray<'a> {
    /// Type, order and shape.
    pub header: Header,
    /// The items.
    pub raw: Cow<'a, [u8]>,
}

impl Pickle<'_> {
    /// What the whole pickle is.
    pub fn root(&self) -> Item {
        self.root
    }

    /// Bytes of the file.
    pub fn file_len(&self) -> usize {
        self.file.len()
    }

    /// A problem with a value.
    pub fn problem(&self, item: Item, problem: impl Into<String>) -> Error {
        let at = match item {
            Item::Node(id) => self.nodes[id].at,
            Item::Bytes { start, .. } | Item::Text { start, .. } => start,
            _ => 0,
        };
        Error::file_at(self.path, Place::Byte(at as u64), problem)
    }

    fn mismatch(&self, item: Item, wanted: &str) -> Error {
        let found = match item {
            Item::None => "None",
            Item::Bool(_) => "a truth value",
            Item::Int(_) => "an integer",
            Item::Float(_) => "a float",
            Item::Bytes { .. } | Item::Text { .. } => "a string",
            Item::Global(_) => "a class or function",
            Item::Node(id) => match &self.nodes[id].node {
                Node::Tuple(_) => "a tuple",
                Node::List(_) => "a list",
                Node::Dict(_) => "a dict",
                Node::Unescaped(_) | Node::Encoded(_) => "a string",
                Node::Instance { .. } => "an instance",
            },
        };
        self.problem(item, format!("the pickle holds {found} where {wanted} should be"))
    }

    fn node(&self, item: Item) -> Option<&Node> {
        match item {
            Item::Node(id) => Some(&self.nodes[id].node),
            _ => None,
        }
    }

    /// The elements of a list or tuple.
    ///
    /// # Errors
    /// When it is none.
    pub fn items(&self, item: Item) -> Result<&[Item]> {
        match self.node(item) {
            Some(Node::List(items) | Node::Tuple(items)) => Ok(items),
            _ => Err(self.mismatch(item, "a list or tuple")),
        }
    }

    /// The keys and values of a dict, in the order they were set.
    ///
    /// # Errors
    /// When it is none.
    pub fn pairs(&self, item: Item) -> Result<&[(Item, Item)]> {
        match self.node(item) {
            Some(Node::Dict(pairs)) => Ok(pairs),
            _ => Err(self.mismatch(item, "a dict")),
        }
    }

    /// An integer; numpy's scalars count too.
    ///
    /// # Errors
    /// When it is none.
    pub fn int(&self, item: Item) -> Result<i64> {
        match (item, self.node(item)) {
            (Item::Int(value), _) => Ok(value),
            (Item::Bool(value), _) => Ok(i64::from(value)),
            (_, Some(Node::Instance { class: Global::Scalar, args, .. })) => self.scalar(*args),
            _ => Err(self.mismatch(item, "an integer")),
        }
    }

    /// The integer that `scalar(dtype, bytes)` made.
    fn scalar(&self, args: Item) -> Result<i64> {
        let &[dtype, raw] = self.items(args)? else {
            return Err(self.mismatch(args, "a dtype and its bytes"));
        };
        let dtype = self.dtype(dtype)?;
        let mut value = [0i64];
        if is_convertible::<i64>(dtype) && self.stored_len(raw) <= SHORT {
            let raw = self.bytes(raw)?;
            if raw.len() == dtype.size && convert(dtype, &raw, &mut value).is_ok() {
                return Ok(value[0]);
            }
        }
        Err(self.mismatch(args, "a dtype and the bytes of one integer"))
    }

    /// Bytes that looking at a string costs. What may be looked at again and again, from many
    /// places of a pickle, must be short.
    fn stored_len(&self, item: Item) -> usize {
        match (item, self.node(item)) {
            (Item::Bytes { len, .. } | Item::Text { len, .. }, _) => len,
            (_, Some(Node::Unescaped(bytes))) => bytes.len(),
            (_, Some(&Node::Encoded(Item::Text { len, .. }))) => len,
            (_, Some(&Node::Encoded(Item::Node(id)))) => match &self.nodes[id].node {
                Node::Unescaped(bytes) => bytes.len(),
                _ => usize::MAX,
            },
            _ => 0,
        }
    }

    /// A short string.
    fn word(&self, item: Item) -> Result<Cow<'_, str>> {
        if self.stored_len(item) > SHORT {
            return Err(self.problem(item, "the pickle has a long string where a word should be"));
        }
        self.text(item)
    }

    /// The bytes of a string: of Python 2, of Python 3's bytes, or encoded from text.
    ///
    /// # Errors
    /// When it is no string, or text that is not Latin-1.
    pub fn bytes(&self, item: Item) -> Result<Cow<'_, [u8]>> {
        match (item, self.node(item)) {
            (Item::Bytes { start, len }, _) => Ok(Cow::Borrowed(&self.file[start..start + len])),
            (_, Some(Node::Unescaped(bytes))) => Ok(Cow::Borrowed(bytes)),
            (_, Some(Node::Encoded(text))) => self.latin1(*text).map(Cow::Owned),
            _ => Err(self.mismatch(item, "a byte string")),
        }
    }

    fn latin1(&self, text: Item) -> Result<Vec<u8>> {
        let chars = self.text(text)?;
        let bytes: Option<Vec<u8>> = chars.chars().map(|c| u8::try_from(c).ok()).collect();
        bytes.ok_or_else(|| self.problem(text, "the encoded string is not Latin-1"))
    }

    /// A string as text, whichever way it was written.
    ///
    /// # Errors
    /// When it is no string, or no UTF-8.
    pub fn text(&self, item: Item) -> Result<Cow<'_, str>> {
        let bytes = match item {
            Item::Text { start, len } => Cow::Borrowed(&self.file[start..start + len]),
            _ => self.bytes(item)?,
        };
        let text = match bytes {
            Cow::Borrowed(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
            Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
        };
        text.ok_or_else(|| self.problem(item, "a string is no UTF-8"))
    }

    /// The attributes of an instance of a class.
    ///
    /// # Errors
    /// When it is none.
    pub fn attributes(&self, item: Item, wanted: Global) -> Result<&[(Item, Item)]> {
        match self.node(item) {
            Some(&Node::Instance { class, state, .. }) if class == wanted => self.pairs(state),
            _ => Err(self.mismatch(item, &format!("an instance of {wanted:?}"))),
        }
    }

    /// A value of a dict whose keys are strings, under the first of some names that is there.
    ///
    /// # Errors
    /// When none is.
    pub fn get(&self, pairs: &[(Item, Item)], names: &[&str]) -> Result<Item> {
        let is_named = |key: Item| self.word(key).is_ok_and(|key| names.contains(&key.as_ref()));
        match pairs.iter().rev().find(|(key, _)| is_named(*key)) {
            Some((_, value)) => Ok(*value),
            None => {
                let problem = format!("the pickle's object has no '{}'", names.join("' or '"));
                Err(self.problem(self.root, problem))
            }
        }
    }

    /// A numpy array.
    ///
    /// # Errors
    /// When it is none, or of a type that is not read.
    pub fn array(&self, item: Item) -> Result<RawArray<'_>> {
        let state = match self.node(item) {
            Some(&Node::Instance { class: Global::Array, state, .. }) => state,
            _ => return Err(self.mismatch(item, "a numpy array")),
        };
        // (version, shape, dtype, is_fortran, raw); the first version had no version.
        let (&[_, shape, dtype, fortran, raw] | &[shape, dtype, fortran, raw]) =
            self.items(state)?
        else {
            return Err(self.mismatch(state, "the five parts of a numpy array"));
        };
        let order = match fortran {
            Item::Bool(true) | Item::Int(1) => Order::Fortran,
            Item::Bool(false) | Item::Int(0) => Order::C,
            _ => return Err(self.mismatch(fortran, "a truth value")),
        };
        let header = Header { dtype: self.dtype(dtype)?, order, shape: self.shape(shape)? };
        let raw = self.bytes(raw)?;
        Ok(RawArray { header, raw })
    }

    /// A tuple of extents.
    ///
    /// # Errors
    /// When it is none.
    pub fn shape(&self, item: Item) -> Result<Vec<usize>> {
        let extent = |&item: &Item| {
            let value = self.int(item)?;
            usize::try_from(value)
                .map_err(|_| self.problem(item, format!("an array has an extent of {value}")))
        };
        let items = self.items(item)?;
        if items.len() > MAX_AXES {
            return Err(self.problem(item, format!("an array has {} axes", items.len())));
        }
        items.iter().map(extent).collect()
    }

    /// A numpy dtype: `dtype('i4', 0, 1)` and then the state `(3, '<', …)`.
    fn dtype(&self, item: Item) -> Result<Dtype> {
        let Some(&Node::Instance { class: Global::Dtype, args, state }) = self.node(item) else {
            return Err(self.mismatch(item, "a numpy dtype"));
        };
        let code = self.items(args)?.first().copied().unwrap_or(Item::None);
        let order = match state {
            Item::None => Item::None,
            state => self.items(state)?.get(1).copied().unwrap_or(Item::None),
        };
        let order = match order {
            Item::None => Cow::Borrowed("<"),
            order => self.word(order)?,
        };
        let descr = format!("{order}{}", self.word(code)?);
        Dtype::parse(&descr)
            .ok_or_else(|| self.problem(item, format!("dtype '{descr}' is not read")))
    }
}

#[cfg(test)]
#[path = "../tests/corpus/pickles.rs"]
pub(crate) mod samples;
#[cfg(test)]
mod tests;
