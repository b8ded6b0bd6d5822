//! `lacis data fetch`.

use std::path::Path;
use std::time::Duration;

use lacis::Error;
use lacis::data::fetch::{Options, fetch};
use lacis::data::{Job, sets};
use serde_json::json;

use crate::args::Fetch;
use crate::data::Desk;
use crate::out::Outcome;
use crate::progress::Doing;

pub fn run(desk: &Desk<'_>, args: &Fetch) -> Outcome {
    desk.out.start("data fetch", args)?;
    let name = &args.name;
    if sets::find(name).is_some() {
        let problem = "is built in; there is nothing to fetch";
        return Err(Error::argument(format!("'{name}'"), problem).into());
    }
    let Some(set) = sets::find_public(name) else { return Err(sets::unknown(name).into()) };
    let Some(folder) = desk.folder() else {
        let problem = "there is no cache folder; LACIS_DATA should name one";
        return Err(Error::argument("data folder", problem).into());
    };
    let there = folder.join(name).exists();
    if !there {
        let (size, source, licence) = (set.size(), set.source, set.licence);
        desk.out.note(format_args!("{name}: {size} from {source}; licence: {licence}"));
        if set.files.iter().any(|file| file.sha256.is_none()) {
            desk.out
                .note(format_args!("{name}: its checksums are not known and cannot be checked"));
        }
    }
    let meter = desk.meter(Doing::Fetching);
    let job = Job { threads: &desk.threads, watch: &meter };
    let patience = Duration::from_secs(args.patience);
    let options = Options { mirror: args.mirror.clone(), patience, ..Options::default() };
    let path = fetch(set, Path::new(&folder), &options, &job)?;
    drop(meter);
    let shown = path.display().to_string();
    desk.out.event("fetched", &json!({ "name": name, "path": shown, "already_there": there }))?;
    let word = if there { "is already at" } else { "is at" };
    desk.out.line(format_args!("{name} {word} {shown}; `lacis data info {name}` looks at it"))
}
