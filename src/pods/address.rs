//! Validates addresses of pods: anyone with a kubelet's credentials can write any address into its
//! pods.
use std::net::IpAddr;

/// Reports whether requests may be sent to an address because a pod claims it: not to the cloud's
/// metadata service (169.254.169.254) or any other link-local address, nor to multicast and
/// broadcast addresses.
#[must_use]
pub fn is_askable(ip: &IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            !(ip.is_link_local() || ip.is_multicast() || ip.is_broadcast() || ip.is_unspecified())
        }
        IpAddr::V6(ip) => !(ip.is_unicast_link_local() || ip.is_multicast() || ip.is_unspecified()),
    }
}

/// Reports whether agents may probe it: it is askable and not the agent's own host.
#[must_use]
pub fn is_probeable(ip: &IpAddr) -> bool {
    is_askable(ip) && !ip.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_to_an_address_that_is_no_pods() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        for good in ["10.0.0.7", "192.168.1.9", "100.64.0.1", "8.8.8.8", "fd00::7", "2001:db8::1"] {
            assert!(is_askable(&ip(good)) && is_probeable(&ip(good)), "{good}");
        }
        for bad in [
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "0.0.0.0",
            "::",
            "fe80::1",
            "ff02::1",
            "::ffff:169.254.169.254",
        ] {
            assert!(!is_askable(&ip(bad)) && !is_probeable(&ip(bad)), "{bad}");
        }
        for own in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            assert!(!is_probeable(&ip(own)), "{own}");
        }
    }
}
