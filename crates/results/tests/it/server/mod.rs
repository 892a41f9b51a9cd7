//! A temporary PostgreSQL server, with its data and socket in a temporary folder.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The server; it is stopped when dropped.
pub(crate) struct Server {
    child: Child,
    folder: TempDir,
    port: u16,
}

/// Finds a program of PostgreSQL; Debian installs them in a folder per version.
fn program(name: &str) -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = versions.map(|v| v.path().join("bin").join(name)).filter(|p| p.exists()).collect();
    found.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    found.pop().or_else(|| std::env::split_paths(&path).map(|p| p.join(name)).find(|p| p.exists()))
}

impl Server {
    /// Starts a server; `None`, with a message, if PostgreSQL is not installed.
    pub(crate) fn start() -> Option<Server> {
        Server::start_with(|_, port| vec!["-c".into(), "listen_addresses=".into(), "-c".into(), format!("port={port}")])
    }

    /// Starts a server with the arguments that a function returns for its folder and port.
    fn start_with(arguments: impl FnOnce(&Path, u16) -> Vec<String>) -> Option<Server> {
        let (Some(initdb), Some(postgres)) = (program("initdb"), program("postgres")) else {
            println!("skipped: PostgreSQL is not installed (Debian: apt-get install postgresql)");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let user = unprivileged();
        if let Some(user) = &user {
            run(Command::new("chown").arg(user).arg(folder.path()));
        }
        let mut init = as_user(user.as_deref(), &initdb);
        run(init.args(["-A", "trust", "-U", "bondstone", "-E", "UTF8", "--locale=C", "-N", "-D"]).arg(&data));
        let mut server = as_user(user.as_deref(), &postgres);
        server.arg("-D").arg(&data).arg("-k").arg(folder.path()).args(["-c", "fsync=off"]);
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        server.args(arguments(folder.path(), port));
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let child = server.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let mut server = Server { child, folder, port };
        server.wait();
        Some(server)
    }

    fn wait(&mut self) {
        let end = Instant::now() + Duration::from_secs(60);
        while self.sql("postgres", "SELECT 1").is_err() {
            let log = || std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(self.child.try_wait().unwrap().is_none(), "the server exited: {}", log());
            assert!(Instant::now() < end, "the server does not answer: {}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns the URL of a database.
    pub(crate) fn url(&self, database: &str) -> String {
        let socket = self.folder.path().to_str().unwrap().replace('/', "%2F");
        format!("postgres://bondstone@{socket}:{}/{database}", self.port)
    }

    /// Creates an empty database and returns its URL.
    pub(crate) fn database(&self, name: &str) -> String {
        self.sql("postgres", &format!("CREATE DATABASE {name}")).unwrap();
        self.url(name)
    }

    /// Requires a password of a user from now on.
    #[allow(dead_code, reason = "one of the two test programs uses it")]
    pub(crate) fn require_password(&self, user: &str) {
        let file = self.folder.path().join("data/pg_hba.conf");
        let old = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("local all {user} scram-sha-256\n{old}")).unwrap();
        self.sql("postgres", "SELECT pg_reload_conf()").unwrap();
    }

    /// Starts a server that also listens on a TCP port of `localhost`, for TLS connections only, with a certificate for
    /// that name.
    #[allow(dead_code, reason = "one of the two test programs uses it")]
    pub(crate) fn start_with_tls() -> Option<Server> {
        Server::start_with(|folder, port| {
            let openssl = |arguments: &str| {
                run(Command::new("openssl").args(arguments.split(' ')).current_dir(folder));
            };
            let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
            openssl(&format!("req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=ca"));
            openssl(&format!("req {key} -keyout server.key -out server.csr -subj /CN=localhost"));
            std::fs::write(folder.join("names"), "subjectAltName=DNS:localhost\n").unwrap();
            openssl(
                "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.pem",
            );
            run(Command::new("chmod").arg("600").arg(folder.join("server.key")));
            if let Some(user) = unprivileged() {
                run(Command::new("chown").arg(user).args([folder.join("server.key"), folder.join("server.pem")]));
            }
            let hba = folder.join("data/pg_hba.conf");
            let old = std::fs::read_to_string(&hba).unwrap();
            let rules = "hostssl all all 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 reject\n";
            std::fs::write(&hba, format!("{rules}{old}")).unwrap();
            let at = |name: &str| folder.join(name).display().to_string();
            let settings = [
                ("listen_addresses", "127.0.0.1".to_owned()),
                ("port", port.to_string()),
                ("ssl", "on".to_owned()),
                ("ssl_cert_file", at("server.pem")),
                ("ssl_key_file", at("server.key")),
            ];
            settings.iter().flat_map(|(key, value)| ["-c".to_owned(), format!("{key}={value}")]).collect()
        })
    }

    /// Returns the port, also of the socket.
    #[allow(dead_code, reason = "one of the two test programs uses it")]
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL of a database on `localhost`, with the parameters of the query.
    #[allow(dead_code, reason = "one of the two test programs uses it")]
    pub(crate) fn tls_url(&self, host: &str, database: &str, query: &str) -> String {
        format!("postgres://bondstone@{host}:{}/{database}?{query}", self.port)
    }

    /// Returns the file of the certificate authority.
    #[allow(dead_code, reason = "one of the two test programs uses it")]
    pub(crate) fn certificate_authority(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Runs statements in a database and returns the output.
    pub(crate) fn sql(&self, database: &str, sql: &str) -> Result<String, String> {
        let mut psql = Command::new(program("psql").expect("part of the server"));
        psql.args(["-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "bondstone", "-d", database, "-c", sql, "-h"]);
        let out = psql.arg(self.folder.path()).arg("-p").arg(self.port.to_string()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if out.status.success() { Ok(text(&out.stdout)) } else { Err(text(&out.stderr)) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGQUIT: immediate shutdown of all its processes
        let _ = Command::new("kill").args(["-QUIT", &self.child.id().to_string()]).status();
        let end = Instant::now() + Duration::from_secs(10);
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns an unprivileged user if this is root: PostgreSQL refuses to run as root.
fn unprivileged() -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let root = std::fs::metadata("/proc/self").is_ok_and(|m| m.uid() == 0);
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = if users.lines().any(|l| l.starts_with("postgres:")) { "postgres" } else { "65534" };
    root.then(|| user.to_owned())
}

fn as_user(user: Option<&str>, program: &Path) -> Command {
    let mut command = match user {
        None => Command::new(program),
        Some(user) => {
            let mut command = Command::new("setpriv");
            let user = format!("--reuid={user}");
            command.arg(user).args(["--clear-groups", "--pdeathsig", "QUIT"]).arg(program);
            command
        }
    };
    command.current_dir("/").env("LC_ALL", "C");
    command
}

fn run(command: &mut Command) {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
}
