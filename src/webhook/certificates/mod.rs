//! The webhook's own certificate authority and certificate.
//!
//! Everything is in one Secret: the leader writes it ([`CertificateKeeper`]), every replica reads
//! it ([`Certificates`]). A CA is in the published bundle for some time before it signs, so that
//! clients have it before they must trust one of its certificates. [`next`] decides the next
//! action.
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};

#[cfg(test)]
mod io_tests;
mod keeper;
mod published;
mod secret;
#[cfg(test)]
mod tests;

pub use keeper::{CertificateKeeper, KeepError};
pub use published::{Bundle, Certificates, HTTP1, HTTP2};
pub use secret::Defect;

/// The name of the Secret and of the Service in front of the webhook.
pub const NAME: &str = "traffic-operator-webhook";

/// The name of the Service in front of the pinglists, which are served with the same certificate.
pub const PINGLISTS: &str = "traffic-operator-pinglists";

/// A time: seconds since the Unix epoch.
pub type UnixSeconds = i64;

/// Backdating of certificates, in seconds: Kubernetes itself does not survive clock differences of
/// an hour.
const BACKDATED: i64 = 3600;

/// The time for which certificates live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// The lifetime of a CA.
    pub authority: Duration,
    /// The certificate of the server.
    pub leaf: Duration,
}

impl Default for Lifetimes {
    /// A year and 90 days: as for public authorities; a rotation four times a year is known to
    /// work.
    fn default() -> Self {
        let day = Duration::from_hours(24);
        Self { authority: 365 * day, leaf: 90 * day }
    }
}

/// An authority in the bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// Its subject's common name; no two in a bundle share it.
    pub name: String,
    /// Its certificate, PEM.
    pub certificate: String,
    /// Its private key, PEM.
    key: String,
    /// The time when it entered the bundle.
    pub created: UnixSeconds,
    /// The time when it ends.
    pub not_after: UnixSeconds,
}

/// The server's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The certificate, PEM.
    pub certificate: String,
    /// Its private key, PEM.
    key: String,
    /// The name of the authority that signed it.
    pub authority: String,
    /// The host names and addresses it is for.
    pub names: Vec<String>,
    /// The time when it was signed.
    pub issued: UnixSeconds,
    /// The time when it ends; never after its authority does.
    pub not_after: UnixSeconds,
}

/// The contents of the Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The bundle, the oldest first.
    pub authorities: Vec<Authority>,
    /// The server's certificate.
    pub leaf: Leaf,
}

/// Returns the time after two thirds of a lifetime: the last third remains to notice and fix a
/// failed rotation.
fn due_at(begin: UnixSeconds, end: UnixSeconds) -> UnixSeconds {
    begin.saturating_add(end.saturating_sub(begin) / 3 * 2)
}

impl Authority {
    /// The time when a successor is due.
    #[must_use]
    pub fn due_at(&self) -> UnixSeconds {
        due_at(self.created, self.not_after)
    }

    /// Returns the time from which it signs: a hundredth of its lifetime after it entered the
    /// bundle (3.65 days of a year). At least 10 s, because a watch may be silent for this long
    /// before it restarts; at most a sixth of its lifetime, so that half of an authority's last
    /// third remains for its last certificate.
    #[must_use]
    pub fn signs_from(&self) -> UnixSeconds {
        let life = self.not_after.saturating_sub(self.created);
        self.created.saturating_add((life / 100).max(10).min(life / 6))
    }

    fn is_valid(&self, now: UnixSeconds) -> bool {
        self.created.saturating_sub(BACKDATED) <= now && now < self.not_after
    }
}

impl State {
    /// Returns the bundle that clients should trust: the certificates of all CAs, PEM.
    #[must_use]
    pub fn bundle(&self) -> String {
        self.authorities.iter().map(|authority| authority.certificate.as_str()).collect()
    }

    /// Returns the time of the next action of [`next`], if the state does not change before.
    #[must_use]
    pub fn due_at(&self) -> UnixSeconds {
        let signer = self.authorities.iter().find(|a| a.name == self.leaf.authority);
        let newest = self.authorities.iter().max_by_key(|a| a.created);
        let waiting = newest.filter(|newest| newest.name != self.leaf.authority);
        // A certificate that ends with its CA cannot be valid for longer.
        let renewable = signer.filter(|signer| self.leaf.not_after < signer.not_after);
        [
            renewable.map(|_| due_at(self.leaf.issued, self.leaf.not_after)),
            newest.map(Authority::due_at),
            waiting.map(Authority::signs_from),
            self.authorities.iter().map(|a| a.not_after).min(),
        ]
        .into_iter()
        .flatten()
        .min()
        // Immediately without authorities.
        .unwrap_or(UnixSeconds::MIN)
    }
}

/// Returns the valid authority that signs now: the newest one that has been in the bundle for long
/// enough, else the oldest.
fn signer(authorities: &[Authority], now: UnixSeconds) -> Option<&Authority> {
    let valid = || authorities.iter().filter(|authority| authority.is_valid(now));
    let known = valid().filter(|authority| authority.signs_from() <= now);
    known.max_by_key(|a| a.created).or_else(|| valid().min_by_key(|a| a.created))
}

/// Returns the next state; `None` if nothing changes.
///
/// Only the keys are random: the action is a function of the arguments. The first authority, and
/// one with only expired predecessors, signs at once.
///
/// # Errors
/// When keys or certificates cannot be made.
pub fn next(
    state: Option<&State>,
    now: UnixSeconds,
    lifetimes: Lifetimes,
    names: &[String],
) -> Result<Option<State>, IssueError> {
    let before = state.map(|state| state.authorities.as_slice()).unwrap_or_default();
    let mut authorities: Vec<_> = before.iter().filter(|a| now < a.not_after).cloned().collect();
    let newest = authorities.iter().max_by_key(|authority| authority.created);
    let due = newest.is_none_or(|newest| newest.due_at() <= now);
    if due || !authorities.iter().any(|authority| authority.is_valid(now)) {
        authorities.push(Authority::issue(now, lifetimes.authority)?);
    }
    let signer = signer(&authorities, now).ok_or(IssueError::Clock(now))?;
    let end = now.saturating_add(seconds(lifetimes.leaf)).min(signer.not_after);
    let current = state.map(|state| &state.leaf).filter(|leaf| {
        let early = now < due_at(leaf.issued, leaf.not_after);
        let last = end <= leaf.not_after && now < leaf.not_after;
        leaf.authority == signer.name
            && leaf.names == names
            && leaf.issued.saturating_sub(BACKDATED) <= now
            && (early || last)
    });
    let leaf = match current {
        Some(leaf) => leaf.clone(),
        None => Leaf::issue(signer, now, end, names)?,
    };
    let next = State { authorities, leaf };
    Ok((state != Some(&next)).then_some(next))
}

fn seconds(duration: Duration) -> i64 {
    // Some 10,000 years: more than the format of certificates allows.
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX).min(300_000_000_000)
}

/// The reason why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// A key or certificate could not be created.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// No certificate can be valid at this time.
    #[error("the clock says {0} s since 1970: no certificate is valid then")]
    Clock(UnixSeconds),
}

impl Authority {
    /// Issues a new one, with its own key.
    fn issue(now: UnixSeconds, life: Duration) -> Result<Self, IssueError> {
        let key = KeyPair::generate()?;
        // A part of the key's own digest, so that two issued in the same second still have
        // different names.
        let id = CertificateParams::default().key_identifier(&key);
        let id = id.iter().take(4).fold(0_u32, |id, byte| id << 8 | u32::from(*byte));
        let name = format!("traffic-operator webhook CA {id:08x}");
        let not_after = now.saturating_add(seconds(life));
        let mut params = params(&name);
        date(&mut params, now, not_after)?;
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { name, certificate, key: key.serialize_pem(), created: now, not_after })
    }
}

impl Leaf {
    /// Issues a new one, with its own key.
    fn issue(
        authority: &Authority,
        now: UnixSeconds,
        not_after: UnixSeconds,
        names: &[String],
    ) -> Result<Self, IssueError> {
        let issuer = Issuer::new(params(&authority.name), KeyPair::from_pem(&authority.key)?);
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names.to_vec())?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, NAME);
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        date(&mut params, now, not_after)?;
        Ok(Self {
            certificate: params.signed_by(&key, &issuer)?.pem(),
            key: key.serialize_pem(),
            authority: authority.name.clone(),
            names: names.to_vec(),
            issued: now,
            not_after,
        })
    }
}

/// Returns the parameters of a CA, without its times: also those that a signature needs.
fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// Dates the certificate back, and ends it at `not_after`.
fn date(
    params: &mut CertificateParams,
    now: UnixSeconds,
    not_after: UnixSeconds,
) -> Result<(), IssueError> {
    // 9999-12-31T23:59:59Z, the last second that a certificate can name.
    const LAST: UnixSeconds = 253_402_300_799;
    let time = |seconds: UnixSeconds| {
        let since = u64::try_from(seconds.min(LAST)).map_err(|_| IssueError::Clock(now))?;
        Ok::<_, IssueError>(date_time_ymd(1970, 1, 1) + Duration::from_secs(since))
    };
    params.not_before = time(now.saturating_sub(BACKDATED))?;
    params.not_after = time(not_after)?;
    Ok(())
}
