//! Damage under the packing: what an archive holds is changed and packed again, its checksums
//! right, so that readers get to see it.

use std::io::{Cursor, Read, Write};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use crate::mutate::{Draw, mutate};

/// A file taken apart.
pub enum Parts {
    /// As it is.
    Whole,
    /// The members of a zip archive, arrays among them.
    Zip(Vec<(String, Vec<u8>)>),
    /// The members of a tar archive.
    Tar(Vec<(String, Vec<u8>)>),
}

impl Parts {
    pub fn of(bytes: &[u8]) -> Self {
        if let Ok(mut zip) = ZipArchive::new(Cursor::new(bytes)) {
            let members = (0..zip.len()).map(|at| {
                let mut member = zip.by_index(at).unwrap();
                let mut content = Vec::new();
                member.read_to_end(&mut content).unwrap();
                (member.name().unwrap().into_owned(), content)
            });
            return Parts::Zip(members.collect());
        }
        if bytes.get(257..262) == Some(b"ustar") {
            let mut tar = tar::Archive::new(bytes);
            let members = tar.entries().unwrap().map(|entry| {
                let mut entry = entry.unwrap();
                let mut content = Vec::new();
                entry.read_to_end(&mut content).unwrap();
                (entry.path().unwrap().display().to_string(), content)
            });
            return Parts::Tar(members.collect());
        }
        Parts::Whole
    }

    /// The file with something in it changed, or changed itself.
    pub fn damaged(&self, whole: &[u8], other: &[u8], draw: &mut Draw) -> Vec<u8> {
        let inside = draw.next(4) != 0;
        match self {
            Parts::Zip(members) if inside => zipped(&changed(members, draw), draw),
            Parts::Tar(members) if inside => tarred(&changed(members, draw)),
            _ => {
                let mut bytes = whole.to_vec();
                mutate(&mut bytes, other, draw);
                bytes
            }
        }
    }
}

fn changed(members: &[(String, Vec<u8>)], draw: &mut Draw) -> Vec<(String, Vec<u8>)> {
    let mut members = members.to_vec();
    for _ in 0..1 + draw.next(2) {
        let (at, other) = (draw.next(members.len()), draw.next(members.len()));
        let lent = members[other].1.clone();
        match draw.next(16) {
            0 => drop(members.remove(at)),
            1 => members[at].1 = lent,
            2 => {
                let mut name = std::mem::take(&mut members[at].0).into_bytes();
                mutate(&mut name, b"", draw);
                members[at].0 = String::from_utf8_lossy(&name).into_owned();
            }
            _ => mutate(&mut members[at].1, &lent, draw),
        }
        if members.is_empty() {
            break;
        }
    }
    members
}

fn zipped(members: &[(String, Vec<u8>)], draw: &mut Draw) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let method = match draw.next(8) {
        0 => CompressionMethod::Deflated,
        _ => CompressionMethod::Stored,
    };
    let options = SimpleFileOptions::default().compression_method(method);
    for (name, content) in members {
        // A name twice is refused by the writer; readers meet it in damaged bytes.
        if zip.start_file(name.as_str(), options).is_ok() {
            zip.write_all(content).unwrap();
        }
    }
    zip.finish().unwrap().into_inner()
}

fn tarred(members: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, content) in members {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        // Names that leave the archive are refused by the writer.
        let _ = tar.append_data(&mut header, name, &content[..]);
    }
    tar.into_inner().unwrap()
}

/// `meta.json` of the own format after one of its files, perhaps itself, was damaged: checksums
/// that are right do not make wrong numbers right.
pub fn sealed(meta: &[u8], whole: &[u8], damaged: &[u8]) -> Vec<u8> {
    const HEADER_BYTES: usize = 128;
    let sum = |bytes: &[u8]| {
        let data = bytes.get(HEADER_BYTES..).unwrap_or_default();
        format!("{:016x}", xxhash_rust::xxh3::xxh3_64(data))
    };
    let text = if whole == meta { damaged } else { meta };
    let text = String::from_utf8_lossy(text).replacen(&sum(whole), &sum(damaged), 1);
    let body = text.split_once("\"body\":").map_or("{}", |(_, body)| body);
    let body = body.strip_suffix('}').unwrap_or(body);
    let sum = xxhash_rust::xxh3::xxh3_64(body.as_bytes());
    format!("{{\"lacis\":1,\"checksum\":\"{sum:016x}\",\"body\":{body}}}").into_bytes()
}
