//! The password file of PostgreSQL: `$PGPASSFILE`, or `~/.pgpass`
//! (<https://www.postgresql.org/docs/current/libpq-pgpass.html>).

use postgres::Config;
use postgres::config::Host;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Largest file in bytes.
const LARGEST: u64 = 1 << 20;

/// Returns the password for a connection. A file that other users may read is ignored, as `libpq` does.
pub(super) fn password(config: &Config) -> Option<String> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let path = set("PGPASSFILE").or_else(|| Some(set("HOME")?.join(".pgpass")))?;
    let file = File::open(path).ok()?;
    let metadata = file.metadata().ok()?;
    if !metadata.is_file() || metadata.mode() & 0o077 != 0 {
        return None;
    }
    let mut text = String::new();
    file.take(LARGEST).read_to_string(&mut text).ok()?;
    let own = std::env::var("USER").unwrap_or_default();
    let user = config.get_user().unwrap_or(&own);
    let port = config.get_ports().first().copied().unwrap_or(5432).to_string();
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(host)) => host.clone(),
        Some(Host::Unix(folder)) => folder.display().to_string(),
        None => "localhost".to_owned(),
    };
    find(&text, [&host, &port, config.get_dbname().unwrap_or(user), user])
}

/// Returns the password of the first line that matches host, port, database and user.
fn find(text: &str, wanted: [&str; 4]) -> Option<String> {
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields = fields(line);
        let [password, matched @ ..] = [4, 0, 1, 2, 3].map(|n| fields.get(n));
        let matches =
            |(field, wanted): (Option<&String>, &str)| field.is_some_and(|field| field == "*" || field == wanted);
        matched.into_iter().zip(wanted).all(matches).then(|| password.cloned()).flatten()
    })
}

/// Splits a line at colons, except escaped ones.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            ':' => fields.push(String::new()),
            c => {
                let c = if c == '\\' { chars.next().unwrap_or(c) } else { c };
                if let Some(field) = fields.last_mut() {
                    field.push(c);
                }
            }
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_first_line_that_matches() {
        let text = "# comment\nshort:1\nother:5432:d:u:no\nh:5432:*:u:se\\:cr\\\\et\n*:*:*:*:last\n";
        let of = |host, user| find(text, [host, "5432", "d", user]);
        assert_eq!(of("h", "u").as_deref(), Some("se:cr\\et"));
        assert_eq!(of("other", "u").as_deref(), Some("no"));
        assert_eq!(of("h", "v").as_deref(), Some("last"));
        assert_eq!(find("h:5432:d:u:p", ["h", "5433", "d", "u"]), None);
        assert_eq!(find("", ["h", "5432", "d", "u"]), None);
    }
}
