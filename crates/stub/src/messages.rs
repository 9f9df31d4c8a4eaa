//! Anthropic messages: the message, or the events that build it up.

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::{
    answer::{Answer, Step},
    ask::{Ask, Form},
    chat::{self, ARGUMENTS, words},
    script::{Fault, Script},
};

/// As Anthropic sends them with every answer; a gateway with budgets of its own puts others in their place.
const LIMITS: [(&str, &str); 6] = [
    ("anthropic-ratelimit-requests-limit", "4000"),
    ("anthropic-ratelimit-requests-remaining", "3999"),
    ("anthropic-ratelimit-requests-reset", "2026-01-01T00:00:01Z"),
    ("anthropic-ratelimit-tokens-limit", "480000"),
    ("anthropic-ratelimit-tokens-remaining", "479000"),
    ("anthropic-ratelimit-tokens-reset", "2026-01-01T00:00:02Z"),
];

pub fn answer(ask: &Ask, script: &Script, status: StatusCode) -> Answer {
    let mut answer = match (ask.form, script.fault) {
        (Form::Json, Fault::Error200) => Answer::json(status, &overloaded()),
        (Form::Json, _) => Answer::json(status, &message(ask, script)),
        (Form::Stream(_), _) => Answer::new(status, "text/event-stream; charset=utf-8", stream(ask, script)),
    };
    for (name, value) in LIMITS {
        answer.header(name, value);
    }
    answer
}

/// `POST …/messages/count_tokens`.
pub fn count(ask: &Ask, script: &Script, status: StatusCode) -> Answer {
    Answer::json(status, &json!({"input_tokens": script.prompt_tokens.unwrap_or(ask.words)}))
}

fn overloaded() -> Value {
    json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
}

fn message(ask: &Ask, script: &Script) -> Value {
    let content = match &ask.tool {
        Some(name) => {
            json!([{"type": "tool_use", "id": "toolu_stub", "name": name, "input": {"city": "Paris"}}])
        }
        None => json!([{"type": "text", "text": words(script).collect::<String>()}]),
    };
    let mut message = begun(ask, script);
    message["content"] = content;
    message["stop_reason"] = json!(stop_reason(ask));
    if script.fault == Fault::NoUsage {
        message["usage"] = Value::Null;
    } else {
        message["usage"]["output_tokens"] = json!(output(script));
    }
    message
}

fn begun(ask: &Ask, script: &Script) -> Value {
    json!({"id": "msg_stub", "type": "message", "role": "assistant", "model": ask.model, "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": {
            "input_tokens": script.prompt_tokens.unwrap_or(ask.words), "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0, "output_tokens": 1, "service_tier": "standard"}})
}

fn stop_reason(ask: &Ask) -> &'static str {
    if ask.tool.is_some() { "tool_use" } else { "end_turn" }
}

fn output(script: &Script) -> u64 {
    script.completion_tokens.unwrap_or(script.chunks)
}

fn stream(ask: &Ask, script: &Script) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut send = |event: Value| {
        let kind = event["type"].as_str().unwrap_or_default();
        steps.push(Step::Send(format!("event: {kind}\ndata: {event}\n\n").into()));
    };
    if script.fault == Fault::Error200 {
        send(overloaded());
        return steps;
    }
    let mut begun = begun(ask, script);
    if script.fault == Fault::NoUsage {
        begun["usage"] = Value::Null;
    }
    send(json!({"type": "message_start", "message": begun}));
    let block = match &ask.tool {
        Some(name) => json!({"type": "tool_use", "id": "toolu_stub", "name": name, "input": {}}),
        None => json!({"type": "text", "text": ""}),
    };
    send(json!({"type": "content_block_start", "index": 0, "content_block": block}));
    send(json!({"type": "ping"}));
    let delta = |delta: Value| json!({"type": "content_block_delta", "index": 0, "delta": delta});
    match &ask.tool {
        Some(_) => ARGUMENTS
            .iter()
            .for_each(|piece| send(delta(json!({"type": "input_json_delta", "partial_json": piece})))),
        None => words(script).for_each(|word| send(delta(json!({"type": "text_delta", "text": word})))),
    }
    if script.fault == Fault::HangEnd {
        steps.push(Step::Hang);
        return steps;
    }
    send(json!({"type": "content_block_stop", "index": 0}));
    let mut last = json!({"type": "message_delta",
        "delta": {"stop_reason": stop_reason(ask), "stop_sequence": null}});
    if script.fault != Fault::NoUsage {
        last["usage"] = json!({"output_tokens": output(script)});
    }
    send(last);
    send(json!({"type": "message_stop"}));
    chat::paced(steps, script)
}
