//! A fixture file's exact bytes as the answer.

use std::path::{Component, Path};

use hyper::StatusCode;

use crate::answer::{Answer, Step};

pub fn answer(fixtures: Option<&Path>, file: &str, status: StatusCode) -> Answer {
    let Some(folder) = fixtures else {
        return Answer::error(StatusCode::BAD_REQUEST, "the stub was started without --fixtures");
    };
    let inside = Path::new(file).components().all(|part| matches!(part, Component::Normal(_)));
    match std::fs::read(folder.join(file)) {
        Ok(bytes) if inside => Answer::new(status, content_type(file), vec![Step::Send(bytes.into())]),
        Ok(_) | Err(_) => Answer::error(StatusCode::NOT_FOUND, "no such fixture"),
    }
}

fn content_type(file: &str) -> &'static str {
    match Path::new(file).extension().and_then(|extension| extension.to_str()) {
        Some("sse") => "text/event-stream; charset=utf-8",
        Some("ndjson") => "application/x-ndjson",
        Some("bin") => "application/vnd.amazon.eventstream",
        _ => "application/json",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_below_the_folder_are_played() {
        let src = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
        assert_eq!(answer(Some(src), "lib.rs", StatusCode::OK).status, StatusCode::OK);
        for file in ["../src/lib.rs", "/etc/hostname", "nothing"] {
            assert_eq!(answer(Some(src), file, StatusCode::OK).status, StatusCode::NOT_FOUND, "{file}");
        }
    }
}
