//! `tollgate count`: what the filter would hold for a request.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) model: Option<String>,
    pub(crate) policy: Option<PathBuf>,
    pub(crate) request: PathBuf,
}

pub(crate) fn run(_question: &Question, _out: &mut impl Write, err: &mut impl Write) -> io::Result<ExitCode> {
    writeln!(err, "not built yet")?;
    Ok(ExitCode::FAILURE)
}
