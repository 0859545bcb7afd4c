//! The other thresholds to try.

/// Fractions of the configured threshold to try by default.
const PARTS: [f64; 5] = [0.5, 0.75, 0.9, 1.1, 1.25];

/// Returns the thresholds by size, including the configured one. No value is ever above 100
/// percent.
///
/// # Errors
/// When a threshold is invalid.
pub fn thresholds(configured: f64, unit: &str, asked: &[f64]) -> Result<Vec<f64>, String> {
    let most = if unit == "percent" { 100.0 } else { f64::INFINITY };
    if let Some(wrong) = asked.iter().find(|x| !x.is_finite() || **x <= 0.0 || **x > most) {
        let range = if most.is_finite() { " and at most 100" } else { "" };
        return Err(format!("--thresholds: {wrong} must be greater than 0{range}"));
    }
    let mut all: Vec<_> = if asked.is_empty() {
        // Rounded, to avoid values such as 59.99999999999999.
        let rounded = |x: f64| format!("{x:.6e}").parse().unwrap_or(x);
        PARTS.iter().map(|part| rounded(configured * part)).filter(|x| *x <= most).collect()
    } else {
        asked.to_vec()
    };
    all.push(configured);
    all.sort_by(f64::total_cmp);
    all.dedup();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_configured_one_unless_others_are_asked_for() {
        assert_eq!(thresholds(60.0, "percent", &[]), Ok(vec![30.0, 45.0, 54.0, 60.0, 66.0, 75.0]));
        assert_eq!(thresholds(90.0, "percent", &[]), Ok(vec![45.0, 67.5, 81.0, 90.0, 99.0]));
        assert_eq!(thresholds(60.0, "percent", &[70.0, 60.0]), Ok(vec![60.0, 70.0]));
        assert_eq!(thresholds(8e8, "bits_per_second", &[1e9]), Ok(vec![8e8, 1e9]));
        assert!(thresholds(60.0, "percent", &[170.0]).unwrap_err().contains("at most 100"));
        assert!(thresholds(60.0, "", &[0.0]).is_err());
    }
}
