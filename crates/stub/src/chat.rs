//! OpenAI chat completions: a plain answer, or a stream of chunks.
//!
//! The text is made of words that are one token each in the public vocabularies, one a chunk, so
//! that a reader who counts what passes can be held to the number of chunks.

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::{
    answer::{Answer, Step, error_body},
    ask::{Ask, Form, StreamUsage},
    script::{Fault, Script, Stamp},
};

const WORDS: [&str; 8] = ["The", " water", " in", " the", " river", " is", " very", " cold"];

/// Two bytes, three bytes, four bytes: every place where UTF-8 can be cut.
const WIDE_WORDS: [&str; 4] = ["Gr\u{fc}n", " \u{6c34}", " \u{1f30a}", " caf\u{e9}"];

pub(crate) const CREATED: u64 = 1_767_225_600;

/// As OpenAI sends them with every answer; a gateway with budgets of its own puts others in their place.
const LIMITS: [(&str, &str); 6] = [
    ("x-ratelimit-limit-requests", "5000"),
    ("x-ratelimit-remaining-requests", "4999"),
    ("x-ratelimit-reset-requests", "12ms"),
    ("x-ratelimit-limit-tokens", "160000"),
    ("x-ratelimit-remaining-tokens", "159976"),
    ("x-ratelimit-reset-tokens", "9ms"),
];

pub fn answer(ask: &Ask, script: &Script, status: StatusCode) -> Answer {
    let mut answer = match (ask.form, script.fault) {
        (Form::Json, Fault::Error200) => Answer::json(status, &fault_of_200()),
        (Form::Json, _) => Answer::json(status, &plain(ask, script)),
        (Form::Stream(usage), _) => {
            let mut answer =
                Answer::new(status, "text/event-stream; charset=utf-8", stream(ask, script, usage));
            answer.header("cache-control", "no-cache");
            answer
        }
    };
    for (name, value) in LIMITS {
        answer.header(name, value);
    }
    answer
}

pub(crate) fn fault_of_200() -> Value {
    error_body("The server had an error while processing your request.", "server_error", &Value::Null)
}

fn plain(ask: &Ask, script: &Script) -> Value {
    let choices: Vec<Value> = (0..ask.choices)
        .map(|index| {
            json!({"index": index, "message": message(ask, script), "logprobs": null, "finish_reason": finish(ask)})
        })
        .collect();
    let mut body = json!({
        "id": "chatcmpl-stub", "object": "chat.completion", "created": CREATED, "model": ask.model,
        "choices": choices, "system_fingerprint": "fp_stub",
    });
    if script.fault != Fault::NoUsage {
        body["usage"] = usage(ask, script, script.chunks * ask.choices);
    }
    body
}

fn message(ask: &Ask, script: &Script) -> Value {
    match &ask.tool {
        Some(name) => {
            json!({"role": "assistant", "content": null, "refusal": null, "tool_calls": [{
                "id": "call_stub", "type": "function",
                "function": {"name": name, "arguments": ARGUMENTS.concat()},
            }]})
        }
        None => {
            let text: String = words(script).collect();
            json!({"role": "assistant", "content": text, "refusal": null, "annotations": []})
        }
    }
}

pub(crate) const ARGUMENTS: [&str; 4] = ["{\"", "city", "\":\"", "Paris\"}"];

fn finish(ask: &Ask) -> &'static str {
    if ask.tool.is_some() { "tool_calls" } else { "stop" }
}

pub(crate) fn words(script: &Script) -> impl Iterator<Item = &'static str> + use<> {
    let words: &[&str] = if script.fault == Fault::SplitUtf8 { &WIDE_WORDS } else { &WORDS };
    (0..script.chunks).zip(words.iter().copied().cycle()).map(|(_, word)| word)
}

/// `seen`: what has been sent so far, the default for what the answer cost.
pub(crate) fn usage(ask: &Ask, script: &Script, seen: u64) -> Value {
    let prompt = script.prompt_tokens.unwrap_or(ask.words);
    let completion = script.completion_tokens.unwrap_or(seen);
    json!({
        "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0,
            "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0},
    })
}

/// With the script's delay between two events, and each stamped if it says so.
pub(crate) fn paced(steps: Vec<Step>, script: &Script) -> Vec<Step> {
    let mut paced = Vec::new();
    for step in steps {
        if !paced.is_empty() && !script.chunk_delay.is_zero() {
            paced.push(Step::Wait(script.chunk_delay));
        }
        paced.push(match (script.stamp, step) {
            (Stamp::Nanoseconds, Step::Send(bytes)) => Step::SendStamped(bytes),
            (_, step) => step,
        });
    }
    paced
}

fn stream(ask: &Ask, script: &Script, stream_usage: StreamUsage) -> Vec<Step> {
    let mut events = Events { ask, script, stream_usage, seen: 0, steps: Vec::new() };
    if script.fault == Fault::Error200 {
        events.send(&fault_of_200());
        return events.steps;
    }
    for index in 0..ask.choices {
        events.delta(index, &json!({"role": "assistant", "content": "", "refusal": null}), None);
    }
    if ask.tool.is_some() {
        events.tool_call()
    } else {
        events.text()
    }
    if script.fault == Fault::HangEnd {
        events.steps.push(Step::Hang);
        return events.steps;
    }
    for index in 0..ask.choices {
        events.delta(index, &json!({}), Some(finish(ask)));
    }
    events.end();
    events.steps
}

struct Events<'a> {
    ask: &'a Ask,
    script: &'a Script,
    stream_usage: StreamUsage,
    /// Tokens sent so far, one a piece of text.
    seen: u64,
    steps: Vec<Step>,
}

impl Events<'_> {
    fn text(&mut self) {
        for word in words(self.script) {
            for index in 0..self.ask.choices {
                self.seen += 1;
                self.delta(index, &json!({"content": word}), None);
            }
        }
    }

    fn tool_call(&mut self) {
        let call = json!({"index": 0, "id": "call_stub", "type": "function",
            "function": {"name": self.ask.tool, "arguments": ""}});
        self.delta(0, &json!({"tool_calls": [call]}), None);
        for piece in ARGUMENTS {
            self.seen += 1;
            self.delta(0, &json!({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}), None);
        }
    }

    fn end(&mut self) {
        if self.stream_usage == StreamUsage::Asked && self.script.fault != Fault::NoUsage {
            let mut last = self.chunk(json!([]));
            last["usage"] = usage(self.ask, self.script, self.seen);
            self.send(&last);
        }
        if self.script.fault == Fault::UsageThenEvent {
            let mut odd = self.chunk(json!([]));
            odd["obfuscation"] = json!("aX9");
            self.send(&odd);
        }
        if self.script.fault != Fault::NoDone {
            self.steps.push(Step::Send("data: [DONE]\n\n".into()));
        }
    }

    fn delta(&mut self, index: u64, delta: &Value, finish: Option<&str>) {
        let mut chunk =
            self.chunk(json!([{"index": index, "delta": delta, "logprobs": null, "finish_reason": finish}]));
        match (self.script.fault, self.stream_usage) {
            (Fault::UsageEveryChunk, _) => chunk["usage"] = usage(self.ask, self.script, self.seen),
            (_, StreamUsage::Asked) => chunk["usage"] = Value::Null,
            (_, StreamUsage::NotAsked) => {}
        }
        if !self.steps.is_empty() && !self.script.chunk_delay.is_zero() {
            self.steps.push(Step::Wait(self.script.chunk_delay));
        }
        self.send(&chunk);
    }

    fn chunk(&self, choices: Value) -> Value {
        json!({
            "id": "chatcmpl-stub", "object": "chat.completion.chunk", "created": CREATED,
            "model": self.ask.model, "choices": choices, "system_fingerprint": "fp_stub",
        })
    }

    fn send(&mut self, event: &Value) {
        let bytes = format!("data: {event}\n\n").into();
        self.steps.push(match self.script.stamp {
            Stamp::None => Step::Send(bytes),
            Stamp::Nanoseconds => Step::SendStamped(bytes),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(form: Form) -> Ask {
        Ask { model: "m".into(), form, choices: 1, tool: None, words: 12, inputs: 1, background: false }
    }

    fn script(fault: Fault) -> Script {
        Script { fault, chunks: 3, completion_tokens: Some(600), ..Script::default() }
    }

    /// The stream's events, as the text after `data: `.
    fn events(stream_usage: StreamUsage, fault: Fault) -> Vec<String> {
        let steps = stream(&ask(Form::Stream(stream_usage)), &script(fault), stream_usage);
        let event = |step: &Step| match step {
            Step::Send(bytes) => {
                Some(String::from_utf8_lossy(bytes).trim_start_matches("data: ").trim_end().to_owned())
            }
            Step::SendStamped(_) | Step::Wait(_) | Step::Trailers(_) | Step::Cut | Step::Hang => None,
        };
        steps.iter().filter_map(event).collect()
    }

    fn json(event: &str) -> Value {
        serde_json::from_str(event).unwrap()
    }

    #[test]
    fn usage_comes_last_and_alone_and_only_when_asked() {
        let asked = events(StreamUsage::Asked, Fault::None);
        let [chunks @ .., usage, done] = asked.as_slice() else { panic!("{asked:?}") };
        assert_eq!(done, "[DONE]");
        assert_eq!(json(usage)["choices"], json!([]));
        assert_eq!(json(usage)["usage"]["total_tokens"], 612);
        assert!(chunks.iter().all(|chunk| json(chunk).get("usage") == Some(&Value::Null)));

        let not_asked = events(StreamUsage::NotAsked, Fault::None);
        assert_eq!(not_asked.len(), asked.len() - 1);
        assert!(not_asked.iter().all(|event| !event.contains("usage")));
    }

    #[test]
    fn each_fault_bends_the_stream_in_its_own_way() {
        use StreamUsage::Asked;
        let plain = events(Asked, Fault::None);
        assert!(events(Asked, Fault::NoUsage).iter().all(|event| !event.contains("prompt_tokens")));
        assert_eq!(events(Asked, Fault::NoDone), plain[..plain.len() - 1]);
        let odd = events(Asked, Fault::UsageThenEvent);
        assert_eq!(odd.len(), plain.len() + 1);
        assert!(odd[odd.len() - 3].contains("prompt_tokens") && odd[odd.len() - 2].contains("obfuscation"));
        let running = events(StreamUsage::NotAsked, Fault::UsageEveryChunk);
        assert!(running[..running.len() - 1].iter().all(|event| event.contains("prompt_tokens")));
        assert!(events(Asked, Fault::Error200)[0].starts_with("{\"error\""));
    }

    #[test]
    fn a_tool_on_offer_is_called() {
        let ask = Ask { tool: Some("find".into()), ..ask(Form::Json) };
        let body = plain(&ask, &Script::default());
        assert_eq!(body["choices"][0]["finish_reason"], "tool_calls");
        let call = &body["choices"][0]["message"]["tool_calls"][0]["function"];
        assert_eq!(call["name"], "find");
        assert_eq!(json(call["arguments"].as_str().unwrap()), json!({"city": "Paris"}));
    }
}
