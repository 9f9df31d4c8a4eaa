//! The few edits made to a body; all other bytes stay as they came.

use super::Chat;

/// The body with `stream_options.include_usage` set, for a stream whose client did not ask for it.
///
/// `body` is the one that `chat` was parsed from. `None` where there is nothing to add.
pub fn include_usage(body: &[u8], chat: &Chat<'_>) -> Option<Vec<u8>> {
    let edit = chat.usage_edit.as_ref()?;
    let head = body.get(..edit.at.start)?;
    let tail = body.get(edit.at.end..)?;
    Some([head, edit.with.as_bytes(), tail].concat())
}
