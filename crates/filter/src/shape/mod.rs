//! What filters are made of: layers of fixed capacity ([`Layer`]), and chains of them that grow ([`Chain`]) by the rules of
//! their kind ([`Rules`]). Beside them the exact set of hashes ([`HashSet`]).

mod chain;
mod counting;
mod effects;
mod hash_set;
mod layer;
mod older;
mod pending;
mod probes;
mod rules;
mod totals;
mod union;
mod whole;

pub use chain::{Added, Chain};
pub(crate) use effects::WhenFull;
pub use hash_set::{HashSet, Lookup};
pub use layer::Layer;
pub(crate) use probes::Probes;
pub use rules::{HashOf, LAYERS_MAX, Rules};
pub use totals::{Contents, Reach};
pub(crate) use totals::{check_layer, reach};
pub(crate) use whole::{CellsReader, Whole};
