//! Ports where a container listens, as its arguments and variables say.
//!
//! An application that finds its port taken does not start, and an agent less is only a pod less
//! that is measured: so a port that may be one of a server counts.

/// Flags whose value has the port of a server.
const FLAGS: [&str; 4] = ["port", "addr", "listen", "bind"];

/// Hosts in front of a port that are the pod itself.
const OWN_HOSTS: [&str; 7] = ["", "0.0.0.0", "127.0.0.1", "localhost", "[::]", "[::1]", "*"];

/// The ports of flags: `--port=8080`, `-port 8080`, `--metrics-addr=127.0.0.1:8080`.
pub fn arguments(arguments: &[String]) -> Vec<u16> {
    let pairs = arguments.iter().enumerate().filter_map(|(place, argument)| {
        let flag = argument.strip_prefix('-')?;
        match flag.split_once('=') {
            Some((flag, value)) => Some((flag, value)),
            None => Some((flag, &**arguments.get(place + 1)?)),
        }
    });
    let named = pairs.filter(|(flag, _)| {
        let flag = flag.to_ascii_lowercase();
        FLAGS.iter().any(|part| flag.contains(part)) || flag == "p"
    });
    named.filter_map(|(_, value)| port(value)).collect()
}

/// The port of a variable: `PORT=8080`, `LISTEN_ADDRESS=:8080`.
pub fn variable(name: &str, value: &str) -> Option<u16> {
    let name = name.to_ascii_lowercase();
    FLAGS.iter().any(|part| name.contains(part)).then(|| port(value)).flatten()
}

fn port(value: &str) -> Option<u16> {
    let (host, port) = value.rsplit_once(':').unwrap_or(("", value));
    OWN_HOSTS.contains(&host).then(|| port.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_name_a_port_of_the_pod_itself() {
        for (text, expected) in [
            ("server --port=8080", &[8080][..]),
            ("--http-port 8080 --verbose", &[8080]),
            ("-p 8080 -port=9090", &[8080, 9090]),
            ("--metrics-addr=127.0.0.1:8080", &[8080]),
            ("--web.listen-address=:9090 --bind [::]:53", &[9090, 53]),
            ("--redis-addr=redis:6379 --url=http://x:80 --report=8080x", &[]),
            ("--port", &[]),
            ("8080 port=8080", &[]),
            ("--port=70000 --port=-1 --port=", &[]),
        ] {
            let all: Vec<_> = text.split(' ').map(str::to_owned).collect();
            assert_eq!(arguments(&all), expected, "{text}");
        }
    }

    #[test]
    fn variables_that_name_one() {
        assert_eq!(variable("PORT", "8080"), Some(8080));
        assert_eq!(variable("SERVER_PORT", "8080"), Some(8080));
        assert_eq!(variable("LISTEN", "0.0.0.0:8080"), Some(8080));
        for (name, value) in [("HOME", "8080"), ("DB_ADDR", "db:5432"), ("PORT", "http")] {
            assert_eq!(variable(name, value), None, "{name}");
        }
    }
}
