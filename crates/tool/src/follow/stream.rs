//! Collects the stream's messages into transactions of followed tables.

use std::collections::{HashMap, VecDeque};

use anyhow::{Context, Result, bail};

use super::lsn::{Lsn, Mark};
use super::pgoutput::{Message, Relation};
use super::table::{Change, Table};

/// What a transaction did to one table.
#[derive(Debug)]
pub enum Step {
    Change(Change),
    Truncate,
    /// Any row may have changed: the filter is lost.
    Altered,
}

/// A committed transaction.
#[derive(Debug)]
pub struct Transaction {
    pub xid: u32,
    /// The time of its commit.
    pub time: u64,
    /// The position after its commit record.
    pub end: Lsn,
    /// Indexes of tables, with what happened to them, in order.
    pub steps: Vec<(usize, Step)>,
}

impl Transaction {
    /// Returns what tells it from the transactions of other logs.
    pub const fn mark(&self) -> Mark {
        Mark { end: self.end, xid: self.xid, time: self.time }
    }
}

/// The transactions that have arrived and are not applied yet.
#[derive(Default)]
pub struct Arrived {
    /// Complete transactions in the order of their commits.
    pub waiting: VecDeque<Transaction>,
    /// The number of their steps.
    pub steps: usize,
    current: Option<Transaction>,
    /// The followed tables by their object ids.
    tables: HashMap<u32, usize>,
    /// The end of the log that the last keepalive told, once everything before it had arrived.
    told: Lsn,
}

impl Arrived {
    /// Creates an empty collection for a new stream.
    pub fn of_tables(tables: &[Table]) -> Self {
        let tables = tables.iter().enumerate().map(|(index, table)| (table.oid, index)).collect();
        Self { tables, ..Self::default() }
    }

    /// Returns the end of the log, as far as PostgreSQL has told it.
    pub fn end(&self) -> Lsn {
        self.waiting.back().map_or(self.told, |last| last.end.max(self.told))
    }

    /// Takes a message.
    ///
    /// # Errors
    /// A followed table was dropped and created again; the stream is malformed.
    pub fn take(&mut self, message: Message, tables: &mut [Table]) -> Result<()> {
        match message {
            Message::Begin { xid, time } => {
                self.current = Some(Transaction { xid, time, end: Lsn(0), steps: Vec::new() });
            }
            Message::Commit { end } => {
                let mut transaction =
                    self.current.take().context("PostgreSQL's stream has a commit without a beginning")?;
                transaction.end = end;
                self.steps += transaction.steps.len();
                self.waiting.push_back(transaction);
            }
            Message::Relation(relation) => self.define(relation, tables)?,
            Message::Insert { relation, new } => {
                self.step(relation, tables, |table| table.change(None, Some(&new)))?;
            }
            Message::Update { relation, old, new } => {
                self.step(relation, tables, |table| table.change(old.as_deref(), Some(&new)))?;
            }
            Message::Delete { relation, old } => self.step(relation, tables, |table| table.change(Some(&old), None))?,
            Message::Truncate { relations } => {
                relations.into_iter().for_each(|relation| self.push(relation, Step::Truncate));
            }
            Message::Other => {}
        }
        Ok(())
    }

    /// Takes a keepalive: everything before `end` has arrived. One in the middle of a transaction tells nothing.
    pub fn keepalive(&mut self, end: Lsn) {
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

    /// Returns the position before which everything is applied, if that is known: `applied` or what a keepalive told since.
    pub fn idle_position(&self, applied: Lsn) -> Lsn {
        if self.waiting.is_empty() { applied.max(self.told) } else { applied }
    }

    /// Takes over the description of a table.
    fn define(&mut self, relation: Relation, tables: &mut [Table]) -> Result<()> {
        if let Some(table) = tables.iter_mut().find(|table| table.oid == relation.oid) {
            table.redefine(relation);
            return Ok(());
        }
        let again = tables.iter().find(|table| table.name.0 == relation.schema && table.name.1 == relation.name);
        again.map_or(Ok(()), |table| bail!("the table {} was dropped and created again", table.config.name))
    }

    fn step(&mut self, relation: u32, tables: &[Table], change: impl FnOnce(&Table) -> Result<Change>) -> Result<()> {
        let Some(table) = self.tables.get(&relation).and_then(|index| tables.get(*index)) else { return Ok(()) };
        let step = if table.is_weak { Step::Altered } else { Step::Change(change(table)?) };
        self.push(relation, step);
        Ok(())
    }

    /// Adds a step of a followed table to the current transaction.
    fn push(&mut self, relation: u32, step: Step) {
        if let (Some(&index), Some(current)) = (self.tables.get(&relation), &mut self.current) {
            current.steps.push((index, step));
        }
    }
}
