//! A set of small numbers.

/// Bits of one word.
const WIDTH: usize = u64::BITS as usize;

/// A set of numbers below a fixed size; only sets of the same size are combined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    /// Returns an empty set with room for this many elements.
    pub fn none(size: usize) -> Self {
        Self(vec![0; size.div_ceil(WIDTH)])
    }

    pub fn insert(&mut self, place: usize) {
        self.0[place / WIDTH] |= 1 << (place % WIDTH);
    }

    pub fn remove(&mut self, place: usize) {
        self.0[place / WIDTH] &= !(1 << (place % WIDTH));
    }

    pub fn contains(&self, place: usize) -> bool {
        self.0[place / WIDTH] >> (place % WIDTH) & 1 == 1
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// Reports whether this set contains all of `other`.
    pub fn covers(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| b & !a == 0)
    }

    /// Reports whether any number is in all three sets.
    pub fn meets(&self, other: &Self, third: &Self) -> bool {
        self.0.iter().zip(&other.0).zip(&third.0).any(|((a, b), c)| a & b & c != 0)
    }

    pub fn or(&mut self, other: &Self) {
        self.combine(other, |a, b| a | b);
    }

    pub fn and(&mut self, other: &Self) {
        self.combine(other, |a, b| a & b);
    }

    pub fn and_not(&mut self, other: &Self) {
        self.combine(other, |a, b| a & !b);
    }

    fn combine(&mut self, other: &Self, with: impl Fn(u64, u64) -> u64) {
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a = with(*a, *b);
        }
    }

    /// Iterates in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(word, &bits)| {
            std::iter::successors(Some(bits), |rest| Some(rest & rest.wrapping_sub(1)))
                .take_while(|&rest| rest != 0)
                .map(move |rest| word * WIDTH + rest.trailing_zeros() as usize)
        })
    }
}
