//! The reasons of failed probes.
use std::io;

/// The reason why a probe failed: the label `reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No answer in time.
    Timeout,
    /// The host answers, but nothing listens on the port.
    Refused,
    /// The network reports that there is no route.
    Unreachable,
    /// The connection broke before the answer was complete.
    Reset,
    /// An HTTP status that is no success.
    Status,
    /// The name does not exist, or has no address.
    NotFound,
    /// The DNS server reports a failure.
    ServerFailure,
    /// The certificate is not valid for the name, or no known CA has signed it.
    Certificate,
    /// The address is not to be probed.
    Forbidden,
    /// Anything else.
    Other,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 10] = [
        Self::Timeout,
        Self::Refused,
        Self::Unreachable,
        Self::Reset,
        Self::Status,
        Self::NotFound,
        Self::ServerFailure,
        Self::Certificate,
        Self::Forbidden,
        Self::Other,
    ];

    /// The value of the label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Reset => "reset",
            Self::Status => "status",
            Self::NotFound => "not_found",
            Self::ServerFailure => "server_failure",
            Self::Certificate => "certificate",
            Self::Forbidden => "forbidden",
            Self::Other => "other",
        }
    }

    /// Classifies an error of a socket.
    #[must_use]
    pub fn of(error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        match error.kind() {
            // From the kernel, which stopped retransmitting.
            Kind::TimedOut => Self::Timeout,
            Kind::ConnectionRefused => Self::Refused,
            Kind::HostUnreachable
            | Kind::NetworkUnreachable
            | Kind::NetworkDown
            // See `is_local` in `probe.rs`.
            | Kind::PermissionDenied => Self::Unreachable,
            Kind::ConnectionReset
            | Kind::ConnectionAborted
            | Kind::BrokenPipe
            | Kind::NotConnected
            | Kind::UnexpectedEof => Self::Reset,
            _ => Self::Other,
        }
    }
}
