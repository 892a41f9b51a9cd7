//! `bondstone nf`.

use crate::exit::Exit;
use crate::stdout::stdout;
use crate::table::Table;
use anyhow::anyhow;
use diagnostics::{Diagnostic, Diagnostics};
use graph::{BuildContext, NfKind, Registry, Spread, Steering};
use serde_json::{Value, json};
use std::io::Write;

#[derive(clap::Subcommand)]
pub(crate) enum Nf {
    /// Lists the kinds of NFs.
    #[command(after_help = "Example:\n  bondstone nf list")]
    List {
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Describes an NF: settings with types and defaults, inputs, outputs, drop reasons, an example.
    #[command(after_help = "Example:\n  bondstone nf show tee")]
    Show {
        /// Kind of NF.
        name: String,
        /// Prints JSON, with the JSON Schema of the settings.
        #[arg(long)]
        json: bool,
    },
}

impl Nf {
    pub(crate) fn run(&self, registry: &Registry) -> anyhow::Result<Exit> {
        match self {
            Nf::List { json: true } => {
                let all: Vec<_> = registry.iter().map(|k| json!({ "name": k.name, "about": k.about })).collect();
                writeln!(stdout(), "{:#}", Value::from(all))?;
            }
            Nf::List { json: false } => {
                let mut table = Table::new(&["nf", "description"]);
                registry.iter().for_each(|k| table.row([k.name.to_owned(), k.about.to_owned()]));
                write!(stdout(), "{table}")?;
            }
            Nf::Show { name, json } => {
                let Some(kind) = registry.get(name) else {
                    let known: Vec<_> = registry.iter().map(|k| k.name).collect();
                    let remedy = match config::nearest(name, known.iter().copied()) {
                        Some(near) => format!("did you mean {near:?}?"),
                        None => format!("use one of {}", known.join(", ")),
                    };
                    let d = Diagnostic::new("unknown kind of NF").value(name).remedy(remedy);
                    return Err(Diagnostics(vec![d]).into());
                };
                if *json {
                    writeln!(stdout(), "{:#}", document(kind)?)?;
                } else {
                    write!(stdout(), "{}", page(kind)?)?;
                }
            }
        }
        Ok(Exit::Success)
    }
}

/// Builds the example and returns its drop reasons.
fn drops(kind: &NfKind) -> anyhow::Result<Vec<&'static str>> {
    let table = toml_table(kind.example)?;
    let node = kind
        .parse(table)?
        .build(&BuildContext::default())
        .map_err(|d| anyhow!("invalid example of {}: {d}", kind.name))?;
    let mut drops: Vec<_> = vec![];
    // operators in several branches repeat their drop reasons
    node.drops().iter().for_each(|d| {
        if !drops.contains(d) {
            drops.push(*d)
        }
    });
    Ok(drops)
}

/// Returns the interfaces of its example.
fn interfaces(kind: &NfKind) -> anyhow::Result<Vec<String>> {
    Ok(kind.parse(toml_table(kind.example)?)?.interfaces())
}

fn toml_table(text: &str) -> anyhow::Result<config::Settings<'_>> {
    Ok(config::settings(text)?)
}

fn document(kind: &NfKind) -> anyhow::Result<Value> {
    Ok(json!({
        "name": kind.name,
        "about": kind.about,
        "inputs": kind.inputs,
        "outputs": kind.outputs,
        "interfaces": !interfaces(kind)?.is_empty(),
        "drops": drops(kind)?,
        "spread": kind.spread,
        "steering": (kind.spread == Spread::Custom).then_some(kind.steering),
        "rewrites": kind.rewrites,
        "settings": kind.schema(),
        "example": example(kind, &interfaces(kind)?),
    }))
}

fn page(kind: &NfKind) -> anyhow::Result<String> {
    let mut out = format!("{}: {}\n\n", kind.name, kind.about);
    let schema = kind.schema();
    let mut settings = Table::new(&["setting", "type", "default", "meaning"]);
    Settings { schema: &schema, rows: &mut settings }.add(&schema, "", 0);
    out += &if settings.is_empty() { "  No settings.\n".to_owned() } else { settings.to_string() };
    let per_interface = if interfaces(kind)?.is_empty() { None } else { Some("one for each interface") };
    let list = |names: &[&str], more: Option<&'static str>| {
        let all: Vec<_> = names.iter().copied().chain(more).collect();
        if all.is_empty() { "none".to_owned() } else { all.join(", ") }
    };
    out += &format!(
        "\n  inputs   {}\n  outputs  {}\n  drops    {}\n",
        list(kind.inputs, per_interface),
        list(kind.outputs, per_interface),
        list(&drops(kind)?, None)
    );
    let mut cores = match (kind.spread, kind.steering) {
        (Spread::Custom, Steering { key, keeps: Spread::Any }) => {
            format!("chosen by {key}; no other NF may require cores")
        }
        (Spread::Custom, Steering { key, keeps }) => format!("chosen by {key}; for other NFs: {}", keeps.description()),
        (spread, _) => spread.description().to_owned(),
    };
    if kind.rewrites {
        cores += "; behind it, on one core: NFs that require more than any packet on any core";
    }
    out += &format!("  cores    {cores}\n\nIn a chain file:\n\n{}\n", example(kind, &interfaces(kind)?));
    Ok(out)
}

/// Rows of settings, with those of nested tables below them.
struct Settings<'a> {
    schema: &'a Value,
    rows: &'a mut Table,
}

impl<'a> Settings<'a> {
    /// Adds the settings of a table; `prefix` is its path.
    fn add(&mut self, table: &'a Value, prefix: &str, depth: usize) {
        /// Deepest nesting that is shown; settings may be recursive.
        const DEEPEST: usize = 4;
        let required = |name: &str| table["required"].as_array().is_some_and(|all| all.iter().any(|r| r == name));
        for (name, setting) in table["properties"].as_object().into_iter().flatten() {
            let path = format!("{prefix}{name}");
            let default = match setting.get("default") {
                None if required(name) => "required".to_owned(),
                None | Some(Value::Null) => "not set".to_owned(),
                Some(Value::Array(all)) if all.is_empty() => "none".to_owned(),
                Some(Value::Object(all)) if all.is_empty() => "none".to_owned(),
                Some(default) => default.to_string(),
            };
            let about = setting["description"].as_str().unwrap_or_default().replace('\n', " ");
            self.rows.row([path.clone(), self.type_of(setting), default, about]);
            for (table, suffix) in self.nested(setting).into_iter().filter(|_| depth < DEEPEST) {
                self.add(table, &format!("{path}{suffix}."), depth + 1);
            }
        }
    }

    /// Returns the schema that a reference names.
    fn resolve(&self, s: &'a Value) -> &'a Value {
        match s["$ref"].as_str().and_then(|reference| self.schema.pointer(reference.strip_prefix('#')?)) {
            Some(target) => target,
            None => match s["allOf"].as_array().map(Vec::as_slice) {
                Some([one]) => self.resolve(one),
                _ => s,
            },
        }
    }

    /// Returns the variants of a schema, except null.
    fn variants(&self, s: &'a Value) -> Vec<&'a Value> {
        let s = self.resolve(s);
        let all = s["anyOf"].as_array().or(s["oneOf"].as_array());
        let not_null = |s: &&Value| s["type"] != "null";
        all.map_or(vec![s], |all| all.iter().filter(not_null).flat_map(|s| self.variants(s)).collect())
    }

    /// Returns the tables in a setting with what their path appends to that of the setting.
    fn nested(&self, s: &'a Value) -> Vec<(&'a Value, &'static str)> {
        let has_settings = |s: &Value| s["properties"].is_object();
        let tables = self.variants(s).into_iter().flat_map(|s| {
            let inside = [(&s["items"], "[]"), (&s["additionalProperties"], ".NAME")];
            let inside = inside.into_iter().filter(|(s, _)| s.is_object());
            let inside = inside.flat_map(|(s, suffix)| self.variants(s).into_iter().map(move |s| (s, suffix)));
            inside.chain([(s, "")]).collect::<Vec<_>>()
        });
        tables.filter(|(s, _)| has_settings(s)).collect()
    }

    /// Describes the type of a setting.
    fn type_of(&self, s: &'a Value) -> String {
        let of = |s: &'a Value| {
            let name = |name: &str| match name {
                "array" => match self.variants(&s["items"])[..] {
                    [one] if one["type"].is_string() && one["type"] != "object" => {
                        format!("list of {}", self.type_of(one))
                    }
                    _ => "list".to_owned(),
                },
                "object" => "table".to_owned(),
                other => other.to_owned(),
            };
            let values = s["enum"].as_array().cloned().or_else(|| Some(vec![s.get("const")?.clone()]));
            match (values, &s["type"]) {
                (Some(values), _) => values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or "),
                (None, Value::String(t)) => name(t),
                (None, Value::Array(all)) => {
                    let all = all.iter().filter_map(Value::as_str).filter(|t| *t != "null").map(name);
                    all.collect::<Vec<_>>().join(" or ")
                }
                (None, _) => String::new(),
            }
        };
        let mut all: Vec<String> = self.variants(s).into_iter().map(of).filter(|text| !text.is_empty()).collect();
        all.dedup();
        all.join(" or ")
    }
}

/// Returns an example chain file.
fn example(kind: &NfKind, interfaces: &[String]) -> String {
    let name = kind.name;
    if !interfaces.is_empty() {
        let ports = interfaces.iter().map(|i| format!("\n[port.{i}]\ndevice = \"tap:{i}0\"\n"));
        let chains = interfaces.iter().map(|i| format!("\n[[chain]]\npath = [\"{i}\", \"{name}\"]\n"));
        let (ports, chains): (String, String) = (ports.collect(), chains.collect());
        return format!("bondstone = 1\n{ports}\n[nf.{name}]\nkind = \"{name}\"\n{}\n{chains}", kind.example);
    }
    let mut out = format!(
        "bondstone = 1\n\n[port.in]\ndevice = \"pcap:in.pcap\"\n\n[port.out]\ndevice = \"pcap:out.pcap\"\n\n[nf.{name}]\nkind = \"{name}\"\n"
    );
    if !kind.example.is_empty() {
        out += &format!("{}\n", kind.example);
    }
    let [path, edges] = match kind.outputs {
        [] => ["[\"in\", \"tee\", \"out\"]".to_owned(), format!("\n[[edge]]\nfrom = \"tee.copy\"\nto = \"{name}\"\n")],
        [_] => [format!("[\"in\", \"{name}\", \"out\"]"), String::new()],
        [_, rest @ ..] => {
            let edges = rest.iter().map(|o| format!("\n[[edge]]\nfrom = \"{name}.{o}\"\nto = \"drop\"\n"));
            [format!("[\"in\", \"{name}\", \"out\"]"), edges.collect()]
        }
    };
    out + format!("\n[[chain]]\npath = {path}\n{edges}").as_str()
}
