//! Parts of texts for people, which commands and kinds share: numbers, colors and tables.
pub(crate) mod figures;
pub(crate) mod style;
pub(crate) mod table;
