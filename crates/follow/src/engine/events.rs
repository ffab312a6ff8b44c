//! Events of a source that are not applied yet.

use std::collections::VecDeque;

use anyhow::{Context, Result};

use super::Followed;
use super::position::{Mark, Place};
use crate::table::{Change, Table};
use crate::template::{Column, Field};

/// The changes of a transaction to one table.
#[derive(Debug)]
pub enum Step {
    Change(Change),
    Truncate,
    /// Any row may have changed, so the filter is invalid.
    Altered,
}

/// A committed transaction.
#[derive(Debug)]
pub struct Transaction {
    /// Its id for [`Source::count_visible`](super::Source::count_visible).
    pub id: u64,
    /// The time of its commit, in the source's form.
    pub time: u64,
    /// The place after its commit record.
    pub end: Place,
    /// The steps in order, each with the index of its table.
    pub steps: Vec<(usize, Step)>,
}

impl Transaction {
    /// Returns its mark, which distinguishes it from the transactions of other logs.
    pub const fn mark(&self) -> Mark {
        Mark { end: self.end, xid: self.id & 0xffff_ffff, time: self.time }
    }
}

/// Transactions that have arrived but are not applied yet.
#[derive(Default)]
pub struct Arrived {
    /// Complete transactions in the order of their commits.
    pub waiting: VecDeque<Transaction>,
    pub steps: usize,
    current: Option<Transaction>,
    /// The end of the log, as last reported by the source after everything before it had arrived.
    told: Place,
}

impl Arrived {
    /// Returns the end of the log, as last reported by the source.
    pub fn end(&self) -> Place {
        self.waiting.back().map_or(self.told, |last| last.end.max(self.told))
    }

    /// Begins a transaction.
    pub fn begin(&mut self, id: u64, time: u64) {
        self.current = Some(Transaction { id, time, end: Place(0), steps: Vec::new() });
    }

    /// Adds a step to the transaction that has begun.
    pub fn push(&mut self, table: usize, step: Step) {
        if let Some(current) = &mut self.current {
            current.steps.push((table, step));
        }
    }

    /// Ends the transaction that has begun.
    pub fn commit(&mut self, end: Place) -> Result<()> {
        let transaction = self.current.take().context("the stream has a commit without a beginning")?;
        self.add(Transaction { end, ..transaction });
        Ok(())
    }

    /// Adds a complete transaction.
    pub fn add(&mut self, transaction: Transaction) {
        self.steps += transaction.steps.len();
        self.waiting.push_back(transaction);
    }

    /// Records that everything before `end` has arrived. Ignored in the middle of a transaction.
    pub fn reach(&mut self, end: Place) {
        if self.current.is_none() {
            self.told = self.told.max(end);
        }
    }

    /// Removes the first transaction.
    pub fn pop(&mut self) -> Option<Transaction> {
        let transaction = self.waiting.pop_front()?;
        self.steps -= transaction.steps.len();
        Some(transaction)
    }

    /// Returns the position up to which all changes are applied, if known: `applied`, or the position of a later keepalive.
    pub fn idle_position(&self, applied: Place) -> Place {
        if self.waiting.is_empty() { applied.max(self.told) } else { applied }
    }
}

/// The receiver of a source's events.
pub struct Sink<'a> {
    pub arrived: &'a mut Arrived,
    pub(super) tables: &'a mut [Followed],
}

impl Sink<'_> {
    /// Returns the description of a table.
    pub fn table(&self, index: usize) -> Result<&Table> {
        self.tables.get(index).map(|followed| &followed.table).context("a table")
    }

    /// Returns the first table that meets a condition.
    pub fn find(&self, condition: impl Fn(&Table) -> bool) -> Option<&Table> {
        self.tables.iter().map(|followed| &followed.table).find(|table| condition(table))
    }

    /// Converts a change of a row: see [`Table::change`].
    pub fn step(&self, index: usize, old: Option<&[Field]>, new: Option<&[Field]>) -> Result<Step> {
        let table = self.table(index)?;
        Ok(if table.is_weak { Step::Altered } else { Step::Change(table.change(old, new)?) })
    }

    /// Records that the rows of a table have other columns from now on.
    pub fn redefine(&mut self, index: usize, columns: Vec<Column>) -> Result<()> {
        self.tables.get_mut(index).context("a table")?.table.redefine(columns);
        Ok(())
    }
}
