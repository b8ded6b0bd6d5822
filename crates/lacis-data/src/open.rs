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
    if format::exists(path) || query.format.is_some() {
        return format::read(path, query.format, job);
    }
    if generate::is_spec(data) {
        return generate::generate(&generate::parse(data)?, job);
    }
    let kept = query.folder.map(|folder| folder.join(data)).filter(|kept| kept.exists());
    if let (Some(_), Some(kept)) = (sets::find_public(data), kept) {
        return Ok(format::read(&kept, None, job)?.with_name(data));
    }
    if sets::find(data).is_none() && data.contains(['/', '.']) {
        // Nobody calls a data set that; a path was meant.
        return Err(Error::io("open", data, std::io::ErrorKind::NotFound.into()));
    }
    sets::load(data, job)
}

/// That no weight, feature or target is infinite or not a number; targets may be unknown.
///
/// # Errors
/// The first that is, with its place.
pub fn check_finite(set: &Dataset) -> Result<()> {
    let odd = |what: &str, values: &[f32], odd: fn(f32) -> bool| {
        let Some(at) = values.iter().position(|&value| odd(value)) else { return Ok(()) };
        let problem = format!("{} at position {at}; finite numbers would be right", values[at]);
        Err(Error::file_at(set.name(), Place::Part(what.to_owned()), problem))
    };
    let bad = |what: &str, values: &[f32]| odd(what, values, |value| !value.is_finite());
    bad("edge weights", set.graph().adjacency().values().unwrap_or_default())?;
    match set.features() {
        Some(Features::Dense(x)) => x.rows().try_for_each(|row| bad("features", row))?,
        Some(Features::Sparse(x)) => bad("features", x.values().unwrap_or_default())?,
        None => {}
    }
    match set.labels() {
        Some(Labels::Targets(y)) => {
            y.rows().try_for_each(|row| odd("targets", row, f32::is_infinite))
        }
        _ => Ok(()),
    }
}
