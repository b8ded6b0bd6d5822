//! A process that answers a line of JSON with another, and a folder to hand arrays over in.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use lacis::data::npy;
use lacis::{Csr, Error, Result};
use serde_json::Value;

/// How long the end of a process is waited for: 50 times 10 ms.
const PATIENCE: (usize, Duration) = (50, Duration::from_millis(10));

/// The other side of a pipe.
pub struct Partner {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Partner {
    /// Starts a process, or says why not.
    pub fn start(mut command: Command) -> std::result::Result<Self, String> {
        let program = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child =
            command.spawn().map_err(|error| format!("cannot start {program}: {error}"))?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("no pipes".to_owned());
        };
        Ok(Partner { child, to: Some(to), from: BufReader::new(from) })
    }

    /// A Python that runs a script of ours with so many threads.
    pub fn python(python: &str, script: &str, threads: usize) -> Command {
        let mut command = Command::new(python);
        command.args(["-u", "-c", script]);
        for name in ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"] {
            command.env(name, threads.to_string());
        }
        command
    }

    /// One line there, one line back.
    pub fn ask(&mut self, order: &Value) -> std::result::Result<Value, String> {
        // Whoever cannot take an order may have said why.
        if let Some(to) = self.to.as_mut() {
            let _ = writeln!(to, "{order}").and_then(|()| to.flush());
        }
        let mut line = String::new();
        let heard = self.from.read_line(&mut line).is_ok();
        let answer: Option<Value> = serde_json::from_str(&line).ok().filter(|_| heard);
        let Some(answer) = answer else { return Err(self.ended()) };
        match answer["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(answer),
        }
    }

    /// How it ended, in words.
    fn ended(&mut self) -> String {
        for _ in 0..PATIENCE.0 {
            match self.child.try_wait() {
                Ok(Some(status)) => {
                    return match (status.signal(), status.code()) {
                        (Some(9), _) => "the process was killed, as for want of memory".to_owned(),
                        (Some(signal), _) => format!("the process ended by signal {signal}"),
                        (_, code) => format!("the process ended with code {}", code.unwrap_or(0)),
                    };
                }
                _ => std::thread::sleep(PATIENCE.1),
            }
        }
        "the process does not answer".to_owned()
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        // The end of its input ends it; one that computes still is not waited for.
        self.to = None;
        for _ in 0..PATIENCE.0 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(PATIENCE.1);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder that goes when this does.
pub struct Folder(PathBuf);

impl Folder {
    pub fn make() -> Result<Self> {
        let place = std::env::temp_dir();
        for attempt in 0..100 {
            let path = place.join(format!("lacis-peers-{}-{attempt}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Folder(path)),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io("make", path, error)),
            }
        }
        Err(Error::file(place, "is full of folders of the same name"))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Puts a matrix where the other side looks for it.
    pub fn put_matrix(&self, matrix: &Csr) -> Result<()> {
        let ptr: Vec<i64> = matrix.row_ptr().to_vec().into_iter().map(|p| p as i64).collect();
        self.put("indptr", &[ptr.len()], &ptr)?;
        self.put("indices", &[matrix.nnz()], matrix.cols())?;
        self.put("shape", &[2], &[matrix.n_rows() as i64, matrix.n_cols() as i64])?;
        match matrix.values() {
            Some(values) => self.put("values", &[values.len()], values),
            // Those of another matrix may lie there.
            None => {
                let _ = fs::remove_file(self.0.join("values.npy"));
                Ok(())
            }
        }
    }

    /// An array of a name.
    pub fn put<T: npy::Item>(&self, name: &str, shape: &[usize], data: &[T]) -> Result<()> {
        let path = self.0.join(format!("{name}.npy"));
        let written = File::create(&path).and_then(|file| {
            let mut out = BufWriter::new(file);
            npy::write(&mut out, shape, data)?;
            out.flush()
        });
        written.map_err(|error| Error::io("write", &path, error))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
