//! A node, a pod on it and a far pod, as three network namespaces. Without root the test is
//! skipped, with a message.

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread::JoinHandle;
use std::time::Instant;

use super::*;
use crate::cluster::{program, require_root};
use crate::process::output;
use crate::workspace::unique;

/// The far pod's echo.
const ECHO: &str = "10.78.2.2:7";
/// The echo of the far pod's node.
const NODE_ECHO: &str = "10.77.0.12:7";
const POD: &str = "10.78.1.2";

struct Stage {
    pod: String,
    node: String,
    far: String,
    dir: PathBuf,
}

impl Stage {
    fn set() -> Self {
        let name = |what: &str| format!("labtest-{}-{what}", unique());
        let (pod, node, far) = (name("pod"), name("node"), name("far"));
        let dir = std::env::temp_dir().join(name("dir"));
        std::fs::create_dir_all(&dir).unwrap();
        let stage = Self { pod, node, far, dir };
        let Self { pod, node, far, .. } = &stage;
        for command in [
            format!("netns add {pod}"),
            format!("netns add {node}"),
            format!("netns add {far}"),
            format!("-n {node} link add cni0 type veth peer name eth0 netns {pod}"),
            format!("-n {node} link add eth0 type veth peer name eth0 netns {far}"),
            format!("-n {node} addr add 10.78.1.1/24 dev cni0"),
            format!("-n {node} addr add 10.77.0.11/24 dev eth0"),
            format!("-n {pod} addr add {POD}/24 dev eth0"),
            format!("-n {far} addr add 10.77.0.12/24 dev eth0"),
            format!("-n {far} addr add 10.78.2.2/32 dev lo"),
            format!("-n {node} link set cni0 up"),
            format!("-n {node} link set eth0 up"),
            format!("-n {pod} link set eth0 up"),
            format!("-n {far} link set eth0 up"),
            format!("-n {far} link set lo up"),
            format!("-n {node} route add 10.78.2.0/24 via 10.77.0.12"),
            format!("-n {pod} route add default via 10.78.1.1"),
            format!("-n {far} route add 10.78.1.0/24 via 10.77.0.11"),
        ] {
            output("ip", &command.split(' ').collect::<Vec<_>>()).unwrap();
        }
        let forward =
            [&format!("--net=/run/netns/{node}"), "sysctl", "-qw", "net.ipv4.ip_forward=1"];
        output("nsenter", &forward.map(AsRef::as_ref)).unwrap();
        stage
    }

    /// Runs a function on a thread in a namespace.
    fn inside<T: Send + 'static>(
        network: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let network = network.to_owned();
        std::thread::spawn(move || {
            network::enter(&network).unwrap();
            work()
        })
    }

    async fn impair(&self, delay: u64, loss: f64) -> Impaired {
        let line = Line {
            network: self.node.clone(),
            pods: "10.78.0.0/16".to_owned(),
            own: "10.78.1.0/24".to_owned(),
        };
        let impairment = Impairment { delay: Duration::from_millis(delay), loss, longest: None };
        let limit = Duration::from_mins(1);
        start(&program::find().unwrap(), &self.dir, "impair", &line, impairment, limit)
            .await
            .unwrap()
    }

    /// Sends datagrams to the echo and returns how many came back, and the shortest round trip.
    fn ping(network: &str, to: &'static str, count: u16) -> (usize, Duration) {
        let asking = Self::inside(network, move || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect(to).unwrap();
            // Far longer than any delay here.
            socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            let sent: Vec<Instant> = (0..count)
                .map(|number| {
                    let now = Instant::now();
                    // An odd length: the checksum's last byte stands alone.
                    socket.send(&[&number.to_be_bytes()[..], b"x"].concat()).unwrap();
                    std::thread::sleep(Duration::from_millis(1));
                    now
                })
                .collect();
            let (mut back, mut shortest, mut buffer) = (0, Duration::MAX, [0; 16]);
            while back < usize::from(count) && socket.recv(&mut buffer).is_ok() {
                let number = usize::from(u16::from_be_bytes([buffer[0], buffer[1]]));
                shortest = shortest.min(sent[number].elapsed());
                back += 1;
            }
            (back, shortest)
        });
        asking.join().unwrap()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for network in [&self.pod, &self.node, &self.far] {
            let _ = output("ip", &["netns", "del", network]);
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Answers datagrams and streams in a namespace, for as long as the test lasts.
fn echo(network: &str) {
    let ready = std::sync::mpsc::channel();
    let _ = Stage::inside(network, move || {
        // One socket for each address, so that each answers from its own.
        let sockets = [ECHO, NODE_ECHO].map(|address| UdpSocket::bind(address).unwrap());
        let listener = TcpListener::bind(ECHO).unwrap();
        ready.0.send(()).unwrap();
        for socket in sockets {
            std::thread::spawn(move || {
                let mut buffer = [0; 2048];
                while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                    let _ = socket.send_to(&buffer[..length], from);
                }
            });
        }
        for mut stream in listener.incoming().flatten() {
            let mut other = stream.try_clone().unwrap();
            let _ = std::io::copy(&mut stream, &mut other);
            let _ = other.shutdown(std::net::Shutdown::Write);
        }
    });
    ready.1.recv().unwrap();
}

/// Waits until nothing is counted for a second, several times the interval of the reports: the
/// results for all packets.
async fn settled(impaired: &Impaired) -> Counts {
    let last = Cell::new((Counts::default(), Instant::now()));
    until("counts that stay", Duration::from_secs(30), || async {
        let now = impaired.counts()?;
        if now != last.get().0 {
            last.set((now, Instant::now()));
        }
        let rests = last.get().1.elapsed() > Duration::from_secs(1);
        Ok(if rests { Look::Done(now) } else { Look::NotYet(format!("{now:?}")) })
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn packets_of_pods_are_held_and_lost_and_no_others() {
    if require_root().is_err() {
        crate::left_out("an impaired link: it needs root");
        return;
    }
    let stage = Stage::set();
    echo(&stage.far);
    // New links need a moment until they carry the first packet.
    let end = Instant::now() + Duration::from_secs(30);
    while Stage::ping(&stage.pod, ECHO, 1).0 == 0 {
        assert!(Instant::now() < end, "the links carry no packets");
    }
    let (back, _) = Stage::ping(&stage.pod, ECHO, 50);
    assert_eq!(back, 50, "without impairment");

    let slow = stage.impair(60, 0.0).await;
    let (back, shortest) = Stage::ping(&stage.pod, ECHO, 50);
    eprintln!("60 ms: shortest round trip {shortest:?}");
    assert_eq!(back, 50);
    assert!(shortest >= Duration::from_millis(60), "{shortest:?}");
    // Enough for many merged segments in both directions; what comes back is what was sent.
    let streamed = Stage::inside(&stage.pod, || {
        let sent: Vec<u8> = (0..1_000_000_u32).map(|byte| byte.to_le_bytes()[0]).collect();
        let mut stream = TcpStream::connect(ECHO).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut writing = stream.try_clone().unwrap();
        let (copy, mut received) = (sent.clone(), Vec::new());
        let writer = std::thread::spawn(move || {
            writing.write_all(&copy).unwrap();
            writing.shutdown(std::net::Shutdown::Write).unwrap();
        });
        stream.read_to_end(&mut received).unwrap();
        writer.join().unwrap();
        received == sent
    });
    assert!(streamed.join().unwrap(), "the stream arrives corrupted");
    until("the counts", Duration::from_secs(5), || async {
        let counts = slow.counts()?;
        let text = format!("{counts:?}");
        Ok(if counts.held > 1400 { Look::Done(()) } else { Look::NotYet(text) })
    })
    .await
    .unwrap();
    let before = settled(&slow).await;
    assert_eq!(before.lost, 0, "{before:?}");
    assert_eq!(Stage::ping(&stage.node, NODE_ECHO, 20).0, 20, "the node's own packets");
    assert_eq!(settled(&slow).await, before, "the node's own packets bypass it");
    slow.lift().await.unwrap();

    let lossy = stage.impair(0, 0.2).await;
    // As many as a socket's buffer holds by default.
    let (back, _) = Stage::ping(&stage.pod, ECHO, 250);
    eprintln!("20 % loss each way: {back} of 250 came back, {:?}", lossy.counts().unwrap());
    // 64 % of the round trips survive: 160. Five standard deviations are 38.
    assert!((122..=198).contains(&back), "{back}");
    lossy.lift().await.unwrap();
    let (back, _) = Stage::ping(&stage.pod, ECHO, 50);
    assert_eq!(back, 50, "after it was lifted");
}

#[tokio::test]
async fn when_its_process_dies_packets_go_their_ordinary_way() {
    if require_root().is_err() {
        crate::left_out("an impaired link: it needs root");
        return;
    }
    let stage = Stage::set();
    echo(&stage.far);
    let mut lost = stage.impair(0, 1.0).await;
    assert_eq!(Stage::ping(&stage.pod, ECHO, 5).0, 0);
    lost.process.take().unwrap().kill().unwrap();
    // The kernel takes a namespace apart in the background.
    until("the link gone", Duration::from_secs(20), || async {
        let left = output("ip", &["-n", &stage.node, "-brief", "link"])?;
        Ok(if left.contains("hold0") { Look::NotYet(left) } else { Look::Done(()) })
    })
    .await
    .unwrap();
    assert_eq!(Stage::ping(&stage.pod, ECHO, 5).0, 5);
}

#[test]
fn shares_and_delays_are_read() {
    for (text, share) in [("20%", 0.2), ("0.5%", 0.005), ("100%", 1.0)] {
        assert!((parse_share(text).unwrap() - share).abs() < f64::EPSILON, "{text}");
    }
    for text in ["20", "-1%", "101%", "NaN%", "%", ""] {
        assert!(parse_share(text).unwrap_err().to_string().contains("as 20%"), "{text}");
    }
    assert_eq!(parse_delay("50ms").unwrap(), Duration::from_millis(50));
    assert_eq!(parse_delay("2s").unwrap(), Duration::from_secs(2));
    for text in ["50", "ms", "-1ms", "1.5s", "18446744073709551615s"] {
        assert!(parse_delay(text).unwrap_err().to_string().contains("as 50ms"), "{text}");
    }
}
