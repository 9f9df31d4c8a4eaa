//! Plays an answer's steps as a response body.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::body::{Body, Bytes};
use hyper::body::Frame;
use tokio::sync::mpsc;

use crate::{answer::Step, clock};

/// Steps under way: enough to keep a fast stream busy, few enough that a slow reader is felt.
const UNDER_WAY: usize = 16;

/// The script ends the connection here. Hyper drops it on any error of a body or a service.
#[derive(Clone, Copy, Debug)]
pub struct Cut;

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cut by the script")
    }
}

impl std::error::Error for Cut {}

/// A body of one piece is sent with its length, any other is played step by step.
pub fn play(mut steps: Vec<Step>) -> Body {
    if let [Step::Send(bytes)] = steps.as_mut_slice() {
        return Body::from(std::mem::take(bytes));
    }
    let (send, receive) = mpsc::channel(UNDER_WAY);
    tokio::spawn(async move {
        for step in steps {
            let frame = match step {
                Step::Send(bytes) => Ok(Frame::data(bytes)),
                Step::SendStamped(bytes) => Ok(Frame::data(stamped(&bytes))),
                Step::Trailers(trailers) => Ok(Frame::trailers(trailers)),
                Step::Cut => Err(Cut),
                Step::Wait(time) => {
                    tokio::time::sleep(time).await;
                    continue;
                }
                // Until the reader goes.
                Step::Hang => return send.closed().await,
            };
            if send.send(frame).await.is_err() {
                return;
            }
        }
    });
    Body::new(Played(receive))
}

fn stamped(bytes: &Bytes) -> Bytes {
    let mut stamped = format!(": {}\n", clock::nanoseconds()).into_bytes();
    stamped.extend_from_slice(bytes);
    stamped.into()
}

struct Played(mpsc::Receiver<Result<Frame<Bytes>, Cut>>);

impl hyper::body::Body for Played {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        Poll::Ready(ready!(self.0.poll_recv(cx)))
    }
}
