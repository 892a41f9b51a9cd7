//! A host that is reached by ssh.

use serde::{Deserialize, Serialize};

/// Longest ssh destination, bytes.
const MAX_HOST_BYTES: usize = 255;
/// Environment variable that names an ssh configuration file instead of the user's.
const SSH_CONFIG_VARIABLE: &str = "BONDSTONE_SSH_CONFIG";
/// Remedy for a remote host with another version.
pub const SAME_VERSION: &str = "install the same version of Bondstone on both hosts";

/// A host that is reached by ssh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteHost {
    /// Destination as ssh takes it.
    pub host: String,
    /// Command that runs Bondstone there, as the remote shell takes it.
    pub program: String,
}

impl RemoteHost {
    /// Command that runs Bondstone by default.
    pub const PROGRAM: &str = "bondstone";

    /// Returns true for a valid ssh destination. ssh would take a leading dash for an option.
    #[must_use]
    pub fn is_valid(host: &str) -> bool {
        (1..=MAX_HOST_BYTES).contains(&host.len())
            && !host.starts_with('-')
            && !host.contains(|c: char| c.is_whitespace() || c.is_control())
    }

    /// Returns the arguments of ssh that run a command of Bondstone there without a terminal or prompts, and detect an
    /// interrupted network within 30 s.
    #[must_use]
    pub fn ssh_arguments(&self, command: &str) -> Vec<String> {
        // not by a shared connection, which has options of its own and may outlive this one
        let shared = "ControlPath=none";
        let alive = ["ConnectTimeout=15", "ServerAliveInterval=5", "ServerAliveCountMax=6"];
        let options = ["BatchMode=yes", shared].into_iter().chain(alive);
        let config = std::env::var(SSH_CONFIG_VARIABLE).ok().map(|file| ["-F".to_owned(), file]);
        let fixed = ["-T", "-x", "-a"].into_iter().chain(options.flat_map(|option| ["-o", option]));
        let all = fixed.map(str::to_owned).chain(config.into_iter().flatten());
        all.chain(["--".to_owned(), self.host.clone(), format!("{} {command}", self.program)]).collect()
    }

    /// Returns the remedy for a host on which Bondstone cannot be started.
    #[must_use]
    pub fn start_remedy(&self) -> String {
        let RemoteHost { host, program } = self;
        format!(
            "check that `ssh -o BatchMode=yes {host} {program} --version` works without a prompt, or set the path of \
             Bondstone there: program = \"...\""
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_destinations_that_ssh_would_misread() {
        assert!(["far", "root@192.0.2.7", "ssh://root@far:2022"].into_iter().all(RemoteHost::is_valid));
        assert!(
            ["", "-oProxyCommand=x", "a b", "a\nb", &"a".repeat(256)].into_iter().all(|h| !RemoteHost::is_valid(h))
        );
    }

    #[test]
    fn the_destination_follows_the_options() {
        let host = RemoteHost { host: "far".to_owned(), program: "sudo -n bondstone".to_owned() };
        let arguments = host.ssh_arguments("agent");
        assert_eq!(arguments[arguments.len() - 3..], ["--", "far", "sudo -n bondstone agent"]);
    }
}
