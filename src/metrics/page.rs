//! The page `/metrics` in pieces, so that no complete page is in memory.
use std::fmt::{self, Write};

/// Number of bytes of a piece: the largest page has a hundred pieces, and each needs a few system
/// calls.
pub const CHUNK: usize = 32 * 1024;

/// Collects text and passes it on piece by piece.
pub(super) struct Chunks<F> {
    buffer: Vec<u8>,
    give: F,
}

impl<F: FnMut(Vec<u8>) -> fmt::Result> Chunks<F> {
    pub(super) fn new(give: F) -> Self {
        Self { buffer: Vec::with_capacity(CHUNK), give }
    }

    /// Passes on the rest.
    pub(super) fn end(mut self) -> fmt::Result {
        self.flush()
    }

    fn flush(&mut self) -> fmt::Result {
        if self.buffer.is_empty() {
            return Ok(());
        }
        (self.give)(std::mem::replace(&mut self.buffer, Vec::with_capacity(CHUNK)))
    }
}

impl<F: FnMut(Vec<u8>) -> fmt::Result> Write for Chunks<F> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let room = CHUNK - self.buffer.len();
            let (now, later) = rest.split_at(rest.len().min(room));
            self.buffer.extend_from_slice(now);
            rest = later;
            if self.buffer.len() >= CHUNK {
                self.flush()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_between_pieces_and_none_is_larger_than_said() {
        let mut pieces = Vec::new();
        let mut chunks = Chunks::new(|piece| {
            pieces.push(piece);
            Ok(())
        });
        let text = "ä".repeat(CHUNK) + "end";
        chunks.write_str("x").unwrap();
        chunks.write_str(&text).unwrap();
        chunks.end().unwrap();
        assert!(pieces.iter().all(|piece| (1..=CHUNK).contains(&piece.len())));
        assert_eq!(pieces.concat(), format!("x{text}").into_bytes());
    }
}
