//! Growth over a row of samples.

/// A line through samples by least squares.
#[derive(Clone, Copy, Debug)]
pub struct Fit {
    /// Growth for each unit.
    pub slope: f64,
    /// Standard error of the slope.
    pub error: f64,
}

/// Returns the line through these points; none through fewer than three, or if all are at the same
/// place.
pub fn fit(points: &[(f64, f64)]) -> Option<Fit> {
    let count = f64::from(u32::try_from(points.len()).ok().filter(|count| *count >= 3)?);
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let squares: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    if squares == 0.0 {
        return None;
    }
    let slope = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>() / squares;
    let rest: f64 = points.iter().map(|p| (p.1 - y - slope * (p.0 - x)).powi(2)).sum();
    Some(Fit { slope, error: (rest / (count - 2.0) / squares).sqrt() })
}
