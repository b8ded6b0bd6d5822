//! Keeping a [`Profile`] in a file: read with suspicion, written whole or not at all.

use std::fs;
use std::path::Path;

use lacis_core::{Error, Result};
use lacis_data::staged::{Existing, Staged};
use lacis_kernels::profile::{Machine, Profile};

/// No profile is as large; what is was not written by us.
const MOST_BYTES: u64 = 64 << 20;

/// What was at a place.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// A profile that may be used.
    Profile(Box<Profile>),
    /// Nothing.
    Absent,
    /// A file that must not be used, and why.
    Unusable(String),
}

impl Found {
    /// The profile, or one of a machine that nobody measured.
    pub fn or_unmeasured(self, machine: &Machine) -> Profile {
        match self {
            Found::Profile(profile) => *profile,
            _ => Profile::unmeasured(machine.clone()),
        }
    }
}

/// Looks for a profile of this machine and these kernels.
pub fn load(path: &Path, machine: &Machine) -> Found {
    match fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Found::Absent,
        Ok(meta) if meta.is_file() && meta.len() <= MOST_BYTES => {}
        Ok(_) => return Found::Unusable(format!("{} is no machine profile", path.display())),
        Err(error) => return Found::Unusable(Error::io("read", path, error).to_string()),
    }
    let read = fs::read_to_string(path).map_err(|error| Error::io("read", path, error));
    let parsed = read.and_then(|text| {
        let bad = |error: serde_json::Error| Error::file(path, format!("is broken: {error}"));
        serde_json::from_str::<Profile>(&text).map_err(bad)
    });
    let checked = parsed.and_then(|profile| match profile.check(machine) {
        Ok(()) => Ok(profile),
        Err(Error::Argument { problem, .. }) => Err(Error::file(path, problem)),
        Err(other) => Err(other),
    });
    match checked {
        Ok(profile) => Found::Profile(Box::new(profile)),
        Err(error) => Found::Unusable(error.to_string()),
    }
}

/// Writes a profile, adding to one of the same machine and kernels that is there already.
///
/// # Errors
/// When the folder cannot be made or the file not be written.
pub fn save(path: &Path, profile: &Profile) -> Result<()> {
    let mut all = load(path, &profile.machine).or_unmeasured(&profile.machine);
    profile.sections.iter().cloned().for_each(|section| all.add(section));
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(|error| Error::io("make", folder, error))?;
    }
    let staged = Staged::new(path, Existing::Replace)?;
    let text = serde_json::to_string_pretty(&all)
        .map_err(|error| Error::file(path, format!("cannot be written: {error}")))?;
    fs::write(staged.path(), text + "\n").map_err(|e| Error::io("write", staged.path(), e))?;
    staged.commit()
}
