//! Resuming, resetting and answering streams. All of it is put off until the callback has returned.

use super::headers::check_value;
use super::memory::{read, read_text};
use super::{Cx, Outcome};
use crate::headers::Headers;
use crate::state::Deferred;
use crate::status::Status;

const REQUEST: u32 = 0;
const RESPONSE: u32 = 1;

pub(super) fn proxy_continue_stream(cx: &mut Cx<'_>, side: u32) -> Outcome {
    let host = cx.data_mut();
    let context = host.context();
    let Some(stream) = host.stream() else {
        host.misuse("a stream was resumed from a context that has none");
        return Ok(());
    };
    host.deferred.push_back(match side {
        REQUEST => Deferred::ResumeRequest(context),
        RESPONSE => Deferred::ResumeResponse(context),
        _ => return Err(Status::BadArgument.into()),
    });
    // The real host forgets the request's maps here, whichever side is resumed.
    stream.borrow_mut().request.hide();
    Ok(())
}

pub(super) fn proxy_close_stream(cx: &mut Cx<'_>, side: u32) -> Outcome {
    let host = cx.data_mut();
    match side {
        REQUEST | RESPONSE if host.stream().is_some() => {
            let context = host.context();
            host.deferred.push_back(Deferred::Reset(context));
            Ok(())
        }
        REQUEST | RESPONSE => Ok(()),
        _ => Err(Status::BadArgument.into()),
    }
}

#[allow(clippy::too_many_arguments, reason = "the ABI's own signature")]
pub(super) fn proxy_send_local_response(
    cx: &mut Cx<'_>,
    code: u32,
    details: u32,
    details_size: u32,
    body: u32,
    body_size: u32,
    headers: u32,
    headers_size: u32,
    _grpc: i32,
) -> Outcome {
    let details = read_text(cx, details, details_size)?;
    let body = read(cx, body, body_size)?;
    let wire = read(cx, headers, headers_size)?;
    let headers = Headers::from_wire(&wire).ok_or(Status::BadArgument)?;
    let code = u16::try_from(code).map_err(|_| Status::BadArgument)?;
    for (name, value) in headers.iter() {
        check_value(cx, name, value);
    }
    let host = cx.data_mut();
    if host.stream().is_none() {
        host.misuse(format!("a local reply ({code}) was sent from a context that has no stream"));
        return Ok(());
    }
    let context = host.context();
    host.deferred.push_back(Deferred::Reply { context, code, details, headers, body });
    Ok(())
}
