//! The other end of a dump of ours: a filter whose records come one by one, and what is made of them.

use super::BloomFilter;
use super::dump::{self, GENERATIONS, HEADER, Stream};
use crate::ceiling::Ceiling;
use crate::error;
use crate::format::{Error, Progress};

/// A filter of ours whose chunks have not all arrived.
#[derive(Debug, PartialEq)]
pub struct NativeArrival {
    filter: BloomFilter,
    generation: u16,
    next: u64,
}

impl NativeArrival {
    /// Begins with a header.
    ///
    /// # Errors
    /// [`Error::NotADump`] and the like for a record that is none; [`Error::Filter`] for a filter that cannot be or
    /// does not fit under the ceiling.
    pub fn begin(iterator: u64, header: &[u8], ceiling: &impl Ceiling) -> Result<Self, Error> {
        let (stream, record) = Stream::parse(iterator)?;
        let (spec, layers) = dump::decode_header(header)?;
        if record != HEADER || layers.len() != stream.layers {
            return Err(Error::WrongGeneration);
        }
        let filter = BloomFilter::with_zero_bits(spec, &layers, ceiling)?;
        Ok(Self { filter, generation: stream.generation, next: 0 })
    }

    /// Goes on from what a snapshot holds.
    pub(super) fn resume(filter: BloomFilter, generation: u64, next: u64) -> Result<Self, Error> {
        let generation = u16::try_from(generation).map_err(|_| Error::OutOfRange)?;
        if generation >= GENERATIONS || next >= dump::chunks_in(filter.layers()) {
            return Err(Error::OutOfRange);
        }
        Ok(Self { filter, generation, next })
    }

    /// Takes a record. The header may come again, and every chunk that came already, with the same bytes.
    ///
    /// # Errors
    /// For a record of another dump, out of order, of the wrong length or with a wrong checksum. Nothing has changed
    /// then.
    pub fn accept(&mut self, iterator: u64, data: &[u8]) -> Result<Progress, Error> {
        let (stream, record) = Stream::parse(iterator)?;
        let own = Stream::of(&self.filter, self.generation);
        if stream != own {
            return Err(Error::WrongGeneration);
        }
        if record <= HEADER + self.next {
            came_already(&self.filter, self.generation, iterator, data)?;
            return Ok(Progress::Known);
        }
        let expected = HEADER + 1 + self.next;
        if record != expected {
            return Err(Error::WrongOrder { expected: own.iterator(expected) });
        }
        let range = dump::chunk_range(self.filter.layers(), self.next).ok_or(Error::OutOfRange)?;
        let chunk = dump::decode_chunk(dump::identity(&self.filter, own), iterator, data, range.bytes.len())?;
        if let Some(items) = chunk.items {
            self.filter.count_at_least(range.layer, items)?;
        }
        let target = self.filter.layer_bytes_mut(range.layer).and_then(|bytes| bytes.get_mut(range.bytes));
        if let (Some(bits), Some(target)) = (chunk.bits, target) {
            target.copy_from_slice(bits);
        }
        self.next += 1;
        Ok(if self.next == dump::chunks_in(self.filter.layers()) { Progress::Complete } else { Progress::Stored })
    }

    /// The filter, as far as it has arrived.
    #[must_use]
    pub const fn filter(&self) -> &BloomFilter {
        &self.filter
    }

    /// The filter, when the last chunk has come.
    #[must_use]
    pub fn into_filter(self) -> BloomFilter {
        self.filter
    }

    /// The generation of the filter that is arriving.
    #[must_use]
    pub const fn generation(&self) -> u16 {
        self.generation
    }

    /// The number of chunks that have come: the next one's number, from 0 on.
    #[must_use]
    pub const fn next_chunk(&self) -> u64 {
        self.next
    }

    /// The records that have come, one after another. An error is the last.
    pub fn records(&self) -> impl Iterator<Item = Result<(u64, Vec<u8>), Error>> {
        let came = usize::try_from(self.next).unwrap_or(usize::MAX).saturating_add(1);
        dump::records(&self.filter, self.generation).take(came)
    }

    /// A value with the same fields and bits.
    ///
    /// # Errors
    /// [`error::Error::OutOfMemory`] where the allocator refuses.
    pub fn try_clone(&self) -> Result<Self, error::Error> {
        Ok(Self { filter: self.filter.try_clone()?, generation: self.generation, next: self.next })
    }
}

/// Takes note of a record that a filter has had already: a client that got no answer sends the last one again. What was
/// added since may be in the bits as well.
///
/// # Errors
/// For a record that did not come with this filter.
pub fn came_already(filter: &BloomFilter, generation: u16, iterator: u64, data: &[u8]) -> Result<(), Error> {
    let (stream, record) = Stream::parse(iterator)?;
    let layers = stream.layers_of(filter, generation)?;
    if record == HEADER {
        let (spec, came) = dump::decode_header(data)?;
        let same = came.len() == layers.len()
            && came.iter().zip(layers).all(|(came, layer)| came.geometry == layer.geometry())
            && spec.seed == filter.spec().seed;
        return if same { Ok(()) } else { Err(Error::Different) };
    }
    let range = dump::chunk_range(layers, record - HEADER - 1).ok_or(Error::OutOfRange)?;
    let layer = layers.get(range.layer).ok_or(Error::OutOfRange)?;
    let chunk = dump::decode_chunk(dump::identity(filter, stream), iterator, data, range.bytes.len())?;
    let here = layer.bytes().get(range.bytes).unwrap_or_default();
    let same = chunk.items.is_none_or(|items| items <= layer.items())
        && chunk.bits.unwrap_or_default().iter().zip(here).all(|(came, here)| came & !here == 0);
    if same { Ok(()) } else { Err(Error::Different) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::native::dump::{first_record, is_header, next_record};
    use crate::shape::Layer;
    use crate::{Scaling, Unlimited};

    /// What a grown filter begins with and what it holds: layers of more than one chunk. Under miri, which is slow, three
    /// layers of one.
    const CAPACITY: u64 = if cfg!(miri) { 10 } else { 100 };
    const ITEMS: u32 = if cfg!(miri) { 70 } else { 3_000_000 };
    /// How many members a filter has before, and gets meanwhile with each record.
    const MEMBERS: u32 = if cfg!(miri) { 40 } else { 10_000 };

    fn grown() -> BloomFilter {
        let mut filter = BloomFilter::new(0.01, CAPACITY, Scaling::from_expansion(4), 7, &Unlimited).unwrap();
        for number in 0..ITEMS {
            filter.add(&number.to_le_bytes(), &Unlimited).unwrap();
        }
        filter
    }

    fn records(filter: &BloomFilter, generation: u16) -> Vec<(u64, Vec<u8>)> {
        dump::records(filter, generation).collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn a_filter_arrives_as_it_was() {
        let filter = grown();
        let records = records(&filter, 5);
        assert!(cfg!(miri) || records.len() > 10, "layers of more than one chunk");
        let mut arriving = NativeArrival::begin(records[0].0, &records[0].1, &Unlimited).unwrap();
        let (last, others) = records[1..].split_last().unwrap();
        for (iterator, data) in others {
            assert!(*iterator < 1 << 53 && data.len() <= 16 << 20);
            assert_eq!(arriving.accept(*iterator, data), Ok(Progress::Stored));
            assert_eq!(arriving.accept(*iterator, data), Ok(Progress::Known));
        }
        assert_eq!(arriving.accept(records[0].0, &records[0].1), Ok(Progress::Known));
        assert_eq!(arriving.accept(last.0, &last.1), Ok(Progress::Complete));
        assert_eq!(arriving.into_filter(), filter);
    }

    #[test]
    fn what_does_not_belong_changes_nothing() {
        let filter = grown();
        let records = records(&filter, 5);
        let mut arriving = NativeArrival::begin(records[0].0, &records[0].1, &Unlimited).unwrap();
        arriving.accept(records[1].0, &records[1].1).unwrap();
        let before = arriving.try_clone().unwrap();
        let refused = |arriving: &mut NativeArrival, iterator: u64, data: &[u8], error: Error| {
            assert_eq!(arriving.accept(iterator, data), Err(error));
            assert_eq!(*arriving, before);
        };
        let (iterator, data) = &records[2];
        refused(&mut arriving, records[3].0, &records[3].1, Error::WrongOrder { expected: *iterator });
        refused(&mut arriving, *iterator + (1 << 39), data, Error::WrongGeneration);
        refused(&mut arriving, *iterator + (1 << 27), data, Error::WrongGeneration);
        refused(&mut arriving, u64::MAX, data, Error::OutOfRange);
        refused(&mut arriving, *iterator & !0x7ff_ffff, data, Error::OutOfRange);
        refused(&mut arriving, *iterator, &[], Error::Truncated);
        refused(&mut arriving, *iterator, &data[..4], Error::Truncated);
        refused(&mut arriving, *iterator, &data[..data.len() - 1], Error::WrongChecksum);
        refused(&mut arriving, *iterator, &records[3].1, Error::WrongChecksum);
        for position in 0..data.len() {
            let mut torn = data.clone();
            torn[position] ^= 1;
            assert!(arriving.accept(*iterator, &torn).is_err());
        }
        assert_eq!(arriving, before);
        assert_eq!(arriving.accept(*iterator, data), Ok(Progress::Stored));
    }

    #[test]
    fn a_torn_header_is_refused() {
        let filter = BloomFilter::new(0.01, 100, Scaling::Fixed, 7, &Unlimited).unwrap();
        let (iterator, data) = first_record(&filter, 0).unwrap();
        assert_eq!(iterator, 1);
        assert!(is_header(&data));
        for length in 0..data.len() {
            assert!(NativeArrival::begin(iterator, &data[..length], &Unlimited).is_err());
        }
        for position in 0..data.len() {
            let mut torn = data.clone();
            torn[position] ^= 0x80;
            assert!(NativeArrival::begin(iterator, &torn, &Unlimited).is_err());
        }
        assert!(NativeArrival::begin(2, &data, &Unlimited).is_err());
    }

    #[test]
    fn a_dump_of_a_filter_that_grows_meanwhile_holds_what_was_in_when_it_began() {
        let mut filter =
            BloomFilter::new(0.01, u64::from(MEMBERS / 10), Scaling::from_expansion(2), 7, &Unlimited).unwrap();
        let members: Vec<_> = (0..MEMBERS).map(u32::to_le_bytes).collect();
        for item in &members {
            filter.add(item, &Unlimited).unwrap();
        }
        let layers = filter.layers().len();
        let (mut iterator, header) = first_record(&filter, 9).unwrap();
        let mut arriving = NativeArrival::begin(iterator, &header, &Unlimited).unwrap();
        let mut later = MEMBERS..;
        while let Some((next, data)) = next_record(&filter, 9, iterator).unwrap() {
            for item in later.by_ref().take(MEMBERS as usize / 2) {
                filter.add(&item.to_le_bytes(), &Unlimited).unwrap();
            }
            arriving.accept(next, &data).unwrap();
            iterator = next;
        }
        assert!(filter.layers().len() > layers);
        let copy = arriving.into_filter();
        assert_eq!(copy.layers().len(), layers);
        // Its bits are those of a full layer when the last chunk is made, and so they are counted: the copy takes no more
        // into it.
        assert_eq!(copy.remaining_capacity(), 0);
        assert!(members.iter().all(|item| copy.contains(item)));
        assert_eq!(next_record(&filter, 10, iterator), Err(Error::WrongGeneration), "another filter");
        assert_eq!(next_record(&copy, 9, iterator + (8 << 27)), Err(Error::WrongGeneration), "layers it never had");
        assert_eq!(next_record(&copy, 9, 0), Err(Error::OutOfRange));
    }

    #[test]
    fn a_record_that_comes_again_after_the_last_is_known() {
        let filter = grown();
        let records = records(&filter, 5);
        let mut copy = filter.try_clone().unwrap();
        copy.add(b"added since", &Unlimited).unwrap();
        for (iterator, data) in &records {
            assert_eq!(came_already(&copy, 5, *iterator, data), Ok(()));
            assert_eq!(came_already(&copy, 6, *iterator, data), Err(Error::WrongGeneration));
        }
        let layers: Vec<_> = filter.layers().iter().map(Layer::description).collect();
        let other = BloomFilter::with_zero_bits(filter.spec(), &layers, &Unlimited).unwrap();
        assert_eq!(came_already(&other, 5, records[1].0, &records[1].1), Err(Error::Different));
    }

    #[test]
    fn a_chunk_of_another_filter_is_noticed_though_its_iterator_fits() {
        let filters = [7, 8].map(|seed| {
            let mut filter = BloomFilter::new(0.01, 1000, Scaling::Fixed, seed, &Unlimited).unwrap();
            filter.add(&seed.to_le_bytes(), &Unlimited).unwrap();
            filter
        });
        let [one, other] = filters.each_ref().map(|filter| records(filter, 5));
        assert_eq!(one[1].0, other[1].0);
        let mut arriving = NativeArrival::begin(one[0].0, &one[0].1, &Unlimited).unwrap();
        assert_eq!(arriving.accept(other[1].0, &other[1].1), Err(Error::WrongChecksum));
        assert_eq!(arriving.accept(one[1].0, &one[1].1), Ok(Progress::Complete));
    }
}
