//! The first process of a node: gives it its own `/proc`, `/sys`, `/var` and `/run`, then starts
//! and watches containerd, kubelet and kube-proxy, and reaps what they orphan.
//!
//! It runs in network, mount, uts, ipc and pid namespaces of its own; when it dies, so does all
//! that is in them.

use std::fs::{self, File};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::wait::{WaitStatus, waitpid};

use super::{CONTAINERD_SOCKET, NodeConfig, files};
use crate::workspace;

/// The time that containerd may take to listen, and the API server to come up.
const LIMIT: Duration = Duration::from_mins(2);
/// Time between two checks of something that is starting.
const PERIOD: Duration = Duration::from_millis(50);
/// A component that ends this often is broken, not unlucky.
const MOST_RESTARTS: usize = 5;

/// Runs a node until its pid namespace is killed.
pub fn run(config_file: &Path) -> Result<()> {
    let config: NodeConfig = serde_json::from_str(&workspace::read(config_file)?)?;
    set_up_mounts(&config)?;
    write_files(&config)?;
    let mut components = vec![Component::start(&config, "containerd")?];
    wait_for("containerd", || UnixStream::connect(CONTAINERD_SOCKET).is_ok())?;
    if !config.imported().exists() {
        import_images(&config)?;
        fs::write(config.imported(), "")?;
    }
    // A kubelet that does not find the API server waits for seconds before it tries again.
    wait_for("the API server", || TcpStream::connect(&config.api).is_ok())?;
    components.push(Component::start(&config, "kubelet")?);
    components.push(Component::start(&config, "kube-proxy")?);
    watch(&config, &mut components)
}

/// Gives the node its own view of the file system; unshare has made all mounts slaves of the
/// machine's.
fn set_up_mounts(config: &NodeConfig) -> Result<()> {
    let dir = &config.dir;
    for path in [
        "var/lib/kubelet",
        "var/lib/containerd",
        "var/lib/cni",
        "var/lib/lab/cni",
        "var/log",
        "var/tmp",
        "cgroup",
    ] {
        fs::create_dir_all(dir.join(path))?;
    }
    for hidden in ["/var", "/run"] {
        if dir.starts_with(hidden) {
            bail!(
                "a node has its own {hidden}, so the workspace must not lie below it: {}",
                dir.display()
            );
        }
    }
    let run = dir.join("var/run");
    if !run.is_symlink() {
        std::os::unix::fs::symlink("/run", run)?;
    }
    nix::unistd::sethostname(&config.name)?;
    attach(Some("proc"), Path::new("/proc"), Some("proc"), MsFlags::empty())?;
    // /sys/class/net shows the links of the namespace in which it was mounted: mount it again, and
    // put back the machine's cgroups, which a new /sys does not have.
    let (cgroup, aside) = (Path::new("/sys/fs/cgroup"), dir.join("cgroup"));
    let recursive = MsFlags::MS_BIND | MsFlags::MS_REC;
    attach(Some(cgroup), &aside, None, recursive)?;
    detach(Path::new("/sys"))?;
    attach(Some("sysfs"), Path::new("/sys"), Some("sysfs"), MsFlags::empty())?;
    attach(Some(&aside), cgroup, None, recursive)?;
    detach(&aside)?;
    attach(Some(&dir.join("var")), Path::new("/var"), None, MsFlags::MS_BIND)?;
    attach(Some("tmpfs"), Path::new("/run"), Some("tmpfs"), MsFlags::empty())?;
    // Pods may ask for mount propagation from and to their node.
    attach(None::<&Path>, Path::new("/"), None, MsFlags::MS_SHARED | MsFlags::MS_REC)?;
    fs::write("/proc/sys/net/ipv4/ip_forward", "1")
        .context("letting the node forward packets to its pods")
}

fn attach<S: AsRef<Path> + ?Sized>(
    source: Option<&S>,
    target: &Path,
    kind: Option<&str>,
    flags: MsFlags,
) -> Result<()> {
    let source = source.map(AsRef::as_ref);
    mount(source, target, kind, flags, None::<&str>)
        .with_context(|| format!("mounting {}", target.display()))
}

fn detach(target: &Path) -> Result<()> {
    umount2(target, MntFlags::MNT_DETACH)
        .with_context(|| format!("unmounting {}", target.display()))
}

fn write_files(config: &NodeConfig) -> Result<()> {
    let dir = Path::new("/var/lib/lab");
    let all = [
        ("containerd.toml", files::containerd(config)),
        ("cni/10-lab.conflist", files::cni(config)),
        ("kubelet.json", files::kubelet(config)),
        ("kube-proxy.json", files::kube_proxy(config)),
        ("resolv.conf", format!("nameserver {}\n", config.dns)),
    ];
    for (name, text) in all {
        fs::write(dir.join(name), text).with_context(|| format!("writing {name}"))?;
    }
    Ok(())
}

fn wait_for(what: &str, ready: impl Fn() -> bool) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    while !ready() {
        if Instant::now() > deadline {
            bail!("{what} does not listen after {} s", LIMIT.as_secs());
        }
        sleep(PERIOD);
    }
    Ok(())
}

/// Imports all archives at once: the work is mostly copying.
fn import_images(config: &NodeConfig) -> Result<()> {
    let mut imports = Vec::new();
    for archive in &config.images {
        let child = Command::new(&config.programs.ctr)
            .args(["--address", CONTAINERD_SOCKET, "--namespace", "k8s.io", "images", "import"])
            .arg(archive)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("running ctr")?;
        imports.push((archive, child));
    }
    for (archive, child) in imports {
        let output = child.wait_with_output()?;
        if !output.status.success() {
            bail!(
                "importing {}: {}",
                archive.display(),
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
    }
    Ok(())
}

/// One of the node's three programs.
struct Component {
    name: &'static str,
    child: Child,
    restarts: usize,
}

impl Component {
    fn start(config: &NodeConfig, name: &'static str) -> Result<Self> {
        Ok(Self { name, child: start(config, name)?, restarts: 0 })
    }
}

fn start(config: &NodeConfig, name: &str) -> Result<Child> {
    let kubeconfig = format!("--kubeconfig={}", config.kubelet_kubeconfig.display());
    let (hostname, address) =
        (format!("--hostname-override={}", config.name), format!("--node-ip={}", config.address));
    let (program, arguments) = match name {
        "containerd" => {
            (&config.programs.containerd, vec!["--config", "/var/lib/lab/containerd.toml"])
        }
        "kubelet" => (
            &config.programs.kubelet,
            vec![
                "--config=/var/lib/lab/kubelet.json",
                &kubeconfig,
                "--root-dir=/var/lib/kubelet",
                &hostname,
                &address,
                "--v=2",
            ],
        ),
        _ => (&config.programs.kube_proxy, vec!["--config=/var/lib/lab/kube-proxy.json", "--v=1"]),
    };
    let log = config.logs.join(format!("{}-{name}.log", config.name));
    let log = File::options().create(true).append(true).open(log)?;
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("starting {name} ({})", program.display()))
}

/// Reaps, and starts again what should be running, as a service manager would.
fn watch(config: &NodeConfig, components: &mut [Component]) -> Result<()> {
    loop {
        let status = waitpid(None, None)?;
        let (WaitStatus::Exited(ended, _) | WaitStatus::Signaled(ended, _, _)) = status else {
            continue;
        };
        let is_it =
            |component: &&mut Component| i32::try_from(component.child.id()) == Ok(ended.as_raw());
        let Some(component) = components.iter_mut().find(is_it) else { continue };
        let log = config.logs.join(format!("{}-{}.log", config.name, component.name));
        component.restarts += 1;
        if component.restarts > MOST_RESTARTS {
            bail!(
                "{} ended {} times{}",
                component.name,
                component.restarts,
                crate::process::tail(&log)
            );
        }
        eprintln!("{} ended, starting it again", component.name);
        // Against a tight loop; the caller waits longer for the node anyway.
        sleep(Duration::from_secs(1));
        component.child = start(config, component.name)?;
    }
}
