//! Converting and validating files, and being interrupted while at it.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::{command, events, lacis, text};

fn sizes_of(data: &str) -> (u64, u64) {
    let info = &events(&["data", "info", data, "--json"])[1];
    (info["nodes"].as_u64().unwrap(), info["edges"].as_u64().unwrap())
}

#[test]
fn every_written_format_reads_back_as_the_same_graph() {
    let dir = tempfile::tempdir().unwrap();
    let graph = dir.path().join("graph");
    let spec = "sbm:n=300,e=900,classes=3,features=20,seed=4";
    assert_eq!(lacis(&["data", "generate", spec, "-o", text(&graph)]).code, Some(0));
    for name in
        ["g.npz", "g.mtx", "g.txt", "g.csv", "g.tsv.gz", "g.mtx.zst", "g.parquet", "g.lacis"]
    {
        let (there, back) = (dir.path().join(name), dir.path().join(format!("back-{name}")));
        let to = lacis(&["data", "convert", text(&graph), "-o", text(&there)]);
        assert_eq!(to.code, Some(0), "{name}: {}", to.err);
        let lost = to.err.contains("no place for features, labels");
        assert_eq!(lost, name != "g.lacis", "{}", to.err);
        let from = lacis(&["data", "convert", text(&there), "--to", "lacis", "-o", text(&back)]);
        assert_eq!(from.code, Some(0), "{name}: {}", from.err);
        for array in ["adjacency.row_ptr.npy", "adjacency.cols.npy"] {
            let bytes = |folder: &Path| std::fs::read(folder.join(array)).unwrap();
            assert!(bytes(&back) == bytes(&graph), "{name}: {array}");
        }
    }
}

#[test]
fn nothing_is_overwritten_unless_asked() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("g");
    let convert = |data: &str, more: &[&str]| {
        lacis(&[&["data", "convert", data, "-o", text(&target)], more].concat())
    };
    assert_eq!(convert("karate", &[]).code, Some(0));
    let again = convert("cora-like", &[]);
    assert_eq!(again.code, Some(1));
    assert!(again.err.contains("--overwrite"), "{}", again.err);
    assert_eq!(sizes_of(text(&target)).0, 34);
    assert_eq!(convert("cora-like", &["--overwrite"]).code, Some(0));
    assert_eq!(sizes_of(text(&target)).0, 2708);

    // A folder with other things in it is somebody's work.
    let precious = dir.path().join("precious");
    std::fs::create_dir(&precious).unwrap();
    std::fs::write(precious.join("thesis.tex"), "…").unwrap();
    let ran = lacis(&["data", "convert", "karate", "--overwrite", "-o", text(&precious)]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("did not write"), "{}", ran.err);
    assert!(precious.join("thesis.tex").exists());
    // So is a note that somebody put into a folder of ours.
    std::fs::write(target.join("notes.md"), "…").unwrap();
    let ran = convert("karate", &["--overwrite"]);
    assert!(ran.err.contains("holds 'notes.md', which Lacis did not write"), "{}", ran.err);
    assert!(target.join("notes.md").exists());
}

/// Links are followed, permissions stay, and what is no file stays what it is.
#[test]
fn only_files_and_own_folders_are_replaced() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let convert = |name: &str| {
        lacis(&["data", "convert", "karate", "--overwrite", "--to", "mtx", "-o", text(&path(name))])
    };
    std::fs::write(path("file"), "old").unwrap();
    std::fs::set_permissions(path("file"), PermissionsExt::from_mode(0o600)).unwrap();
    symlink(path("file"), path("link")).unwrap();
    assert_eq!(convert("link").code, Some(0));
    assert!(path("link").is_symlink());
    let meta = std::fs::metadata(path("file")).unwrap();
    assert!(meta.len() > 100 && meta.permissions().mode() & 0o777 == 0o600, "{meta:?}");

    let made = std::process::Command::new("mkfifo").arg(path("pipe")).status();
    assert!(made.is_ok_and(|status| status.success()));
    let ran = convert("pipe");
    assert!(ran.code == Some(1) && ran.err.contains("is no file"), "{}", ran.err);
    std::fs::create_dir(path("folder")).unwrap();
    assert_eq!(convert("folder").code, Some(1));
    let over_file = lacis(&[
        "data",
        "convert",
        "karate",
        "--overwrite",
        "--to",
        "lacis",
        "-o",
        text(&path("file")),
    ]);
    assert!(over_file.err.contains("is no folder"), "{}", over_file.err);
}

#[test]
fn paths_need_not_be_utf_8() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().unwrap();
    let name = std::ffi::OsStr::from_bytes(b"o\xff");
    let mut convert = command(&["data", "convert", "karate", "--json", "-o"]);
    assert_eq!(convert.arg(dir.path().join(name)).status().unwrap().code(), Some(0));
    assert!(dir.path().join(name).is_dir());
    let mut info = command(&["data", "info"]);
    let output = info.arg(dir.path().join(name)).output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 2)), "{output:?}");
}

#[test]
fn places_that_cannot_be_written_are_named_before_the_work() {
    let ran = lacis(&["data", "convert", "karate", "-o", "no/such/folder/g"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("no/such/folder: there is no such folder"), "{}", ran.err);
    let ran = lacis(&["data", "convert", "karate", "-o", "g.docx"]);
    assert!(ran.err.contains("ending that means no format"), "{}", ran.err);
    let ran = lacis(&["data", "convert", "karate", "--to", "planetoid", "-o", "g"]);
    assert!(ran.err.contains("cannot be written"), "{}", ran.err);
}

#[test]
fn validate_tells_sound_from_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let (good, bad) = (dir.path().join("good.txt"), dir.path().join("bad.txt"));
    std::fs::write(&good, "0 1\n1 2\n").unwrap();
    std::fs::write(&bad, "0 1\n1 two\n").unwrap();
    assert_eq!(lacis(&["data", "validate", text(&good), "karate"]).code, Some(0));
    let ran = lacis(&["data", "validate", text(&good), text(&bad)]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.contains("ok   ") && ran.out.contains("BAD  "), "{}", ran.out);
    assert!(ran.out.contains("line 2"), "{}", ran.out);
}

#[test]
fn changes_are_made_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("e.txt");
    std::fs::write(&path, "0 1 2.0\n1 2 3.0\n4 5 1.0\n").unwrap();
    let info = |more: &[&str]| {
        events(&[&["data", "info", text(&path), "--json"], more].concat()).pop().unwrap()
    };
    assert_eq!(info(&[])["weighted"], true);
    assert_eq!(info(&["--edge-weights", "ignore"])["weighted"], false);
    assert_eq!(info(&["--undirected"])["edges"], 6);
    let more = ["--undirected", "--largest-component", "--self-loops", "--features", "8"];
    let all = info(&[&more[..], &["--classes", "3"]].concat());
    assert_eq!((&all["nodes"], &all["edges"]), (&3.into(), &7.into()));
    assert_eq!((&all["features"], &all["classes"]), (&8.into(), &3.into()));
}

/// However early or late a convert is killed, the old graph or the new one is there, whole.
#[test]
fn a_killed_convert_leaves_the_old_graph_or_the_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("g");
    assert_eq!(lacis(&["data", "convert", "karate", "-o", text(&target)]).code, Some(0));
    let spec = "er:n=20k,e=200k,seed=1";
    for wait_ms in (0..160).step_by(8) {
        let args = ["data", "generate", spec, "--overwrite", "-o", text(&target)];
        let mut child = command(&args).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(wait_ms));
        let _ = child.kill();
        child.wait().unwrap();
        let found = sizes_of(text(&target));
        assert!(found == (34, 156) || found == (20_000, 400_000), "after {wait_ms} ms: {found:?}");
    }
}

#[test]
fn an_interrupted_convert_cleans_up() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["data", "generate", "er:n=1M,e=8M,seed=1", "-o", "g"];
    let child = command(&args)
        .current_dir(&dir)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    // A fast machine may have finished first; then everything must be there.
    let left: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
    match output.status.code() {
        Some(130) => assert!(left.is_empty(), "{left:?}"),
        code => assert_eq!((code, left.len()), (Some(0), 1), "{left:?}"),
    }
}

#[test]
fn own_tables_become_a_folder_that_keeps_their_ids() {
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, content: &str| {
        std::fs::write(dir.path().join(name), content).unwrap();
        dir.path().join(name)
    };
    let edges = put("e.csv", "from,to\nann,bob\nbob,cy\n");
    let nodes = put("n.csv", "id,age,y,part\nann,3,a,train\nbob,,b,test\ncy,5,,\n");
    let out = dir.path().join("my/");
    let tables = ["--edges", text(&edges), "--nodes", text(&nodes), "--id-col", "id"];
    let columns = ["--label-col", "y", "--split-col", "part", "-o", text(&out)];
    let ran = lacis(&[&["data", "convert"][..], &tables, &columns].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.err.contains("became the mean"), "{}", ran.err);
    let info = events(&["info", text(&out), "--json"]).pop().unwrap();
    assert_eq!((&info["nodes"], &info["edges"]), (&3.into(), &2.into()));
    assert_eq!(
        (&info["node_ids"], &info["features"], &info["labelled"]),
        (&true.into(), &1.into(), &2.into())
    );
    assert_eq!(info["direction"], "from source to target, as stored");
    assert_eq!(info["splits"]["train"], 1);
    let both = lacis(&["data", "convert", "karate", "--edges", text(&edges), "-o", "x"]);
    assert_eq!(both.code, Some(2), "{}", both.err);
    let wrong = ["--label-col", "nothing", "-o", "x"];
    let ran = lacis(&[&["data", "convert"][..], &tables, &wrong].concat());
    assert!(ran.err.contains("has no column 'nothing'; it has id, age, y, part"), "{}", ran.err);
}

#[test]
fn fetching_without_a_network_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let fetch = |name: &str| {
        let mirror = ["--mirror", "http://127.0.0.1:1", "--patience", "1"];
        let mut command = command(&[&["data", "fetch", name][..], &mirror].concat());
        crate::ran(command.env("LACIS_DATA", dir.path()).output().unwrap())
    };
    let ran = fetch("cora");
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.err.contains("no network"), "{}", ran.err);
    assert!(!dir.path().join("cora").exists());
    for (name, word) in [("karate", "built in"), ("cara", "did you mean 'cora'"), ("yelp", "Drive")]
    {
        let ran = fetch(name);
        assert!(ran.code == Some(2) && ran.err.contains(word), "{}", ran.err);
    }
}

/// A full disk is an error that names it, and leaves what was there.
#[test]
fn a_full_disk_is_named() {
    let full = Path::new("/dev/full");
    if !full.exists() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("g.txt");
    std::fs::write(&target, "0 1\n").unwrap();
    // A limit on the size of files is the nearest that every machine has.
    let script = "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\"";
    let args = ["data", "generate", "er:n=20k,e=200k,seed=1", "--overwrite", "-o", text(&target)];
    let lacis = command(&[]).get_program().to_owned();
    let mut limited = std::process::Command::new("bash");
    let output = limited.args(["-c", script]).arg(lacis).args(args).output().unwrap();
    let ran = crate::ran(output);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.err.contains("cannot write") && ran.err.contains("g.txt"), "{}", ran.err);
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "0 1\n");
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1);
}
