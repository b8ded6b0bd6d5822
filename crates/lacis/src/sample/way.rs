//! [`Sampling`]: how users say which batches they want.

use std::fmt;
use std::str::FromStr;

use lacis_core::{Error, Result};

use super::neighbor::Fanout;

/// A way to make batches, as `--sample` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// `neighbor:15,10`: neighbourhoods, with a fan-out per layer.
    Neighbor(Vec<Fanout>),
    /// `saint:2`: random walks of so many steps.
    Saint(usize),
}

/// Steps of a walk at most: it has long forgotten where it began.
const MOST_STEPS: usize = 1024;

impl FromStr for Sampling {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.split_once(':') {
            Some(("neighbor", fanouts)) => Ok(Sampling::Neighbor(Fanout::parse_list(fanouts)?)),
            Some(("saint", steps)) => match steps.parse() {
                Ok(steps) if (1..=MOST_STEPS).contains(&steps) => Ok(Sampling::Saint(steps)),
                _ => {
                    let problem = format!("is no walk: saint:2 is one, of 1 to {MOST_STEPS} steps");
                    Err(Error::argument(format!("'{text}'"), problem))
                }
            },
            _ => {
                let problem = "is no way to sample; neighbor:15,10 and saint:2 are";
                Err(Error::argument(format!("'{text}'"), problem))
            }
        }
    }
}

impl fmt::Display for Sampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sampling::Neighbor(fanouts) => {
                let list: Vec<String> = fanouts.iter().map(Fanout::to_string).collect();
                write!(f, "neighbor:{}", list.join(","))
            }
            Sampling::Saint(steps) => write!(f, "saint:{steps}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        for text in ["neighbor:15,10,5", "neighbor:-1", "saint:2"] {
            assert_eq!(text.parse::<Sampling>().unwrap().to_string(), text);
        }
        let spaced: Sampling = "neighbor: 15, -1".parse().unwrap();
        assert_eq!(spaced, Sampling::Neighbor(vec![Fanout::Most(15), Fanout::All]));
        for text in ["", "neighbor", "neighbor:", "neighbor:0", "saint:0", "saint:-1", "walk:3"] {
            assert!(text.parse::<Sampling>().is_err(), "{text}");
        }
        let endless = "saint:99999999".parse::<Sampling>().unwrap_err().to_string();
        assert!(endless.contains("1 to 1024 steps"), "{endless}");
    }
}
