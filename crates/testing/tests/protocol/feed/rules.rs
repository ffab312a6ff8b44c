//! The rules of `bloomgate follow`. The model can leave out any one of them.

/// Declares the rules, and a list of all of them.
macro_rules! rules {
    ($($(#[$about:meta])* $rule:ident,)*) => {
        /// A rule of the follower or of its readers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Rule {
            $($(#[$about])* $rule,)*
        }

        pub const ALL: &[Rule] = &[$(Rule::$rule,)*];
    };
}

rules! {
    // Readers.
    /// Readers give UNLESS.
    GiveUnless,
    /// Readers give WHILE.
    GiveWhile,

    // Eventual mode.
    /// A transaction is applied once it is visible.
    ApplyWhenVisible,
    /// The position is stored in the transaction that applies the changes.
    StoreWithChanges,
    /// The last operation on an item within a group decides whether the item is deleted from the filter.
    LastDecides,

    // Synchronous mode.
    /// A position is confirmed after (a) has stored it.
    StoreBeforeConfirm,
    /// (c) waits until the transaction is visible.
    ReleaseWhenVisible,
    /// (c) leaves a cache key open that a later group holds.
    KeepLater,
    /// (a) or (c) calls BF.MCHANGED.
    Announce,
    /// A follower that starts releases what the journal holds.
    ReadJournal,

    // Both modes: restarts.
    /// Transactions at or below the stored position are skipped.
    SkipStored,
    /// Each write checks the epoch.
    CheckEpoch,
    /// A follower begins its epoch before it reads the position.
    EpochFirst,
    /// A follower whose connection to the server has ended starts again before it writes.
    NoticeLoss,
    /// A stored position below the slot's means that the server has lost data.
    CompareWithSlot,

    // Fills.
    /// A fill deletes the heartbeat first.
    DeleteBeat,
    /// The snapshot waits for the transactions that run when the fill begins.
    AwaitRunning,
    /// In synchronous mode, the snapshot waits until (c) has passed the groups that were open when the fill began.
    PassFirst,
    /// A fill ends when the keys are on another server, and does not follow them there.
    NoRedirect,
    /// A fill deletes the cached values.
    ScanOnFill,
    /// The new filter gets its name, which ends all leases, before the cached values are deleted.
    RenameFirst,
    /// A fill that did not end begins again: in eventual mode there is no position meanwhile, in synchronous mode a mark.
    MarkFill,
    /// In synchronous mode, (a) stores no position between the discovery that a fill is needed and the mark.
    MarkFirst,
    /// In synchronous mode, items are announced to the filter that is being filled, too.
    AnnounceToBoth,

    // TRUNCATE.
    /// TRUNCATE ends all leases by BF.CLEAR, before the cached values are deleted.
    ClearFirst,
    /// In synchronous mode, TRUNCATE creates the filter if it is missing, and deletes it again.
    CreateMissing,
    /// TRUNCATE deletes the cached values.
    ScanOnTruncate,
    /// In synchronous mode, TRUNCATE holds all cache keys.
    HoldAll,
    /// All cache keys are held until the cached values are deleted.
    HoldUntilScanned,

    // The module.
    /// A filter that is created, deleted, emptied or renamed voids the tokens of all its rows.
    ChangeFilter,
    /// A server that has lost data refuses the tokens from before.
    NewLife,

    // The heartbeat.
    /// The heartbeat is set only once the log is applied up to a position.
    CatchUpFirst,
    /// The server's time is taken before that position is read.
    TimeFirst,
}
