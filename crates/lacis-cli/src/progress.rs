//! Who watches long work: a bar on a terminal, a plain line now and then elsewhere, and Ctrl-C.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lacis::Error;
use lacis::data::Watch;

use crate::out::Out;

/// Work that ends sooner needs no bar.
const PATIENCE: Duration = Duration::from_millis(400);
const LINE_EVERY: Duration = Duration::from_secs(10);
/// How often somebody looks for a signal.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The signal that asked us to stop, or 0.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicUsize>);

/// No signal: somebody in this process wants the work to end early, but properly.
const EARLY: usize = usize::MAX;

impl Stop {
    /// Listens for Ctrl-C and SIGTERM: the first asks the work to stop, a second ends the process.
    pub fn listen() -> Self {
        use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
        let stop = Stop::default();
        // A file that may not grow is then an error like a full disk, not the end of the process.
        let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
        for signal in [SIGINT, SIGTERM] {
            let second = Arc::new(AtomicBool::new(false));
            // The order matters: the first signal finds `second` false, then sets it.
            let _ = signal_hook::flag::register_conditional_default(signal, second.clone());
            let _ = signal_hook::flag::register(signal, second);
            let _ = signal_hook::flag::register_usize(signal, stop.0.clone(), signal as usize);
        }
        stop
    }

    /// Asks the work to stop: training ends after this epoch as if it had been the last one.
    pub fn end_early(&self) {
        self.0.store(EARLY, Ordering::Relaxed);
    }

    /// Whether training should end as if this epoch had been the last one.
    pub fn ends_early(&self) -> bool {
        self.0.load(Ordering::Relaxed) == EARLY
    }

    /// Whether the work should stop.
    pub fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Does what nobody can ask to stop and has nothing to lose: a signal meanwhile ends the
    /// process.
    pub fn or_end<R>(&self, out: &Out, work: impl FnOnce() -> R) -> R {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    if self.came() && !self.ends_early() {
                        out.error(&Error::Interrupted);
                        std::process::exit(self.exit_code().into());
                    }
                    std::thread::park_timeout(LOOK_EVERY);
                }
            });
            // The watcher must end where the work panics, too.
            let _ended = Ended { done: &done, watcher: watcher.thread() };
            work()
        })
    }

    /// The exit code of an interrupted command: 128 and the signal's number.
    pub fn exit_code(&self) -> u8 {
        match self.0.load(Ordering::Relaxed) {
            0 | EARLY => 130,
            signal => 128 + signal as u8,
        }
    }
}

struct Ended<'a> {
    done: &'a AtomicBool,
    watcher: &'a Thread,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Release);
        self.watcher.unpark();
    }
}

enum Show {
    Nothing,
    Bar(ProgressBar),
    Lines(Mutex<Instant>),
}

/// What long work is, and what its progress counts.
#[derive(Clone, Copy)]
pub enum Doing {
    Reading,
    Checking,
    Fetching,
    Writing,
    /// Edges drawn by a generator, not bytes.
    Drawing,
    /// Problems of the tuner.
    Measuring,
}

impl Doing {
    fn verb(self) -> &'static str {
        match self {
            Doing::Reading => "reading",
            Doing::Checking => "checking",
            Doing::Fetching => "fetching",
            Doing::Writing => "writing",
            Doing::Drawing => "drawing edges",
            Doing::Measuring => "measuring",
        }
    }

    fn amount(self, done: u64) -> String {
        match self {
            Doing::Drawing | Doing::Measuring => crate::out::grouped(done as usize),
            _ => crate::out::bytes(done as usize),
        }
    }
}

/// Shows how far some work is.
pub struct Meter {
    show: Show,
    doing: Doing,
    begun: Instant,
    stop: Stop,
}

impl Meter {
    pub fn new(doing: Doing, quiet: bool, stop: Stop) -> Self {
        let show = match (quiet, std::io::stderr().is_terminal()) {
            (true, _) => Show::Nothing,
            (false, true) => Show::Bar(bar(doing)),
            (false, false) => Show::Lines(Mutex::new(Instant::now())),
        };
        Meter { show, doing, begun: Instant::now(), stop }
    }
}

fn bar(doing: Doing) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    let style = match doing {
        Doing::Drawing | Doing::Measuring => {
            "{msg} {human_pos} of {human_len} {wide_bar} {eta} left"
        }
        _ => "{msg} {bytes} of {total_bytes} {wide_bar} {bytes_per_sec}, {eta} left",
    };
    bar.set_style(
        ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar.set_message(doing.verb());
    bar
}

impl Watch for Meter {
    fn progress(&self, done: u64, total: Option<u64>) {
        match &self.show {
            Show::Nothing => {}
            Show::Bar(bar) => {
                if bar.is_hidden() && self.begun.elapsed() > PATIENCE {
                    bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
                }
                if let Some(total) = total {
                    bar.set_length(total);
                }
                bar.set_position(done);
            }
            Show::Lines(last) => {
                let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                if last.elapsed() >= LINE_EVERY {
                    *last = Instant::now();
                    let (verb, done) = (self.doing.verb(), self.doing.amount(done));
                    let of = total.map(|total| format!(" of {}", self.doing.amount(total)));
                    let of = of.unwrap_or_default();
                    let _ = writeln!(std::io::stderr(), "{verb} {done}{of}");
                }
            }
        }
    }

    fn stopped(&self) -> bool {
        self.stop.came()
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if let Show::Bar(bar) = &self.show {
            bar.finish_and_clear();
        }
    }
}
