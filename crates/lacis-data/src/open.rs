//! From what a user calls a data set to the data set: a path, a generator, a name.

use std::path::Path;

use lacis_core::{Dataset, Error, Features, Labels, Place, Result};

use crate::{Job, format, generate, sets};

/// What to open.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// A path, a generator with its numbers, or a name; an existing path wins.
    pub data: &'a str,
    /// The format to read a path as; absent: the one it looks like.
    pub format: Option<&'a str>,
    /// Where sets that are not built in are kept.
    pub folder: Option<&'a Path>,
}

/// Opens a path, a generator or a built-in set.
///
/// # Errors
/// When there is no such thing, or it is damaged.
pub fn open(data: &str, job: &Job<'_>) -> Result<Dataset> {
    open_with(&Query { data, format: None, folder: None }, job)
}

/// As [`open`], with a say in the format and the place of sets.
///
/// # Errors
/// When there is no such thing, or it is damaged.
pub fn open_with(query: &Query<'_>, job: &Job<'_>) -> Result<Dataset> {
    let (data, path) = (query.data, Path::new(query.data));
    if path.exists() || query.format.is_some() {
        return format::read(path, query.format, job);
    }
    if generate::is_spec(data) {
        return generate::generate(&generate::parse(data)?, job);
    }
    if let Some(set) = sets::builtin(data) {
        return (set.make)(job);
    }
    let kept = query.folder.map(|folder| folder.join(data));
    if let (Some(_), Some(kept)) = (sets::known(data), kept.filter(|kept| kept.exists())) {
        return Ok(format::read(&kept, None, job)?.with_name(data));
    }
    Err(nothing_like(data))
}

/// Why nothing was found, and what may have been meant.
fn nothing_like(data: &str) -> Error {
    if let Some(known) = sets::known(data) {
        return known.not_here();
    }
    let looks_like_path = data.contains(['/', '\\', '.']);
    let names = sets::SETS.iter().map(|set| set.name).chain(generate::GENERATORS.iter().map(|g| g.name));
    match crate::near_miss(data, names) {
        Some(name) => Error::argument(format!("'{data}'"), format!("is not there; '{name}' is")),
        None if looks_like_path => {
            let source = std::io::Error::from(std::io::ErrorKind::NotFound);
            Error::io("open", data, source)
        }
        None => {
            let problem = "is no file, generator or data set here; `lacis data list` shows what is";
            Error::argument(format!("'{data}'"), problem)
        }
    }
}

/// That no weight, feature or target is infinite or not a number.
///
/// # Errors
/// The first that is, with its place.
pub fn check_finite(set: &Dataset) -> Result<()> {
    let bad = |what: &str, values: &[f32]| match values.iter().position(|v| !v.is_finite()) {
        None => Ok(()),
        Some(at) => {
            let problem = format!("{} at position {at}; finite numbers would be right", values[at]);
            Err(Error::file_at(set.name(), Place::Part(what.to_owned()), problem))
        }
    };
    bad("edge weights", set.graph().adjacency().values().unwrap_or_default())?;
    match set.features() {
        Some(Features::Dense(x)) => x.rows().try_for_each(|row| bad("features", row))?,
        Some(Features::Sparse(x)) => bad("features", x.values().unwrap_or_default())?,
        None => {}
    }
    match set.labels() {
        Some(Labels::Targets(y)) => y.rows().try_for_each(|row| bad("targets", row)),
        _ => Ok(()),
    }
}
