//! Number of reflectors in each zone.

/// Returns the number of reflectors from each zone, if this many are taken from lists sorted from
/// best to worst: as evenly as the lists allow; the share that a short list lacks is spread over
/// the others once. Where zones are even, the better element decides, and then the order of the
/// zones.
///
/// The sum is `total`, or all there are.
pub(super) fn spread<T: Ord>(total: usize, lists: &[Vec<T>]) -> Vec<usize> {
    let mut taken = vec![0; lists.len()];
    for _ in 0..total {
        let open = (0..lists.len()).filter(|&zone| taken[zone] < lists[zone].len());
        let Some(next) = open.min_by_key(|&zone| (taken[zone], &lists[zone][taken[zone]], zone))
        else {
            break;
        };
        taken[next] += 1;
    }
    taken
}
