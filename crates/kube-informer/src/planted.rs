//! Deliberate bugs, for tests that must find them.
//!
//! Built with `--cfg planted_bugs`, the library has the one bug that the environment variable `KUBE_INFORMER_PLANTED_BUG`
//! names; `testing/planted-bugs` goes through all of them. In any other build [`planted`] is constantly false, and nothing
//! of this is left.

/// What can be wrong on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    HandlerBeforeStore,
    DroppedEvent,
    VersionPastLostEvent,
    IndexKeptOnDelete,
    HalfRelistVisible,
    DuplicateInitialAdd,
    LostTombstone,
    ResumeFromWrongVersion,
    MergeKeepsWrongOld,
    HandlerSyncedTooEarly,
    InformerSyncedTooEarly,
    LateHandlerGap,
    FilterLeavesNoDelete,
    ResyncToEverybody,
    NoResync,
    StaleListAccepted,
    NoBackoff,
    UnboundedBuffer,
    ExpiryIgnored,
    StaleMarkLost,
    SetAsideKept,
    WatchLeaked,
    ReplaceBeyondItsScope,
    NamespaceByPrefix,
    RecreatedAsUpdated,
    RepetitionTold,
    RelistTellsAll,
    NeverVerified,
    PanicNeverSyncs,
    SilenceTrusted,
    IncompleteListTrusted,
    OddVersionTrusted,
    SnapshotBeforeLock,
    LockReleasedBetween,
    SpanOfOlderIgnored,
    UnverifiedNotReset,
    RetryAfterLostOnEnd,
    PollWithoutRetryAfter,
    AwayWaitsKept,
    StreamsNeverAgain,
    PollFailureForgetsWatch,
    SilentIntervalKept,
    FailingSinceMoves,
    ComparisonsNotSpaced,
    LongGapForgotten,
    UnreadWitnessKept,
    UnknownHistoryTrusted,
    DeadTimeNotCounted,
    CountBehindCompared,
    FailedCheckCounts,
    RepeatedTokenFollowed,
    UnreadDeleteLost,
    DeleteInStreamIgnored,
    OldVerdictAnswers,
    LowerVersionAnswers,
    CountDespiteSelector,
    RetryAfterHeaderIgnored,
    ProtobufOfferedAgain,
    RoomWakeMissing,
    SyncRoundNotJoined,
    SecondDeleteWins,
    StaleAfterSame,
    DeleteOfEarlierObject,
    NamelessUnbounded,
    GenerationNotChecked,
    TouchedNotCaughtUp,
    SecondIndexIgnored,
    QueuedPastMerged,
    WalkOvertakesDeletes,
    KeptStatesNeverFreed,
    CloseOverrulesEnd,
    CalledAfterRemoval,
    StreamHeardTooEarly,
    EarlierRunNotAwaited,
    OverlapListsFirst,
    DetachLetsGo,
    DroppedScopeListed,
    RemovalNeverSyncs,
    OneChunkOnly,
    ResyncStartsOver,
    NewHandlerNotNoticed,
    OverInformerShared,
    UnsharedForgotten,
    DelayKeptWhenDue,
    TimerNotHandedOn,
    ResumeWakesOne,
    GiveBackMissing,
    RaisedKeyLosesAge,
    RetryReasonsLost,
    EarlyFailureMovesRetry,
    BurstByOne,
    HeapOnlySiftsDown,
    MissedKeysDropped,
    RestoredChangeJudged,
    HoldOverruled,
    AbsentTooSoon,
    BusyEndsAbsence,
    HopsNotMapped,
    AnyOwnerCounts,
    OthersFinalizersDropped,
    AnotherUidPatched,
    AlteredIsOrdinary,
    TimeoutNotRetried,
    RetryAfterUnbounded,
}

/// Whether this bug is to be had.
#[cfg(not(planted_bugs))]
#[inline]
pub(crate) const fn planted(_: Bug) -> bool {
    false
}

/// Whether this bug is to be had.
#[cfg(planted_bugs)]
pub(crate) fn planted(bug: Bug) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| std::env::var("KUBE_INFORMER_PLANTED_BUG").ok());
    chosen.as_deref().is_some_and(|chosen| chosen == format!("{bug:?}"))
}
