//! No input makes the module work out of proportion to its size: a worker that counts does nothing else.

use serde_json::json;

use super::{fuel, prose, roomy_proxy, user};
use crate::common::proxy::Stream;
use crate::common::proxy::compiled::CompiledProxy;
use crate::common::requests::{Ask, DONE, answer, begin_events, delta, usage_event};
use crate::flows::{launch, limit, policy};

const SIZE: usize = 64 * 1024;

/// The dearest text costs so much more than prose of the same length.
const DEAREST: u64 = 6;

#[test]
fn no_text_is_dearer_than_a_few_times_prose() {
    let proxy = roomy_proxy();
    let plain = fuel(&proxy, &user(&prose(SIZE)));
    let runs = [
        "a",
        " ",
        "\n",
        "\u{1f600}",
        "\u{4e2d}",
        "0",
        "'",
        "\r\n ",
        "aB",
        " a",
        "a\u{301}",
        "\u{e000}",
        "/*",
        "xyz'LL",
    ];
    let mut dear = Vec::new();
    for unit in runs {
        let text = unit.repeat(SIZE / unit.len());
        dear.push((fuel(&proxy, &user(&text)), unit));
    }
    for (fuel, unit) in dear {
        assert!(fuel <= DEAREST * plain, "{unit:?}: {fuel} after {plain}");
    }
}

#[test]
fn no_shape_of_a_body_is_dearer_than_a_few_times_prose() {
    let proxy = roomy_proxy();
    let plain = fuel(&proxy, &user(&prose(SIZE)));
    let many = |unit: &str| unit.repeat(SIZE / unit.len()).trim_end_matches(',').to_owned();
    let around = |list: String| Ask::raw(format!("{{\"model\":\"gpt-4o\",\"messages\":[{list}]}}"));
    let member = |name: &str, value: String| {
        Ask::raw(format!("{{\"model\":\"gpt-4o\",\"messages\":[],\"{name}\":{value}}}"))
    };
    let shapes = [
        ("messages", around(many("{\"role\":\"user\",\"content\":\"a\"},"))),
        ("empty messages", around(many("{},"))),
        ("escapes", user("").with("messages", json!([])).path("/v1/chat/completions")),
        ("escaped text", around(format!("{{\"role\":\"user\",\"content\":\"{}\"}}", many("\\u0061")))),
        ("nesting", around(many("["))),
        ("nested objects", member("x", many("{\"a\":"))),
        (
            "unknown members",
            Ask::raw(format!("{{{}\"model\":\"gpt-4o\",\"messages\":[]}}", many("\"a\":1,") + ",")),
        ),
        ("one member again", Ask::raw(format!("{{{}\"messages\":[]}}", many("\"max_tokens\":1,") + ","))),
        ("long number", member("max_tokens", many("9"))),
        ("long exponent", member("max_tokens", format!("1e{}", many("9")))),
        ("long fraction", member("max_tokens", format!("0.{}1", many("0")))),
        ("white space", Ask::raw(many(" "))),
        (
            "tools",
            member(
                "tools",
                format!(
                    "[{}]",
                    many(
                        "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\"}}},"
                    )
                ),
            ),
        ),
        (
            "parts",
            around(format!(
                "{{\"role\":\"user\",\"content\":[{}]}}",
                many("{\"type\":\"text\",\"text\":\"a\"},")
            )),
        ),
        (
            "picture",
            around(format!(
                "{{\"role\":\"user\",\"content\":[{{\"type\":\"image_url\",\"image_url\":{{\"url\":\"data:image/png;base64,{}\"}}}}]}}",
                many("iVBORw0KGgoA")
            )),
        ),
        ("long model", Ask::raw(format!("{{\"model\":\"{}\",\"messages\":[]}}", many("g")))),
    ];
    for (name, ask) in shapes {
        let fuel = fuel(&proxy, &ask);
        assert!(fuel <= DEAREST * plain, "{name}: {fuel} after {plain}");
    }
}

#[test]
fn twice_the_text_is_no_more_than_twice_the_work() {
    for unit in ["a", " ", "\u{1f600}", "ab \n"] {
        let [once, twice] =
            [SIZE, 2 * SIZE].map(|size| fuel(&roomy_proxy(), &user(&unit.repeat(size / unit.len()))));
        assert!(twice <= once * 22 / 10, "{unit:?}: {once}, then {twice}");
    }
}

#[test]
fn a_caller_out_of_requests_does_not_have_its_prompt_counted() {
    let limits = json!([limit("tokens", "tokens", 4_000_000_000), limit("requests", "requests", 1)]);
    let proxy = launch(&policy(limits));
    let big = user(&prose(SIZE));
    let counted = fuel(&proxy, &big);
    let refused = fuel(&proxy, &big);
    assert!(refused < counted / 20, "{refused} after {counted}");
}

#[test]
fn a_prompt_that_cannot_fit_is_counted_no_further_than_the_limit() {
    let proxy = launch(&policy(json!([limit("tokens", "tokens", 1000)])));
    let big = user(&prose(SIZE));
    let (stopped, whole) = (fuel(&proxy, &big), fuel(&roomy_proxy(), &big));
    assert!(stopped < whole / 3, "{stopped} of {whole}");
}

#[test]
fn a_conversation_that_goes_on_is_not_counted_from_its_beginning() {
    let proxy = roomy_proxy();
    let turn = |text: &str| json!({"role": "user", "content": text});
    let long = prose(SIZE / 4);
    let first = fuel(&proxy, &Ask::new(10).with("messages", json!([turn(&long)])));
    let second = fuel(&proxy, &Ask::new(10).with("messages", json!([turn(&long), turn("And then?")])));
    assert!(second < first, "{second} after {first}");
}

/// Fuel of one chunk in the middle of a stream.
fn chunk_fuel(proxy: &CompiledProxy, stream: &impl Stream, chunk: &[u8]) -> u64 {
    proxy.vm(0).reset_fuel();
    stream.answer_chunk(chunk, false);
    proxy.vm(0).fuel_used()
}

#[test]
fn no_chunk_of_an_answer_is_dearer_than_a_few_times_an_ordinary_one() {
    let proxy = roomy_proxy();
    let open = || {
        let stream = Ask::stream(100_000).send(&proxy);
        begin_events(&stream);
        stream
    };
    let plain: Vec<u8> = prose(SIZE / 4).split_inclusive(' ').map(delta).collect::<String>().into_bytes();
    let ordinary = chunk_fuel(&proxy, &open(), &plain);
    let many = |unit: &str| unit.repeat(plain.len() / unit.len());
    let chunks = [
        ("one endless line", many("x")),
        ("comments", many(": \n\n")),
        ("line ends", many("\n")),
        ("carriage returns", many("\r")),
        ("empty data", many("data:\n")),
        ("usage", usage_event(9, 1).repeat(plain.len() / usage_event(9, 1).len())),
        ("done", many(DONE)),
        ("nesting", format!("data: {}\n\n", many("["))),
        ("escapes", delta(&many("\"\\"))),
        ("one letter", delta(&many("a"))),
        ("members", format!("data: {{{}\"a\":1}}\n\n", many("\"a\":1,"))),
    ];
    for (name, chunk) in chunks {
        let fuel = chunk_fuel(&proxy, &open(), chunk.as_bytes());
        assert!(fuel <= 8 * ordinary, "{name}: {fuel} after {ordinary}");
    }
}

#[test]
fn a_late_chunk_costs_what_an_early_one_does() {
    let proxy = roomy_proxy();
    let stream = Ask::stream(100_000).send(&proxy);
    begin_events(&stream);
    let chunk = delta(" word");
    let measure = || (0..20).map(|_| chunk_fuel(&proxy, &stream, chunk.as_bytes())).sum::<u64>();
    let _first = measure();
    let early = measure();
    (0..3000).for_each(|_| stream.answer_chunk(chunk.as_bytes(), false));
    let late = measure();
    assert!(late <= early + early / 10, "{late} after {early}");
    // Nor in the midst of a word that does not end.
    let (letter, letters) = (delta("a"), 4000);
    let run = (0..letters).map(|_| chunk_fuel(&proxy, &stream, letter.as_bytes())).sum::<u64>();
    assert!(run / letters <= 6 * early / 20, "{} a letter after {early}", run / letters);
}

#[test]
fn an_ordinary_exchange_makes_few_calls_to_the_host() {
    let proxy = launch(&policy(json!([limit("tokens", "tokens", 4_000_000)])));
    let exchange = || answer(&Ask::new(10).send(&proxy), 9, 1);
    exchange();
    let calls = || proxy.vm(0).hostcalls().values().sum::<u64>();
    let before = calls();
    exchange();
    let made = calls() - before;
    assert!(made <= 45, "{made}: {:?}", proxy.vm(0).hostcalls());
}
