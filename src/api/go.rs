//! Numbers written the way Go writes them, because the original's consumers parse that.

/// Formats like Go's `strconv.FormatFloat(x, 'e', -1, 64)`: the shortest digits that read back as
/// the same number, with an exponent of at least two digits (`1.06976e-04`).
///
/// `NaN` and infinities are written as Go writes them: `NaN`, `+Inf`, `-Inf`.
#[must_use]
pub fn format_exponent(x: f64) -> String {
    if x.is_nan() {
        return "NaN".into();
    }
    if x.is_infinite() {
        return if x > 0.0 { "+Inf" } else { "-Inf" }.into();
    }
    let rust = format!("{x:e}");
    let (digits, exponent) = rust.split_once('e').unwrap_or((&rust, "0"));
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(e) => ('-', e),
        None => ('+', exponent),
    };
    format!("{digits}e{sign}{exponent:0>2}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn writes_the_samples_of_the_original_readme() {
        for (x, text) in [
            (1.06976e-04, "1.06976e-04"),
            (9.784e-05, "9.784e-05"),
            (0.0, "0e+00"),
            (60.0, "6e+01"),
            (1e100, "1e+100"),
            (-2.5, "-2.5e+00"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
        ] {
            assert_eq!(format_exponent(x), text);
        }
    }

    proptest! {
        #[test]
        fn reads_back_as_the_same_number(x in proptest::num::f64::NORMAL) {
            prop_assert_eq!(format_exponent(x).parse::<f64>(), Ok(x));
        }
    }
}
