//! Numbers for a person.
use super::super::evidence::Unit;
use crate::api::go::format_exponent;

/// A value for a person.
pub(super) fn written(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Percent => format!("{} %", short(value)),
        Unit::BitsPerSecond => bits_per_second(value),
        Unit::Own if value == 0.0 || (1e-3..1e6).contains(&value.abs()) => short(value),
        Unit::Own => format_exponent(value),
    }
}

fn bits_per_second(bits: f64) -> String {
    let prefixes = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let (scale, prefix) =
        prefixes.into_iter().find(|(scale, _)| bits >= *scale).unwrap_or((1.0, ""));
    format!("{} {prefix}bit/s", short(bits / scale))
}

/// A number for a person: up to three decimals, none that are zero.
pub(super) fn short(x: f64) -> String {
    let text = format!("{x:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_have_their_unit() {
        for (unit, value, text) in [
            (Unit::Percent, 60.0, "60 %"),
            (Unit::Percent, 80.123_456, "80.123 %"),
            (Unit::BitsPerSecond, 812e6, "812 Mbit/s"),
            (Unit::BitsPerSecond, 2.5e9, "2.5 Gbit/s"),
            (Unit::BitsPerSecond, 0.0, "0 bit/s"),
            (Unit::Own, 0.02, "0.02"),
            (Unit::Own, 0.000_02, "2e-05"),
            (Unit::Own, 0.0, "0"),
        ] {
            assert_eq!(written(unit, value), text);
        }
    }
}
