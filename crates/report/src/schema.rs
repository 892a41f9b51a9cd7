//! The JSON Schema of the document.

use crate::{Result, limit};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// The JSON Schema (2020-12) of [`Result`]. It is strict where reading is lenient: members that are not known
/// are refused.
pub fn schema() -> Value {
    let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<Result>().to_value();
    if let Some(members) = schema.as_object_mut() {
        members.insert("$id".to_owned(), json!("urn:bondstone:result:1"));
    }
    tighten(&mut schema, "");
    schema
}

/// Adds the bounds that hold for all numbers and texts.
fn tighten(schema: &mut Value, member: &str) {
    let Some(schema) = schema.as_object_mut() else { return };
    without_null(schema);
    let kind = schema.get("type").and_then(Value::as_str).map(str::to_owned);
    match kind.as_deref() {
        Some("number" | "integer") => {
            let most = if schema.get("format") == Some(&json!("uint32")) { u32::MAX.into() } else { limit::COUNT };
            bound(schema, "minimum", json!(0));
            bound(schema, "maximum", json!(most));
        }
        Some("string") if !schema.contains_key("const") && !schema.contains_key("enum") => {
            bound(schema, "maxLength", json!(limit::text(member)));
        }
        _ => {}
    }
    if schema.get("additionalProperties").is_some_and(Value::is_object) {
        bound(schema, "propertyNames", json!({"maxLength": limit::NAME}));
    }
    for (name, inner) in schema.iter_mut() {
        match (name.as_str(), inner) {
            ("properties" | "$defs", Value::Object(members)) => {
                members.iter_mut().for_each(|(name, inner)| tighten(inner, name));
            }
            ("items" | "additionalProperties", inner) => tighten(inner, member),
            ("oneOf" | "anyOf", Value::Array(choices)) => choices.iter_mut().for_each(|inner| tighten(inner, member)),
            _ => {}
        }
    }
}

/// What is not known is left out, it is never null.
fn without_null(schema: &mut Map<String, Value>) {
    if let Some(Value::Array(kinds)) = schema.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if let [kind] = kinds.as_slice() {
            let kind = kind.clone();
            schema.insert("type".to_owned(), kind);
        }
    }
    let null = json!({"type": "null"});
    if let Some(Value::Array(choices)) = schema.get_mut("anyOf") {
        choices.retain(|choice| *choice != null);
        if let [Value::Object(choice)] = choices.as_slice() {
            let choice = choice.clone();
            schema.remove("anyOf");
            schema.extend(choice);
        }
    }
    if schema.get("default") == Some(&Value::Null) {
        schema.remove("default");
    }
}

fn bound(schema: &mut Map<String, Value>, name: &str, value: Value) {
    schema.entry(name).or_insert(value);
}
