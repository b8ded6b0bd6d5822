//! The table of public sets: where they come from, under which licence, how large, and the
//! checksums of their files where they are known. It is data, and stands in `public.txt`.

use std::sync::LazyLock;

use super::{Public, Remote};

/// Public data sets that are not built in.
pub static PUBLIC: LazyLock<Vec<Public>> = LazyLock::new(|| parse(include_str!("public.txt")));

/// Reads the table. It is our own: what is wrong with it, a test finds.
fn parse(table: &'static str) -> Vec<Public> {
    let (mut sets, mut files): (Vec<Public>, Vec<Vec<Remote>>) = (Vec::new(), Vec::new());
    for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix("set ") {
            Some(line) => {
                sets.push(set_of(line));
                files.push(Vec::new());
            }
            None => files.last_mut().expect("a set before its files").push(file_of(line)),
        }
    }
    for (set, files) in sets.iter_mut().zip(files) {
        set.files = files;
    }
    sets
}

fn set_of(line: &'static str) -> Public {
    let mut words = line.splitn(5, ' ');
    let mut word = || words.next().expect("five fields of a set");
    let number = |text: &str| text.parse().expect("a number");
    let (name, nodes, edges, megabytes) = (word(), number(word()), number(word()), word());
    let (source, licence) = word().split_once("; ").expect("a source and a licence");
    let download_mb = megabytes.parse().ok();
    Public { name, nodes, edges, download_mb, source, licence, files: Vec::new() }
}

fn file_of(line: &'static str) -> Remote {
    let words: Vec<&'static str> = line.split(' ').collect();
    let [name, bytes, sha256, folder] = words[..] else { panic!("no four fields in '{line}'") };
    let sha256 = Some(sha256).filter(|sum| *sum != "-");
    Remote { name, url: format!("{folder}{name}"), bytes: bytes.parse().expect("a number"), sha256 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sound() {
        assert!(PUBLIC.len() > 30);
        for (at, set) in PUBLIC.iter().enumerate() {
            assert!(PUBLIC[..at].iter().all(|other| other.name != set.name), "{}", set.name);
            for file in &set.files {
                assert!(file.url.starts_with("http") && file.bytes > 0, "{file:?}");
                assert!(file.sha256.is_none_or(|sum| sum.len() == 64), "{file:?}");
            }
        }
    }
}
