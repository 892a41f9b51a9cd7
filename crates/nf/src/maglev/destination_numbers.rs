//! Numbers of destinations. Connections are stored with them, so a destination keeps its number across reloads.

use super::config::{Config, Endpoint};
use super::connection::Connection;
use std::collections::HashMap;
use std::net::IpAddr;

/// Identity of a destination: virtual address; name, address and port of the backend.
pub(super) type Identity<'a> = (Endpoint, &'a str, IpAddr, u16);

/// Numbers of the destinations of a configuration. A number is used again after its destination was removed, with another
/// generation.
pub(super) struct DestinationNumbers {
    /// Number and generation of each destination, in the order of [`Config::destinations`].
    pub(super) of: Vec<Connection>,
    /// Generation of each number.
    pub(super) generations: Vec<u32>,
    /// Numbers that no destination has.
    unused: Vec<u32>,
}

impl DestinationNumbers {
    /// Numbers the destinations. Those that the configuration before has as well keep their numbers.
    pub(super) fn new(config: &Config, before: Option<(&Config, &DestinationNumbers)>) -> Self {
        let (mut known, mut generations, mut unused) = (HashMap::new(), vec![], vec![]);
        if let Some((old, numbers)) = before {
            known = old.destinations().map(|pair| identity(old, pair)).zip(numbers.of.iter().copied()).collect();
            (generations, unused) = (numbers.generations.clone(), numbers.unused.clone());
        }
        let kept: Vec<_> = config.destinations().map(|pair| known.remove(&identity(config, pair))).collect();
        for removed in known.into_values() {
            generations[removed.destination as usize] += 1;
            unused.push(removed.destination);
        }
        let mut next = || {
            let destination = unused.pop().unwrap_or_else(|| {
                generations.push(0);
                generations.len() as u32 - 1
            });
            Connection { destination, generation: generations[destination as usize] }
        };
        let of = kept.into_iter().map(|kept| kept.unwrap_or_else(&mut next)).collect();
        DestinationNumbers { of, generations, unused }
    }

    /// Returns true if destinations were removed since the numbers were first given.
    pub(super) fn has_removed(&self) -> bool {
        self.generations.iter().any(|generation| *generation > 0)
    }
}

/// Returns the identity of a virtual address and a backend.
pub(super) fn identity(config: &Config, (vip, backend): (usize, usize)) -> Identity<'_> {
    let (endpoint, b) = (config.vips[vip].endpoint, &config.backends[backend]);
    (endpoint, &b.name, b.address, b.port.unwrap_or(endpoint.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(backends: &[&str]) -> Config {
        let backends: String = backends.iter().map(|n| format!("backend.{n}.address = \"10.0.0.1\"\n")).collect();
        let service = "source = [\"10.9.9.9\"]\n[service.web]\nforward = \"gre\"\n";
        let text = format!("{service}vip = [\"tcp 192.0.2.10:80\", \"udp 192.0.2.10:53\"]\n{backends}");
        Config::new(&toml::from_str(&text).unwrap()).unwrap()
    }

    #[test]
    fn numbers_of_removed_destinations_are_used_again_in_another_generation() {
        let [a, b, c] = [&["p", "q"][..], &["a", "q"], &["a", "b", "p", "q"]].map(config);
        let numbers = |n: &DestinationNumbers| n.of.iter().map(|c| (c.destination, c.generation)).collect::<Vec<_>>();
        let first = DestinationNumbers::new(&a, None);
        assert_eq!((numbers(&first), first.has_removed()), (vec![(0, 0), (1, 0), (2, 0), (3, 0)], false));
        let second = DestinationNumbers::new(&b, Some((&a, &first)));
        let mut of = numbers(&second);
        assert_eq!(([of.remove(3), of.remove(1)], second.has_removed()), ([(3, 0), (1, 0)], true));
        of.sort_unstable();
        assert_eq!(of, [(0, 1), (2, 1)]);
        let third = DestinationNumbers::new(&c, Some((&b, &second)));
        let of = numbers(&third);
        assert_eq!([of[0], of[3], of[4], of[7]], [numbers(&second)[0], (1, 0), numbers(&second)[2], (3, 0)]);
        assert_eq!([of[1], of[2], of[5], of[6]], [(4, 0), (5, 0), (6, 0), (7, 0)]);
    }
}
