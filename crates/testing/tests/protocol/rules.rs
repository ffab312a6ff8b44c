//! The rules of the protocol. A model can leave out any one of them.

/// A rule of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    // Writers.
    /// BF.CHANGED before the commit.
    AnnounceFirst,
    /// BF.CHANGED before the commit of an update.
    AnnounceUpdate,
    /// BF.CHANGED after the commit.
    AnnounceAgain,
    /// The second BF.CHANGED waits until the outcome of the commit is known.
    KnowTheOutcome,
    /// Both calls for each cache key of the row.
    AnnounceEachKey,

    // Deletes.
    /// BF.DEL comes after the commit.
    CommitBeforeDel,
    /// BF.CHANGED comes between the commit and BF.DEL.
    AnnounceBeforeDel,
    /// Deletes and inserts of an id that may return take a lock.
    Lock,
    /// BF.CHANGED before the commit of a delete under the lock.
    AnnounceLockedDelete,
    /// The lock is kept until BF.DEL is answered.
    AwaitDel,
    /// The lock of a client that dies is kept until its BF.DEL can no longer arrive.
    OutliveHolder,

    // Readers.
    /// The transaction of a load begins after the reply.
    ReadAfterReply,
    /// Cached values have a time to live.
    GiveTimeToLive,
    /// A load that finds no row fills NONE, and never calls BF.DEL.
    NeverDelOnMiss,
    /// Readers give UNLESS.
    GiveUnless,
    /// Readers give WHILE.
    GiveWhile,

    // Writes in flight: the hash for UNLESS.
    /// The cache key is in the hash before the commit.
    OpenBeforeCommit,
    /// BF.CHANGED when the cache key enters the hash.
    AnnounceOpening,
    /// The cache key leaves the hash after the commit is visible.
    ReleaseAfterCommit,
    /// BF.CHANGED when the cache key leaves the hash.
    AnnounceRelease,

    // The heartbeat: the key for WHILE.
    /// The heartbeat is set only once every commit up to a moment is announced.
    CatchUpFirst,
    /// The heartbeat expires.
    HeartbeatExpires,
    /// The heartbeat's life is counted from a moment before the last commit was determined.
    TakeTimeFirst,

    // A refill.
    /// The new filter is filled under a name of its own.
    FillApart,
    /// Writers announce to both names.
    AnnounceToBoth,
    /// Writers announce to the new name first.
    NewNameFirst,
    /// Writers check inside their transaction whether a filter is being filled.
    LookInside,
    /// The scan waits for every transaction that was open when writers were told.
    AwaitOthers,
    /// A refill that begins again waits again, even for writers that announce to both names already.
    AwaitAllAgain,
    /// The refill adds ids by BF.INSERT with NOCREATE.
    NoCreate,
    /// `bf.auto-create no`.
    NoAutoCreate,

    // The module.
    /// BF.FILL checks the token.
    CheckToken,
    /// A token outlives its lease.
    OutliveLease,
    /// A token names the instance of the filter.
    NameInstance,
    /// A token names the life of the server.
    NewLife,
    /// BF.CHANGED deletes the cached value.
    DeleteValue,
    /// BF.CHANGED voids tokens.
    VoidTokens,
    /// BF.CHANGED ends NONEs.
    EndNones,
    /// BF.CHANGED counts as a change of the cache key.
    ChangeKey,
    /// BF.CHANGED and BF.ADD count as a change of the item, under all cache keys.
    ChangeItem,
    /// SET by a client counts as a change of the cache key.
    ChangeOnSet,
    /// A filter that is created, deleted, emptied or renamed counts as a change of all its rows.
    ChangeFilter,
    /// Changed epochs of the cluster count as a change of everything.
    LookAtEpochs,
    /// A cache key with a live lease gets no other one.
    OneLoader,
    /// The end of a lease wakes the waiters.
    Wake,
    /// No token is granted during a back-off.
    KeepBackOff,
    /// WHILE applies to NONEs, too.
    WhileCoversNones,
}
