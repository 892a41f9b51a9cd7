//! The JSON Schema of documents.

use crate::{Result, limit};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// Returns the JSON Schema (2020-12) of [`Result`]. It rejects unknown members, which
/// [`Document::read`](crate::Document::read) accepts.
pub fn schema() -> Value {
    let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<Result>().to_value();
    if let Some(members) = schema.as_object_mut() {
        members.insert("$id".to_owned(), json!("urn:bondstone:result:2"));
    }
    add_limits(&mut schema, "");
    schema
}

/// Adds the limits of all numbers and strings.
fn add_limits(schema: &mut Value, member: &str) {
    let Some(schema) = schema.as_object_mut() else { return };
    remove_null(schema);
    let value_type = schema.get("type").and_then(Value::as_str).map(str::to_owned);
    match value_type.as_deref() {
        Some("number" | "integer") => {
            let maximum = if schema.get("format") == Some(&json!("uint32")) { u32::MAX.into() } else { limit::COUNT };
            set_default(schema, "minimum", json!(0));
            set_default(schema, "maximum", json!(maximum));
        }
        Some("string") if !schema.contains_key("const") && !schema.contains_key("enum") => {
            set_default(schema, "maxLength", json!(limit::text(member)));
        }
        _ => {}
    }
    if schema.get("additionalProperties").is_some_and(Value::is_object) {
        set_default(schema, "propertyNames", json!({"maxLength": limit::NAME}));
    }
    for (name, inner) in schema.iter_mut() {
        match (name.as_str(), inner) {
            ("properties" | "$defs", Value::Object(members)) => {
                members.iter_mut().for_each(|(name, inner)| add_limits(inner, name));
            }
            ("items" | "additionalProperties", inner) => add_limits(inner, member),
            ("oneOf" | "anyOf", Value::Array(choices)) => {
                choices.iter_mut().for_each(|inner| add_limits(inner, member))
            }
            _ => {}
        }
    }
}

/// Removes null from the types: unknown members are left out.
fn remove_null(schema: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        if let [single] = types.as_slice() {
            let single = single.clone();
            schema.insert("type".to_owned(), single);
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

fn set_default(schema: &mut Map<String, Value>, name: &str, value: Value) {
    schema.entry(name).or_insert(value);
}
