//! Kubernetes quantities (`800M`, `2.5G`, `1Gi`, `1e9`) as numbers.

/// Why a text is no quantity.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a quantity: write a number with an optional suffix, e.g. 800M, 2.5G or 1e9"
)]
pub struct InvalidQuantity {
    text: String,
}

/// Parses a [Kubernetes
/// quantity](https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/).
///
/// # Errors
/// When the text is not a quantity.
pub fn parse_quantity(text: &str) -> Result<f64, InvalidQuantity> {
    let invalid = || InvalidQuantity { text: text.chars().take(64).collect() };
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-')))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let scale = match suffix {
        "" | "n" | "u" | "m" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => f64::from(1 << 10),
        "Mi" => f64::from(1 << 20),
        "Gi" => f64::from(1 << 30),
        "Ti" => 2f64.powi(40),
        "Pi" => 2f64.powi(50),
        "Ei" => 2f64.powi(60),
        exponent => {
            let digits = exponent.strip_prefix(['e', 'E']).ok_or_else(invalid)?;
            let power: i32 = digits.parse().map_err(|_| invalid())?;
            // 1e400 is a number to Kubernetes, but no bandwidth.
            if power.abs() > 300 {
                return Err(invalid());
            }
            10f64.powi(power)
        }
    };
    if !number.contains(|c: char| c.is_ascii_digit()) {
        return Err(invalid());
    }
    let value: f64 = number.parse().map_err(|_| invalid())?;
    // A division rounds as the decimal does: 300m is 0.3.
    Ok(match suffix {
        "n" => value / 1e9,
        "u" => value / 1e6,
        "m" => value / 1e3,
        _ => value * scale,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn accepts_what_kubernetes_accepts() {
        for (text, value) in [
            ("800M", 8e8),
            ("2.5G", 2.5e9),
            ("1e9", 1e9),
            ("1E9", 1e9),
            ("12Gi", 12.0 * 1_073_741_824.0),
            ("1000000000", 1e9),
            ("500m", 0.5),
            ("1100m", 1.1),
            ("7u", 0.000_007),
            ("+1k", 1000.0),
            (".5G", 5e8),
        ] {
            assert_eq!(parse_quantity(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn refuses_the_rest_by_name() {
        for text in ["", "G", "1 G", "1GB", "abc", "1e", "NaN", "inf", "--1", "1e999", "."] {
            assert!(parse_quantity(text).is_err(), "{text}");
        }
        assert!(parse_quantity("1GB").unwrap_err().to_string().contains("\"1GB\""));
    }

    proptest! {
        #[test]
        fn never_panics(text in ".{0,40}") {
            let _ = parse_quantity(&text);
        }
    }
}
