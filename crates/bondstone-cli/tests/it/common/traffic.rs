//! Real programs' traffic between namespaces.

use super::namespace::{Namespace, done};
use super::{LIMIT, Running, Scratch};
use std::io::Read;
use std::path::PathBuf;
use std::time::Instant;

/// A web server that serves random bytes on the ports 8080 and 8081. It does not outlive the test.
pub(crate) struct Web {
    content: Vec<u8>,
    got: PathBuf,
    _nginx: Running,
}

impl Web {
    /// Starts it; `name` tells servers of one test apart.
    pub(crate) fn start(scratch: &Scratch, server: &Namespace, name: &str, bytes: usize) -> Self {
        let mut content = vec![0; bytes];
        std::fs::File::open("/dev/urandom").unwrap().read_exact(&mut content).unwrap();
        Self::serve(scratch, server, name, content)
    }

    /// Starts one that serves these bytes.
    pub(crate) fn serve(scratch: &Scratch, server: &Namespace, name: &str, content: Vec<u8>) -> Self {
        let folder = scratch.path(name);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("content"), &content).unwrap();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|what| format!("{what}_temp_path {}/{what};\n", folder.display()))
            .collect();
        let listen: String = ["8080", "[::]:8080", "8081", "[::]:8081"].map(|at| format!("listen {at};\n")).concat();
        let configuration = folder.join("nginx.conf");
        let text = format!(
            "daemon off;\nmaster_process off;\npid {folder}/pid;\nerror_log {folder}/error.log;\nevents {{}}\n\
             http {{\naccess_log off;\n{temporary}server {{\n{listen}root {folder};\n}}\n}}\n",
            folder = folder.display()
        );
        std::fs::write(&configuration, text).unwrap();
        let mut command = server.command("nginx");
        command.arg("-p").arg(&folder).arg("-e").arg(folder.join("error.log")).arg("-c").arg(configuration);
        let nginx = Running::start(&mut command);
        // a client that is refused connects again, and the NFs count that connection
        server.wait_for_listener(8081);
        Web { content, got: folder.join("got"), _nginx: nginx }
    }

    /// Fetches its bytes and sees that they are its bytes; `host` is as in `10.9.0.2:8080`.
    #[track_caller]
    pub(crate) fn fetch(&self, client: &Namespace, host: &str) {
        assert!(self.fetched(client, host, &[]) == self.content, "{host}: other bytes arrived");
    }

    /// Returns the output of curl with further arguments.
    #[track_caller]
    pub(crate) fn fetched(&self, client: &Namespace, host: &str, more: &[&str]) -> Vec<u8> {
        let url = format!("http://{host}/content");
        let patience = ["-sSf", "--max-time", "120", "--retry", "20", "--retry-delay", "1", "--retry-connrefused"];
        done(client.command("curl").args(patience).args(more).arg("-o").arg(&self.got).arg(url));
        std::fs::read(&self.got).unwrap()
    }
}

/// Returns the final JSON report of an iperf3 client with these arguments; `received` is where the number stands
/// that is not 0 when anything came.
pub(crate) fn iperf3(client: &Namespace, server: &Namespace, words: &str, received: &str) -> serde_json::Value {
    let deadline = Instant::now() + LIMIT;
    loop {
        let _server = Running::start(server.command("iperf3").args(["-s", "-1"]));
        server.wait_for_listener(5201);
        // repeated where it gave up on a busy machine
        let run = client.command("iperf3").arg("-J").args(words.split(' ')).output().unwrap();
        let result = String::from_utf8(run.stdout).unwrap();
        let parsed = serde_json::from_str::<serde_json::Value>(&result).unwrap_or_default();
        if parsed.pointer(received).and_then(serde_json::Value::as_u64).is_some_and(|n| n != 0) {
            return parsed;
        }
        assert!(Instant::now() < deadline, "{result}");
    }
}
