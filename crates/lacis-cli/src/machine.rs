//! How many threads to use, and what there is to know of the machine.

use std::fs;
use std::path::{Path, PathBuf};

use lacis::machine::this_machine;
use lacis::tune::file::{Found, load};
use lacis::{Error, Result, Threads};
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::Global;

/// A number of threads and who decided on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ThreadChoice {
    /// How many.
    pub count: usize,
    /// The flag, the variable or the limit that said so.
    pub decided_by: &'static str,
}

/// The flag, else `LACIS_THREADS`, else the smallest of what the system and the environment allow.
///
/// # Errors
/// When `LACIS_THREADS` is no number from 1 to 4096.
pub fn choose_threads(flag: Option<u16>) -> Result<ThreadChoice> {
    if let Some(count) = flag {
        return Ok(ThreadChoice { count: usize::from(count), decided_by: "--threads" });
    }
    if let Some(count) = from_environment("LACIS_THREADS")? {
        return Ok(ThreadChoice { count, decided_by: "LACIS_THREADS" });
    }
    let mut choices = system_limits();
    for name in ["OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK"] {
        // Those are other programs': what cannot be read is theirs to complain about.
        if let Ok(Some(count)) = from_environment(name) {
            choices.push(ThreadChoice { count, decided_by: name });
        }
    }
    let least = choices.into_iter().min_by_key(|choice| choice.count);
    Ok(least.unwrap_or(ThreadChoice { count: 1, decided_by: "no other information" }))
}

fn from_environment(name: &str) -> Result<Option<usize>> {
    let Ok(text) = std::env::var(name) else { return Ok(None) };
    // OpenMP allows a list, one number per nesting level.
    let first = text.split(',').next().unwrap_or_default().trim();
    match first.parse() {
        Ok(count @ 1..=4096) => Ok(Some(count)),
        _ => Err(Error::argument(
            format!("{name}='{text}'"),
            "a number from 1 to 4096 would be right",
        )),
    }
}

fn system_limits() -> Vec<ThreadChoice> {
    let available = std::thread::available_parallelism().map_or(1, |n| n.get());
    let affinity =
        rustix::thread::sched_getaffinity(None).map_or(available, |set| set.count() as usize);
    let online = rustix_online(affinity);
    let mut limits = Vec::new();
    if affinity < online {
        limits.push(ThreadChoice { count: affinity, decided_by: "CPU affinity" });
    }
    if available < affinity {
        limits.push(ThreadChoice { count: available, decided_by: "cgroup quota" });
    }
    if limits.is_empty() {
        limits.push(ThreadChoice { count: available, decided_by: "number of CPUs" });
    }
    limits
}

/// CPUs that are switched on, as the kernel lists them (`0-3,8`).
fn rustix_online(otherwise: usize) -> usize {
    let Ok(list) = fs::read_to_string("/sys/devices/system/cpu/online") else { return otherwise };
    let span = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let last: usize = last.trim().parse().ok()?;
        Some(last + 1 - first.trim().parse::<usize>().ok()?)
    };
    list.trim().split(',').map(span).sum::<Option<usize>>().unwrap_or(otherwise)
}

/// The threads themselves.
///
/// # Errors
/// As [`choose_threads`], and when the system refuses them.
pub fn threads(flag: Option<u16>) -> Result<Threads> {
    Threads::eager(choose_threads(flag)?.count)
}

/// What `lacis doctor` reports. What cannot be found out is absent.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub version: &'static str,
    pub system: String,
    pub cpu: Option<String>,
    pub instruction_sets: Vec<&'static str>,
    pub caches: Vec<String>,
    pub threads: ThreadChoice,
    pub memory_total_bytes: Option<usize>,
    pub memory_available_bytes: Option<usize>,
    pub memory_limit_bytes: Option<usize>,
    pub huge_pages: Option<String>,
    pub data_folder: Option<String>,
    pub machine_profile: String,
}

impl Machine {
    /// What a record may say of it: nothing of who measured, or where their files are.
    pub fn for_record(global: &Global) -> Result<Value> {
        let mut machine = json!(Machine::look(global)?);
        if let Some(fields) = machine.as_object_mut() {
            fields.remove("data_folder");
            fields.remove("machine_profile");
        }
        Ok(machine)
    }

    pub fn look(global: &Global) -> Result<Self> {
        Ok(Machine {
            version: env!("CARGO_PKG_VERSION"),
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            cpu: field_of("/proc/cpuinfo", "model name"),
            instruction_sets: instruction_sets(),
            caches: caches(),
            threads: choose_threads(global.threads)?,
            memory_total_bytes: kilobytes("MemTotal"),
            memory_available_bytes: kilobytes("MemAvailable"),
            memory_limit_bytes: cgroup_memory_limit(),
            huge_pages: huge_pages(),
            data_folder: data_folder(),
            machine_profile: profile_state(global.machine.as_deref()),
        })
    }
}

fn field_of(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn kilobytes(name: &str) -> Option<usize> {
    let field = field_of("/proc/meminfo", name)?;
    field.split_whitespace().next()?.parse::<usize>().ok()?.checked_mul(1024)
}

/// Memory that this process could have at most, whoever else has some of it now.
pub fn memory_bytes() -> Option<usize> {
    let (total, limit) = (kilobytes("MemTotal"), cgroup_memory_limit());
    total.into_iter().chain(limit).min()
}

fn cgroup_memory_limit() -> Option<usize> {
    let files = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let limit = files.iter().find_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok())?;
    // Version 1 writes "no limit" as a number near the largest.
    (limit < usize::MAX / 4).then_some(limit)
}

/// Bytes that a limit stands for: `8G`, `512M`, or `80%` of what this process may have.
pub fn memory_limit(text: &str) -> Result<usize> {
    let wrong = |problem: &str| Error::argument(format!("--memory-limit '{text}'"), problem);
    let form = "is no amount of memory; 8G, 512M or 80% would be right";
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().map_err(|_| wrong(form))?;
    let unit = unit.to_ascii_uppercase();
    let unit = match unit.trim_end_matches('B').trim_end_matches('I') {
        "%" => {
            let all = [kilobytes("MemTotal"), cgroup_memory_limit()].into_iter().flatten().min();
            all.ok_or_else(|| wrong("the system does not tell its memory; 8G would be right"))?
                as f64
                / 100.0
        }
        "" => 1.0,
        "K" => f64::from(1 << 10),
        "M" => f64::from(1 << 20),
        "G" => f64::from(1 << 30),
        "T" => 1024.0 * f64::from(1 << 30),
        _ => return Err(wrong(form)),
    };
    match number * unit {
        bytes if bytes >= 1.0 && bytes.is_finite() => Ok(bytes as usize),
        _ => Err(wrong(form)),
    }
}

/// The choice in brackets: `always [madvise] never`.
fn huge_pages() -> Option<String> {
    let text = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok()?;
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}

fn caches() -> Vec<String> {
    let cache = |index: usize| {
        let folder = format!("/sys/devices/system/cpu/cpu0/cache/index{index}");
        let read = |file: &str| {
            Some(fs::read_to_string(Path::new(&folder).join(file)).ok()?.trim().to_owned())
        };
        let kind = match read("type")?.as_str() {
            "Instruction" => return None,
            "Data" => "d",
            _ => "",
        };
        Some(format!("L{}{kind} {}", read("level")?, read("size")?))
    };
    (0..8).filter_map(cache).collect()
}

#[cfg(target_arch = "x86_64")]
fn instruction_sets() -> Vec<&'static str> {
    let mut sets = Vec::new();
    macro_rules! detect {
        ($($name:tt),*) => {
            $(if std::arch::is_x86_feature_detected!($name) { sets.push($name); })*
        };
    }
    detect!(
        "sse4.2",
        "avx",
        "avx2",
        "fma",
        "f16c",
        "avx512f",
        "avx512bw",
        "avx512vl",
        "avx512bf16"
    );
    sets
}

#[cfg(not(target_arch = "x86_64"))]
fn instruction_sets() -> Vec<&'static str> {
    if cfg!(target_arch = "aarch64") { vec!["neon"] } else { Vec::new() }
}

/// Where sets that are not built in are looked for.
pub fn data_folder() -> Option<String> {
    variable("LACIS_DATA").or_else(|| Some(format!("{}/lacis/data", cache_folder()?)))
}

/// Where the machine profile is: what the flag says, else `LACIS_MACHINE`, else the cache folder.
///
/// # Errors
/// When there is no such folder.
pub fn profile_path(flag: Option<&Path>) -> Result<PathBuf> {
    let place = flag.map(Path::to_owned).or_else(|| variable("LACIS_MACHINE").map(PathBuf::from));
    let place = place.or_else(|| Some(Path::new(&cache_folder()?).join("lacis/machine.json")));
    let problem = "there is no cache folder; --machine FILE would be right";
    place.ok_or_else(|| Error::argument("machine profile", problem))
}

/// The profile's place, and whether it is of use.
fn profile_state(flag: Option<&Path>) -> String {
    let Ok(path) = profile_path(flag) else { return "no place for one".to_owned() };
    match load(&path, &this_machine()) {
        Found::Profile(_) => path.display().to_string(),
        Found::Absent => format!("none yet; `lacis tune --quick` makes {}", path.display()),
        Found::Unusable(why) => format!("not used: {why}"),
    }
}

fn cache_folder() -> Option<String> {
    variable("XDG_CACHE_HOME").or_else(|| Some(format!("{}/.cache", variable("HOME")?)))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_units() {
        assert_eq!(memory_limit("8G").unwrap(), 8 << 30);
        assert_eq!(memory_limit("1.5MiB").unwrap(), 3 << 19);
        assert_eq!(memory_limit("4096").unwrap(), 4096);
        if let Some(all) = kilobytes("MemTotal") {
            assert!((1..=all / 2 + 1).contains(&memory_limit("50%").unwrap()));
        }
        for wrong in ["", "G", "8X", "-1G", "0", "1.2.3M", "eight"] {
            assert!(memory_limit(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_flag_wins_over_everything() {
        let choice = choose_threads(Some(3)).unwrap();
        assert_eq!(choice, ThreadChoice { count: 3, decided_by: "--threads" });
        assert!(choose_threads(None).unwrap().count >= 1);
    }
}
