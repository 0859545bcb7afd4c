//! A path that is lost is traced, in a network of namespaces: `a`, two routers, and `b` and `c` behind
//! the second one. Each address of `b` has another fault.
use std::{fs::File, process::Command, thread};

use nix::sched::{CloneFlags, setns};

use crate::stage::{Directory, Page, Program, command, config, entry, eventually, get};

/// Ports are free in a new namespace.
const PORT: u16 = 8080;

/// The traces of one agent, by labels of their series.
const TRACE: &str = "netprober_trace_timestamp_seconds";

/// Namespaces that are removed after the test.
struct Network(String);

impl Network {
    /// Makes the namespaces and the links between them.
    fn new() -> Self {
        let network = Self(format!("trace-{}", std::process::id()));
        for name in ["a", "r1", "r2", "b", "c"] {
            ip(&["netns", "add", &network.of(name)]);
            ip(&["-n", &network.of(name), "link", "set", "lo", "up"]);
        }
        for (subnet, [left, right]) in
            [(1, ["r1", "a"]), (2, ["r1", "r2"]), (3, ["r2", "b"]), (4, ["r2", "c"])]
        {
            let link = format!("l{subnet}");
            ip(&[
                "-n",
                &network.of(left),
                "link",
                "add",
                &link,
                "type",
                "veth",
                "peer",
                "name",
                &link,
                "netns",
                &network.of(right),
            ]);
            for (end, last) in [(left, 1), (right, 2)] {
                network.ip(end, &format!("addr add 10.77.{subnet}.{last}/24 dev {link}"));
                network.ip(end, &format!("addr add fd77:{subnet}::{last}/64 dev {link} nodad"));
                network.ip(end, &format!("link set {link} up"));
            }
        }
        for last in 3..=4 {
            network.ip("b", &format!("addr add 10.77.3.{last}/24 dev l3"));
        }
        for (of, to, via) in [
            ("a", "default", "10.77.1.1"),
            ("r1", "10.77.3.0/24", "10.77.2.2"),
            ("r1", "10.77.4.0/24", "10.77.2.2"),
            ("r2", "10.77.1.0/24", "10.77.2.1"),
            ("b", "default", "10.77.3.1"),
            ("c", "default", "10.77.4.1"),
            ("a", "default", "fd77:1::1"),
            ("r1", "fd77:3::/64", "fd77:2::2"),
            ("r1", "fd77:4::/64", "fd77:2::2"),
            ("r2", "fd77:1::/64", "fd77:2::1"),
            ("b", "default", "fd77:3::1"),
            ("c", "default", "fd77:4::1"),
        ] {
            network.ip(of, &format!("route add {to} via {via}"));
        }
        for router in ["r1", "r2"] {
            // Several agents share an address here: the reports about it would be limited.
            let on = "cd /proc/sys/net && echo 1 > ipv4/ip_forward && echo 1 > ipv6/conf/all/forwarding && \
                      echo 0 > ipv4/icmp_ratelimit && echo 0 > ipv6/icmp/ratelimit";
            network.run(router, &["sh", "-c", on]);
        }
        network
    }

    fn of(&self, name: &str) -> String {
        format!("{}-{name}", self.0)
    }

    fn path(&self, name: &str) -> String {
        format!("/run/netns/{}", self.of(name))
    }

    fn ip(&self, of: &str, what: &str) {
        let family = if what.contains("::") { "-6" } else { "-4" };
        let mut arguments = vec!["-n".to_owned(), self.of(of), family.to_owned()];
        arguments.extend(what.split(' ').map(str::to_owned));
        ip(&arguments);
    }

    fn run(&self, of: &str, what: &[&str]) {
        let net = format!("--net={}", self.path(of));
        assert!(
            Command::new("nsenter").arg(net).args(what).status().unwrap().success(),
            "{what:?}"
        );
    }

    /// Starts an agent in a namespace.
    fn agent(&self, of: &str, metrics_port: u16, port: u16) -> Program {
        let agent = command(port, metrics_port);
        let variables = agent.get_envs().filter_map(|(name, value)| Some((name, value?)));
        let directory = Directory::new();
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net={}", self.path(of)))
            .arg(agent.get_program())
            .args(agent.get_args())
            .env_clear()
            .envs(variables)
            .env("NET_PROBER_CONFIG_FILE", directory.path("config.json"))
            .stdout(std::process::Stdio::null());
        Program::start(&mut command, directory)
    }

    /// Reads the page of an agent in `a`.
    fn page(&self, port: u16) -> Option<Page> {
        let namespace = File::open(self.path("a")).unwrap();
        let read = thread::spawn(move || {
            setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
            get(port, "/metrics", "Accept: application/openmetrics-text\r\n")
        });
        read.join().unwrap().map(|(_, body)| Page::parse(&body))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in ["a", "r1", "r2", "b", "c"] {
            let _ = Command::new("ip").args(["netns", "del", &self.of(name)]).status();
        }
    }
}

fn ip(arguments: &[impl AsRef<std::ffi::OsStr> + std::fmt::Debug]) {
    assert!(Command::new("ip").args(arguments).status().unwrap().success(), "{arguments:?}");
}

/// The lost address, the fault, the command that makes it, and what the trace says.
struct Fault {
    address: &'static str,
    /// Whether the agent has a path that works, to `c`.
    compares: bool,
    router: &'static str,
    command: &'static str,
    labels: [(&'static str, &'static str); 3],
}

const FAULTS: [Fault; 5] = [
    // The second router drops what is for it, whatever its TTL.
    Fault {
        address: "10.77.3.2",
        compares: true,
        router: "r2",
        command: "route add blackhole 10.77.3.2/32",
        labels: [("result", "lost"), ("hops", "10.77.1.1"), ("silent_hop", "2")],
    },
    // It sends it to where nothing is.
    Fault {
        address: "10.77.3.3",
        compares: true,
        router: "r2",
        command: "neigh replace 10.77.3.3 lladdr 02:00:00:00:00:99 dev l3 nud permanent",
        labels: [("result", "lost"), ("hops", "10.77.1.1 10.77.2.2"), ("silent_hop", "3")],
    },
    // The first router has no route, and says so.
    Fault {
        address: "10.77.3.4",
        compares: true,
        router: "r1",
        command: "route add unreachable 10.77.3.4/32",
        labels: [("result", "undeliverable"), ("hops", "10.77.1.1"), ("silent_hop", "")],
    },
    // Without a path that works, routers may be silent always.
    Fault {
        address: "10.77.3.2",
        compares: false,
        router: "r2",
        command: "",
        labels: [("result", "silent"), ("hops", "10.77.1.1"), ("silent_hop", "2")],
    },
    Fault {
        address: "fd77:3::2",
        compares: true,
        router: "r2",
        command: "route add blackhole fd77:3::2/128",
        labels: [("result", "lost"), ("hops", "fd77:1::1"), ("silent_hop", "2")],
    },
];

#[test]
fn a_lost_path_is_traced_once_and_probed_on() {
    let has_ip = Command::new("ip").arg("-V").output().is_ok_and(|output| output.status.success());
    if !nix::unistd::geteuid().is_root() || !has_ip {
        lab::left_out("traces of lost paths: network namespaces need root and ip");
        return;
    }
    let network = Network::new();
    let _peers = ["b", "c"].map(|name| network.agent(name, 2112, PORT));
    let agents: Vec<_> = (0_u16..)
        .zip(&FAULTS)
        .map(|(i, fault)| {
            let (agent, metrics_port) = (network.agent("a", 3000 + i, 4000 + i), 3000 + i);
            let other = if fault.address.contains(':') { "fd77:4::2" } else { "10.77.4.2" };
            let mut entries = vec![entry("b", fault.address, PORT)];
            if fault.compares {
                entries.push(entry("c", other, PORT));
            }
            agent.directory().publish("config.json", &config(500, 400, r#"["UDP"]"#, &entries));
            (agent, metrics_port)
        })
        .collect();
    let wait = |what: &str, i: usize, enough: &dyn Fn(&Page) -> bool| {
        let (agent, port) = &agents[i];
        eventually(&format!("{what} of agent {i}: {}", agent.log()), || {
            network.page(*port).filter(enough)
        })
    };
    for i in 0..FAULTS.len() {
        wait("answers", i, &|page| page.successes("b") >= 3);
    }
    for fault in FAULTS.iter().filter(|fault| !fault.command.is_empty()) {
        network.ip(fault.router, fault.command);
    }
    for (i, fault) in FAULTS.iter().enumerate() {
        let page = wait("a trace", i, &|page| page.sum(TRACE, &[]) > 0);
        let [ip, node] = [("dst_ip", fault.address), ("dst_node", "node-b")];
        let labels = [&fault.labels[..], &[ip, node]].concat();
        assert!(page.sum(TRACE, &labels) > 0, "{labels:?}\n{}", agents[i].0.log());
        // The other path has been probed all the time, and nothing is lost on it.
        assert!(!fault.compares || 2 * page.successes("c") > page.failures("b"), "{}", page.text);
    }
    // Every probe is lost as before, for the same reason: later reports of routers are none of it.
    for (i, (_, port)) in agents.iter().enumerate() {
        let lost = network.page(*port).unwrap().failures("b");
        let page = wait("probes", i, &|page| page.failures("b") >= lost + 5);
        assert_eq!(page.failed("b", "timeout"), page.failures("b"), "{}", page.text);
        assert_eq!(page.text.matches(TRACE).count(), 3, "{}", page.text);
        assert!(page.sum("netprober_skipped_probes_total", &[("reason", "local")]) == 0);
    }
    for fault in FAULTS.iter().filter(|fault| !fault.command.is_empty()) {
        let repair = fault.command.replace(" add ", " del ").replace(" replace ", " del ");
        network.ip(fault.router, &repair);
    }
    for (i, (_, port)) in agents.iter().enumerate() {
        let before = network.page(*port).unwrap().successes("b");
        wait("answers again", i, &|page| page.successes("b") >= before + 5);
    }
}
