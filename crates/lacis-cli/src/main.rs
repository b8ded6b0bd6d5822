//! The command `lacis`; all of it is in the library of this crate.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(lacis_cli::main(std::env::args_os().collect()))
}
