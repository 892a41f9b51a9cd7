//! Changes of the tenants of a chain file, which leave its comments and order as they are.

use diagnostics::Diagnostic;
use ipnet::IpNet;
use std::fmt::{Display, Formatter};
use std::path::Path;
use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, TableLike, Value, value};

/// A tenant to add.
pub(super) struct Addition<'a> {
    pub(super) name: &'a str,
    pub(super) interfaces: &'a [(String, Vec<IpNet>)],
    pub(super) devices: &'a [(String, String)],
    pub(super) namespace: Option<&'a str>,
    pub(super) frr: &'a [String],
    pub(super) config: Option<&'a Path>,
    pub(super) values: &'a [(String, String)],
    pub(super) routes_max: Option<u32>,
    pub(super) prefixes: &'a [IpNet],
}

/// The text of a chain file.
pub(super) struct ChainText(DocumentMut);

impl Display for ChainText {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl ChainText {
    /// Parses a text.
    ///
    /// # Errors
    /// It is not TOML.
    pub(super) fn parse(text: &str) -> Result<ChainText, Diagnostic> {
        text.parse()
            .map(ChainText)
            .map_err(|e| Diagnostic::new(format!("is not TOML: {e}")).remedy("run bondstone check"))
    }

    /// Adds a tenant to a router, with ports and paths for its interfaces that the file does not have.
    ///
    /// # Errors
    /// There is no such router, or the tenant or an interface exists.
    pub(super) fn add(&mut self, router: Option<&str>, tenant: &Addition<'_>) -> Result<(), Diagnostic> {
        let router = self.router(router)?;
        let settings = self.table(&["nf", &router])?;
        if sub_table(settings, "tenant").is_some_and(|tenants| tenants.contains_key(tenant.name)) {
            let d = Diagnostic::new(format!("{router} has a tenant of this name")).value(tenant.name);
            return Err(d.remedy(format!("choose another name, or remove it: bondstone tenant rm {}", tenant.name)));
        }
        for (name, _) in tenant.interfaces {
            if sub_table(settings, "interface").is_some_and(|interfaces| interfaces.contains_key(name)) {
                let d = Diagnostic::new(format!("{router} has an interface of this name")).value(name);
                return Err(d.remedy("choose another name"));
            }
        }
        if let Some((name, _)) =
            tenant.devices.iter().find(|(device, _)| tenant.interfaces.iter().all(|(name, _)| name != device))
        {
            let d = Diagnostic::new("is a device of no interface").value(name);
            return Err(d.remedy(format!("add --interface {name}=ADDRESS/LENGTH")));
        }
        for (name, addresses) in tenant.interfaces {
            let device = tenant.devices.iter().find(|(of, _)| of == name).map(|(_, device)| device);
            self.add_port(name, device)?;
            self.add_path(name, &router);
            let mut interface = InlineTable::new();
            interface.insert("addresses", texts(addresses));
            interface.insert("tenant", tenant.name.into());
            self.table(&["nf", &router, "interface"])?.insert(name, value(interface));
        }
        let mut settings = Table::new();
        if let Some(namespace) = tenant.namespace {
            settings.insert("namespace", value(namespace));
        }
        if !tenant.frr.is_empty() {
            let mut frr = InlineTable::new();
            frr.insert("daemons", texts(tenant.frr));
            if let Some(config) = tenant.config {
                let config = std::path::absolute(config).unwrap_or_else(|_| config.to_owned());
                frr.insert("config", config.display().to_string().into());
            }
            if !tenant.values.is_empty() {
                let values: InlineTable =
                    tenant.values.iter().map(|(name, value)| (name.as_str(), Value::from(value.as_str()))).collect();
                frr.insert("values", values.into());
            }
            settings.insert("frr", value(frr));
        }
        let mut fpm = InlineTable::new();
        if let Some(routes_max) = tenant.routes_max {
            fpm.insert("routes_max", i64::from(routes_max).into());
        }
        if !tenant.prefixes.is_empty() {
            fpm.insert("prefixes", texts(tenant.prefixes));
        }
        if !fpm.is_empty() {
            settings.insert("fpm", value(fpm));
        }
        self.table(&["nf", &router, "tenant"])?.insert(tenant.name, Item::Table(settings));
        Ok(())
    }

    /// Removes a tenant, and its interfaces with their ports and paths.
    ///
    /// # Errors
    /// There is no such router or tenant.
    pub(super) fn remove(&mut self, router: Option<&str>, tenant: &str) -> Result<(), Diagnostic> {
        let router = self.router(router)?;
        let settings = self.table(&["nf", &router])?;
        let of_tenant =
            |interface: &Item| interface.as_table_like().and_then(|own| own.get("tenant")?.as_str()) == Some(tenant);
        let mut removed = vec![];
        if let Some(interfaces) = sub_table(settings, "interface") {
            let own = interfaces.iter().filter(|(_, interface)| of_tenant(interface));
            for (name, interface) in own {
                removed.push(name.to_owned());
                let representor = interface.as_table_like().and_then(|own| own.get("representor")?.as_str());
                removed.extend(representor.map(str::to_owned));
            }
            removed.iter().for_each(|name| drop(interfaces.remove(name)));
        }
        let known = sub_table(settings, "tenant").and_then(|tenants| tenants.remove(tenant));
        if known.is_none() {
            let d = Diagnostic::new(format!("is not a tenant of {router}")).value(tenant);
            return Err(d.remedy("list them: bondstone tenant list"));
        }
        if let Some(ports) = sub_table(self.0.as_table_mut(), "port") {
            removed.iter().for_each(|name| drop(ports.remove(name)));
        }
        let begins = |path: Option<&Item>| {
            let first = path.and_then(|path| path.as_array()?.get(0)?.as_str());
            first.is_some_and(|first| removed.iter().any(|name| name == first))
        };
        match self.0.get_mut("chain") {
            Some(Item::ArrayOfTables(chains)) => chains.retain(|chain| !begins(chain.get("path"))),
            Some(Item::Value(Value::Array(chains))) => chains.retain(|chain| {
                let path = chain.as_inline_table().and_then(|chain| chain.get("path")).cloned().map(Item::Value);
                !begins(path.as_ref())
            }),
            _ => {}
        }
        Ok(())
    }

    /// Returns the name of the router, or of the only one.
    fn router(&mut self, name: Option<&str>) -> Result<String, Diagnostic> {
        let is_router = |nf: &Item| nf.as_table_like().and_then(|nf| nf.get("kind")?.as_str()) == Some("l3fwd");
        let nfs = sub_table(self.0.as_table_mut(), "nf");
        let routers = nfs.into_iter().flat_map(|nfs| nfs.iter()).filter(|(_, nf)| is_router(nf));
        let all: Vec<String> = routers.map(|(name, _)| name.to_owned()).collect();
        let remedy = match all.is_empty() {
            true => "add one: [nf.router] with kind = \"l3fwd\"".to_owned(),
            false => format!("name one of {}: --router NAME", all.join(", ")),
        };
        match (name, &all[..]) {
            (Some(name), all) if all.iter().any(|own| own == name) => Ok(name.to_owned()),
            (Some(name), _) => Err(Diagnostic::new("the file has no router of this name").value(name).remedy(remedy)),
            (None, [only]) => Ok(only.clone()),
            (None, []) => Err(Diagnostic::new("the file has no router").remedy(remedy)),
            (None, _) => Err(Diagnostic::new("the file has several routers").remedy(remedy)),
        }
    }

    /// Returns the table at a path, which is added if it does not exist.
    fn table(&mut self, path: &[&str]) -> Result<&mut dyn TableLike, Diagnostic> {
        let mut table: &mut dyn TableLike = self.0.as_table_mut();
        for key in path {
            let implicit = || {
                let mut table = Table::new();
                table.set_implicit(true);
                Item::Table(table)
            };
            let item = table.entry(key).or_insert_with(implicit);
            let wrong = || Diagnostic::new("is not a table").value(path.join(".")).remedy("run bondstone check");
            table = item.as_table_like_mut().ok_or_else(wrong)?;
        }
        Ok(table)
    }

    fn add_port(&mut self, name: &str, device: Option<&String>) -> Result<(), Diagnostic> {
        let ports = self.table(&["port"])?;
        match (ports.contains_key(name), device) {
            (true, None) => {}
            (true, Some(device)) => {
                let d = Diagnostic::new(format!("the file has a port {name}")).value(device);
                return Err(d.remedy("omit --device, or rename the interface"));
            }
            (false, None) => {
                let d = Diagnostic::new("the file has no port of this name").value(name);
                return Err(d.remedy(format!("name its device: --device {name}=tap:{name}")));
            }
            (false, Some(device)) => {
                let mut port = Table::new();
                port.insert("device", value(device));
                ports.insert(name, Item::Table(port));
            }
        }
        Ok(())
    }

    /// Adds a path from a port to the router, unless one begins with the port.
    fn add_path(&mut self, port: &str, router: &str) {
        let path = Array::from_iter([port, router]);
        match self.0.entry("chain").or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new())) {
            Item::ArrayOfTables(chains) => {
                let first = |chain: &Table| {
                    chain.get("path").and_then(|path| path.as_array()?.get(0)?.as_str().map(str::to_owned))
                };
                if chains.iter().all(|chain| first(chain).as_deref() != Some(port)) {
                    let mut chain = Table::new();
                    chain.insert("path", value(path));
                    chains.push(chain);
                }
            }
            Item::Value(Value::Array(chains)) => {
                let first = |chain: &Value| {
                    chain.as_inline_table()?.get("path")?.as_array()?.get(0)?.as_str().map(str::to_owned)
                };
                if chains.iter().all(|chain| first(chain).as_deref() != Some(port)) {
                    chains.push(Value::from(InlineTable::from_iter([("path", Value::from(path))])));
                }
            }
            _ => {}
        }
    }
}

fn sub_table<'a>(table: &'a mut dyn TableLike, key: &str) -> Option<&'a mut dyn TableLike> {
    table.get_mut(key)?.as_table_like_mut()
}

fn texts(all: &[impl ToString]) -> Value {
    Value::from(Array::from_iter(all.iter().map(ToString::to_string)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
# the edge
bondstone = 1

[port.lan]          # hosts
device = \"null\"

[nf.router]
kind = \"l3fwd\"
interface.lan = { addresses = [\"10.0.0.1/24\"] }

[[chain]]
path = [\"lan\", \"router\"]
";

    fn blue(text: &str) -> Result<String, Diagnostic> {
        let mut text = ChainText::parse(text)?;
        let addresses = vec!["10.1.0.1/24".parse().unwrap(), "fd01::1/64".parse().unwrap()];
        text.add(
            None,
            &Addition {
                name: "blue",
                interfaces: &[("blue-lan".to_owned(), addresses)],
                devices: &[("blue-lan".to_owned(), "ring:blue".to_owned())],
                namespace: Some("blue"),
                frr: &["bgpd".to_owned()],
                config: None,
                values: &[("as".to_owned(), "65001".to_owned())],
                routes_max: Some(1000),
                prefixes: &["10.0.0.0/8".parse().unwrap()],
            },
        )?;
        Ok(text.to_string())
    }

    /// The changed file can run, and a removal restores the text.
    #[test]
    fn adds_and_removes_a_tenant() {
        let inline = FILE
            .replace("[[chain]]\npath = [\"lan\", \"router\"]\n", "")
            .replace("bondstone = 1\n", "bondstone = 1\nchain = [{ path = [\"lan\", \"router\"] }]\n");
        for file in [FILE, &inline] {
            let added = blue(file).unwrap();
            assert!(added.starts_with("# the edge\n") && added.contains("# hosts"), "{added}");
            let parsed = config::ChainFile::parse(&added, Path::new("edge.toml"), &nf::registry());
            let parsed = parsed.map_err(|e| diagnostics::Diagnostics(e).to_string()).unwrap();
            assert_eq!(parsed.control_planes()[0].frr.as_ref().unwrap().values["as"], "65001");
            assert_eq!(parsed.chains.len(), 3);
            assert!(blue(&added).unwrap_err().problem.contains("has a tenant of this name"));
            let mut text = ChainText::parse(&added).unwrap();
            assert!(text.remove(None, "red").is_err());
            text.remove(Some("router"), "blue").unwrap();
            assert_eq!(text.to_string(), file);
        }
    }

    #[test]
    fn errors_name_the_remedy() {
        let no_router = blue("bondstone = 1\n").unwrap_err();
        assert!(no_router.remedy.unwrap().contains("kind = \"l3fwd\""));
        let two = blue(&format!("{FILE}[nf.other]\nkind = \"l3fwd\"\n")).unwrap_err();
        assert!(two.remedy.unwrap().contains("router, other"));
        let port = blue(&format!("{FILE}[port.blue-lan]\ndevice = \"null\"\n")).unwrap_err();
        assert!(port.remedy.unwrap().contains("omit --device"));
    }
}
