//! `google.protobuf.Struct` as its wire bytes → a tree.
//!
//! Envoy's API promises that a Struct reaches a plugin as JSON text; Envoy 1.40 hands over the message as
//! it stands on the wire (seen on the released build). Both are taken.

use prost::Message as _;
use prost_types::value::Kind;
use prost_types::{Struct, Value as Node};
use serde_json::{Map, Number, Value};

/// `None` for bytes that are no Struct with something in it.
pub(super) fn parse(bytes: &[u8]) -> Option<Value> {
    let document = Struct::decode(bytes).ok()?;
    (!document.fields.is_empty()).then(|| object(document))
}

fn object(document: Struct) -> Value {
    Value::Object(document.fields.into_iter().map(|(key, node)| (key, value(node))).collect::<Map<_, _>>())
}

fn value(node: Node) -> Value {
    match node.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(flag)) => Value::Bool(flag),
        Some(Kind::NumberValue(number)) => Number::from_f64(number).map_or(Value::Null, Value::Number),
        Some(Kind::StringValue(text)) => Value::String(text),
        Some(Kind::ListValue(list)) => Value::Array(list.values.into_iter().map(value).collect()),
        Some(Kind::StructValue(document)) => object(document),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_struct_on_the_wire_is_the_same_document_as_its_text() {
        let document = Struct {
            fields: [
                ("version".to_owned(), Node { kind: Some(Kind::NumberValue(1.0)) }),
                ("response".to_owned(), Node { kind: Some(Kind::StructValue(Struct::default())) }),
            ]
            .into(),
        };
        let tree = parse(&document.encode_to_vec());
        assert_eq!(tree, Some(serde_json::json!({"version": 1.0, "response": {}})));
    }

    #[test]
    fn bytes_that_are_no_struct_are_left_to_whoever_reports_them() {
        for bytes in [&b""[..], b"\n", b"\n\xff\xff\xff\xff\x0f", b"\xff\xff", b"{", b"version: 1"] {
            assert_eq!(parse(bytes), None, "{bytes:?}");
        }
        // A Struct nested without end is cut off by the decoder's own bound.
        let nested = (0..10_000).fold(Vec::new(), |inner: Vec<u8>, _| [b"\n\x02*\x00", &inner[..]].concat());
        let _whatever = parse(&nested);
    }
}
