//! The inputs of the fuzz targets: inputs that the neighbouring files generate and check, and kept ones, in `fuzz/corpus`.
//! These tests, those of the server and `scripts/test --only fuzz` use them.

pub mod archive;
pub mod cases;
pub mod found;
#[path = "../kinds/mod.rs"]
pub mod kinds;
pub mod refusals;
pub mod spelled;
#[path = "../../../../fuzz/src/lib.rs"]
pub mod targets;
pub mod words;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Named bytes.
pub type Input = (String, Vec<u8>);

type ByName = BTreeMap<String, Vec<u8>>;

/// Generated inputs by target and name.
#[derive(Default)]
pub struct Inputs(RefCell<BTreeMap<&'static str, ByName>>);

impl Inputs {
    /// Adds an input under a name, which must be unique for its target.
    pub fn take(&self, target: &'static str, name: &str, data: &[u8]) {
        let before = self.0.borrow_mut().entry(target).or_default().insert(name.to_owned(), data.to_vec());
        assert!(before.is_none(), "{target}/{name} is made twice");
    }
}

/// Passes a macro the list of generators: files, and the functions in each.
macro_rules! for_each_kind {
    ($do:ident) => {
        $do! {
            cases: a_filter_over_the_limit a_header_without_its_chunks bits_beyond_the_bytes doubles_out_of_range exabytes
                hashes_without_end no_bits_at_a_rate_near_one numbers_of_layers payloads_that_end_too_early
                sizes_that_overflow;
            found: a_capacity_that_grows_beyond_63_bits a_sum_that_growing_brings_to_its_end bits_that_have_not_come
                items_that_are_our_magic records_beyond_the_last_entry;
            refusals: native_dumps native_snapshots redisbloom_dumps redisbloom_snapshots
                valkey_bloom_snapshots_and_loads;
            words: counting definitions fields_and_records insertions insertions_that_are_refused load_time_words plans policies
                reservations guarding guarding_that_is_refused reservations_of_a_primary reservations_that_are_refused turns
                words_of_new_kinds;
        }
    };
}
pub(crate) use for_each_kind;

macro_rules! make {
    ($($file:ident: $($kind:ident)*;)*) => {{
        let all = Inputs::default();
        $($($file::$kind(&all);)*)*
        all.0.into_inner()
    }};
}

static MADE: LazyLock<BTreeMap<&str, ByName>> = LazyLock::new(|| for_each_kind!(make));

/// Returns the generated inputs of a target.
pub fn made(target: &str) -> ByName {
    MADE.get(target).cloned().unwrap_or_default()
}

/// All inputs of a target, in the order of their names.
pub fn of(target: &str) -> Vec<Input> {
    let found = archive::read(target).unwrap_or_else(|fault| panic!("{target}: {fault}"));
    let mut inputs: Vec<Input> = made(target).into_iter().chain(found).collect();
    inputs.sort();
    assert!(!inputs.is_empty(), "no inputs for {target}");
    inputs
}
