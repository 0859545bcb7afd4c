//! An exact decimal above 0 and at most 1.
use std::{fmt, str::FromStr};

use crate::election::Rounding;

/// Reflectors per node. In binary floating point 0.05 × 100 can be more than 5, which is then
/// rounded up to 6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    /// The digits after the point, or those of 1.
    digits: u64,
    /// A power of ten.
    scale: u64,
}

/// The error of an invalid ratio: its message describes the valid form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a decimal above 0 and at most 1, e.g. \"0.005\"")]
pub struct InvalidRatio;

/// Number of digits for which 10^n fits into 64 bits. The API allows a text of twenty characters.
const MOST_DIGITS: usize = 19;

impl FromStr for Ratio {
    type Err = InvalidRatio;

    fn from_str(text: &str) -> Result<Self, InvalidRatio> {
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let digit = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let part = if digit(part) { part.trim_end_matches('0') } else { return Err(InvalidRatio) };
        let places = u32::try_from(part.len()).map_err(|_| InvalidRatio)?;
        match (whole, part) {
            ("1", "") => Ok(Self { digits: 1, scale: 1 }),
            ("0" | "", part) if !part.is_empty() && part.len() <= MOST_DIGITS => Ok(Self {
                digits: part.parse().map_err(|_| InvalidRatio)?,
                scale: 10_u64.pow(places),
            }),
            _ => Err(InvalidRatio),
        }
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.scale == 1 {
            return write!(f, "{}", self.digits);
        }
        let places = self.scale.ilog10() as usize;
        write!(f, "0.{:0places$}", self.digits)
    }
}

impl Ratio {
    /// Returns the share of a number, rounded.
    #[must_use]
    pub fn of(self, nodes: usize, rounding: Rounding) -> usize {
        let (scale, share) = (u128::from(self.scale), nodes as u128 * u128::from(self.digits));
        let rounded = match rounding {
            Rounding::Ceil => share.div_ceil(scale),
            Rounding::Floor => share / scale,
            Rounding::Round => (2 * share + scale) / (2 * scale),
        };
        usize::try_from(rounded).unwrap_or(usize::MAX)
    }
}
