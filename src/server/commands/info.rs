//! `BF.INFO key [CAPACITY | SIZE | FILTERS | ITEMS | EXPANSION | ERROR | MAXSCALEDCAPACITY]`
//!
//! The last two are words of valkey-bloom's: they answer a single value, as they do there, and are not among all fields.

use std::ffi::CStr;

use crate::bloom::{BloomFilter, Ceiling, Scaling};
use crate::server::args::{self, Args};
use crate::server::ceiling::ServerCeiling;
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
    if let Some(field) = ValkeyField::asked_for(args) {
        return field.answer(context, args);
    }
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

/// What valkey-bloom's BF.INFO knows besides.
#[derive(Clone, Copy)]
enum ValkeyField {
    /// The rate that was asked for.
    Error,
    /// Its filters have one ratio from layer to layer; those of our layout have not.
    Tightening,
    /// The capacity that the filter can grow to.
    MaxScaledCapacity,
}

impl ValkeyField {
    fn asked_for(args: Args<'_>) -> Option<Self> {
        let word = args.word(2).ok().filter(|_| args.len() == 3)?.bytes();
        let fields = [Self::Error, Self::Tightening, Self::MaxScaledCapacity];
        let words = ["ERROR", "TIGHTENING", "MAXSCALEDCAPACITY"];
        fields.into_iter().zip(words).find(|(_, name)| args::is(word, name)).map(|(field, _)| field)
    }

    fn answer(self, context: Context, args: Args<'_>) -> Result<(), Refusal> {
        let mut key = Key::read(context, args.word(1)?);
        let filter = key.filter()?.ok_or(Refusal::NotFound)?;
        match self {
            Self::Error => reply::fraction(context, filter.rate()),
            Self::MaxScaledCapacity if filter.scaling() != Scaling::Fixed => {
                let size_bytes = filter.allocated_bytes();
                let limit = ServerCeiling(context).available_bytes(size_bytes, u64::MAX).saturating_add(size_bytes);
                let (rate, capacity, scaling) = (filter.rate(), filter.capacity(), filter.scaling());
                reply::integer(context, BloomFilter::reachable_capacity(rate, capacity, scaling, limit));
            }
            Self::MaxScaledCapacity | Self::Tightening => return Err(Refusal::InfoFieldMissing),
        }
        Ok(())
    }
}

fn value(context: Context, value: Option<u64>) {
    match value {
        Some(number) => reply::integer(context, number),
        None => reply::null(context),
    }
}
