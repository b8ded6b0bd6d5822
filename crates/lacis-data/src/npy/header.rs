//! The header of a `.npy` file: a Python dict literal of three known keys, parsed, not executed.
//!
//! ```text
//!  \x93NUMPY version length {'descr': '<i4', 'fortran_order': False, 'shape': (2, 5), } \n data
//!  6 bytes    2        2 or 4  ASCII, padded with spaces                                        …
//! ```

use std::fmt;

/// What the items of an array are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One byte, zero or not.
    Bool,
    /// Signed integers.
    Int,
    /// Unsigned integers.
    Uint,
    /// IEEE numbers of 2, 4 or 8 bytes.
    Float,
    /// Byte strings of a fixed length, padded with zeros.
    Bytes,
    /// UTF-32 strings of a fixed length, padded with zeros.
    Text,
    /// Python objects: a pickle, which is recognised and not read.
    Object,
}

/// In which order the bytes of an item stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endian {
    /// The lowest byte first.
    Little,
    /// The highest byte first.
    Big,
}

/// The type of an array's items, as in `'<i4'`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dtype {
    /// What they are.
    pub kind: Kind,
    /// Bytes of one item.
    pub size: usize,
    /// The order of these bytes.
    pub endian: Endian,
}

impl Dtype {
    /// From numpy's short form, `None` for what is not read: complex numbers, dates, records.
    pub fn parse(descr: &str) -> Option<Self> {
        let (endian, rest) = match descr.as_bytes().first()? {
            b'>' => (Endian::Big, &descr[1..]),
            b'<' | b'|' | b'=' => (Endian::Little, &descr[1..]),
            _ => (Endian::Little, descr),
        };
        let letter = rest.chars().next()?;
        let digits = &rest[letter.len_utf8()..];
        if letter == 'O' {
            let (kind, size) = (Kind::Object, 8);
            return Some(Dtype { kind, size, endian });
        }
        if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        let count: usize = digits.parse().ok()?;
        let (kind, size) = match (letter, count) {
            ('b', 1) => (Kind::Bool, 1),
            ('i', 1 | 2 | 4 | 8) => (Kind::Int, count),
            ('u', 1 | 2 | 4 | 8) => (Kind::Uint, count),
            ('f', 2 | 4 | 8) => (Kind::Float, count),
            ('S' | 'a', _) => (Kind::Bytes, count),
            ('U', _) => (Kind::Text, count.checked_mul(4)?),
            _ => return None,
        };
        Some(Dtype { kind, size, endian })
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (letter, count) = match self.kind {
            Kind::Bool => ('b', self.size),
            Kind::Int => ('i', self.size),
            Kind::Uint => ('u', self.size),
            Kind::Float => ('f', self.size),
            Kind::Bytes => ('S', self.size),
            Kind::Text => ('U', self.size / 4),
            Kind::Object => return write!(f, "object"),
        };
        let order = match self.endian {
            Endian::Big => ">",
            Endian::Little => "",
        };
        write!(f, "{order}{letter}{count}")
    }
}

/// Which index of an array runs fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The last one.
    C,
    /// The first one.
    Fortran,
}

/// What a `.npy` file says of its array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The type of the items.
    pub dtype: Dtype,
    /// How they are laid out.
    pub order: Order,
    /// The array's extent along each axis.
    pub shape: Vec<usize>,
}

/// A problem and where in the header's text it is.
pub type Problem = (usize, String);

impl Header {
    /// Number of items, if it and their bytes can be counted at all.
    pub fn n_items(&self) -> Option<usize> {
        let len = if self.shape.contains(&0) {
            0
        } else {
            self.shape.iter().try_fold(1usize, |len, &extent| len.checked_mul(extent))?
        };
        len.checked_mul(self.dtype.size.max(1))
            .filter(|bytes| isize::try_from(*bytes).is_ok())
            .map(|_| len)
    }

    /// The shape as Python writes it.
    pub fn shape_text(&self) -> String {
        match &self.shape[..] {
            [one] => format!("({one},)"),
            many => {
                let parts: Vec<String> = many.iter().map(usize::to_string).collect();
                format!("({})", parts.join(", "))
            }
        }
    }

    /// From the dict literal.
    ///
    /// # Errors
    /// When it is no dict of exactly the three keys.
    pub fn parse(text: &[u8]) -> Result<Self, Problem> {
        let mut literal = Literal { text, at: 0 };
        let (mut dtype, mut order, mut shape) = (None, None, None);
        literal.expect(b'{')?;
        while !literal.eat(b'}') {
            let (at, key) = (literal.at, literal.string()?);
            literal.expect(b':')?;
            let fresh = match key.as_str() {
                "descr" => dtype.replace(literal.dtype()?).is_none(),
                "fortran_order" => order.replace(literal.order()?).is_none(),
                "shape" => shape.replace(literal.shape()?).is_none(),
                _ => return Err((at, format!("the header has an unknown key '{key}'"))),
            };
            if !fresh {
                return Err((at, format!("the header has the key '{key}' twice")));
            }
            if !literal.eat(b',') {
                literal.expect(b'}')?;
                break;
            }
        }
        literal.end()?;
        let missing = |key| (0, format!("the header has no '{key}'"));
        Ok(Header {
            dtype: dtype.ok_or_else(|| missing("descr"))?,
            order: order.ok_or_else(|| missing("fortran_order"))?,
            shape: shape.ok_or_else(|| missing("shape"))?,
        })
    }
}

/// As many axes as numpy allows.
const MAX_AXES: usize = 64;

/// A Python literal, read from the left.
struct Literal<'a> {
    text: &'a [u8],
    at: usize,
}

impl Literal<'_> {
    fn peek(&mut self) -> Option<u8> {
        let rest = &self.text[self.at..];
        self.at += rest.iter().take_while(|c| c.is_ascii_whitespace()).count();
        self.text.get(self.at).copied()
    }

    fn eat(&mut self, wanted: u8) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, wanted: u8) -> Result<(), Problem> {
        if self.eat(wanted) {
            return Ok(());
        }
        let wanted = char::from(wanted);
        Err((
            self.at,
            format!("the header should have '{wanted}' here: it is no dict as numpy writes it"),
        ))
    }

    fn end(&mut self) -> Result<(), Problem> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err((self.at, "the header goes on after its dict".to_owned())),
        }
    }

    fn string(&mut self) -> Result<String, Problem> {
        let quote = match self.peek() {
            Some(quote @ (b'\'' | b'"')) => quote,
            _ => return Err((self.at, "the header should have a string here".to_owned())),
        };
        let start = self.at + 1;
        let rest = &self.text[start..];
        let Some(length) = rest.iter().position(|&c| c == quote || c == b'\\') else {
            return Err((self.at, "a string of the header does not end".to_owned()));
        };
        if rest[length] == b'\\' {
            let problem = "a string of the header has an escape, which is not read";
            return Err((start + length, problem.to_owned()));
        }
        self.at = start + length + 1;
        Ok(String::from_utf8_lossy(&rest[..length]).into_owned())
    }

    fn dtype(&mut self) -> Result<Dtype, Problem> {
        if self.peek() == Some(b'[') {
            let problem = "the array holds records, which are not read; one number type would be";
            return Err((self.at, problem.to_owned()));
        }
        let (at, descr) = (self.at, self.string()?);
        let known = "bool, integers, floats of 2 to 8 bytes and strings are";
        Dtype::parse(&descr).ok_or_else(|| (at, format!("dtype '{descr}' is not read; {known}")))
    }

    fn order(&mut self) -> Result<Order, Problem> {
        self.peek();
        for (word, order) in [(&b"True"[..], Order::Fortran), (b"False", Order::C)] {
            if self.text[self.at..].starts_with(word) {
                self.at += word.len();
                return Ok(order);
            }
        }
        Err((self.at, "fortran_order should be True or False".to_owned()))
    }

    fn shape(&mut self) -> Result<Vec<usize>, Problem> {
        let mut shape = Vec::new();
        self.expect(b'(')?;
        while !self.eat(b')') {
            if shape.len() == MAX_AXES {
                return Err((self.at, format!("the shape has more than {MAX_AXES} axes")));
            }
            shape.push(self.number()?);
            if !self.eat(b',') {
                self.expect(b')')?;
                break;
            }
        }
        Ok(shape)
    }

    fn number(&mut self) -> Result<usize, Problem> {
        self.peek();
        let rest = &self.text[self.at..];
        let digits = rest.iter().take_while(|c| c.is_ascii_digit()).count();
        let text = String::from_utf8_lossy(&rest[..digits]);
        let number = text.parse().map_err(|_| {
            let problem = "the shape should have a count here that fits in 64 bits";
            (self.at, problem.to_owned())
        })?;
        self.at += digits;
        // Python 2 wrote long integers as `3L`.
        self.at += usize::from(self.text.get(self.at) == Some(&b'L'));
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_as_numpy_writes_them_are_read() {
        let text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }    \n";
        let header = Header::parse(text).unwrap();
        assert_eq!(header.shape, [3, 4]);
        assert_eq!((header.order, header.n_items()), (Order::C, Some(12)));
        assert_eq!(header.dtype.to_string(), "f4");
        let old = b"{\"shape\": (7L,), \"fortran_order\": True, \"descr\": '>U3'}";
        let header = Header::parse(old).unwrap();
        assert_eq!((header.shape_text(), header.order), ("(7,)".to_owned(), Order::Fortran));
        assert_eq!((header.dtype.size, header.dtype.endian), (12, Endian::Big));
        let scalar = Header::parse(b"{'descr': '|S3', 'fortran_order': False, 'shape': ()}");
        assert_eq!(scalar.unwrap().n_items(), Some(1));
    }

    #[test]
    fn anything_else_is_refused_with_its_place() {
        for (text, at, part) in [
            (&b""[..], 0, "should have '{'"),
            (b"{'descr': __import__('os')}", 10, "should have a string"),
            (b"{'descr': '<c16'}", 10, "dtype '<c16' is not read"),
            (b"{'descr': [('a', '<i4')]}", 10, "records"),
            (b"{'shape': (-1,)}", 11, "a count"),
            (b"{'shape': (99999999999999999999,)}", 11, "fits in 64 bits"),
            (b"{'shape': (1,), 'shape': (1,)}", 16, "twice"),
            (b"{'what': 1}", 1, "unknown key 'what'"),
            (b"{'descr': '<i4', 'fortran_order': False, 'shape': (1,)} x", 56, "goes on"),
            (b"{'descr': '<i4', 'shape': (1,)}", 0, "no 'fortran_order'"),
            (b"{'descr': 'a", 10, "does not end"),
            (b"{'descr': 'a\\x", 12, "an escape"),
        ] {
            let (place, problem) = Header::parse(text).unwrap_err();
            assert!(problem.contains(part), "{problem}");
            assert_eq!(place, at, "{problem}");
        }
    }

    #[test]
    fn sizes_that_cannot_be_counted_have_no_length() {
        let sized = |shape: &[usize]| Header {
            dtype: Dtype::parse("<i8").unwrap(),
            order: Order::C,
            shape: shape.to_vec(),
        };
        assert_eq!(sized(&[usize::MAX, 2]).n_items(), None);
        assert_eq!(sized(&[usize::MAX / 4]).n_items(), None);
        assert_eq!(sized(&[usize::MAX, 2, 0]).n_items(), Some(0));
        assert_eq!(sized(&[]).n_items(), Some(1));
    }

    #[test]
    fn unknown_types_are_not_read() {
        for descr in ["", "<", "<c8", "<M8[ns]", "|V4", "<i3", "<f16", "i", "<U", "é4", "b8"] {
            assert_eq!(Dtype::parse(descr), None, "{descr}");
        }
        assert_eq!(Dtype::parse("|O").unwrap().kind, Kind::Object);
        assert_eq!(Dtype::parse("u2").unwrap().to_string(), "u2");
        assert_eq!(Dtype::parse("<U9223372036854775807"), None);
    }
}
