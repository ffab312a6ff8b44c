//! What filters are made of: layers of fixed capacity ([`Layer`]), and chains of them that grow ([`Chain`]) by the rules of
//! their kind ([`Rules`]). Beside them the exact set of hashes ([`HashSet`]).

mod adding;
mod chain;
mod counting;
mod deleted;
mod deleting;
mod flushing;
mod hash_set;
mod layer;
mod lookup;
mod older;
mod outcome;
mod pending;
mod probes;
mod rules;
mod totals;
mod union;
mod whole;

pub(crate) use adding::WhenFull;
pub use chain::Chain;
pub(crate) use deleted::Deleted;
pub use hash_set::{HashSet, Lookup};
pub use layer::Layer;
pub use outcome::{Added, Origin, Outcome, Removed};
pub(crate) use probes::Probes;
pub use rules::{HashOf, LAYERS_MAX, Rules};
pub use totals::{Contents, Reach};
pub(crate) use totals::{check_layer, reach};
pub(crate) use whole::{CellsReader, Whole};
