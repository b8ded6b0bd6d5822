//! The stack machine: opcodes of protocols 0 to 4, one small group at a time.

use std::collections::HashMap;
use std::path::Path;

use lacis_core::{Error, Place, Result};

use super::{GLOBALS, Global, Item, Node, Pickle, Placed};

/// Reads a pickle from a file's content; `path` is what errors name.
///
/// # Errors
/// When it is damaged, or asks for anything but plain data.
pub fn load<'a>(path: &'a Path, file: &'a [u8]) -> Result<Pickle<'a>> {
    let mut machine = Machine {
        path,
        file,
        at: 0,
        op_at: 0,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
        nodes: Vec::new(),
    };
    let root = machine.run()?;
    Ok(Pickle { path, file, nodes: machine.nodes, root })
}

/// How few bytes of a pickle make a list, a tuple or a string with escapes, but for the first ones.
const MIN_NODE_BYTES: usize = 6;
const FREE_NODES: usize = 1 << 16;

struct Machine<'a> {
    path: &'a Path,
    file: &'a [u8],
    /// Where the next byte is, and where the opcode being carried out was.
    at: usize,
    op_at: usize,
    stack: Vec<Item>,
    /// Heights of the stack at which a mark was set.
    marks: Vec<usize>,
    memo: HashMap<u64, Item>,
    nodes: Vec<Placed>,
}

impl<'a> Machine<'a> {
    fn run(&mut self) -> Result<Item> {
        loop {
            self.op_at = self.at;
            match self.byte()? {
                b'.' => return self.pop(),
                op => self.step(op)?,
            }
        }
    }

    fn step(&mut self, op: u8) -> Result<()> {
        match op {
            b'N' | b'F' | b'G' | b'I' | b'J' | b'K' | b'L' | b'M' | 0x88..=0x8b => self.number(op),
            b'S' | b'T' | b'U' | b'V' | b'X' | b'B' | b'C' | 0x8c..=0x8e => self.string(op),
            b'(' | b'0' | b'1' | b'2' | 0x80 | 0x95 => self.housekeeping(op),
            b'g' | b'h' | b'j' | b'p' | b'q' | b'r' | 0x94 => self.memo(op),
            b')' | b't' | b']' | b'l' | b'}' | b'd' | 0x85..=0x87 => self.container(op),
            b'a' | b'e' | b's' | b'u' => self.extend(op),
            b'c' | b'R' | b'b' | b'i' | b'o' | 0x81 | 0x93 => self.object(op),
            _ => Err(self.refuse(op)),
        }
    }

    fn problem(&self, problem: impl Into<String>) -> Error {
        Error::file_at(self.path, Place::Byte(self.op_at as u64), problem)
    }

    fn refuse(&self, op: u8) -> Error {
        let what = match op {
            b'P' | b'Q' => "a persistent object",
            0x82..=0x84 => "a registered extension",
            0x8f..=0x91 => "a set",
            0x92 => "an object made with keyword arguments",
            0x96..=0x98 => "an out-of-band buffer",
            _ => return self.problem(format!("0x{op:02x} is no opcode: this is no pickle")),
        };
        self.problem(format!("the pickle asks for {what}, which is not read; plain data are"))
    }

    fn number(&mut self, op: u8) -> Result<()> {
        let item = match op {
            b'N' => Item::None,
            0x88 => Item::Bool(true),
            0x89 => Item::Bool(false),
            b'K' => Item::Int(i64::from(self.byte()?)),
            b'M' => Item::Int(self.unsigned(2)? as i64),
            b'J' => Item::Int(i64::from(self.unsigned(4)? as u32 as i32)),
            b'G' => Item::Float(f64::from_be_bytes(self.array()?)),
            b'F' => Item::Float(self.parsed("a float")?),
            b'I' => self.int_line()?,
            b'L' => Item::Int(self.parsed("an integer of 64 bits")?),
            0x8a => {
                let len = usize::from(self.byte()?);
                self.long(len)?
            }
            _ => {
                let len = self.length(4)?;
                self.long(len)?
            }
        };
        self.push(item)
    }

    /// `I`: an integer, or a truth value written `00` or `01`.
    fn int_line(&mut self) -> Result<Item> {
        let start = self.at;
        match self.line()? {
            b"00" => Ok(Item::Bool(false)),
            b"01" => Ok(Item::Bool(true)),
            _ => {
                self.at = start;
                self.parsed("an integer of 64 bits").map(Item::Int)
            }
        }
    }

    /// A little-endian two's complement integer of some bytes.
    fn long(&mut self, len: usize) -> Result<Item> {
        let bytes = self.take(len)?;
        if len > 8 {
            return Err(self.problem(format!("an integer of {len} bytes is not read; 8 are")));
        }
        let fill = match bytes.last() {
            Some(last) if last & 0x80 != 0 => 0xff,
            _ => 0,
        };
        let mut wide = [fill; 8];
        wide[..len].copy_from_slice(bytes);
        Ok(Item::Int(i64::from_le_bytes(wide)))
    }

    fn string(&mut self, op: u8) -> Result<()> {
        let (len, is_text) = match op {
            b'S' | b'V' => return self.escaped(op),
            b'U' | b'C' => (usize::from(self.byte()?), false),
            b'T' | b'B' => (self.length(4)?, false),
            0x8e => (self.length(8)?, false),
            0x8c => (usize::from(self.byte()?), true),
            b'X' => (self.length(4)?, true),
            _ => (self.length(8)?, true),
        };
        let start = self.at;
        self.take(len)?;
        self.push(if is_text { Item::Text { start, len } } else { Item::Bytes { start, len } })
    }

    /// `S'…'` as Python's `repr` wrote it, or `V…` with `\u` escapes: a line each.
    fn escaped(&mut self, op: u8) -> Result<()> {
        let line = self.line()?;
        let body = match line {
            _ if op == b'V' => line,
            [b'\'', body @ .., b'\''] | [b'"', body @ .., b'"'] => body,
            _ => return Err(self.problem("a string of the pickle has no quotes around it")),
        };
        let unescaped = match op {
            b'V' => unescape_text(body),
            _ => unescape_bytes(body),
        };
        let Some(bytes) = unescaped else {
            return Err(self.problem("a string of the pickle has a bad escape"));
        };
        self.push_node(Node::Unescaped(bytes))
    }

    fn housekeeping(&mut self, op: u8) -> Result<()> {
        match op {
            b'(' => self.marks.push(self.stack.len()),
            b'0' => drop(self.pop()?),
            b'1' => drop(self.pop_to_mark()?),
            b'2' => {
                let top = self.top()?;
                self.push(top)?;
            }
            0x80 => {
                let protocol = self.byte()?;
                if protocol > 5 {
                    return Err(
                        self.problem(format!("protocol {protocol} is not read; 0 to 4 are"))
                    );
                }
            }
            _ => drop(self.array::<8>()?),
        }
        Ok(())
    }

    fn memo(&mut self, op: u8) -> Result<()> {
        let key = match op {
            b'g' | b'p' => self.parsed("a number")?,
            b'h' | b'q' => u64::from(self.byte()?),
            0x94 => self.memo.len() as u64,
            _ => self.unsigned(4)?,
        };
        if matches!(op, b'g' | b'h' | b'j') {
            let Some(&item) = self.memo.get(&key) else {
                return Err(
                    self.problem(format!("the pickle refers to {key}, which it never kept"))
                );
            };
            return self.push(item);
        }
        let top = self.top()?;
        self.memo.insert(key, top);
        Ok(())
    }

    fn container(&mut self, op: u8) -> Result<()> {
        let node = match op {
            b')' => Node::Tuple(Vec::new()),
            b']' => Node::List(Vec::new()),
            b'}' => Node::Dict(Vec::new()),
            b't' => Node::Tuple(self.pop_to_mark()?),
            b'l' => Node::List(self.pop_to_mark()?),
            b'd' => {
                let items = self.pop_to_mark()?;
                Node::Dict(self.paired(&items)?)
            }
            _ => Node::Tuple(self.pop_many(usize::from(op - 0x84))?),
        };
        self.push_node(node)
    }

    fn paired(&self, items: &[Item]) -> Result<Vec<(Item, Item)>> {
        if !items.len().is_multiple_of(2) {
            return Err(self.problem("a dict of the pickle has a key without a value"));
        }
        Ok(items.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
    }

    /// Adds to the list or dict below the new items.
    fn extend(&mut self, op: u8) -> Result<()> {
        let items = match op {
            b'a' => self.pop_many(1)?,
            b's' => self.pop_many(2)?,
            _ => self.pop_to_mark()?,
        };
        let into_list = matches!(op, b'a' | b'e');
        let pairs = if into_list { Vec::new() } else { self.paired(&items)? };
        let target = match self.top()? {
            Item::Node(id) => Some(&mut self.nodes[id].node),
            _ => None,
        };
        match target {
            Some(Node::List(list)) if into_list => list.extend(items),
            Some(Node::Dict(dict)) if !into_list => dict.extend(pairs),
            _ => return Err(self.problem("the pickle adds to something that is no list or dict")),
        }
        Ok(())
    }

    fn object(&mut self, op: u8) -> Result<()> {
        match op {
            b'c' => {
                let global = self.global()?;
                self.push(Item::Global(global))
            }
            0x93 => {
                let names = self.pop_many(2)?;
                let [module, name] = [names[0], names[1]].map(|item| self.short_text(item));
                let global = self.find_global(&module, &name)?;
                self.push(Item::Global(global))
            }
            b'b' => self.build(),
            b'R' | 0x81 => {
                let pair = self.pop_many(2)?;
                self.make(pair[0], pair[1])
            }
            _ => {
                let mut items = self.pop_to_mark()?;
                let class = match op {
                    b'i' => Item::Global(self.global()?),
                    _ if items.is_empty() => return Err(self.problem("the pickle makes nothing")),
                    _ => items.remove(0),
                };
                let args = self.new_node(Node::Tuple(items));
                self.make(class, args)
            }
        }
    }

    /// Two lines: a module and a name in it.
    fn global(&mut self) -> Result<Global> {
        let module = String::from_utf8_lossy(self.line()?).into_owned();
        let name = String::from_utf8_lossy(self.line()?).into_owned();
        self.find_global(&module, &name)
    }

    fn find_global(&self, module: &str, name: &str) -> Result<Global> {
        Global::find(module, name).ok_or_else(|| {
            let asked: String = format!("{module}.{name}").escape_debug().take(80).collect();
            let modules = ["numpy", "scipy", "collections"];
            let known = GLOBALS.len();
            let problem = format!(
                "the pickle asks for {asked}; only {known} names of {} and built-in types are read",
                modules.join(", ")
            );
            self.problem(problem)
        })
    }

    /// A string as far as it can be one of a global's names.
    fn short_text(&self, item: Item) -> String {
        let bytes = match item {
            Item::Text { start, len } | Item::Bytes { start, len } => {
                &self.file[start..start + len.min(100)]
            }
            _ => b"?",
        };
        String::from_utf8_lossy(bytes).into_owned()
    }

    /// What calling `class` with `args` would make, as data.
    fn make(&mut self, class: Item, args: Item) -> Result<()> {
        let Item::Global(global) = class else {
            return Err(self.problem("the pickle calls something that is no class or function"));
        };
        let instance = |class| Node::Instance { class, args, state: Item::None };
        let node = match global {
            Global::Dict => Node::Dict(Vec::new()),
            Global::List => Node::List(Vec::new()),
            Global::Encode => Node::Encoded(self.encodable(args)?),
            Global::Reconstruct => instance(Global::Array),
            Global::Reconstructor => match self.argument(args, 0)? {
                Item::Global(class @ (Global::CsrMatrix | Global::Array)) => instance(class),
                _ => return Err(self.problem("the pickle rebuilds what is not read")),
            },
            Global::Scalar | Global::Dtype | Global::CsrMatrix | Global::Array => instance(global),
            Global::Object => return Err(self.problem("the pickle makes a bare object")),
        };
        self.push_node(node)
    }

    fn argument(&self, args: Item, position: usize) -> Result<Item> {
        let found = match args {
            Item::Node(id) => match &self.nodes[id].node {
                Node::Tuple(items) => items.get(position).copied(),
                _ => None,
            },
            _ => None,
        };
        found.ok_or_else(|| self.problem("the pickle calls a function with too few arguments"))
    }

    /// The text to be encoded: plain text, so that encodings do not nest.
    fn encodable(&self, args: Item) -> Result<Item> {
        let text = self.argument(args, 0)?;
        let plain = match text {
            Item::Text { .. } => true,
            Item::Node(id) => matches!(self.nodes[id].node, Node::Unescaped(_)),
            _ => false,
        };
        if plain {
            return Ok(text);
        }
        Err(self.problem("the pickle encodes something that is no text"))
    }

    /// Gives an instance its state.
    fn build(&mut self) -> Result<()> {
        let new_state = self.pop()?;
        if let Item::Node(id) = self.top()?
            && let Node::Instance { state, .. } = &mut self.nodes[id].node
        {
            *state = new_state;
            return Ok(());
        }
        Err(self.problem("the pickle gives a state to something that takes none"))
    }

    fn push(&mut self, item: Item) -> Result<()> {
        self.stack.push(item);
        Ok(())
    }

    fn push_node(&mut self, node: Node) -> Result<()> {
        // A byte can make an empty tuple, which takes a hundred; real ones hold something.
        if self.nodes.len() > FREE_NODES + self.file.len() / MIN_NODE_BYTES {
            return Err(self.problem("more lists and tuples than a file of this size can mean"));
        }
        let item = self.new_node(node);
        self.push(item)
    }

    fn new_node(&mut self, node: Node) -> Item {
        let at = self.op_at;
        self.nodes.push(Placed { node, at });
        Item::Node(self.nodes.len() - 1)
    }

    /// Items above the last mark are all that an opcode may take.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn pop_many(&mut self, count: usize) -> Result<Vec<Item>> {
        match self.stack.len().checked_sub(count) {
            Some(start) if start >= self.floor() => Ok(self.stack.split_off(start)),
            _ => Err(self.problem("the pickle takes more from its stack than there is")),
        }
    }

    fn pop(&mut self) -> Result<Item> {
        self.pop_many(1).map(|items| items[0])
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Item>> {
        match self.marks.pop() {
            Some(start) => Ok(self.stack.split_off(start)),
            None => Err(self.problem("the pickle goes back to a mark that it never set")),
        }
    }

    fn top(&self) -> Result<Item> {
        match self.stack[self.floor()..].last() {
            Some(item) => Ok(*item),
            None => Err(self.problem("the pickle uses the top of an empty stack")),
        }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let taken = self.at.checked_add(len).and_then(|end| self.file.get(self.at..end));
        match taken {
            Some(bytes) => {
                self.at += len;
                Ok(bytes)
            }
            None => Err(self.problem(format!(
                "the pickle ends at byte {}, before this opcode does",
                self.file.len()
            ))),
        }
    }

    fn byte(&mut self) -> Result<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn unsigned(&mut self, len: usize) -> Result<u64> {
        let mut wide = [0; 8];
        wide[..len].copy_from_slice(self.take(len)?);
        Ok(u64::from_le_bytes(wide))
    }

    fn length(&mut self, len: usize) -> Result<usize> {
        let length = self.unsigned(len)?;
        usize::try_from(length).map_err(|_| self.problem("a length does not fit this machine"))
    }

    /// Up to the next line end, which is passed.
    fn line(&mut self) -> Result<&'a [u8]> {
        match memchr::memchr(b'\n', &self.file[self.at..]) {
            Some(len) => {
                let line = self.take(len)?;
                self.at += 1;
                Ok(line.strip_suffix(b"\r").unwrap_or(line))
            }
            None => self.take(usize::MAX),
        }
    }

    /// A line that is a number, Python 2's `L` at its end allowed.
    fn parsed<T: std::str::FromStr>(&mut self, wanted: &str) -> Result<T> {
        let line = self.line()?;
        let line = line.strip_suffix(b"L").unwrap_or(line);
        let number = std::str::from_utf8(line).ok().and_then(|text| text.parse().ok());
        number.ok_or_else(|| {
            let shown: String = String::from_utf8_lossy(line).escape_debug().take(40).collect();
            self.problem(format!("'{shown}' is not {wanted}"))
        })
    }
}

/// The bytes that the inside of a Python 2 string literal stands for.
fn unescape_bytes(body: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(body.len());
    let mut rest = body;
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let [escape, after @ ..] = rest else {
            return None;
        };
        rest = after;
        bytes.push(match escape {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'\\' | b'\'' | b'"' => *escape,
            b'x' => {
                let code = hex(rest.get(..2)?)?;
                rest = &rest[2..];
                u8::try_from(code).ok()?
            }
            _ => return None,
        });
    }
    Some(bytes)
}

/// The UTF-8 of a line in Python's raw-unicode-escape.
fn unescape_text(body: &[u8]) -> Option<Vec<u8>> {
    let mut text = String::with_capacity(body.len());
    let mut rest = body;
    while let [first, after @ ..] = rest {
        let digits = match rest {
            [b'\\', b'u', ..] => 4,
            [b'\\', b'U', ..] => 8,
            _ => 0,
        };
        if digits == 0 {
            text.push(char::from(*first));
            rest = after;
        } else {
            text.push(char::from_u32(hex(rest.get(2..2 + digits)?)?)?);
            rest = &rest[2 + digits..];
        }
    }
    Some(text.into_bytes())
}

fn hex(digits: &[u8]) -> Option<u32> {
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}
