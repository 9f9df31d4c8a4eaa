//! Does the announced length fit the bytes that were sent? Envoy does not look (F8).

use crate::outcome::Received;

/// How a message is framed towards the peer that received it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Framing {
    /// Nothing has been sent.
    NotSent,
    /// No length announced: chunked, or HTTP/2 frames. Always sound.
    Chunked,
    /// The announced length is the length sent.
    Exact(u64),
    /// The message is still under way and within its length.
    Unfinished { declared: u64, sent: u64 },
    /// Surplus bytes head the next request on the connection (request smuggling);
    /// missing ones leave the peer waiting.
    Broken { declared: u64, sent: u64 },
    /// Several lengths, or one that is no number.
    Unreadable,
}

impl Framing {
    pub(crate) fn of(message: &Received) -> Self {
        let Some(headers) = &message.headers else { return Self::NotSent };
        let lengths = headers.values("content-length");
        let sent = message.body().len() as u64;
        let declared = match lengths.as_slice() {
            [] => return Self::Chunked,
            [one] => match one.parse::<u64>() {
                Ok(declared) => declared,
                Err(_) => return Self::Unreadable,
            },
            _ => return Self::Unreadable,
        };
        if declared == sent {
            Self::Exact(sent)
        } else if sent < declared && !message.ended {
            Self::Unfinished { declared, sent }
        } else {
            Self::Broken { declared, sent }
        }
    }

    pub fn is_sound(self) -> bool {
        match self {
            Self::NotSent | Self::Chunked | Self::Exact(_) | Self::Unfinished { .. } => true,
            Self::Broken { .. } | Self::Unreadable => false,
        }
    }
}
