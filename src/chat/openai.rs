//! OpenAI chat completions → [`Chat`].

use super::{BodyError, Chat};

pub(super) fn parse(_body: &[u8]) -> Result<Chat<'_>, BodyError> {
    Err(BodyError::Empty)
}
