package io.bloomgate.spring;

import java.util.HashSet;
import java.util.Set;
import org.springframework.transaction.support.TransactionSynchronization;
import org.springframework.transaction.support.TransactionSynchronizationManager;

/** The changes of a thread's transaction. They are suspended with the transaction, like all its synchronizations. */
final class TransactionChanges implements TransactionSynchronization {
    private final ChangedKeys keys = new ChangedKeys();
    private final Set<GuardCache> cleared = new HashSet<>();

    /** Returns the changes of this thread's transaction, or null without changes. */
    private static TransactionChanges found() {
        if (TransactionSynchronizationManager.isSynchronizationActive()) {
            for (TransactionSynchronization one : TransactionSynchronizationManager.getSynchronizations()) {
                if (one instanceof TransactionChanges changes) {
                    return changes;
                }
            }
        }
        return null;
    }

    /** Returns the changes of this thread's transaction, which must be active. */
    private static TransactionChanges current() {
        TransactionChanges changes = found();
        if (changes == null) {
            changes = new TransactionChanges();
            TransactionSynchronizationManager.registerSynchronization(changes);
        }
        return changes;
    }

    /** Returns whether this thread's transaction has changed a key. */
    static boolean contain(GuardCache cache, Object id) {
        TransactionChanges changes = found();
        return changes != null && (changes.cleared.contains(cache) || changes.keys.contains(cache, id));
    }

    static void announce(GuardCache cache, Object id) {
        current().keys.announce(cache, id);
    }

    static void clear(GuardCache cache) {
        current().cleared.add(cache);
    }

    /** Rolls the transaction back if an announcement failed. */
    @Override
    public void beforeCommit(boolean isReadOnly) {
        keys.check();
    }

    @Override
    public void afterCompletion(int status) {
        keys.confirm(status != STATUS_UNKNOWN);
        cleared.forEach(cache -> cache.getNativeCache().clear());
    }
}
