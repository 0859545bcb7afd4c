//! Keys and certificates.
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};

use super::{Authority, BACKDATED, Leaf, UnixSeconds, seconds};

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
    pub(super) fn issue(now: UnixSeconds, life: Duration) -> Result<Self, IssueError> {
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
    pub(super) fn issue(
        authority: &Authority,
        now: UnixSeconds,
        not_after: UnixSeconds,
        names: &[String],
    ) -> Result<Self, IssueError> {
        let issuer = Issuer::new(params(&authority.name), KeyPair::from_pem(&authority.key)?);
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names.to_vec())?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, super::NAME);
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
