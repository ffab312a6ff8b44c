//! Parses the bodies of records.

use anyhow::{Result, anyhow, bail, ensure};

use super::{BODY_BYTES_MAX, Contents, Head, How, PACKED_NOT, PACKED_ZSTD};

/// The unparsed rest of a body.
pub(super) struct Body<'a>(pub(super) &'a [u8]);

impl<'a> Body<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(|| anyhow!("too short"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8> {
        self.take(1)?.first().copied().ok_or_else(|| anyhow!("too short"))
    }

    fn u32(&mut self) -> Result<usize> {
        let bytes = self.take(4)?.try_into()?;
        Ok(usize::try_from(u32::from_le_bytes(bytes))?)
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into()?))
    }

    fn text(&mut self) -> Result<&'a [u8]> {
        let length = self.u32()?;
        self.take(length)
    }

    pub(super) fn string(&mut self) -> Result<String> {
        Ok(String::from_utf8(self.text()?.to_vec())?)
    }

    pub(super) fn contents(&mut self) -> Result<Contents> {
        Ok(Contents { capacity: self.u64()?, layers: self.u64()?, items: self.u64()?, bytes: self.u64()? })
    }

    pub(super) fn head(&mut self) -> Result<Head> {
        let (key, type_name, kind) = (self.text()?.to_vec(), self.string()?, self.string()?);
        let how = match self.u8()? {
            1 => How::Records,
            2 => How::Dump,
            3 => How::Shards,
            how => bail!("unknown copy method ({how}): use a newer bloomgate"),
        };
        let ttl_ms = Some(self.u64()?).filter(|time| *time != u64::MAX);
        Ok(Head { key, type_name, kind, how, ttl_ms, before: self.contents()? })
    }

    pub(super) fn data(&mut self) -> Result<Vec<u8>> {
        let (packed, length) = (self.u8()?, self.u32()?);
        let data = std::mem::take(&mut self.0);
        ensure!(length <= BODY_BYTES_MAX, "its length is {length} bytes");
        let data = match packed {
            PACKED_NOT => data.to_vec(),
            PACKED_ZSTD => zstd::bulk::decompress(data, length)?,
            packed => bail!("unknown compression ({packed}): use a newer bloomgate"),
        };
        ensure!(data.len() == length, "its data has the wrong length");
        Ok(data)
    }

    pub(super) fn end(&self) -> Result<()> {
        ensure!(self.0.is_empty(), "too long");
        Ok(())
    }
}
