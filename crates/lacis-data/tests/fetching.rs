//! Downloads from servers that stall, truncate, lie, redirect and resume.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lacis_core::{Result, Threads};
use lacis_data::fetch::{Options, fetch};
use lacis_data::sets::{Public, Remote};
use lacis_data::{Job, format};

const TEXT: &str = "0 1\n1 2\n2 3\n";
const SUM: &str = "554681d70473ff0a507bcf15a30525e74c75790ace5a26e11eb57d9847defe29";

fn set(sha256: Option<&'static str>, bytes: u64) -> Public {
    let url = "http://unused/".to_owned();
    Public {
        name: "little",
        nodes: 4,
        edges: 3,
        download_mb: None,
        source: "a test",
        licence: "none",
        files: vec![Remote { name: "e.txt", url, bytes, sha256 }],
    }
}

/// A set of one archive, large enough to be killed in the middle of.
fn large() -> (Public, Vec<u8>) {
    let lines: String = (0..20_000).map(|i| format!("{i}\t{}\n", i + 1)).collect();
    let files: Vec<(String, &str)> =
        (0..60).map(|at| (format!("more/{at}.log"), "nothing")).collect();
    let mut members = vec![("edges.txt", &*lines)];
    members.extend(files.iter().map(|(name, text)| (&**name, *text)));
    let zip = crate::corpus::zip_of(&members);
    let url = "http://unused/".to_owned();
    let file = Remote { name: "large.zip", url, bytes: zip.len() as u64, sha256: None };
    (Public { name: "large", files: vec![file], ..set(None, 0) }, zip)
}

/// A server that sends an archive slowly, from wherever it is asked to.
fn serve_slowly(zip: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut out, zip) = (stream.unwrap(), zip.clone());
            std::thread::spawn(move || {
                let lines = BufReader::new(out.try_clone().unwrap()).lines();
                let lines = lines.map_while(|line| line.ok()).take_while(|line| !line.is_empty());
                let range = lines.filter_map(|line| {
                    let line = line.to_lowercase();
                    line.strip_prefix("range: bytes=")?.split('-').next()?.parse::<usize>().ok()
                });
                let from = range.last();
                let (start, end) = (from.unwrap_or(0).min(zip.len()), zip.len());
                let status = if from.is_some() { "206 Partial Content" } else { "200 OK" };
                let range = format!("Content-Range: bytes {start}-{}/{end}\r\n", end - 1);
                let length = format!("Content-Length: {}\r\n", end - start);
                send(&mut out, status, &format!("{range}{length}"), "");
                for part in zip[start..].chunks(end / 20) {
                    std::thread::sleep(Duration::from_millis(2));
                    if out.write_all(part).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// The other side of the test that kills; a test of nothing when asked for alone.
#[test]
#[ignore = "run by the test that kills"]
fn fetch_when_told() {
    let Some(told) = std::env::var_os("LACIS_FETCH_WHEN_TOLD") else { return };
    let told = told.into_string().unwrap();
    let (address, folder) = told.split_once(' ').unwrap();
    let options = Options { mirror: Some(address.to_owned()), ..Options::default() };
    fetch(&large().0, Path::new(folder), &options, &Job::quiet(&Threads::one())).unwrap();
}

#[test]
fn whoever_is_killed_leaves_no_set_or_all_of_it() {
    let (set, zip) = large();
    let address = serve_slowly(zip);
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("large");
    let fetching = || {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["fetching::fetch_when_told", "--exact", "--include-ignored", "-q"]);
        child.env("LACIS_FETCH_WHEN_TOLD", format!("{address} {}", dir.path().display()));
        child.stdout(std::process::Stdio::null()).spawn().unwrap()
    };
    let whole = |path: &Path| {
        let set = format::read(&path.join("edges.txt"), None, &Job::quiet(&Threads::one()));
        assert_eq!(set.unwrap().graph().n_edges(), 20_000);
        assert_eq!(left(&path.join("more")).len(), 60);
    };
    let (mut kills, mut draw) = (0, 7u64);
    for _ in 0..40 {
        let mut child = fetching();
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        std::thread::sleep(Duration::from_millis(draw >> 58));
        kills += u32::from(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        if target.exists() {
            whole(&target);
            std::fs::remove_dir_all(&target).unwrap();
        }
    }
    assert!(kills > 5, "{kills} kills");
    assert!(fetching().wait().unwrap().success());
    whole(&target);
    assert_eq!(left(dir.path()), ["large"]);
    assert_eq!(get(&set, &address, dir.path()).unwrap(), target);
}

/// What a server does with request number `n`: the path asked for and where it should begin.
type Answer = fn(n: usize, path: &str, from: Option<usize>, out: &mut TcpStream);

/// Starts a server; gives its address and how often it was asked.
fn serve(answer: Answer) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut out, counter) = (stream.unwrap(), counter.clone());
            std::thread::spawn(move || {
                let mut lines = BufReader::new(out.try_clone().unwrap()).lines();
                let first = lines.next().unwrap_or(Ok(String::new())).unwrap_or_default();
                let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
                let mut from = None;
                for line in lines.map_while(|line| line.ok()).take_while(|line| !line.is_empty()) {
                    let line = line.to_lowercase();
                    if let Some(range) = line.strip_prefix("range: bytes=") {
                        from = range.split('-').next().and_then(|start| start.parse().ok());
                    }
                }
                answer(counter.fetch_add(1, Ordering::SeqCst), &path, from, &mut out);
            });
        }
    });
    (address, asked)
}

fn send(out: &mut TcpStream, status: &str, headers: &str, body: &str) {
    let _ = write!(out, "HTTP/1.1 {status}\r\n{headers}Connection: close\r\n\r\n{body}");
    let _ = out.flush();
}

/// The text from a byte on, honestly.
fn honest(from: Option<usize>, out: &mut TcpStream) {
    let start = from.unwrap_or(0);
    let status = if from.is_some() { "206 Partial Content" } else { "200 OK" };
    let range = match from {
        Some(start) => format!("Content-Range: bytes {start}-11/12\r\n"),
        None => String::new(),
    };
    let headers = format!("{range}Content-Length: {}\r\n", TEXT.len() - start);
    send(out, status, &headers, &TEXT[start..]);
}

fn get(set: &Public, address: &str, folder: &Path) -> Result<std::path::PathBuf> {
    let patience = Duration::from_millis(300);
    let options = Options { mirror: Some(address.to_owned()), patience, tries: 2 };
    let begun = Instant::now();
    let got = fetch(set, folder, &options, &Job::quiet(&Threads::one()));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    got
}

fn left(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names.into_iter().filter(|name| !name.ends_with(".lock")).collect()
}

#[test]
fn a_set_is_fetched_once_and_opens() {
    let (address, asked) = serve(|_, _, from, out| honest(from, out));
    let dir = tempfile::tempdir().unwrap();
    let path = get(&set(None, 10), &address, dir.path()).unwrap();
    assert_eq!(left(dir.path()), ["little"]);
    let graph = format::read(&path, None, &Job::quiet(&Threads::one())).unwrap();
    assert_eq!(graph.graph().n_edges(), 3);
    get(&set(None, 10), &address, dir.path()).unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[test]
fn a_truncated_download_is_resumed() {
    let (address, asked) = serve(|n, _, from, out| match n {
        0 => send(out, "200 OK", "Content-Length: 12\r\n", &TEXT[..5]),
        _ => honest(from, out),
    });
    let dir = tempfile::tempdir().unwrap();
    let path = get(&set(None, 12), &address, dir.path()).unwrap();
    assert_eq!(std::fs::read_to_string(path.join("e.txt")).unwrap(), TEXT);
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[test]
fn a_later_fetch_goes_on_where_an_earlier_one_ended() {
    let dir = tempfile::tempdir().unwrap();
    let (broken, _) = serve(|n, _, _, out| match n {
        0 => send(out, "200 OK", "Content-Length: 12\r\n", &TEXT[..5]),
        _ => send(out, "503 Busy", "Content-Length: 0\r\n", ""),
    });
    let error = get(&set(None, 12), &broken, dir.path()).unwrap_err().to_string();
    assert!(error.contains("503"), "{error}");
    assert_eq!(left(dir.path()), [".little.partial"]);
    let (whole, _) = serve(|_, _, from, out| {
        assert_eq!(from, Some(5), "the first bytes are there already");
        honest(from, out);
    });
    let path = get(&set(None, 12), &whole, dir.path()).unwrap();
    assert_eq!(std::fs::read_to_string(path.join("e.txt")).unwrap(), TEXT);
    assert_eq!(left(dir.path()), ["little"]);
}

#[test]
fn servers_that_cannot_resume_send_everything_again() {
    let (address, _) = serve(|n, _, _, out| match n {
        0 => send(out, "200 OK", "Content-Length: 12\r\n", &TEXT[..5]),
        // One that begins elsewhere than asked, then one that ignores the range.
        1 => {
            send(out, "206 Partial", "Content-Range: bytes 0-11/12\r\nContent-Length: 12\r\n", TEXT)
        }
        _ => honest(None, out),
    });
    let dir = tempfile::tempdir().unwrap();
    let path = get(&set(None, 12), &address, dir.path()).unwrap();
    assert_eq!(std::fs::read_to_string(path.join("e.txt")).unwrap(), TEXT);
}

#[test]
fn a_server_that_stalls_is_given_up() {
    for before in [false, true] {
        let (address, _) = match before {
            true => serve(|_, _, _, _| std::thread::sleep(Duration::from_secs(20))),
            false => serve(|_, _, _, out| {
                send(out, "200 OK", "Content-Length: 12\r\n", "");
                std::thread::sleep(Duration::from_secs(20));
            }),
        };
        let dir = tempfile::tempdir().unwrap();
        let error = get(&set(None, 12), &address, dir.path()).unwrap_err().to_string();
        assert!(error.contains("cannot fetch http"), "{error}");
        assert_eq!(left(dir.path()), [".little.partial"]);
    }
}

#[test]
fn redirects_are_followed_but_not_for_ever() {
    let (address, _) = serve(|_, path, from, out| match path {
        "/e.txt" => send(out, "302 Found", "Location: /real\r\nContent-Length: 0\r\n", ""),
        _ => honest(from, out),
    });
    let dir = tempfile::tempdir().unwrap();
    assert!(get(&set(None, 12), &address, dir.path()).is_ok());
    let (circle, asked) = serve(|_, _, _, out| {
        send(out, "302 Found", "Location: /e.txt\r\nContent-Length: 0\r\n", "");
    });
    let dir = tempfile::tempdir().unwrap();
    let error = get(&set(None, 12), &circle, dir.path()).unwrap_err().to_string();
    assert!(error.contains("redirect"), "{error}");
    assert!(asked.load(Ordering::SeqCst) < 20);
}

#[test]
fn wrong_bytes_are_refused_and_not_kept() {
    let wrong = "0".repeat(64);
    let wrong: &'static str = Box::leak(wrong.into_boxed_str());
    let (address, _) = serve(|_, _, from, out| honest(from, out));
    let dir = tempfile::tempdir().unwrap();
    let error = get(&set(Some(wrong), 12), &address, dir.path()).unwrap_err().to_string();
    assert!(error.contains("checksum"), "{error}");
    assert!(left(&dir.path().join(".little.partial")).is_empty());
    // A size that is not the known one is refused before anything comes.
    let error = get(&set(Some(SUM), 99), &address, dir.path()).unwrap_err().to_string();
    assert!(error.contains("99 are known"), "{error}");
    // One that is not declared, and does not end.
    let (endless, _) = serve(|_, _, _, out| {
        send(out, "200 OK", "", "");
        while out.write_all(&[b'1'; 1 << 12]).is_ok() {}
    });
    let error = get(&set(Some(SUM), 12), &endless, dir.path()).unwrap_err().to_string();
    assert!(error.contains("more than the 12 bytes"), "{error}");
    let (none, _) = serve(|_, _, _, out| send(out, "404 None", "Content-Length: 0\r\n", ""));
    let error = get(&set(None, 12), &none, dir.path()).unwrap_err().to_string();
    assert!(error.contains("404"), "{error}");
}

#[test]
fn no_network_is_said_to_be_none() {
    let dir = tempfile::tempdir().unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = get(&set(None, 12), &format!("http://{closed}"), dir.path()).unwrap_err();
    assert!(error.to_string().contains("no network"), "{error}");
}
