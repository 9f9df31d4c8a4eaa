//! OpenAI completions: a plain answer, or a stream of chunks.

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::{
    answer::{Answer, Step},
    ask::{Ask, Form, StreamUsage},
    chat::{self, CREATED, usage, words},
    script::{Fault, Script},
};

pub fn answer(ask: &Ask, script: &Script, status: StatusCode) -> Answer {
    match (ask.form, script.fault) {
        (Form::Json, Fault::Error200) => Answer::json(status, &chat::fault_of_200()),
        (Form::Json, _) => {
            let text: String = words(script).collect();
            let choices: Vec<Value> =
                (0..ask.choices).map(|index| choice(index, &text, Some("stop"))).collect();
            let mut body = body(ask, &choices);
            if script.fault != Fault::NoUsage {
                body["usage"] = usage(ask, script, script.chunks * ask.choices);
            }
            Answer::json(status, &body)
        }
        (Form::Stream(stream_usage), _) => {
            Answer::new(status, "text/event-stream; charset=utf-8", stream(ask, script, stream_usage))
        }
    }
}

fn stream(ask: &Ask, script: &Script, stream_usage: StreamUsage) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut send = |event: Value| steps.push(Step::Send(format!("data: {event}\n\n").into()));
    for word in words(script) {
        (0..ask.choices).for_each(|index| send(body(ask, &[choice(index, word, None)])));
    }
    (0..ask.choices).for_each(|index| send(body(ask, &[choice(index, "", Some("stop"))])));
    if stream_usage == StreamUsage::Asked && script.fault != Fault::NoUsage {
        let mut last = body(ask, &[]);
        last["usage"] = usage(ask, script, script.chunks * ask.choices);
        send(last);
    }
    steps.push(Step::Send("data: [DONE]\n\n".into()));
    chat::paced(steps, script)
}

fn body(ask: &Ask, choices: &[Value]) -> Value {
    json!({"id": "cmpl-stub", "object": "text_completion", "created": CREATED, "model": ask.model,
        "choices": choices})
}

fn choice(index: u64, text: &str, finish: Option<&str>) -> Value {
    json!({"text": text, "index": index, "logprobs": null, "finish_reason": finish})
}
