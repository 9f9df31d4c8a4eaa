//! `tollgate count` on requests from a file.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on has failed"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn scratch(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, text).unwrap();
    path
}

fn count(args: &[&str], body: &Path) -> (bool, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_tollgate")).arg("count").args(args).arg(body).output().unwrap();
    let said = if output.status.success() { output.stdout } else { output.stderr };
    (output.status.success(), String::from_utf8(said).unwrap())
}

const CHAT: &str = r#"{"model": "gpt-4o", "n": 2, "max_tokens": 100, "messages": [{"role": "user", "content": "hello world"}]}"#;

#[test]
fn a_request_is_counted_as_the_filter_would_hold_it() {
    let body = scratch("chat.json", CHAT);
    // 3 for the message, 1 for the role, 2 for the text, 3 for the opening of the answer.
    let expected = "\
model:  gpt-4o (rule gpt-4o*)
prompt: 9 tokens, counted with o200k_base
output: 200 tokens held for 2 answers, the request's cap is 100
hold:   209 tokens
";
    assert_eq!(count(&[], &body), (true, expected.to_owned()));
}

#[test]
fn the_model_and_the_policy_can_be_chosen() {
    let body = scratch("chat-for-another.json", CHAT);
    let said = count(&["--model", "claude-3-opus"], &body).1;
    assert!(
        said.starts_with("model:  claude-3-opus (rule claude-3*)\nprompt: 10 tokens, estimated"),
        "{said}"
    );

    let policy = scratch("models.yaml", "version: 1\nmodels: [{match: \"*\", max_output_tokens: 50}]\n");
    let said = count(&["--policy", policy.to_str().unwrap()], &body).1;
    assert!(said.contains("output: 100 tokens held for 2 answers"), "{said}");
}

#[test]
fn what_is_no_request_or_no_policy_is_refused_in_words() {
    let body = scratch("broken.json", "{\"messages\": [");
    assert_eq!(count(&[], &body), (false, "The body is not valid JSON (at byte 13).\n".to_owned()));

    let body = scratch("good.json", CHAT);
    let policy = scratch("bad.yaml", "version: 1\nlimit: []\n");
    let (passed, said) = count(&["--policy", policy.to_str().unwrap()], &body);
    assert!(!passed && said.contains("did you mean `limits`?"), "{said}");
}

#[test]
fn each_api_is_counted_by_its_own_rules() {
    for (api, body, expected) in [
        (
            "openai_completions",
            r#"{"model": "gpt-4o", "prompt": ["hello world", [1, 2, 3]], "n": 2, "max_tokens": 10}"#,
            "prompt: 5 tokens, counted with o200k_base\noutput: 40 tokens held for 4 answers, the request's cap is 10\n",
        ),
        (
            "openai_embeddings",
            r#"{"model": "gpt-4o", "input": "hello world"}"#,
            "prompt: 2 tokens, counted with o200k_base\noutput: 0 tokens held for 1 answer, the API has no output\n",
        ),
        (
            "openai_responses",
            r#"{"model": "gpt-4o", "input": "hello world", "previous_response_id": "hello", "max_output_tokens": 10}"#,
            "prompt: 2,010 tokens, counted with o200k_base\noutput: 10 tokens held for 1 answer, the request's cap is 10\n",
        ),
        (
            "anthropic_messages",
            r#"{"model": "gpt-4o", "system": "hello world", "messages": [], "max_tokens": 10}"#,
            "prompt: 9 tokens, counted with o200k_base\noutput: 10 tokens held for 1 answer, the request's cap is 10\n",
        ),
    ] {
        let body = scratch(&format!("{api}.json"), body);
        let (passed, said) = count(&["--api", api], &body);
        assert!(passed && said.contains(expected), "{api}: {said}");
    }
    let body = scratch("any.json", CHAT);
    let (passed, said) = count(&["--api", "request_only"], &body);
    assert!(!passed && said.contains("one of openai_chat, openai_completions"), "{said}");
}
