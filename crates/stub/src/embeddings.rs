//! OpenAI embeddings: one short vector for each input.

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::{
    answer::Answer,
    ask::Ask,
    chat,
    script::{Fault, Script},
};

pub fn answer(ask: &Ask, script: &Script, status: StatusCode) -> Answer {
    if script.fault == Fault::Error200 {
        return Answer::json(status, &chat::fault_of_200());
    }
    let vector = |index| json!({"object": "embedding", "index": index, "embedding": [0.25, -0.5, 0.125]});
    let data: Vec<Value> = (0..ask.inputs).map(vector).collect();
    let mut body = json!({"object": "list", "data": data, "model": ask.model});
    if script.fault != Fault::NoUsage {
        let prompt = script.prompt_tokens.unwrap_or(ask.words);
        body["usage"] = json!({"prompt_tokens": prompt, "total_tokens": prompt});
    }
    Answer::json(status, &body)
}
