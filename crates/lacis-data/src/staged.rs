//! [`Staged`]: a file or folder that appears whole or not at all.
//!
//! It is written under a hidden name beside its place, brought to disk, and renamed. Whoever is
//! interrupted before the rename leaves the old one as it was.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use lacis_core::{Error, Result};
use rustix::fs::{CWD, RenameFlags, renameat_with};

/// What to do when the place is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// An error; nothing is touched.
    Keep,
    /// The new one takes its place, in one step where the file system can do that.
    Replace,
}

/// Something under construction. Dropped without [`Staged::commit`], it is removed.
pub struct Staged {
    temporary: PathBuf,
    target: PathBuf,
    existing: Existing,
}

impl Staged {
    /// Prepares to write `target`, in the folder where it will be.
    ///
    /// # Errors
    /// When the place is taken and must be kept, or its folder is not there.
    pub fn new(target: &Path, existing: Existing) -> Result<Self> {
        let Some(name) = target.file_name() else {
            return Err(Error::argument(target.display().to_string(), "names no file or folder"));
        };
        if existing == Existing::Keep && fs::symlink_metadata(target).is_ok() {
            return Err(taken(target));
        }
        let parent = parent_of(target);
        if !parent.is_dir() {
            let problem = "there is no such folder; make it first, or name another";
            return Err(Error::file(parent, problem));
        }
        let hidden = format!(".{}.{:016x}.partial", name.to_string_lossy(), unique());
        let temporary = parent.join(hidden);
        Ok(Staged { temporary, target: target.to_owned(), existing })
    }

    /// Where to write it for the time being.
    pub fn path(&self) -> &Path {
        &self.temporary
    }

    /// Brings it to disk and puts it in its place.
    ///
    /// # Errors
    /// When the disk is full or the rename is refused; the old one is then still there.
    pub fn commit(self) -> Result<()> {
        sync(&self.temporary)?;
        match self.existing {
            Existing::Keep => self.rename_to_free_place()?,
            Existing::Replace => self.replace()?,
        }
        sync_one(parent_of(&self.target))
    }

    fn rename_to_free_place(&self) -> Result<()> {
        match renameat_with(CWD, &self.temporary, CWD, &self.target, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::EXIST) => Err(taken(&self.target)),
            // File systems without the flag: the check in `new` must do.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => self.rename(),
            Err(errno) => Err(Error::io("rename to", &self.target, errno.into())),
        }
    }

    fn rename(&self) -> Result<()> {
        fs::rename(&self.temporary, &self.target)
            .map_err(|source| Error::io("rename to", &self.target, source))
    }

    /// Files replace each other by renaming; folders swap places, and the old one is removed.
    fn replace(&self) -> Result<()> {
        if let Ok(old) = fs::metadata(&self.target) {
            // Who may read the old one may read the new one, and nobody else.
            let kept = fs::set_permissions(&self.temporary, old.permissions());
            kept.map_err(|source| Error::io("set the permissions of", &self.target, source))?;
        }
        if !self.target.is_dir() || self.target.is_symlink() {
            return self.rename();
        }
        match renameat_with(CWD, &self.temporary, CWD, &self.target, RenameFlags::EXCHANGE) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
                let aside = self.temporary.with_extension("replaced");
                fs::rename(&self.target, &aside)
                    .map_err(|source| Error::io("move aside", &self.target, source))?;
                self.rename().inspect_err(|_| {
                    // The old one goes back to its place.
                    let _ = fs::rename(&aside, &self.target);
                })?;
                remove(&aside);
                Ok(())
            }
            Err(errno) => Err(Error::io("replace", &self.target, errno.into())),
        }
        // Dropping `self` removes what now has the temporary name: the old folder.
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        remove(&self.temporary);
    }
}

/// A number that no other writer has, in this process or another: two must not share a name.
pub(crate) fn unique() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

fn taken(target: &Path) -> Error {
    Error::file(target, "exists already; --overwrite replaces it")
}

fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Removes a file or folder if it is there; what cannot be removed is left, hidden.
fn remove(path: &Path) {
    let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
}

/// Brings a file, or a folder and all that is in it, to disk.
pub(crate) fn sync(path: &Path) -> Result<()> {
    if path.is_dir() {
        let entries = fs::read_dir(path).map_err(|source| Error::io("read", path, source))?;
        for entry in entries {
            sync(&entry.map_err(|source| Error::io("read", path, source))?.path())?;
        }
    }
    sync_one(path)
}

fn sync_one(path: &Path) -> Result<()> {
    let synced = File::open(path).and_then(|file| file.sync_all());
    synced.map_err(|source| Error::io("bring to disk", path, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(folder: &Path) -> Vec<String> {
        let name = |e: std::io::Result<fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
        let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(name).collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_dropped_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let staged = Staged::new(&dir.path().join("a"), Existing::Keep).unwrap();
        fs::write(staged.path(), "half").unwrap();
        drop(staged);
        assert!(entries(dir.path()).is_empty());
    }

    #[test]
    fn nothing_is_replaced_unless_asked() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("a");
        let staged = Staged::new(&target, Existing::Keep).unwrap();
        fs::write(staged.path(), "new").unwrap();
        // Somebody else is faster.
        fs::write(&target, "old").unwrap();
        assert!(staged.commit().unwrap_err().to_string().contains("--overwrite"));
        assert_eq!(fs::read_to_string(&target).unwrap(), "old");
        assert!(Staged::new(&target, Existing::Keep).is_err());
        assert_eq!(entries(dir.path()), ["a"]);
    }

    #[test]
    fn two_writers_do_not_meet() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("a");
        let [one, two] = [0, 1].map(|_| Staged::new(&target, Existing::Replace).unwrap());
        fs::write(one.path(), "one").unwrap();
        fs::write(two.path(), "half of tw").unwrap();
        drop(Staged::new(&target, Existing::Replace).unwrap());
        one.commit().unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "one");
        drop(two);
        assert_eq!(entries(dir.path()), ["a"]);
    }

    #[test]
    fn files_and_folders_are_replaced_whole() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("a");
        for content in ["old", "new"] {
            let staged = Staged::new(&target, Existing::Replace).unwrap();
            fs::create_dir(staged.path()).unwrap();
            fs::write(staged.path().join(content), content).unwrap();
            staged.commit().unwrap();
            assert_eq!(entries(&target), [content]);
        }
        assert_eq!(entries(dir.path()), ["a"]);
        let file = dir.path().join("b");
        for content in ["old", "new"] {
            let staged = Staged::new(&file, Existing::Replace).unwrap();
            fs::write(staged.path(), content).unwrap();
            staged.commit().unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), content);
        }
    }

    #[test]
    fn a_place_in_no_folder_is_refused() {
        let error = Staged::new(Path::new("/no/such/folder/a"), Existing::Keep).err().unwrap();
        assert!(error.to_string().contains("no such folder"), "{error}");
    }
}
