//! `BF.INFO key [CAPACITY | SIZE | FILTERS | ITEMS | EXPANSION]`

use std::ffi::CStr;

use crate::bloom::{BloomFilter, Scaling};
use crate::server::args::{self, Args};
use crate::server::context::Context;
use crate::server::key::Key;
use crate::server::reply::{self, Refusal};

/// A field: the word that asks for it, the name that answers, the value; none where it has none.
struct Field {
    word: &'static str,
    name: &'static CStr,
    value: fn(&BloomFilter) -> Option<u64>,
}

/// In the order of the whole answer. There is no sixth: clients fail on one.
const FIELDS: [Field; 5] = [
    Field { word: "CAPACITY", name: c"Capacity", value: |filter| Some(filter.total_capacity()) },
    Field { word: "SIZE", name: c"Size", value: |filter| Some(filter.allocated_bytes()) },
    Field { word: "FILTERS", name: c"Number of filters", value: |filter| Some(filter.layers().len() as u64) },
    Field { word: "ITEMS", name: c"Number of items inserted", value: |filter| Some(filter.items()) },
    Field { word: "EXPANSION", name: c"Expansion rate", value: expansion },
];

fn expansion(filter: &BloomFilter) -> Option<u64> {
    match filter.scaling() {
        Scaling::Fixed => None,
        Scaling::Growing { expansion } => Some(expansion.get().into()),
    }
}

/// Answers all fields, or one.
pub fn run(context: Context, args: Args<'_>) -> Result<(), Refusal> {
    let field = match args.len() {
        2 => None,
        3 => {
            let word = args.word(2)?.bytes();
            let field = FIELDS.iter().find(|field| args::is(word, field.word));
            Some(field.ok_or(Refusal::InfoField)?)
        }
        _ => return Err(Refusal::Arity),
    };
    let mut key = Key::read(context, args.word(1)?);
    let filter = key.filter()?.ok_or(Refusal::NotFound)?;
    match field {
        None => {
            reply::map(context, FIELDS.len());
            for field in &FIELDS {
                reply::simple_string(context, field.name);
                value(context, (field.value)(filter));
            }
        }
        // An array of one in RESP2, a map of one in RESP3.
        Some(field) => {
            if context.speaks_resp3() {
                reply::map(context, 1);
                reply::simple_string(context, field.name);
            } else {
                reply::array(context, 1);
            }
            value(context, (field.value)(filter));
        }
    }
    Ok(())
}

fn value(context: Context, value: Option<u64>) {
    match value {
        Some(number) => reply::integer(context, number),
        None => reply::null(context),
    }
}
