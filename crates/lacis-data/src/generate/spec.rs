//! [`Spec`]: which generator, and with what values: `name:key=value,key=value`.

use std::fmt;

use lacis_core::{Error, Result};

use super::near::did_you_mean;
use super::{GENERATORS, Generator, find};

/// What a parameter may be.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A whole number within these bounds.
    Count(u64, u64),
    /// A number within these bounds.
    Number(f64, f64),
}

/// The value of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Count(u64),
    /// Any number.
    Number(f64),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Count(count) => write!(f, "{count}"),
            Value::Number(number) => write!(f, "{number}"),
        }
    }
}

/// A parameter of a generator.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// What people write before the equals sign.
    pub name: &'static str,
    /// Its value when they do not.
    pub default: Value,
    /// What it may be.
    pub kind: Kind,
    /// What it means, in one line.
    pub about: &'static str,
}

/// A whole-number parameter.
pub(super) const fn count(
    name: &'static str,
    default: u64,
    (least, most): (u64, u64),
    about: &'static str,
) -> Param {
    Param { name, default: Value::Count(default), kind: Kind::Count(least, most), about }
}

/// A parameter that is any number.
pub(super) const fn number(
    name: &'static str,
    default: f64,
    (least, most): (f64, f64),
    about: &'static str,
) -> Param {
    Param { name, default: Value::Number(default), kind: Kind::Number(least, most), about }
}

impl Param {
    /// The value that `text` stands for.
    fn read(&self, text: &str) -> std::result::Result<Value, String> {
        match self.kind {
            Kind::Count(least, most) => match read_count(text) {
                Some(count) if (least..=most).contains(&count) => Ok(Value::Count(count)),
                Some(count) => Err(format!("{count} is outside {least}..={most}")),
                None => Err("a whole number such as 500, 500k, 1.2M or 1e6 would be right".into()),
            },
            Kind::Number(least, most) => match read_number(text) {
                Some(number) if (least..=most).contains(&number) => Ok(Value::Number(number)),
                Some(number) => Err(format!("{number} is outside {least}..={most}")),
                None => Err("a number would be right".into()),
            },
        }
    }
}

/// A decimal number, perhaps with a suffix for thousands, millions or billions. A suffix becomes
/// a decimal exponent, so that 1.1M is 1,100,000 and not what 1.1 times a million rounds to.
fn read_number(text: &str) -> Option<f64> {
    let exponent = match text.chars().last()? {
        'k' | 'K' => "e3",
        'm' | 'M' => "e6",
        'g' | 'G' | 'b' | 'B' => "e9",
        _ => "",
    };
    let digits = if exponent.is_empty() { text } else { &text[..text.len() - 1] };
    let plain = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | 'e' | 'E');
    if !digits.chars().all(plain) {
        return None;
    }
    let number: f64 = format!("{digits}{exponent}").parse().ok()?;
    number.is_finite().then_some(number)
}

/// A whole number: all 64 bits where it is written in full, 53 where it is not.
fn read_count(text: &str) -> Option<u64> {
    const EXACT: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;
    text.parse().ok().or_else(|| {
        let number = read_number(text)?;
        let whole = number.fract() == 0.0 && (0.0..=EXACT).contains(&number);
        whole.then_some(number as u64)
    })
}

/// A generator and a value for each of its parameters; [`Spec`]'s `Display` writes all of them.
#[derive(Clone, Debug)]
pub struct Spec {
    generator: &'static Generator,
    values: Vec<Value>,
}

/// Reads `name`, `name:` or `name:key=value,…`; what is not given has its default.
///
/// ```
/// let spec = lacis_data::generate::parse("grid:rows=1k")?;
/// assert_eq!(spec.to_string(), "grid:rows=1000,cols=100,seed=0,features=0,classes=0");
/// # Ok::<(), lacis_core::Error>(())
/// ```
/// # Errors
/// When the generator or a key is not known, or a value is not possible.
pub fn parse(spec: &str) -> Result<Spec> {
    let (name, pairs) = spec.split_once(':').unwrap_or((spec, ""));
    let name = name.trim();
    let Some(generator) = find(name) else {
        let names: Vec<_> = GENERATORS.iter().map(|generator| generator.name).collect();
        let problem = format!("no such generator; {}", did_you_mean(name, &names));
        return Err(Error::argument(format!("'{name}'"), problem));
    };
    let mut given = vec![None; generator.params.len()];
    if !pairs.trim().is_empty() {
        for pair in pairs.split(',') {
            let (at, value) = read_pair(generator, pair)?;
            if given[at].replace(value).is_some() {
                let key = generator.params[at].name;
                return Err(Error::argument(format!("{name}: '{key}'"), "is given twice"));
            }
        }
    }
    let defaults = generator.params.iter().map(|param| param.default);
    let values = given.iter().zip(defaults).map(|(given, default)| given.unwrap_or(default));
    let spec = Spec { generator, values: values.collect() };
    (generator.check)(&spec).map_err(|problem| Error::argument(spec.to_string(), problem))?;
    Ok(spec)
}

/// Which parameter `key=value` sets, and to what.
fn read_pair(generator: &Generator, pair: &str) -> Result<(usize, Value)> {
    let names: Vec<_> = generator.params.iter().map(|param| param.name).collect();
    let Some((key, text)) = pair.split_once('=') else {
        let problem = format!("is not key=value; known keys: {}", names.join(", "));
        return Err(Error::argument(format!("{}: '{}'", generator.name, pair.trim()), problem));
    };
    let (key, text) = (key.trim(), text.trim());
    let Some(at) = names.iter().position(|name| *name == key) else {
        let problem = format!("no such key; {}", did_you_mean(key, &names));
        return Err(Error::argument(format!("{}: '{key}'", generator.name), problem));
    };
    let value = generator.params[at].read(text);
    let what = || format!("{}: {key}={text}", generator.name);
    Ok((at, value.map_err(|problem| Error::argument(what(), problem))?))
}

impl Spec {
    /// Which generator.
    pub fn generator(&self) -> &'static Generator {
        self.generator
    }

    /// The value of a parameter, if the generator has it.
    pub fn value(&self, name: &str) -> Option<Value> {
        let at = self.generator.params.iter().position(|param| param.name == name)?;
        Some(self.values[at])
    }

    /// A whole-number parameter; 0 where the generator has no such parameter.
    pub(super) fn long(&self, name: &str) -> u64 {
        match self.value(name) {
            Some(Value::Count(count)) => count,
            Some(Value::Number(_)) => panic!("{name} is no whole number"),
            None => 0,
        }
    }

    /// As [`Spec::long`], as a size.
    pub(super) fn count(&self, name: &str) -> usize {
        self.long(name) as usize
    }

    /// A parameter that is any number.
    pub(super) fn number(&self, name: &str) -> f64 {
        match self.value(name) {
            Some(Value::Number(number)) => number,
            other => panic!("{name} is {other:?}"),
        }
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.generator.name)?;
        for (i, (param, value)) in self.generator.params.iter().zip(&self.values).enumerate() {
            write!(f, "{}{}={value}", if i == 0 { ":" } else { "," }, param.name)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn problem(spec: &str) -> String {
        parse(spec).unwrap_err().to_string()
    }

    #[test]
    fn numbers_may_be_short() {
        for (text, count) in [
            ("30M", 30_000_000),
            ("1.2M", 1_200_000),
            ("1.1m", 1_100_000),
            ("500k", 500_000),
            ("1e6", 1_000_000),
            ("2.5e3", 2500),
            ("2G", 2_000_000_000),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(read_count(text), Some(count), "{text}");
        }
        for text in ["", "k", "1.5", "-1", "1e99", "inf", "NaN", "1e6k", "12x", "1 000", "é"] {
            assert_eq!(read_count(text), None, "{text}");
        }
        assert_eq!(read_number("0.57"), Some(0.57));
    }

    #[test]
    fn a_spec_is_written_out_in_full_and_read_again() {
        for spec in ["rmat", "rmat:", "rmat:n=10k, e=50k", "sbm:homophily=0.7,seed=9", "grid"] {
            let spec = parse(spec).unwrap();
            let text = spec.to_string();
            assert_eq!(parse(&text).unwrap().to_string(), text);
            assert_eq!(text.matches('=').count(), spec.generator().params.len());
        }
    }

    #[test]
    fn problems_name_what_is_known_and_what_was_meant() {
        assert!(problem("rmta:n=5").contains("did you mean 'rmat'? known: rmat, sbm, er"));
        assert!(problem("sbm:homophyly=1").contains("did you mean 'homophily'?"));
        assert!(problem("er:q=5").contains("known: n, e, seed"));
        assert!(problem("er:n").contains("'n': is not key=value"));
        assert!(problem("er:n=5,,e=3").contains("is not key=value"));
        assert!(problem("er:n=5,n=6").contains("is given twice"));
        assert!(problem("er:n=five").contains("500k"));
        assert!(problem("er:n=5G").contains("outside 0..=4294967295"));
        assert!(problem("sbm:homophily=1.5").contains("outside 0..=1"));
        assert!(problem("rmat:a=0.9").contains("a + b + c"));
        assert!(problem("er:n=4,e=7").contains("at most 6"));
        assert!(problem("ba:n=5,m=5").contains("fewer than m=5"));
        assert!(problem("grid:rows=1M,cols=1M").contains("more than 4294967295"));
        assert!(problem("motifs:classes=9").contains("outside 1..=6"));
        assert!(problem("rmat:n=1G,features=1000").contains("more than"));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,40}") {
            let _ = parse(&text);
        }

        #[test]
        fn no_value_makes_the_parser_panic(
            at in 0..GENERATORS.len(),
            key in 0_usize..12,
            value in "[0-9.eEkMG+-]{0,24}|[^,]{0,8}",
        ) {
            let generator = &GENERATORS[at];
            let key = generator.params[key % generator.params.len()].name;
            if let Ok(spec) = parse(&format!("{}:{key}={value}", generator.name)) {
                prop_assert!(parse(&spec.to_string()).is_ok());
            }
        }
    }
}
