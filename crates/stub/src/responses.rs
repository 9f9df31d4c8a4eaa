//! OpenAI Responses: the object, or the events that build it up. With `background` it is queued, and no more.

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::{
    answer::{Answer, Step},
    ask::{Ask, Form},
    chat::{self, ARGUMENTS, CREATED, words},
    script::{Fault, Script},
};

pub fn answer(ask: &Ask, script: &Script, status: StatusCode) -> Answer {
    match (ask.form, script.fault) {
        (Form::Json, Fault::Error200) => Answer::json(status, &chat::fault_of_200()),
        (Form::Json, _) if ask.background => Answer::json(status, &object(ask, "queued", &[], Value::Null)),
        (Form::Json, _) => {
            let whole = object(ask, "completed", &[item(ask, script, "completed")], usage(ask, script));
            Answer::json(status, &whole)
        }
        (Form::Stream(_), _) => Answer::new(status, "text/event-stream; charset=utf-8", stream(ask, script)),
    }
}

fn stream(ask: &Ask, script: &Script) -> Vec<Step> {
    let mut events = Events { steps: Vec::new(), number: 0 };
    if script.fault == Fault::Error200 {
        let error = json!({"code": "server_error", "message": "The server had an error.", "param": null});
        events.send("error", error);
        return events.steps;
    }
    let begun = object(ask, "in_progress", &[], Value::Null);
    events.send("response.created", json!({"response": begun}));
    events.send("response.in_progress", json!({"response": begun}));
    let mut empty = item(ask, script, "in_progress");
    let place = json!({"item_id": "item_stub", "output_index": 0});
    match &ask.tool {
        Some(_) => {
            empty["arguments"] = json!("");
            events.send("response.output_item.added", json!({"output_index": 0, "item": empty}));
            for piece in ARGUMENTS {
                let delta = with(&place, json!({"delta": piece}));
                events.send("response.function_call_arguments.delta", delta);
            }
            let done = with(&place, json!({"name": ask.tool, "arguments": ARGUMENTS.concat()}));
            events.send("response.function_call_arguments.done", done);
        }
        None => {
            empty["content"] = json!([]);
            events.send("response.output_item.added", json!({"output_index": 0, "item": empty}));
            let place = with(&place, json!({"content_index": 0}));
            events.send("response.content_part.added", with(&place, json!({"part": part("")})));
            for word in words(script) {
                let delta = with(&place, json!({"delta": word, "logprobs": []}));
                events.send("response.output_text.delta", delta);
            }
            let text: String = words(script).collect();
            events.send("response.output_text.done", with(&place, json!({"text": text, "logprobs": []})));
            events.send("response.content_part.done", with(&place, json!({"part": part(&text)})));
        }
    }
    if script.fault == Fault::HangEnd {
        events.steps.push(Step::Hang);
        return events.steps;
    }
    let item = item(ask, script, "completed");
    events.send("response.output_item.done", json!({"output_index": 0, "item": item}));
    let whole = object(ask, "completed", &[item], usage(ask, script));
    events.send("response.completed", json!({"response": whole}));
    chat::paced(events.steps, script)
}

struct Events {
    steps: Vec<Step>,
    number: u64,
}

impl Events {
    fn send(&mut self, kind: &str, members: Value) {
        let event = with(&json!({"type": kind, "sequence_number": self.number}), members);
        self.number += 1;
        self.steps.push(Step::Send(format!("event: {kind}\ndata: {event}\n\n").into()));
    }
}

/// The members of both.
fn with(one: &Value, other: Value) -> Value {
    let mut both = one.clone();
    if let (Some(both), Value::Object(other)) = (both.as_object_mut(), other) {
        both.extend(other);
    }
    both
}

fn part(text: &str) -> Value {
    json!({"type": "output_text", "annotations": [], "logprobs": [], "text": text})
}

fn item(ask: &Ask, script: &Script, status: &str) -> Value {
    match &ask.tool {
        Some(name) => {
            json!({"id": "item_stub", "type": "function_call", "status": status, "call_id": "call_stub",
            "name": name, "arguments": ARGUMENTS.concat()})
        }
        None => {
            let text: String = words(script).collect();
            json!({"id": "item_stub", "type": "message", "status": status, "role": "assistant",
                "content": [part(&text)]})
        }
    }
}

fn usage(ask: &Ask, script: &Script) -> Value {
    if script.fault == Fault::NoUsage {
        return Value::Null;
    }
    let input = script.prompt_tokens.unwrap_or(ask.words);
    let output = script.completion_tokens.unwrap_or(script.chunks);
    json!({"input_tokens": input, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": input + output})
}

fn object(ask: &Ask, status: &str, output: &[Value], usage: Value) -> Value {
    json!({
        "id": "resp_stub", "object": "response", "created_at": CREATED, "status": status,
        "background": ask.background, "error": null, "incomplete_details": null, "instructions": null,
        "max_output_tokens": null, "model": ask.model, "output": output, "parallel_tool_calls": true,
        "previous_response_id": null, "reasoning": {"effort": null, "summary": null}, "store": true,
        "temperature": 1.0, "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [],
        "top_p": 1.0, "truncation": "disabled", "usage": usage, "metadata": {},
    })
}
