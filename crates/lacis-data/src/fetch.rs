//! Downloads of public sets: resumed where they broke off, checked, and there whole or not at all.
//!
//! ```text
//!  LACIS_DATA/.NAME.partial/FILE     while it comes; a later fetch goes on from its end
//!  LACIS_DATA/.NAME.whole/FILE       when all came and their checksums match; archives unpacked
//!  LACIS_DATA/NAME/FILE              when all of that is on disk
//! ```
//! One fetch of a set at a time: others are told so. Whoever is killed leaves what came, and no
//! set, or all of it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lacis_core::{Error, Result};
use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};

use crate::sets::{Public, Remote};
use crate::{Job, archive, staged};

/// How to download.
#[derive(Clone, Debug)]
pub struct Options {
    /// Take every file from here, by its name, instead of from its source.
    pub mirror: Option<String>,
    /// How long a server may say nothing.
    pub patience: Duration,
    /// How often a broken download is taken up again before it is given up.
    pub tries: u32,
}

impl Default for Options {
    fn default() -> Self {
        Options { mirror: None, patience: Duration::from_secs(20), tries: 4 }
    }
}

/// Downloads a set into its folder within `folder`, which is returned.
///
/// # Errors
/// When there is no network, a server fails, a checksum does not match, or the disk is full.
pub fn fetch(set: &Public, folder: &Path, options: &Options, job: &Job<'_>) -> Result<PathBuf> {
    let target = folder.join(set.name);
    let [partial, whole] =
        ["partial", "whole"].map(|state| folder.join(format!(".{}.{state}", set.name)));
    if target.exists() {
        // What a fetch left that was killed at its very end.
        let _ = fs::remove_dir_all(&partial);
        return Ok(target);
    }
    if set.files.is_empty() {
        let problem =
            format!("cannot be fetched: {}; the path of its files would be right", set.source);
        return Err(Error::argument(format!("'{}'", set.name), problem));
    }
    let made = |path: &Path| fs::create_dir_all(path).map_err(|e| Error::io("make", path, e));
    made(folder)?;
    made(&partial)?;
    let _lock = lock(folder, set.name)?;
    let agent = agent(options);
    let total = set.files.iter().map(|file| file.bytes).sum::<u64>();
    let mut before = 0;
    for file in &set.files {
        let url = match &options.mirror {
            Some(mirror) => format!("{}/{}", mirror.trim_end_matches('/'), file.name),
            None => file.url.clone(),
        };
        let mut download = Download { agent: &agent, url, file, folder: &partial, job };
        let size = download.complete(options.tries, (before, total))?;
        before += size;
    }
    // Another that was killed while it unpacked is no beginning.
    let _ = fs::remove_dir_all(&whole);
    made(&whole)?;
    for file in &set.files {
        unpack(&partial.join(file.name), &whole, job)?;
    }
    staged::sync(&whole)?;
    fs::rename(&whole, &target).map_err(|e| Error::io("rename to", &target, e))?;
    let _ = fs::remove_dir_all(&partial);
    Ok(target)
}

fn agent(options: &Options) -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .timeout_connect(Some(options.patience))
        .timeout_recv_response(Some(options.patience))
        .timeout_per_read(Some(options.patience))
        .max_redirects(5)
        .http_status_as_error(false)
        .user_agent(concat!("lacis/", env!("CARGO_PKG_VERSION")))
        .build();
    config.into()
}

/// How often a lock is tried, and how long after one another. A process that starts another hands
/// its locks on until that one is its own program: what was given back may be held a moment longer.
const TRIES: (u32, Duration) = (25, Duration::from_millis(20));

/// Holds the set's lock as long as the file is open.
fn lock(folder: &Path, name: &str) -> Result<File> {
    let path = folder.join(format!(".{name}.lock"));
    let file = File::create(&path).map_err(|e| Error::io("lock", &path, e))?;
    for _ in 0..TRIES.0 {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(TRIES.1),
            Err(errno) => return Err(Error::io("lock", &path, errno.into())),
        }
    }
    Err(Error::file(folder.join(name), "is being fetched by another process"))
}

/// Unpacks an archive that is no archive of arrays into a folder; anything else is there too.
fn unpack(path: &Path, folder: &Path, job: &Job<'_>) -> Result<()> {
    let head = crate::input::head(path, 512)?;
    let is_npz = path.extension().is_some_and(|ending| ending == "npz");
    if is_npz || !(archive::is_tar(&head) || head.starts_with(b"PK\x03\x04")) {
        let place = folder.join(path.file_name().unwrap_or_default());
        // A second name for the same file costs nothing, where the file system has such a thing.
        let linked = fs::hard_link(path, &place);
        let there = linked.or_else(|_| fs::copy(path, &place).map(drop));
        return there.map_err(|e| Error::io("write", &place, e));
    }
    archive::unpack_into(path, folder, job)
}

struct Download<'a> {
    agent: &'a ureq::Agent,
    url: String,
    file: &'a Remote,
    folder: &'a Path,
    job: &'a Job<'a>,
}

/// What became of one request.
enum Outcome {
    /// All bytes came.
    Whole,
    /// Some came, or none; asking again may help.
    Broken(Error),
}

impl Download<'_> {
    fn path(&self) -> PathBuf {
        self.folder.join(self.file.name)
    }

    fn part(&self) -> PathBuf {
        self.folder.join(format!("{}.part", self.file.name))
    }

    /// Asks until the file is whole, as often as told; gives its size.
    fn complete(&mut self, tries: u32, progress: (u64, u64)) -> Result<u64> {
        let size = |path: &Path| fs::metadata(path).map_or(0, |meta| meta.len());
        if self.path().exists() {
            return Ok(size(&self.path()));
        }
        let mut left = tries.max(1);
        while left > 0 {
            let before = size(&self.part());
            match self.request(before, progress)? {
                Outcome::Whole => {
                    self.check()?;
                    return Ok(size(&self.path()));
                }
                Outcome::Broken(error) => {
                    // Whoever moves on, however little, is not given up.
                    left = if size(&self.part()) > before { tries } else { left - 1 };
                    if left == 0 {
                        return Err(error);
                    }
                }
            }
        }
        Err(self.problem("nothing came".to_owned()))
    }

    fn problem(&self, problem: String) -> Error {
        Error::io("fetch", &self.url, io::Error::other(problem))
    }

    fn request(&self, have: u64, progress: (u64, u64)) -> Result<Outcome> {
        let mut request = self.agent.get(&self.url);
        if have > 0 {
            request = request.header("Range", format!("bytes={have}-"));
        }
        let mut response = match request.call() {
            Ok(response) => response,
            Err(error) => return Ok(Outcome::Broken(self.refusal(&error))),
        };
        let header = |name: &str| Some(response.headers().get(name)?.to_str().ok()?.to_owned());
        let length: Option<u64> = header("content-length").and_then(|text| text.parse().ok());
        let from = match response.status().as_u16() {
            200 => 0,
            206 if starts_at(header("content-range").as_deref(), have) => have,
            // What we have is all there is, or the file is another now: begin again.
            206 | 416 => {
                let _ = fs::remove_file(self.part());
                return Ok(Outcome::Broken(self.problem("the server cannot resume".to_owned())));
            }
            status @ (429 | 500..=599) => {
                return Ok(Outcome::Broken(self.problem(format!("the server answers {status}"))));
            }
            status => return Err(self.problem(format!("the server answers {status}"))),
        };
        let expected = length.map(|length| from.saturating_add(length));
        if self.file.sha256.is_some() && expected.is_some_and(|size| size != self.file.bytes) {
            let problem = format!(
                "{} bytes are offered; {} are known",
                expected.unwrap_or(0),
                self.file.bytes
            );
            return Err(self.problem(problem));
        }
        let mut body = response.body_mut().as_reader();
        self.receive(&mut body, from, expected, progress)
    }

    fn refusal(&self, error: &ureq::Error) -> Error {
        let problem = match error {
            ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => {
                format!("no network, or the server is not there ({error})")
            }
            ureq::Error::Timeout(_) => "the server says nothing".to_owned(),
            ureq::Error::Io(e) => format!("no network, or the server broke off ({e})"),
            other => other.to_string(),
        };
        self.problem(problem)
    }

    fn receive(
        &self,
        body: &mut dyn Read,
        from: u64,
        expected: Option<u64>,
        (before, total): (u64, u64),
    ) -> Result<Outcome> {
        let part = self.part();
        let refused = |e| Error::io("write", &part, e);
        let mut options = OpenOptions::new();
        options.create(true).append(from > 0).write(true).truncate(from == 0);
        let mut out = options.open(&part).map_err(refused)?;
        let (mut buffer, mut done) = (vec![0; 1 << 16], from);
        let most = if self.file.sha256.is_some() { self.file.bytes } else { u64::MAX };
        loop {
            match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(got) => {
                    out.write_all(&buffer[..got]).map_err(refused)?;
                    done += got as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    let problem =
                        format!("it broke off after {done} bytes ({e}); fetch again to resume");
                    return Ok(Outcome::Broken(self.problem(problem)));
                }
            }
            if done > most {
                let _ = fs::remove_file(&part);
                return Err(self.problem(format!("more than the {most} bytes that are known came")));
            }
            self.job.tick(before + done, Some(total.max(before + expected.unwrap_or(done))))?;
        }
        let wanted = expected.unwrap_or(if self.file.sha256.is_some() { most } else { done });
        if done < wanted {
            let problem = format!("it ended after {done} of {wanted} bytes; fetch again to resume");
            return Ok(Outcome::Broken(self.problem(problem)));
        }
        out.sync_all().map_err(refused)?;
        Ok(Outcome::Whole)
    }

    /// Checks what came and gives it its name.
    fn check(&self) -> Result<()> {
        let part = self.part();
        if let Some(right) = self.file.sha256 {
            let mut file = File::open(&part).map_err(|e| Error::io("read", &part, e))?;
            let mut hasher = Sha256::new();
            let mut buffer = vec![0; 1 << 18];
            loop {
                let got = file.read(&mut buffer).map_err(|e| Error::io("read", &part, e))?;
                if got == 0 {
                    break;
                }
                hasher.update(&buffer[..got]);
            }
            let found: String = hasher.finalize().iter().map(|b| format!("{b:02x}")).collect();
            if found != right {
                let _ = fs::remove_file(&part);
                return Err(
                    self.problem(format!("checksum {found:.12}…; {right:.12}… would be right"))
                );
            }
        }
        fs::rename(&part, self.path()).map_err(|e| Error::io("rename to", self.path(), e))
    }
}

/// Whether `Content-Range: bytes 100-199/200` begins where it should.
fn starts_at(range: Option<&str>, start: u64) -> bool {
    let begins = |range: &str| range.strip_prefix("bytes ")?.split('-').next()?.parse().ok();
    range.and_then(begins) == Some(start)
}
