//! [`Machine`]: what a profile is valid for.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::isa::Isa;

/// A CPU, as far as the speed of kernels depends on it. Two that are equal share a profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// What it is sold as.
    pub name: String,
    /// `AuthenticAMD`.
    pub vendor: String,
    /// The maker's number of its kind.
    pub family: u32,
    /// Of its model.
    pub model: u32,
    /// Of its revision.
    pub stepping: u32,
    /// Data and unified caches, the nearest first.
    pub caches: Vec<Cache>,
    /// What kernels are compiled for and it has, the widest first.
    pub instruction_sets: Vec<String>,
}

/// One cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// How far from the core, from 1.
    pub level: u32,
    /// How much it holds.
    pub bytes: usize,
}

impl Machine {
    /// The instruction sets of this CPU that kernels are compiled for.
    pub fn instruction_sets() -> Vec<String> {
        Isa::available().into_iter().map(|isa| isa.name().to_owned()).collect()
    }

    /// What a core keeps for itself: its level-2 cache, or 1 MiB where none is known.
    pub fn near_bytes(&self) -> usize {
        self.caches.iter().find(|cache| cache.level == 2).map_or(1 << 20, |cache| cache.bytes)
    }

    /// What the farthest cache holds, or 8 MiB where none is known.
    pub fn last_bytes(&self) -> usize {
        let last = self.caches.iter().filter(|cache| cache.level >= 2).map(|cache| cache.bytes);
        last.max().unwrap_or(8 << 20)
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { name, vendor, family, model, stepping, .. } = self;
        write!(f, "{name} ({vendor} {family}-{model}-{stepping}")?;
        for cache in &self.caches {
            write!(f, ", L{} {} KiB", cache.level, cache.bytes / 1024)?;
        }
        write!(f, ", {})", self.instruction_sets.join(" "))
    }
}
